from __future__ import annotations

import pytest

from turbospark_cli.errors import UsageError
from turbospark_cli.models import names


@pytest.mark.parametrize("name", ["smollm2-135m", "org/repo", "A", "a" * 96, "qwen2.5-coder_0.5b"])
def test_names_that_are_allowed(name: str) -> None:
    assert names.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../b",
        "a/b/c",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "a:b",
        "-a",
        "a b",
        "a" * 97,
        "a\n",
        "é",
        "a..b",
    ],
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        names.check_name(name)


def test_a_refused_name_cannot_write_to_the_terminal() -> None:
    with pytest.raises(UsageError) as caught:
        names.check_name("\x1b[31m" + "x" * 5000)
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("path", ["config.json", "a/b.safetensors", ".hidden"])
def test_files_that_stay_inside(path: str) -> None:
    assert names.is_safe_file(path)


@pytest.mark.parametrize(
    "path", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\\b", "c:x", "a\0", "a\n", "a\x7f"]
)
def test_files_that_might_leave(path: str) -> None:
    assert not names.is_safe_file(path)
