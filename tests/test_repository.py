"""What the repository promises to those who clone it: no registry address, true commands, bounded skips."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("requirements.lock", "requirements-test.lock")

# Split, so that this file passes its own test.
REGISTRY_HOSTS: Final = (
    "pypi." + "org",
    "files.python" + "hosted.org",
    "registry.npm" + "js.org",
    "deb.de" + "bian.org",
    "proxy.go" + "lang.org",
)


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _make_commands(path: Path) -> set[str]:
    """Targets that a page tells people to make."""
    return set(re.findall(r"\bmake ([a-z]+)", path.read_text()))


def _run_pytest(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_tracked_file_names_a_registry() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in _tracked()
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert not named


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_hashes_and_no_address(name: str) -> None:
    lines = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[^\s;]+ (; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+\s*", line), line


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_free_of_torch(name: str) -> None:
    assert not re.search(r"^torch", (ROOT / name).read_text(), re.MULTILINE)


def test_both_locks_choose_the_same_versions() -> None:
    """The test lock is installed over the other one: it must not move what is served."""
    chosen = [
        set(re.findall(r"^\S+==\S+.*?(?=\\)", (ROOT / name).read_text(), re.MULTILINE)) for name in LOCKS
    ]
    assert chosen[0] <= chosen[1]


@pytest.mark.parametrize(
    "page", ["README.md", "AGENTS.md", *(f"docs/guides/{name}.md" for name in ("serve",))]
)
def test_a_page_names_targets_that_exist(page: str) -> None:
    assert _make_commands(ROOT / page) <= _make_targets()


def test_ci_runs_what_the_readme_says() -> None:
    """README's first screen has a command to serve and one to test; CI calls the latter and `make check`."""
    first_screen = (ROOT / "README.md").read_text().split("\n## ", 2)
    commands = re.findall(r"^make .*$", "\n".join(first_screen[:2]), re.MULTILINE)
    assert [command.split("#")[0].strip() for command in commands] == ["make serve", "make test"]
    assert re.search(r"^timeout \d+ make .* test check\b", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]$", text, re.MULTILINE)
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in _tracked()
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize(("allowed", "code"), [("0", 1), ("1", 0)])
def test_skips_are_bounded(tmp_path: Path, allowed: str, code: int) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_two.py").write_text(
        "import pytest\n\ndef test_passes() -> None: ...\n\n"
        "@pytest.mark.skip(reason='to be counted')\ndef test_is_skipped() -> None: ...\n"
    )
    run = _run_pytest(tmp_path, f"--max-skips={allowed}")
    assert run.returncode == code, run.stdout
    assert f"skips: 1 of at most {allowed}" in run.stdout


def test_another_machine_is_out_of_reach(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_far.py").write_text(
        "import socket\n\ndef test_far() -> None:\n"
        "    socket.create_connection(('192.0.2.1', 80), timeout=0.01)\n"
    )
    run = _run_pytest(tmp_path)
    assert run.returncode == 1
    assert "loopback interface only" in run.stdout
