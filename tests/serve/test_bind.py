from __future__ import annotations

import socket

import pytest

from turbospark_cli.errors import PortTaken, UsageError
from turbospark_cli.serve import bind as binding
from turbospark_cli.serve.bind import bind, check_key


def test_loopback_is_both_families_on_one_port() -> None:
    bound = bind("loopback", 0)
    try:
        assert bound.addresses == ("127.0.0.1", "::1")
        assert {sock.getsockname()[1] for sock in bound.sockets} == {bound.port}
        assert bound.url == f"http://127.0.0.1:{bound.port}"
        for address in bound.addresses:
            socket.create_connection((address, bound.port), timeout=30).close()
    finally:
        bound.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_taken_on_either_address_is_an_error(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as other:
        other.bind((address, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            bind("loopback", port)
    assert str(port) in caught.value.message
    assert caught.value.exit_code == 1


def test_a_port_shared_behind_our_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(address: str, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((address, port))
        sock.listen()
        return sock

    monkeypatch.setattr(binding, "_listen", shared)
    first = bind("127.0.0.1", 0)
    try:
        with pytest.raises(PortTaken):
            bind("127.0.0.1", first.port)
    finally:
        first.close()
    bind("127.0.0.1", first.port).close()


def test_an_address_in_brackets_is_an_address() -> None:
    bound = bind("[::1]", 0)
    assert bound.url == f"http://[::1]:{bound.port}"
    bound.close()


@pytest.mark.parametrize("where", ["everywhere", "127.1", "0x7f000001", "192.0.2.1"])
def test_what_is_no_address_of_ours_is_an_error(where: str) -> None:
    with pytest.raises(UsageError):
        bind(where, 0)


@pytest.mark.parametrize("where", ["0.0.0.0", "::", "100.64.0.1", "192.168.1.5", "::ffff:192.168.1.5"])
def test_other_machines_need_a_long_key(where: str) -> None:
    for key in (None, b"", b"x" * (binding.MIN_KEY_BYTES - 1)):
        with pytest.raises(UsageError):
            check_key(where, key)
    check_key(where, b"x" * binding.MIN_KEY_BYTES)


@pytest.mark.parametrize("where", ["loopback", "127.0.0.1", "127.0.0.9", "::1", "[::1]"])
def test_this_machine_needs_none(where: str) -> None:
    check_key(where, None)
    check_key(where, b"short")
