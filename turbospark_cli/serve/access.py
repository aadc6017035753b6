"""Who may call: paths in canonical form, Host, Origin and key. Pure checks, no I/O.

Every check raises an error of the tree; what passes all of them may be routed. Decisions are taken from
the raw headers only, never from a URL that somebody put together from them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turbospark_cli.errors import AuthenticationFailed, Forbidden, InvalidRequest, TurbosparkError

MAX_FAILURES: Final = 20  # wrong keys of one address within a minute
_WINDOW_S: Final = 60.0
_MAX_ADDRESSES: Final = 4096  # remembered at a time

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_LOOPBACK_ORIGIN: Final = re.compile(rb"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
_KEY_HEADERS: Final = (b"authorization", b"x-api-key", b"api-key")
# Control characters, backslashes, empty and dot segments: forms that two programs may read differently.
_UNCLEAN: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\ufffd]|//|/\.{1,2}(/|$)")


class TooManyFailures(TurbosparkError):
    """Too many wrong keys from one address."""

    code = "too_many_failed_attempts"
    exit_code = 4
    status = 429


def canonical_path(path: str) -> str:
    """The one spelling of a decoded path that routes are compared with: no trailing slash, one /v1.

    Raises InvalidRequest for a path that no honest client sends.
    """
    if not path.startswith("/") or _UNCLEAN.search(path):
        raise InvalidRequest("The path of the request is not in canonical form.")
    while path.startswith("/v1/v1/"):
        path = path[3:]
    return path.rstrip("/") or "/"


def host_names(bound: Iterable[str], extra: Iterable[str], port: int) -> frozenset[bytes]:
    """All values of the Host header that are allowed: loopback and bound addresses, and further names.

    A further name may stand with the bound port, with the port it was given with, or with none, as a
    proxy in front of the server sends it.
    """
    names = [*_LOOPBACK_NAMES, *(f"[{name}]" if ":" in name else name for name in bound)]
    hosts = {f"{name}:{port}" for name in names}
    if port == 80:
        hosts.update(names)
    for name in extra:
        hosts.update((name, f"{name}:{port}"))
    return frozenset(host.lower().encode() for host in hosts)


@dataclass(slots=True)
class FailedAttempts:
    """Wrong keys of each address within a minute.

    Loopback is not counted: one address stands for every program of this machine there, and a single
    misconfigured one would lock out the others.
    """

    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def check(self, address: str) -> None:
        """Raises TooManyFailures while `address` has to wait."""
        since, count = self._seen.get(address, (0.0, 0))
        left = since + _WINDOW_S - time.monotonic()
        if count >= MAX_FAILURES and left > 0:
            raise TooManyFailures("Too many wrong API keys; wait a minute.", retry_after=int(left) + 1)

    def count(self, address: str) -> None:
        if address.startswith("127.") or address in ("::1", "::ffff:127.0.0.1"):
            return
        now = time.monotonic()
        since, count = self._seen.pop(address, (now, 0))
        if now - since > _WINDOW_S:
            since, count = now, 0
        self._seen[address] = (since, count + 1)
        if len(self._seen) > _MAX_ADDRESSES:
            del self._seen[next(iter(self._seen))]


class Access:
    """The rules of one server. With `any_address` a Host may be any IP address with that port.

    A server that listens on all addresses does not know them; a page that rebinds a name to one of them
    sends the name, never the address.
    """

    def __init__(
        self,
        hosts: frozenset[bytes],
        origins: Iterable[str] = (),
        key: bytes | None = None,
        *,
        any_address: int | None = None,
    ) -> None:
        self.hosts = hosts
        self._any_address = any_address
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in origins)
        self._digest = None if key is None else hashlib.sha256(key).digest()
        self._failures = FailedAttempts()

    @property
    def needs_key(self) -> bool:
        return self._digest is not None

    def check_host(self, hosts: list[bytes]) -> None:
        """Raises Forbidden unless exactly one allowed Host header was sent."""
        if len(hosts) == 1 and (hosts[0].lower() in self.hosts or self._is_address(hosts[0])):
            return
        raise Forbidden("The Host header is not one of this server's names; see --allowed-host.")

    def _is_address(self, host: bytes) -> bool:
        if self._any_address is None:
            return False
        name, _, port = host.decode("latin-1").rpartition(":")
        bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
        if port != str(self._any_address) or (":" in bare) == (bare == name):
            return False
        try:
            ipaddress.ip_address(bare)
        except ValueError:
            return False
        return True

    def check_origin(self, origin: bytes, host: bytes) -> None:
        """Raises Forbidden for a web page that may not call this server."""
        lower = origin.lower()
        allowed = (
            lower in self._origins
            or b"*" in self._origins
            or _LOOPBACK_ORIGIN.fullmatch(lower) is not None
            or lower in (b"http://" + host.lower(), b"https://" + host.lower())
        )
        if not allowed:
            raise Forbidden("The Origin of the request is not allowed; see --allowed-origin.")

    def check_key(self, headers: Mapping[bytes, bytes], address: str) -> None:
        """Raises AuthenticationFailed unless one of the headers holds the key."""
        if self._digest is None:
            return
        self._failures.check(address)
        for name in _KEY_HEADERS:
            value = headers.get(name)
            if value is None:
                continue
            if name == b"authorization":
                scheme, _, value = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    continue
            if hmac.compare_digest(hashlib.sha256(value.strip()).digest(), self._digest):
                return
        self._failures.count(address)
        raise AuthenticationFailed("The API key is missing or wrong.")
