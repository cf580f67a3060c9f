"""`espalier logs`: lists, shows, searches, backs up and prunes the log of generations, and switches it on and off.

The log is in the store of the server's settings, so what a server logged is listed too. Its texts come from models and
clients: control characters are shown as escapes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.flags.groups import sub_app
from espalier.cli.flags.moments import read_since
from espalier.cli.flags.store import opened, pruned
from espalier.cli.logs.page import row_page
from espalier.columns import WIDTH, clip, shown
from espalier.errors import InputError, OutputError
from espalier.wiring import build_app

if TYPE_CHECKING:
    from espalier.store.open import Store

app = sub_app("List, show and search the log of generations; switch it on and off.")

DAY = 86_400.0
SHORT_ID = 15
"""Characters of an id that a list shows: the prefix and the time."""
CUT = 100
"""Characters of a text under --truncate."""
PAGE = 200
SAID = {"off": "off", "figures": "on, without texts", "content": "on, with prompts and answers"}

Count = Annotated[int, typer.Option("-n", "--count", min=0, help="How many, newest first; 0 for all.", metavar="N")]
Model = Annotated[str | None, typer.Option("-m", "--model", help="Of this model alone.")]
Since = Annotated[
    str | None, typer.Option(help="A date, a time, or an age: 2026-11-23, 2026-11-23T08:00, 90m, 2h, 7d.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, with request and content.")]
Truncate = Annotated[bool, typer.Option("-t", "--truncate", help=f"With --json: cut texts to {CUT} characters.")]
Short = Annotated[bool, typer.Option("-s", "--short", help="One line each, without texts.")]
Response = Annotated[bool, typer.Option("-r", "--response", help="Print nothing but the answers.")]


@app.command("list", short_help="List the newest generations.")
def list_command(
    *,
    count: Count = 10,
    query: Annotated[
        str | None,
        typer.Option("-q", "--query", help='Words, "phrases", beginnings*, -exclusions, OR.', metavar="QUERY"),
    ] = None,
    model: Model = None,
    since: Since = None,
    short: Short = False,
    truncate: Truncate = False,
    response: Response = False,
    as_json: AsJson = False,
) -> None:
    """List the newest generations, each with the beginning of its texts where these are kept."""
    _list(count, query, model, since, short=short, truncate=truncate, response=response, as_json=as_json)


@app.command("search", short_help="Find generations by words of their texts.")
def search_command(
    query: Annotated[str, typer.Argument(help='Words, "phrases", beginnings*, -exclusions, OR.', metavar="QUERY")],
    *,
    count: Count = 10,
    model: Model = None,
    since: Since = None,
    short: Short = False,
    truncate: Truncate = False,
    response: Response = False,
    as_json: AsJson = False,
) -> None:
    """Find generations by words of their constraint and, where these are kept, of prompt and answer."""
    _list(count, query, model, since, short=short, truncate=truncate, response=response, as_json=as_json)


def _list(
    count: int,
    query: str | None,
    model: str | None,
    since: str | None,
    *,
    short: bool,
    truncate: bool,
    response: bool,
    as_json: bool,
) -> None:
    moment = None if since is None else read_since(since, time.time())
    with opened() as store:
        from espalier.store.generations import GenerationFilter  # noqa: PLC0415  # the extra [server]

        mappings: list[Mapping[str, Any]] = []
        while not count or len(mappings) < count:
            after = mappings[-1]["id"] if mappings else None
            wanted = GenerationFilter(model=model, since=moment, query=query, after=after)
            page = store.generations(wanted, limit=min(PAGE, count - len(mappings)) if count else PAGE)
            mappings += page
            if len(page) < PAGE:
                break
        whole = (
            mappings
            if short and not as_json
            else [_whole(store.generation(mapping["id"], caller=None), mapping) for mapping in mappings]
        )
    if as_json:
        output.data_json([_cut(row) if truncate else dict(row) for row in whole])
    elif response:
        for log_row in whole:
            output.data((log_row.get("content") or {}).get("text", ""))
    else:
        for line in table(whole, with_texts=not short):
            output.data(line)
    if not mappings:
        output.note(_nothing(query, model, since))


def _whole(loaded: Mapping[str, Any] | None, listed: Mapping[str, Any]) -> Mapping[str, Any]:
    return listed if loaded is None else loaded  # it may have been deleted meanwhile


def _nothing(*asked: object) -> str:
    if any(condition is not None for condition in asked):
        return "no generation is like that"
    return "nothing is logged yet: `espalier logs on` logs what `generate` does, STORE_GENERATIONS what a server does"


def table(rows: Sequence[Mapping[str, Any]], *, with_texts: bool) -> list[str]:
    """The list for people, in 80 columns; a row's texts have lines of their own."""
    if not rows:
        return []
    lines = [f"{'id':<{SHORT_ID}} {'when':<11} {'model':<11} {'constraint':<11}{'tokens':>7}{'tax':>6} {'s':>6}  end"]
    for row in rows:
        when = time.strftime("%m-%d %H:%M", time.localtime(row["created"]))
        name, kind = clip(shown(row["model"]), 11), clip(shown(row["constraint_kind"] or "-"), 11)
        tokens = "-" if row["completion_tokens"] is None else str(row["completion_tokens"])
        line = f"{row['id'][:SHORT_ID]} {when} {name:<11} {kind:<11}{tokens:>7}"
        line += f"{_number(row['tax_nats']):>6} {_number(row['total']):>6}  {_end(row)}"
        lines.append(clip(line, WIDTH))
        content = row.get("content") or {}
        for mark, text in ((">", _prompt(content)), ("<", content.get("text"))):
            if with_texts and text is not None:
                lines.append(clip(f"  {mark} {shown(' '.join(text.split()))}", WIDTH))
    return lines


