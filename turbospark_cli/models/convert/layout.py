"""Matches the tensors of a file with the rows of its architecture; what does not match is refused by name."""

from __future__ import annotations

from dataclasses import dataclass

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert import weights
from turbospark_cli.models.convert.architectures import Architecture, Rule
from turbospark_cli.models.convert.gguf_reader import Tensor
from turbospark_cli.models.convert.shape import Shape


@dataclass(frozen=True, slots=True)
class Move:
    """One tensor on its way: from the file to `name`, with a change of its values."""

    tensor: Tensor
    name: str
    change: weights.Change


def moves(tensors: dict[str, Tensor], architecture: Architecture, shape: Shape) -> list[Move]:
    """Every tensor's move, in the order of the model. Raises ConversionFailed."""
    wanted = {name: (rule, rule.name) for name, rule in architecture.whole.items()}
    for layer in range(shape.layers):
        for name, rule in architecture.block.items():
            wanted[f"blk.{layer}.{name}"] = (rule, f"model.layers.{layer}.{rule.name}")
    unknown = sorted(set(tensors) - set(wanted))
    if unknown:
        raise ConversionFailed(
            f"The GGUF file holds a tensor that {shape.architecture} lacks: {unknown[0][:80]!r}."
        )
    found = []
    for name, (rule, target) in wanted.items():
        tensor = tensors.get(name)
        if tensor is not None:
            found.append(_move(tensor, rule, target, shape))
        elif rule.required:
            raise ConversionFailed(f"The GGUF file lacks the tensor {name!r}.")
    return found


def _move(tensor: Tensor, rule: Rule, target: str, shape: Shape) -> Move:
    expected = tuple(shape.of(size) for size in rule.shape)
    if tensor.shape != expected:
        raise ConversionFailed(f"The tensor {tensor.name!r} has the shape {tensor.shape}, not {expected}.")
    heads = {None: 0, "heads": shape.heads, "kv_heads": shape.kv_heads}[rule.permuted]
    return Move(tensor, target, weights.Change(heads=heads, minus_one=rule.minus_one))
