"""Makes the lines of a batch from the rows of a table: a prompt from a template, and what all items share."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from espalier.errors import InputError, TooLarge
from espalier.files.limits import BATCH
from espalier.jobs.formats.rows import cell_text, json_text
from espalier.jobs.intake import LINE_BYTES, MOST_LINES

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
CONSTRAINTS = (
    "response_format",
    "structured_outputs",
    "grammar",
    "json_schema",
    "choice",
    "regex",
    "ebnf",
    "structural_tag",
    *GUIDED,
)
"""Fields of a body that constrain its answer, beside the `constraint` of its `espalier`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """text: with `{column}` for the value of a column, `{{` and `}}` for brackets. system: a system message. shared:
    fields of every body. endpoint: the route. Raises InputError for a text that is no template."""

    text: str
    system: str | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str = CHAT

    def __post_init__(self) -> None:
        if self.endpoint not in (CHAT, COMPLETIONS):
            raise InputError(f"a template is for {CHAT} or {COMPLETIONS}", field="endpoint")
        self.columns()

    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it uses."""
        try:
            parts = list(string.Formatter().parse(self.text))
        except ValueError as error:
            raise InputError(
                f"--template: {error}", hint="{column}; {{ and }} for brackets", field="template"
            ) from error
        for _, name, form, conversion in parts:
            if name is not None and (not name or form or conversion):
                raise InputError(
                    "--template takes {column} and no more", hint="{{ and }} for brackets", field="template"
                )
        return tuple(name for _, name, _, _ in parts if name is not None)

    def prompt(self, row: Mapping[str, Any]) -> str:
        """Raises InputError for a column that the row lacks, TooLarge for a prompt that no line can hold."""
        pieces: list[str] = []
        size = len(self.text)
        for literal, name, _, _ in string.Formatter().parse(self.text):
            pieces.append(literal)
            if name is None:
                continue
            if name not in row:
                raise InputError(
                    f"--template: there is no column {name!r}",
                    hint=f"its columns: {', '.join(map(str, row))}"[:300],
                    field="template",
                )
            pieces.append(cell_text(row[name]))
            size += len(pieces[-1])
            if size > LINE_BYTES:
                raise TooLarge(f"--template makes a prompt of over {LINE_BYTES:,} characters", field="template")
        return "".join(pieces)

    def body(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if self.endpoint == COMPLETIONS:
            return {"prompt": self.prompt(row), **self.shared}
        messages = [{"role": "user", "content": self.prompt(row)}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": self.system})
        return {"messages": messages, **self.shared}


def templated(rows: Iterable[Mapping[str, Any]], template: Template) -> Iterator[dict[str, Any]]:
    """A line of a batch for each row. A column `custom_id` names the item, else its number does."""
    for number, row in enumerate(rows, 1):
        custom_id = row.get("custom_id")
        yield {
            "custom_id": str(number if custom_id in (None, "") else custom_id),
            "method": "POST",
            "url": template.endpoint,
            "body": template.body(row),
        }


def with_shared(rows: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Lines of a batch as they are, with fields that their bodies lack; a body that has a constraint gets no other one.
    The reader of lines finds what is wrong."""
    for row in rows:
        body = row.get("body")
        yield {**row, "body": _fill_body(body, shared)} if shared and isinstance(body, Mapping) else dict(row)


def _fill_body(body: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    filled = {**shared, **body}
    ours, own = shared.get("espalier"), body.get("espalier", {})
    if isinstance(ours, Mapping) and isinstance(own, Mapping):
        is_constrained = "constraint" in own or any(body.get(name) is not None for name in CONSTRAINTS)
        filled["espalier"] = {
            **{name: value for name, value in ours.items() if name != "constraint" or not is_constrained},
            **own,
        }
    return filled


def encoded(lines: Iterable[Mapping[str, Any]], *, most: int = BATCH.bytes) -> Iterator[bytes]:
    """The lines of a batch as bytes. most: of all together. Raises TooLarge, whatever the rows were that they are made
    of: a template or shared fields may make much of little."""
    size = 0
    for number, line in enumerate(lines, 1):
        if number > MOST_LINES:
            raise TooLarge(f"a batch has at most {MOST_LINES:,} lines", hint="split the file", field="input")
        data = json_text(line).encode("ascii") + b"\n"
        size += len(data)
        if len(data) > LINE_BYTES or size > most:
            what = f"is a request of over {LINE_BYTES:,} bytes" if len(data) > LINE_BYTES else "is one too many"
            raise TooLarge(
                f"row {number} {what}: a batch has at most {most:,} bytes",
                hint="split the file, or ask with less",
                field="input",
            )
        yield data


def answered(row: Mapping[str, Any], line: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the output table: the columns of the input, then what became of it. line: of the output. figures: of the
    same item, as the report sums them."""
    body = (line["response"] or {}).get("body") or {}
    choice = (body.get("choices") or [{}])[0]
    text = choice.get("text", (choice.get("message") or {}).get("content"))
    error = line["error"] or body.get("error")
    usage = body.get("usage") or {}
    columns = {
        "output": body.get("content", text),
        "valid": figures.get("valid"),
        "finish_reason": choice.get("finish_reason") or (figures.get("figures") or {}).get("finish_reason"),
        "error": None if not error else f"{error.get('code')}: {error.get('message')}",
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
    }
    return {**row, **{name if name not in row else f"{name}_of_batch": value for name, value in columns.items()}}
