from __future__ import annotations

from tests.models.test_store import facts
from turbospark_cli.models import memory
from turbospark_cli.models.receipt import InstalledFile

_CONFIG = {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 16}
_PER_TOKEN = 6 * 2 * 2 * 16


def test_weights_and_cache_are_counted_at_both_lengths() -> None:
    files = (InstalledFile("model.safetensors", 1000, ""), InstalledFile("tokenizer.json", 500, ""))
    found = memory.estimate(facts("a", context_length=40_000, parameters=300, files=files), _CONFIG)
    assert found["as_stored"] == {8192: 1000 + 8192 * _PER_TOKEN * 2, 32768: 1000 + 32768 * _PER_TOKEN * 2}
    assert found["float32"] == {8192: 1200 + 8192 * _PER_TOKEN * 4, 32768: 1200 + 32768 * _PER_TOKEN * 4}


def test_a_short_context_is_its_own_only_length() -> None:
    assert list(memory.estimate(facts("a", context_length=100), _CONFIG)["float32"]) == [100]


def test_sliding_layers_keep_a_window() -> None:
    sliding = _CONFIG | {"sliding_window": 512, "sliding_window_pattern": 6}
    found = memory.estimate(facts("a", context_length=8192), sliding)["float32"][8192]
    assert found == (10 + (8192 + 5 * 512) * 2 * 2 * 16) * 4
