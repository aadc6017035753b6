"""`turbospark models`: pull, list, show and remove installs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turbospark_cli import console, settings
from turbospark_cli.commands.model_names import complete_installed
from turbospark_cli.errors import TurbosparkError, UsageError

if TYPE_CHECKING:
    from turbospark_cli.models.store import Install, Store

app: Final = typer.Typer(rich_markup_mode=None, add_completion=False)


def complete_catalog(incomplete: str) -> list[str]:
    """The aliases of the catalog that begin with what has been typed."""
    from turbospark_cli.models import catalog

    return [name for name in catalog.rows() if name.startswith(incomplete)]


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Installed model.", autocompletion=complete_installed)
]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Installed models.", autocompletion=complete_installed)
]
Aliases = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Aliases of the catalog.", autocompletion=complete_catalog),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print names or paths only, without progress.")]


@app.command("pull")
def pull_models(
    name: Aliases,
    force: Annotated[bool, typer.Option("--force", help="Install anew what is installed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Install models and print their folders."""
    from turbospark_cli.models import catalog
    from turbospark_cli.models.pull import pull, silent
    from turbospark_cli.models.store import Store

    resolved = settings.load().settings
    store = Store(resolved.home)
    for alias in name:
        catalog.find(alias)  # before the first one is pulled: a typing error must not cost a download
    for alias in name:
        if dry_run:
            _print_plan(store, alias, as_json)
            continue
        if not force and not quiet and _find(store, alias) is not None:
            console.note(f"{alias} is already installed.")
        progress = silent if quiet else console.progress
        install = pull(store, alias, force=force, offline=resolved.offline, progress=progress)
        if as_json:
            console.print_json({"name": install.id, "kind": install.kind, "path": str(install.path)})
        else:
            console.print_out(str(install.path))


@app.command("list")
def list_models(
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind, such as text.")] = None,
    available: Annotated[
        bool, typer.Option("--available", help="The whole catalog, installed or not.")
    ] = False,
    sort: Annotated[str, typer.Option("--sort", help="By name, kind, params, size or used.")] = "name",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """List the installed models."""
    from turbospark_cli.models import views
    from turbospark_cli.models.names import KINDS

    _check_one_of("--sort", sort, views.SORTS)
    if kind is not None:
        _check_one_of("--kind", kind, KINDS)
    store = _store()
    installs = store.list()
    items = views.by_alias(installs) if available else [views.installed(each) for each in installs]
    items = [item for item in items if kind in (None, item["kind"])]
    items.sort(key=views.SORTS[sort])
    for reason in store.broken().values():
        console.warn(reason.message)
    if as_json:
        console.print_json(items)
    elif quiet:
        for item in items:
            console.print_out(item["name"])
    else:
        _print_table(items, available, kind)


app.command("ls", hidden=True, help="Same as list.")(list_models)


@app.command("show")
def show_model(
    name: Name,
    as_json: Json = False,
    template: Annotated[bool, typer.Option("--template", help="Print the chat template.")] = False,
    files: Annotated[bool, typer.Option("--files", help="Print the files with sizes and hashes.")] = False,
    license_: Annotated[bool, typer.Option("--license", help="Print the license.")] = False,
) -> None:
    """Show what is known about an installed model."""
    from turbospark_cli.models import views

    if template + files + license_ > 1:
        raise UsageError(
            "--template, --files and --license print different things.", hint="Pass one of them."
        )
    install = _store().find(name)
    if template:
        _print_text(_template(install), as_json)
    elif license_:
        _print_text(install.receipt.licence, as_json)
    elif files:
        _print_files(install, as_json)
    elif as_json:
        console.print_json(views.details(install))
    else:
        lines = views.describe(install)
        width = max(len(label) for label, _ in lines)
        for label, text in lines:
            console.print_out(f"{label:<{width}}  {text}")


@app.command("rm")
def remove_models(
    name: Names,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Remove installed models."""
    from turbospark_cli.models.store import size_of
    from turbospark_cli.progress import size_text

    store = _store()
    folders = [store.removable(each) for each in dict.fromkeys(name)]
    sizes = ", ".join(f"{folder.stem} ({size_text(size_of(folder))})" for folder in folders)
    if not yes and not console.confirm(f"Remove {sizes}?"):
        raise TurbosparkError("Nothing was removed.")
    for folder in folders:
        console.note(f"Removed {folder.stem}; {size_text(store.remove(folder))} are free again.")


def _store() -> Store:
    from turbospark_cli.models.store import Store

    return Store(settings.load().settings.home)


def _find(store: Store, alias: str) -> Install | None:
    return next((install for install in store.list() if install.id == alias), None)


def _print_plan(store: Store, alias: str, as_json: bool) -> None:
    from turbospark_cli.models import catalog, views
    from turbospark_cli.progress import size_text

    row = catalog.find(alias)
    plan = views.plan(row, _find(store, alias), str(store.folder(row.kind, alias)))
    if as_json:
        console.print_json(plan)
        return
    state = "is installed" if plan["installed"] else f"would download {size_text(row.size)}"
    sources = ", ".join(plan["sources"])
    console.print_out(f"{alias} {state} from {sources}, {size_text(row.disk)} in {plan['path']}")


def _print_table(items: list[dict[str, Any]], available: bool, kind: str | None) -> None:
    from turbospark_cli.models import catalog, views

    if not items and kind is not None:
        console.note(f"No model of kind {kind} is {'in the catalog' if available else 'installed'}.")
        return
    if not items:
        console.note(
            f"No model is installed; `turbospark models pull {catalog.STARTER}` installs the starter."
        )
        return
    marks = [["yes" if item["installed"] else "no"] if available else [] for item in items]
    columns = [*views.COLUMNS, "INSTALLED"] if available else views.COLUMNS
    console.table(columns, [views.cells(item) + mark for item, mark in zip(items, marks, strict=True)])


def _print_files(install: Install, as_json: bool) -> None:
    files = install.receipt.files
    if as_json:
        console.print_json(files)
    else:
        console.table(
            ("PATH", "SIZE", "SHA256"), [(file.path, str(file.size), file.sha256) for file in files]
        )


def _print_text(text: str, as_json: bool) -> None:
    if as_json:
        console.print_json(text)
    else:
        console.print_out(text)


def _template(install: Install) -> str:
    from turbospark_cli.models import views

    text = views.template(install)
    if text is None:
        raise TurbosparkError(f"{install.id} has no chat template.")
    return text


def _check_one_of(flag: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{flag} takes {', '.join(allowed)}, not {value!r}.")
