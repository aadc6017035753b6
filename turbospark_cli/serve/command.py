"""`turbospark serve` and the script `turbospark-server`."""

from __future__ import annotations

import functools
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from turbospark_cli import settings as all_settings
from turbospark_cli.errors import UsageError
from turbospark_cli.serve.bind import LOOPBACK
from turbospark_cli.settings import Settings

SERVER_PROGRAM: Final = "turbospark-server"
_SETTINGS: Final = frozenset(field.name for field in fields(Settings))
_MODEL_HELP: Final = "Model to serve: an alias or a folder. Without one, the starter model."


def _setting(name: str, *forms: str, **more: Any) -> Any:
    """The option of one setting. Its default stays None: not given."""
    facts = all_settings.metadata(name)
    return typer.Option(*(forms or (facts["flag"],)), help=facts["help"], show_default=False, **more)


def command(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help=_MODEL_HELP, show_default=False)
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="The same; may be repeated.", show_default=False)
    ] = None,
    port: Annotated[int | None, _setting("port")] = None,
    bind: Annotated[str | None, _setting("bind")] = None,
    allowed_host: Annotated[list[str] | None, _setting("allowed_host")] = None,
    allowed_origin: Annotated[list[str] | None, _setting("allowed_origin")] = None,
    api_key: Annotated[str | None, _setting("api_key")] = None,
    api_key_file: Annotated[Path | None, _setting("api_key_file")] = None,
    max_queue_depth: Annotated[int | None, _setting("max_queue_depth")] = None,
    queue_timeout: Annotated[float | None, _setting("queue_timeout")] = None,
    max_batch: Annotated[int | None, _setting("max_batch")] = None,
    log_level: Annotated[str | None, _setting("log_level")] = None,
    log_format: Annotated[str | None, _setting("log_format")] = None,
    access_log: Annotated[bool | None, _setting("access_log", "--access-log/--no-access-log")] = None,
    offline: Annotated[bool | None, _setting("offline", "--offline/--no-offline")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON on stdout when ready: url, pid, models.")
    ] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Answer from a script instead of a model, on loopback only.")
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", help="Scripted: folder that holds tokenizer.json.", show_default=False),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", help="Scripted: JSON list of what to answer.", show_default=False),
    ] = None,
) -> None:
    """Serve models over HTTP: OpenAI's chat completions, with metrics and health."""
    resolved = all_settings.load(
        port=port,
        bind=bind,
        allowed_host=allowed_host,
        allowed_origin=allowed_origin,
        api_key=api_key,
        api_key_file=api_key_file,
        max_queue_depth=max_queue_depth,
        queue_timeout=queue_timeout,
        max_batch=max_batch,
        log_level=log_level,
        log_format=log_format,
        access_log=access_log,
        offline=offline,
    )
    names = [*(models or []), *(model or [])]
    if scripted or tokenizer is not None or script is not None:
        _start_scripted(resolved.settings, scripted, tokenizer, script, names, json=json)
    else:
        from turbospark_cli.serve.startup import run

        run(resolved.settings, names, None, ready_json=json)


def _start_scripted(
    settings: Settings,
    scripted: bool,
    tokenizer: Path | None,
    script: Path | None,
    names: list[str],
    *,
    json: bool,
) -> None:
    """Refuse what a scripted server cannot be, then run it."""
    if not scripted:
        raise UsageError("--tokenizer and --script need --scripted.")
    if tokenizer is None:
        raise UsageError("--scripted needs --tokenizer DIR, a folder that holds tokenizer.json.")
    if not (tokenizer / "tokenizer.json").is_file():
        raise UsageError(f"There is no tokenizer.json in {tokenizer}.")
    if script is not None and not script.is_file():
        raise UsageError(f"There is no script {script}.")
    if names:
        raise UsageError("--scripted serves no model; leave the names out.")
    if settings.bind != LOOPBACK:
        raise UsageError("A scripted server listens on loopback only.", hint="Leave --bind out.")

    from turbospark_cli.serve.startup import Script, run

    run(settings, [], Script(tokenizer, script), ready_json=json)


@functools.wraps(command)
def _server_command(models: list[str] | None = None, **flags: Any) -> None:
    if not models:
        command(**flags)
        return
    if len(models) > 2 or flags["scripted"] or flags["tokenizer"] is not None:
        raise UsageError(f"The positional form is {SERVER_PROGRAM} TOKENIZER_DIR [PORT].")
    given = {name: value for name, value in flags.items() if name in _SETTINGS}
    if given["api_key"] is not None or given["api_key_file"] is not None:
        raise UsageError("A scripted server takes no key.")
    if len(models) == 2:
        if not models[1].isdecimal():
            raise UsageError(f"The port must be a number, not {models[1]!r}.")
        given["port"] = int(models[1])
    # Whatever key and address this machine's own server has: this one is loopback, without a key.
    settings = replace(all_settings.load(**given).settings, api_key=None, api_key_file=None)
    if given["bind"] is None:
        settings = replace(settings, bind=LOOPBACK)
    names = flags["model"] or []
    _start_scripted(settings, True, Path(models[0]), flags["script"], names, json=flags["json"])


def server_main() -> None:
    """Entry of `turbospark-server`: `TOKENIZER_DIR [PORT]` for the scripted server, else flags of serve."""
    from turbospark_cli.cli import run_guarded

    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command()(_server_command)
    sys.exit(
        run_guarded(lambda: typer.main.get_command(app).main(prog_name=SERVER_PROGRAM, standalone_mode=False))
    )
