"""Where the server listens: one port on loopback (IPv4 and IPv6) or on an address, owned by us alone.

Sockets are bound here and handed to the server, so that port 0 is known before anything starts and a taken
port is an error. A lock file besides guards against a server that shares its port (SO_REUSEPORT).
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from turbospark_cli.errors import PortTaken, UsageError

LOOPBACK: Final = "loopback"
MIN_KEY_BYTES: Final = 16  # 128 bits, were they random
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (and how to reach oneself there)
_BACKLOG: Final = 1024
_TRIES: Final = 20  # to find a port that is free on both loopback addresses


@dataclass(frozen=True, slots=True)
class Binding:
    """Listening sockets on one port. `close()` gives all of it back."""

    sockets: tuple[socket.socket, ...]
    addresses: tuple[str, ...]
    port: int
    lock: IO[str]

    @property
    def is_everywhere(self) -> bool:
        """Whether it is every address of this machine."""
        return self.addresses[0] in _EVERYWHERE

    @property
    def url(self) -> str:
        """The first base URL, without a path, as a program on this machine would use it."""
        address = _EVERYWHERE.get(self.addresses[0], self.addresses[0])
        host = f"[{address}]" if ":" in address else address
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.lock.close()


def check_key(bind: str, key: bytes | None) -> None:
    """Raises UsageError when other machines could reach the server without a strong key."""
    if _is_loopback(bind):
        return
    if key is None:
        raise UsageError(
            f"--bind {bind} lets other machines in, which needs an API key.",
            hint="Give one with --api-key-file or TURBOSPARK_API_KEY.",
        )
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(
            f"The API key is too short for --bind {bind}: {MIN_KEY_BYTES} characters at least.",
            hint='Make one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
        )


def bind(where: str, port: int) -> Binding:
    """Listen on `where` ("loopback" or an address) and `port`, 0 for any free one.

    Raises PortTaken, or UsageError for an address that this machine does not have.
    """
    if where == LOOPBACK:
        return _bind_loopback(port)
    address = _parse(where)
    sock = _listen(str(address), port)
    return _own((sock,), (str(address),))


def _is_loopback(where: str) -> bool:
    return where == LOOPBACK or _parse(where).is_loopback


def _parse(where: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(where.strip("[]"))
    except ValueError:
        raise UsageError(
            f"--bind takes loopback or an IP address, not {where!r}.",
            hint="0.0.0.0 listens on every address of this machine.",
        ) from None


def _bind_loopback(port: int) -> Binding:
    for _ in range(_TRIES):
        first = _listen("127.0.0.1", port)
        chosen = first.getsockname()[1]
        try:
            second = _listen("::1", chosen)
        except PortTaken:
            first.close()
            if port:
                raise
        except UsageError:  # no IPv6 on this machine
            return _own((first,), ("127.0.0.1",))
        else:
            return _own((first, second), ("127.0.0.1", "::1"))
    raise PortTaken("No port is free on both 127.0.0.1 and ::1.")


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"This machine has no {family.name}: {error.strerror}.") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _bind_error(error, address, port) from None
    return sock


def _bind_error(error: OSError, address: str, port: int) -> PortTaken | UsageError:
    if error.errno == errno.EADDRINUSE:
        return _port_taken(port)
    if error.errno == errno.EACCES:
        return UsageError(f"Port {port} needs more rights than this user has; pick one above 1023.")
    return UsageError(f"This machine cannot listen on {address}: {error.strerror}.")


def _port_taken(port: int) -> PortTaken:
    return PortTaken(
        f"Port {port} is taken by another program.", hint="Pick another one with --port, or --port 0."
    )


def _own(sockets: tuple[socket.socket, ...], addresses: tuple[str, ...]) -> Binding:
    port = sockets[0].getsockname()[1]
    lock = _lock_file(port).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        for sock in sockets:
            sock.close()
        raise _port_taken(port) from None
    return Binding(sockets, addresses, port, lock)


def _lock_file(port: int) -> Path:
    """One per user and port; the lock is released by the kernel when its process ends."""
    folder = Path(tempfile.gettempdir()) / f"turbospark-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"port-{port}.lock"
