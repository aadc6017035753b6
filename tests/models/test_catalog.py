from __future__ import annotations

import re

import pytest

from turbospark_cli.errors import ModelNotFound, UsageError
from turbospark_cli.models import catalog, names


def test_every_row_is_pinned_and_safe() -> None:
    assert catalog.STARTER in catalog.rows()
    for alias, row in catalog.rows().items():
        assert names.is_alias(alias)
        assert row.alias == alias
        assert row.size == sum(wheel.size for wheel in row.source.wheels)
        for wheel in row.source.wheels:
            assert re.fullmatch("[0-9a-f]{64}", wheel.sha256)
            assert re.fullmatch(r"[0-9][0-9A-Za-z.]*", wheel.version)
            assert wheel.file.endswith(".whl")
            assert names.is_safe_file(wheel.file)
            assert names.is_safe_file(wheel.member)


def test_an_unknown_alias_gets_the_nearest() -> None:
    with pytest.raises(ModelNotFound) as caught:
        catalog.find("smolm-135")
    assert caught.value.hint is not None
    assert "smollm2-135m" in caught.value.hint


def test_a_path_is_no_alias() -> None:
    with pytest.raises(UsageError):
        catalog.find("../../etc/passwd")
