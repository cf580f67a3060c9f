"""One row of the log of generations as Markdown, for `espalier logs show`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

FIGURES = (
    ("engine", "engine", "{}"),
    ("route", "route", "{}"),
    ("caller", "caller", "{}"),
    ("strategy", "strategy", "{}"),
    ("constraint_kind", "constraint", "{}"),
    ("prompt_tokens", "prompt tokens", "{}"),
    ("completion_tokens", "tokens", "{}"),
    ("tax_nats", "tax", "{:.3f} nats"),
    ("removed_mass", "removed mass", "{:.2%} on average"),
    ("rejection_rate", "rejected", "{:.1%} of the steps"),
    ("queued", "queued", "{:.3f} s"),
    ("to_first_token", "first token", "{:.3f} s"),
    ("total", "total", "{:.3f} s"),
    ("finish_reason", "end", "{}"),
    ("error", "error", "{}"),
    ("request_id", "request", "{}"),
    ("trace_id", "trace", "{}"),
)


def row_page(row: Mapping[str, Any]) -> str:
    """The row, its request and its content. Control characters in texts are escapes."""
    return "\n".join(_lines(row))


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {row['id']}"
    yield ""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["created"]))
    yield f"{when}, model {_safe(row['model'])}"
    yield ""
    for name, title, form in FIGURES:
        if row[name] is not None:
            yield f"- {title}: {_safe(form.format(row[name]))}"
    request, content = row["request"] or {}, row["content"] or {}
    verdict = request.get("verdict")
    if verdict is not None:
        word = {True: "valid", False: "not valid", None: "unknown"}[verdict["valid"]]
        yield f"- verdict: {word} ({_safe(str(verdict['judge']))})"
    for entry in request.get("contract", ()):
        if entry["verdict"] != "enforced":
            where = f"{entry['keyword']} at {entry['pointer'] or '/'}: {entry['note']}"
            yield f"- {entry['verdict']}: {_safe(where)}"
    yield from _part("Constraint", request.get("constraint"))
    rest = {name: value for name, value in request.items() if name not in ("constraint", "contract", "verdict")}
    yield from _part("Request", rest)
    if "messages" in content:
        for message in content["messages"]:
            said = message.get("content")
            yield from _part(f"Message of {_safe(str(message.get('role')))}", said if said is not None else message)
    yield from _part("Prompt", content.get("prompt"))
    yield from _part("Answer", content.get("text"))
    for number, text in enumerate(content.get("others", ()), 2):
        yield from _part(f"Answer {number}", text)
    yield from _part("Why it is not valid", "\n".join(content.get("errors", ())) or None)
    if not content:
        yield ""
        yield "No texts were kept."


def _part(title: str, value: Any) -> Iterator[str]:
    """A heading with a text, or with JSON."""
    if value is None or value == {}:
        return
    yield ""
    yield f"## {title}"
    yield ""
    if isinstance(value, str):
        yield _safe(value)
    else:
        yield "```json"
        yield json.dumps(value, ensure_ascii=True, indent=2)
        yield "```"


def _safe(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text)
