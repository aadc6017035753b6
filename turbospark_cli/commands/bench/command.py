"""`turbospark bench`: figures of a model in this process, or of OpenAI-compatible servers side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from turbospark_cli.commands.bench.flags import OfflineFlags, ServerFlags
from turbospark_cli.commands.bench.report import Format, Report
from turbospark_cli.commands.model_names import complete_installed

_OFFLINE_ROUNDS: Final = 5
_SERVER_ROUNDS: Final = 3

_MODELS_HELP: Final = (
    "Offline: the models to load. With --url: the name to ask for, one for all or one for each address."
)
Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", autocompletion=complete_installed, help=_MODELS_HELP),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the figures.")]
Repeat = Annotated[
    int | None, typer.Option("--repeat", "-r", min=1, help="Rounds. Default: 5; with --url 3.")
]
NoPull = Annotated[bool, typer.Option("--no-pull", help="Fail when a model is not installed.")]

# Offline. Defaults are set in flags.py, so that a flag of the other kind can be told from one not given.
Prompt = Annotated[
    str | None, typer.Option("--prompt", "-p", metavar="N,N", help="Prompt tokens, a list. Default: 512.")
]
Generate = Annotated[
    str | None, typer.Option("--generate", "-n", metavar="N,N", help="New tokens, a list. Default: 128.")
]
Batch = Annotated[
    str | None, typer.Option("--batch", "-b", metavar="N,N", help="Sequences at a time, a list. Default: 1.")
]
Depth = Annotated[
    str | None,
    typer.Option("--depth", "-d", metavar="N,N", help="Tokens before the prompt, a list. Default: 0."),
]

# With --url.
Url = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="Measure this server; with a second one, the ratio, too."),
]
Concurrency = Annotated[
    str | None, typer.Option(metavar="N,N", help="Requests at a time, a list. Default: 1.")
]
Requests = Annotated[
    int | None, typer.Option(min=1, help="Requests of a level. Default: twice as many as at a time.")
]
Rate = Annotated[float | None, typer.Option(min=0.001, help="New requests a second, whatever is running.")]
PromptTokens = Annotated[
    str | None, typer.Option(metavar="N,N", help="Prompt lengths in turn: 150 or 1x1000,7x20. Default: 150.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Longest answer. Default: 64; with --no-stream 1.")
]
LongTokens = Annotated[
    int | None, typer.Option(min=1, help="One more prompt of this length amid the others.")
]
NoStream = Annotated[
    bool, typer.Option("--no-stream", help="Small unstreamed requests: the HTTP layer's cost.")
]
Pid = Annotated[
    list[int] | None, typer.Option(metavar="PID", help="Process of each --url, to count its CPU seconds.")
]
Timeout = Annotated[float | None, typer.Option(min=1, help="Longest silence in seconds. Default: 600.")]
KeyFile = Annotated[
    Path | None, typer.Option("--api-key-file", metavar="FILE", help="File that holds the servers' key.")
]


def command(
    models: Models = None,
    prompt: Prompt = None,
    generate: Generate = None,
    batch: Batch = None,
    depth: Depth = None,
    repeat: Repeat = None,
    output: Output = "md",
    no_pull: NoPull = False,
    url: Url = None,
    concurrency: Concurrency = None,
    requests: Requests = None,
    rate: Rate = None,
    prompt_tokens: PromptTokens = None,
    max_tokens: MaxTokens = None,
    long_tokens: LongTokens = None,
    no_stream: NoStream = False,
    pid: Pid = None,
    timeout: Timeout = None,
    key_file: KeyFile = None,
) -> None:
    """Measure a model in this process, or running servers with --url.

    Figures are medians over the rounds, after a warm-up. A spread of more than 10 % is said on stderr.
    """
    offline = OfflineFlags(prompt, generate, batch, depth, no_pull)
    server = ServerFlags(
        concurrency,
        requests,
        rate,
        prompt_tokens,
        max_tokens,
        long_tokens,
        no_stream,
        tuple(pid or ()),
        timeout,
        key_file,
    )
    if url:
        offline.refuse("measures a model in this process and does not go with --url")
        from turbospark_cli.commands.bench import servers

        servers.run(url, models or [], server, repeat or _SERVER_ROUNDS, Report(output))
    else:
        server.refuse("measures a server and needs --url")
        from turbospark_cli.commands.bench import offline as in_process

        in_process.run(models or [], offline, repeat or _OFFLINE_ROUNDS, Report(output))
