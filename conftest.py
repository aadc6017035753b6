"""What holds for every test run: sockets reach this machine only, and skips are counted and bounded.

A skipped test looks like a passed one from far away. `--max-skips N` prints how many were skipped and fails
the run when there are more than N; CI passes it.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import Iterator

import pytest

from turbospark_cli.runtime.engine import device

_SKIPPED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--max-skips", type=int, default=None, metavar="N", help="fail when more tests are skipped"
    )


def pytest_configure() -> None:
    """Lets Ctrl-C reach what tests start (background jobs begin with SIGINT ignored); loads a BLAS."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # PERF: MLX takes the BLAS that is loaded when its first import comes, and several test modules import it.
    device.load_blas()


def _skipped(session: pytest.Session) -> int:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if reporter is not None else 0


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turns a green run with too many skips red."""
    allowed: int | None = session.config.getoption("--max-skips")
    if allowed is None:
        return
    session.config.stash[_SKIPPED] = _skipped(session)
    if session.config.stash[_SKIPPED] > allowed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says how many tests were skipped, and of how many that may be."""
    allowed: int | None = config.getoption("--max-skips")
    if allowed is None or _SKIPPED not in config.stash:
        return
    count = config.stash[_SKIPPED]
    verdict = "too many" if count > allowed else "ok"
    terminalreporter.write_line(f"skips: {count} of at most {allowed} ({verdict})", red=count > allowed)


def _is_local(address: object) -> bool:
    if not isinstance(address, tuple):
        return True  # a Unix socket's path
    host = str(address[0])
    if host in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True, scope="session")
def loopback_only() -> Iterator[None]:
    """Refuses connections of this process to any other machine; a test that needs one is no test of ours."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded(self: socket.socket, address: object) -> None:
        if not _is_local(address):
            raise AssertionError(f"a test tried to reach {address!r}; tests use the loopback interface only")
        connect(self, address)  # type: ignore[arg-type]

    def guarded_ex(self: socket.socket, address: object) -> int:
        if not _is_local(address):
            raise AssertionError(f"a test tried to reach {address!r}; tests use the loopback interface only")
        return connect_ex(self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        patch.setattr(socket.socket, "connect_ex", guarded_ex)
        yield
