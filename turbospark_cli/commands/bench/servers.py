"""`bench --url`: every level is measured on each server in turn, round after round, so that a change of the
machine's mood falls on all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from turbospark_cli import console, settings
from turbospark_cli.commands.bench import load, prompts, unstreamed
from turbospark_cli.commands.bench.flags import ServerFlags, sizes
from turbospark_cli.commands.bench.report import Report, middle, ratios, side_by_side, warn_about
from turbospark_cli.commands.bench.statistics import Figures
from turbospark_cli.commands.bench.target import Target, base_url, first_model, is_loopback
from turbospark_cli.errors import ServerUnreachable, UsageError

_MOST_SERVERS = 2


@dataclass(frozen=True, slots=True)
class _Job:
    """One level: how to measure it on a server, with prompts of this seed."""

    label: str
    headline: str  # the figure whose spread is reported
    facts: Figures
    measure: Callable[[Target, int], Figures]


def run(urls: Sequence[str], models: Sequence[str], flags: ServerFlags, rounds: int, report: Report) -> None:
    """Measure the servers and write the figures."""
    jobs = _unstreamed_jobs(flags) if flags.no_stream else _streamed_jobs(flags)
    servers = targets(urls, models, flags)
    for target in servers:
        _warm_up(target, streamed=not flags.no_stream)
    for number, job in enumerate(jobs):
        columns = _measure(job, servers, rounds, seed=(number + 1) * 10**9)
        for target in servers:
            warn_about(f"{target.base}, {job.label}", columns[target.base], job.headline)
        if len(servers) > 1:
            columns["ratio"] = ratios(*(columns[target.base] for target in servers))
        report.show(side_by_side(job.label, columns) + "\n")
        for name, figures in columns.items():
            report.add({"url": name, **job.facts, **figures})
    report.finish()


def _measure(job: _Job, servers: Sequence[Target], rounds: int, seed: int) -> dict[str, Figures]:
    seen: dict[str, list[Figures]] = {target.base: [] for target in servers}
    for each in range(rounds):
        for target in servers:
            console.note(f"{job.label}: round {each + 1} of {rounds}, {target.base}")
            seen[target.base].append(job.measure(target, seed + each * 10**7))
    return {base: middle(figures, job.headline) for base, figures in seen.items()}


def _warm_up(target: Target, *, streamed: bool) -> None:
    """One short answer: shows that the server works, and pays what only its first request costs."""
    uncounted = replace(target, pid=None)
    if streamed:
        plan = load.Plan(lengths=[20], max_tokens=4, requests=1)
        figures = load.measure(uncounted, plan, load.Level(1), seed=0)
    else:
        figures = unstreamed.measure(uncounted, connections=1, requests=1, max_tokens=1)
    if figures["errors"]:
        raise ServerUnreachable(f"{target.base} did not answer: {figures['error']}.")


def _streamed_jobs(flags: ServerFlags) -> list[_Job]:
    if flags.rate is not None and flags.concurrency is not None:
        raise UsageError("--rate and --concurrency exclude each other.")
    plan = load.Plan(
        lengths=prompts.lengths(flags.prompt_tokens or "150"),
        max_tokens=flags.max_tokens or 64,
        requests=flags.requests,
        long_tokens=flags.long_tokens,
        timeout=flags.timeout or 600.0,
    )
    if flags.rate is not None:
        levels = [load.Level(1, flags.rate)]
        plan = replace(plan, requests=plan.requests or 20)
    else:
        levels = [load.Level(width) for width in sizes("--concurrency", flags.concurrency or "1", least=1)]

    def job(level: load.Level) -> _Job:
        headline = "decode_tok_s" if level.rate is None else "total_tok_s"
        facts: Figures = {"concurrency": None if level.rate else level.width, "rate": level.rate}
        return _Job(
            level.label, headline, facts, lambda target, seed: load.measure(target, plan, level, seed)
        )

    return [job(level) for level in levels]


def _unstreamed_jobs(flags: ServerFlags) -> list[_Job]:
    given = {
        "--rate": flags.rate,
        "--prompt-tokens": flags.prompt_tokens,
        "--long-tokens": flags.long_tokens,
        "--timeout": flags.timeout,
    }
    for flag, value in given.items():
        if value is not None:
            raise UsageError(f"{flag} does not go with --no-stream.")
    tokens = flags.max_tokens or 1

    def job(width: int) -> _Job:
        count = flags.requests or 200 * width
        facts: Figures = {"concurrency": width}
        return _Job(
            f"{width} connections",
            "requests_s",
            facts,
            lambda target, _: unstreamed.measure(target, width, count, tokens),
        )

    return [job(width) for width in sizes("--concurrency", flags.concurrency or "16", least=1)]


def targets(urls: Sequence[str], models: Sequence[str], flags: ServerFlags) -> list[Target]:
    """The servers to measure, each with its model, key and process.

    Raises UsageError for lists that do not fit each other.
    """
    bases = [base_url(url) for url in urls]
    if len(set(bases)) != len(bases) or len(bases) > _MOST_SERVERS:
        raise UsageError("--url takes one server, or two different ones to compare.")
    if flags.pid and len(flags.pid) != len(bases):
        raise UsageError("Give one --pid for each --url, in the same order.")
    if len(models) not in (0, 1, len(bases)):
        raise UsageError("Name one model for all servers, or one for each --url, in the same order.")
    names = list(models) * (len(bases) if len(models) == 1 else 1)
    found = []
    for place, base in enumerate(bases):
        key = _key(base, flags)
        name = names[place] if names else first_model(base, key)
        found.append(Target(base, name, key, flags.pid[place] if flags.pid else None))
    return found


def _key(base: str, flags: ServerFlags) -> str | None:
    """The key for `base`: this machine's own setting goes to this machine's servers only."""
    if flags.api_key_file is not None:
        resolved = settings.load(api_key_file=flags.api_key_file)
    elif is_loopback(base):
        resolved = settings.load()
    else:
        return None
    key = resolved.settings.key()
    return None if key is None else key.decode("latin-1")
