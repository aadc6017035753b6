from __future__ import annotations

import pytest

from turbospark_cli.errors import AuthenticationFailed, Forbidden, InvalidRequest
from turbospark_cli.serve.access import MAX_FAILURES, Access, TooManyFailures, canonical_path, host_names

HOSTS = host_names(["127.0.0.1", "::1"], ["box.example"], 8080)
KEY = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("/", "/"),
        ("/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/v1/models", "/v1/models"),
        ("/v1/models/org/repo:latest", "/v1/models/org/repo:latest"),
        ("/v1/models/.hidden", "/v1/models/.hidden"),
    ],
)
def test_paths_have_one_spelling(path: str, canonical: str) -> None:
    assert canonical_path(path) == canonical


@pytest.mark.parametrize(
    "path",
    [
        "",
        "health",
        "//health",
        "/health//",
        "/v1//models",
        "/v1/../health",
        "/./health",
        "/health/..",
        "/v1/models/a b",
        "/health\x00",
        "/health\n",
        "/v1\\models",
        "/v1/\x85",
        "http://127.0.0.1:8080/health",
    ],
)
def test_paths_that_programs_read_differently_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        canonical_path(path)


@pytest.mark.parametrize(
    "host", [b"127.0.0.1:8080", b"localhost:8080", b"LocalHost:8080", b"[::1]:8080", b"box.example"]
)
def test_own_names_are_allowed(host: bytes) -> None:
    Access(HOSTS).check_host([host])


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [b""],
        [b"127.0.0.1:8080", b"127.0.0.1:8080"],
        [b"127.0.0.1"],
        [b"127.0.0.1:8081"],
        [b":8080"],
        [b"localhost.:8080"],
        [b"evil.example:8080"],
        [b"127.0.0.1:8080/?x="],
        [b"127.0.0.1:8080#"],
        [b"user@127.0.0.1:8080"],
        [b"0x7f000001:8080"],
        [b"127.1:8080"],
        [b"::1:8080"],
        [b"box.example:9"],
    ],
)
def test_other_hosts_are_refused(hosts: list[bytes]) -> None:
    with pytest.raises(Forbidden):
        Access(HOSTS).check_host(hosts)


def test_port_80_goes_without_saying() -> None:
    Access(host_names([], [], 80)).check_host([b"localhost"])


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (b"192.168.1.5:8080", True),
        (b"[fd7a::1]:8080", True),
        (b"192.168.1.5:81", False),
        (b"192.168.1.5", False),
        (b"fd7a::1:8080", False),
        (b"[192.168.1.5]:8080", False),
        (b"[]:8080", False),
        (b"rebound.example:8080", False),
        (b"0xc0a80105:8080", False),
        (b"192.168.1.5:8080:8080", False),
    ],
)
def test_a_server_on_every_address_knows_addresses_from_names(host: bytes, allowed: bool) -> None:
    access = Access(HOSTS, any_address=8080)
    if allowed:
        access.check_host([host])
    else:
        with pytest.raises(Forbidden):
            access.check_host([host])
    with pytest.raises(Forbidden):
        Access(HOSTS).check_host([host])


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost:3000",
        b"https://127.0.0.1",
        b"http://[::1]:5173",
        b"https://chat.example",
        b"http://box.example",
    ],
)
def test_loopback_listed_and_own_origins_are_allowed(origin: bytes) -> None:
    Access(HOSTS, ["https://chat.example/"]).check_origin(origin, b"box.example")


@pytest.mark.parametrize(
    "origin",
    [
        b"null",
        b"",
        b"https://evil.example",
        b"http://localhost.evil.example",
        b"http://localhost:3000.evil.example",
        b"http://127.0.0.1@evil.example",
        b"file://",
        b"http://localhost:3000/",
        b"https://chat.example.evil.example",
    ],
)
def test_other_origins_are_refused(origin: bytes) -> None:
    with pytest.raises(Forbidden):
        Access(HOSTS, ["https://chat.example"]).check_origin(origin, b"127.0.0.1:8080")


def test_a_star_allows_every_origin() -> None:
    Access(HOSTS, ["*"]).check_origin(b"https://anything.example", b"127.0.0.1:8080")


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer " + KEY},
        {b"authorization": b"bearer  " + KEY},
        {b"x-api-key": KEY},
        {b"api-key": KEY},
        {b"authorization": b"Bearer wrong", b"x-api-key": KEY},
    ],
)
def test_the_key_is_found_in_every_header_that_clients_use(headers: dict[bytes, bytes]) -> None:
    Access(HOSTS, key=KEY).check_key(headers, "127.0.0.1")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"authorization": KEY},
        {b"authorization": b"Basic " + KEY},
        {b"authorization": b"Bearer"},
        {b"authorization": b"Bearer "},
        {b"x-api-key": b""},
        {b"x-api-key": KEY[:-1]},
        {b"x-api-key": KEY + b"0"},
        {b"x-api-key": KEY.upper()},
        {b"x-api-key": "schlüssel".encode("latin-1")},
        {b"cookie": b"key=" + KEY},
    ],
)
def test_anything_else_is_not_the_key(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(AuthenticationFailed):
        Access(HOSTS, key=KEY).check_key(headers, "127.0.0.1")


def test_without_a_key_everybody_may_call() -> None:
    Access(HOSTS).check_key({b"authorization": b"Bearer whatever"}, "100.64.0.7")


def test_wrong_keys_make_an_address_wait() -> None:
    access = Access(HOSTS, key=KEY)
    for _ in range(MAX_FAILURES):
        with pytest.raises(AuthenticationFailed):
            access.check_key({}, "100.64.0.7")
    with pytest.raises(TooManyFailures) as caught:
        access.check_key({b"x-api-key": KEY}, "100.64.0.7")
    assert caught.value.retry_after is not None
    assert 1 <= caught.value.retry_after <= 61
    access.check_key({b"x-api-key": KEY}, "100.64.0.8")


def test_one_misconfigured_program_does_not_lock_out_loopback() -> None:
    access = Access(HOSTS, key=KEY)
    for _ in range(3 * MAX_FAILURES):
        with pytest.raises(AuthenticationFailed):
            access.check_key({}, "127.0.0.1")
    access.check_key({b"x-api-key": KEY}, "127.0.0.1")
