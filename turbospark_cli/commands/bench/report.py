"""The figures of a bench as Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from turbospark_cli import console
from turbospark_cli.commands.bench.statistics import Figures, median, spread

Format = Literal["md", "csv", "json", "jsonl"]

NOISY: Final = 0.1  # a spread above this is said
_TEXT: Final = ("error",)  # figures that are words, not numbers


def middle(rounds: Sequence[Figures], headline: str) -> Figures:
    """The median of each figure over all rounds, and the spread of the `headline` one."""
    names = dict.fromkeys(name for figures in rounds for name in figures)
    merged: Figures = {}
    for name in names:
        values = [figures.get(name) for figures in rounds]
        if name in _TEXT:
            merged[name] = next((value for value in values if value), None)
        elif name == "errors":
            merged[name] = sum(int(value or 0) for value in values)
        else:
            merged[name] = median(_number(value) for value in values)
    merged["rounds"] = len(rounds)
    merged["spread"] = spread(_number(figures.get(headline)) for figures in rounds)
    return merged


def ratios(subject: Figures, base: Figures) -> Figures:
    """Each figure of `subject` over the same of `base`."""
    found: Figures = {}
    for name, value in subject.items():
        mine, other = _number(value), _number(base.get(name))
        if name not in ("spread", "rounds", "errors") and mine is not None and other:
            found[name] = mine / other
    return found


def warn_about(label: str, figures: Figures, headline: str) -> None:
    """Say on stderr what makes these figures doubtful."""
    wide = _number(figures.get("spread"))
    if wide is not None and wide > NOISY:
        console.warn(f"{label}: {headline} varied by ±{wide:.0%} between rounds; the machine may be busy.")
    if figures.get("errors"):
        console.warn(f"{label}: {figures['errors']} failed, for example: {figures.get('error')}")


def shown(value: object) -> str:
    """A figure for people: three significant digits, or a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 or value.is_integer() else f"{value:.3g}"
    return str(value)


def side_by_side(title: str, columns: Mapping[str, Figures]) -> str:
    """A Markdown table with a row for each figure and a column for each server."""
    names = [
        name
        for name in dict.fromkeys(name for figures in columns.values() for name in figures)
        if name not in _TEXT and any(figures.get(name) is not None for figures in columns.values())
    ]
    rows = [[name, *(shown(figures.get(name)) for figures in columns.values())] for name in names]
    return markdown([title, *columns], rows)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned Markdown table; the first column to the left, figures to the right."""
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    lines = [
        _line(columns, widths),
        f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (w + 1)}:|" for w in widths[1:]),
    ]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return f"| {first[0].ljust(first[1])} |" + "".join(f" {cell.rjust(width)} |" for cell, width in others)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class Report:
    """Writes figures in one form: as soon as they are there where the form allows it."""

    def __init__(self, form: Format) -> None:
        self.form = form
        self._records: list[Figures] = []

    def add(self, record: Figures) -> None:
        """One flat record of a form that machines read."""
        if self.form == "jsonl":
            import msgspec

            console.write_out(msgspec.json.encode(record).decode() + "\n")
        elif self.form != "md":
            self._records.append(record)

    def show(self, table: str) -> None:
        """A Markdown table."""
        if self.form == "md":
            console.write_out(table + "\n")

    def finish(self) -> None:
        """What could not be written before everything was there."""
        if self.form == "json":
            console.print_json(self._records)
        elif self.form == "csv":
            console.print_out(_csv(self._records))


def _csv(records: Sequence[Figures]) -> str:
    import csv
    import io

    names = list(dict.fromkeys(name for record in records for name in record))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue().rstrip("\n")
