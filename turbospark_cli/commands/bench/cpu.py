"""CPU seconds of a process and everything below it: what a busy machine cannot falsify."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from turbospark_cli.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    seconds: float  # its own and those of its dead children


def tree_seconds(pid: int) -> float:
    """User and system seconds of the process `pid` and its living descendants.

    Raises UsageError when there is no such process.
    """
    table = _from_proc() if Path("/proc/self/stat").exists() else _from_ps()
    if pid not in table:
        raise UsageError(f"There is no process {pid}.", hint="--pid takes the server's process id.")
    children = defaultdict(list)
    for child, process in table.items():
        children[process.parent].append(child)
    total, pending = 0.0, [pid]
    while pending:
        current = pending.pop()
        total += table[current].seconds
        pending += children[current]
    return total


def _from_proc() -> dict[int, _Process]:
    tick = os.sysconf("SC_CLK_TCK")
    table = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # it ended between the two looks
            continue
        fields = stat.rpartition(")")[2].split()
        table[int(entry.name)] = _Process(int(fields[1]), sum(map(int, fields[11:15])) / tick)
    return table


def _from_ps() -> dict[int, _Process]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,time="], capture_output=True, text=True, check=True
    ).stdout
    table = {}
    for line in listing.splitlines():
        pid, parent, time = line.split()
        table[int(pid)] = _Process(int(parent), _seconds(time))
    return table


def _seconds(time: str) -> float:
    """Seconds of `[DD-][HH:]MM:SS[.CC]`."""
    days, _, clock = time.rpartition("-")
    parts = reversed(clock.split(":"))
    return float(days or 0) * 86400 + sum(float(part) * 60.0**power for power, part in enumerate(parts))
