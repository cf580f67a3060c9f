"""`espalier reconstruct`: rebuilds an inference file from questions and a store of logged requests.

The flags with underscores are those of the original script; each has a spelling with dashes too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from espalier.activations.reconstruct.run import Rules, reconstruct
from espalier.activations.reconstruct.templates import KNOWN, templates_of
from espalier.chat.prompt.template import ChatTemplate
from espalier.cli import output, progress
from espalier.errors import InputError
from espalier.files.limits import MODEL_JSON, TEMPLATE
from espalier.files.reading import read_text

RULES = {"last": "the last one was taken", "first": "the first one was taken", "all": "each became a row"}
ROWS_A_TICK = 500


def command(
    qa_output_path: Annotated[
        str, typer.Option("--qa_output_path", "--qa-output-path", help="The questions, JSON Lines.", metavar="FILE")
    ],
    lmdb_path: Annotated[
        str, typer.Option("--lmdb_path", "--lmdb-path", help="The store of logged requests.", metavar="STORE")
    ],
    output_path: Annotated[
        str, typer.Option("--output_path", "--output-path", "-o", help="The file to write.", metavar="FILE")
    ],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say for each row what was looked for.")] = False,
    template: Annotated[
        list[str] | None,
        typer.Option(help="A prompt template with {prompt}; repeat it. \\n is a line end.", metavar="TEXT"),
    ] = None,
    known: Annotated[
        list[str] | None, typer.Option(help=f"Known templates: {', '.join(KNOWN)}. Default: all.", metavar="NAME")
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option(help="A model's folder or a Jinja file: prompts were made by it.", metavar="PATH")
    ] = None,
    match: Annotated[str, typer.Option(help="By hash (of the prompt), request (id) or run (id and hash).")] = "hash",
    duplicates: Annotated[str, typer.Option(help="Of several entries for a row: last, first or all.")] = "last",
    model: Annotated[str | None, typer.Option(help="Only entries of this model.", metavar="NAME")] = None,
    since: Annotated[str | None, typer.Option(help="Only entries logged since: 2026-02-03, or seconds.")] = None,
    until: Annotated[str | None, typer.Option(help="Only entries logged until then.")] = None,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Write a file even if nothing matches.")] = False,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Read what is left of a damaged LMDB store, and list each loss.")
    ] = False,
    report_path: Annotated[str | None, typer.Option("--report", help="Write the report as JSON.", metavar="F")] = None,
) -> None:
    """Rebuild an inference file (prompt, generation, answer, …) from a QA file and a store of logged requests.

    Stores: HalluLens' LMDB (both layouts), Zarr, JSON and memory-mapped captures. They are opened read-only and no
    pickle in them runs code.

    Rows keep their order and fields. A report says what matched, what did not, and what the store has beside.
    """
    rules = Rules(
        match=match, duplicates=duplicates, model=model, since=_time(since, "since"), until=_time(until, "until")
    )
    texts = [text.replace("\\n", "\n") for text in template or ()]
    templates = templates_of(known or (), texts, chat=_chat(chat_template) if chat_template else None)
    with progress.stepping(ROWS_A_TICK) as step:
        report = reconstruct(
            qa_output_path,
            lmdb_path,
            output_path,
            templates=templates,
            rules=rules,
            allow_empty=allow_empty,
            salvage=salvage,
            tell=output.note if verbose else lambda _: None,
            step=step,
        )
    for line in report.lines(RULES[duplicates]):
        output.note(line)
    if report_path is not None:
        output.write_file(Path(report_path).expanduser(), json.dumps(report.to_json(), indent=2) + "\n", force=True)


def _time(text: str | None, field: str) -> float | None:
    """Epoch seconds of a date, a date and time (UTC where no zone is named), or seconds. Raises InputError."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"--{field} is {text!r}", hint="2026-02-03, 2026-02-03T12:00:00+01:00, or epoch seconds", field=field
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _chat(path: str) -> Callable[[str], str]:
    """What renders one user message. Raises InputError where there is no template, TemplateError."""
    given = Path(path).expanduser()
    bos = eos = ""
    source = given
    if given.is_dir():
        source = given / "chat_template.jinja"
        config_path = given / "tokenizer_config.json"
        config = json.loads(read_text(config_path, MODEL_JSON)) if config_path.is_file() else {}
        bos, eos = _token(config.get("bos_token")), _token(config.get("eos_token"))
        if not source.is_file():
            if not isinstance(config.get("chat_template"), str):
                raise InputError(f"{given} has no chat template", field="chat_template")
            return _renderer(ChatTemplate(config["chat_template"], bos_token=bos, eos_token=eos))
    return _renderer(ChatTemplate(read_text(source, TEMPLATE), bos_token=bos, eos_token=eos))


def _token(value: object) -> str:
    """A special token's text: a config writes it as a text or as an object."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else ""


def _renderer(template: ChatTemplate) -> Callable[[str], str]:
    def render(text: str) -> str:
        return template.render([{"role": "user", "content": text}])

    return render