def _end(row: Mapping[str, Any]) -> str:
    if row["error"] is not None:
        return shown(row["error"])
    return "invalid" if row["valid"] is False else shown(row["finish_reason"] or "-")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _prompt(content: Mapping[str, Any]) -> str | None:
    """The prompt, or the text of the last message."""
    messages = content.get("messages")
    if not messages:
        return content.get("prompt")
    last = messages[-1].get("content")
    return last if isinstance(last, str) else str(last)


def _cut(value: Any) -> Any:
    """A JSON value with its texts cut to CUT characters; ids are shorter."""
    if isinstance(value, str):
        return value if len(value) <= CUT else f"{value[: CUT - 1]}…"
    if isinstance(value, Mapping):
        return {name: _cut(item) for name, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list | tuple) else value


@app.command("show", short_help="Show generations whole.")
def show_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Ids, or their first characters, or request ids; `last` is the newest. [default: last]",
            metavar="[ID]...",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show generations whole: what was asked, the contract, what it cost, the texts where these are kept."""
    with opened() as store:
        rows = [row for name in names or ["last"] for row in _find_rows(store, name)]
    if as_json:
        output.data_json([dict(row) for row in rows])
        return
    output.data("\n\n".join(row_page(row) for row in rows))


def _find_rows(store: Store, name: str) -> list[Mapping[str, Any]]:
    """The rows of an id, of its beginning, or of a request, which has one for each output. Raises InputError for a name
    that no row has, and for a beginning of several ids."""
    from espalier.store.generations import GenerationFilter  # noqa: PLC0415  # the extra [server]
    from espalier.store.trace_filter import TraceFilter  # noqa: PLC0415

    ids = list(store.generation_ids("" if name == "last" else name, limit=1 if name == "last" else 2))
    if len(ids) > 1:
        raise InputError(f"several generations begin with {name!r:.60}", hint="write more of the id", field="id")
    if not ids:
        listed = store.generations(GenerationFilter(request_id=name), limit=PAGE)
        ids = [str(row["id"]) for row in reversed(listed)]
    rows = [row for log_id in ids if (row := store.generation(log_id, caller=None)) is not None]
    if not rows:
        has_trace = bool(store.traces(TraceFilter(request_id=name), limit=1))
        hint = f"its trace is kept: `espalier trace show {name}`" if has_trace else "`espalier logs list` shows ids"
        raise InputError(f"there is no generation {name!r:.60}", hint=hint, field="id")
    return rows


@app.command("path", short_help="Print where the log is.")
def path_command() -> None:
    """Print the database's file, or its URL without the password."""
    with opened() as store:
        output.data(store.database.address)


@app.command("status", short_help="Show whether generations are logged, and how many are.")
def status_command() -> None:
    """Show whether `generate`, `chat`, `explain` and Python log, what, and how many rows there are."""
    level = build_app().log_level()
    output.data(f"logging is {SAID[level]}")
    with opened() as store:
        rows, with_content = store.count_generations()
        output.data(f"{rows:,} generations, {with_content:,} of them with texts\nin {store.database.address}")


@app.command("on", short_help="Log what generate, chat, explain and Python do from now on.")
def on_command(*, content: Annotated[bool, typer.Option("--content", help="Prompts and answers too.")] = False) -> None:
    """Log every generation of `generate`, `chat`, `explain` and Python from now on: what was asked and what it cost,
    and the texts only with --content. A server has its own setting, STORE_GENERATIONS."""
    _switch("content" if content else "figures")


@app.command("off", short_help="Log nothing from now on.")
def off_command() -> None:
    """Log nothing from now on. What is logged stays: see `prune`."""
    _switch("off")


def _switch(level: str) -> None:
    """Raises InputError without a folder of the user's, OutputError."""
    its = build_app()
    path = its.log_switch
    if path is None:
        raise InputError("there is no folder for settings", hint="set ESPALIER_CONFIG_DIR", field="logs")
    try:
        if level == "off":
            with suppress(FileNotFoundError):
                path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{level}\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    output.note(f"logging is {SAID[level]}")
    if (named := its.settings.logs) not in (None, level):
        output.note(f"ESPALIER_LOGS={named} is stronger while it is set")


@app.command("backup", short_help="Copy the database while others use it.")
def backup_command(
    file: Annotated[Path, typer.Argument(help="Where the copy goes.", metavar="FILE")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Copy the whole SQLite database (logs, traces, batches, test runs, presets) as it is at one moment."""
    with opened() as store:
        store.database.backup(file, replace=force)
    output.note(f"written: {file}")


@app.command("prune", short_help="Delete old generations from the log.")
def prune_command(
    *,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", min=0, help="Delete what is older.", metavar="DAYS")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Delete all but the newest N.", metavar="N")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
) -> None:
    """Delete generations from the log for good; traces, batches and test runs stay."""
    if keep_days is None and keep is None:
        raise InputError("prune needs to know what stays", hint="--keep-days DAYS, --keep N", field="keep")
    with opened() as store:
        output.note(
            pruned(store.pruning, "generations", seconds=keep_days and keep_days * DAY, rows=keep, dry_run=dry_run)
        )
