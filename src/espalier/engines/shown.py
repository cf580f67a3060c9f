"""A result as one line for a prompt, and as HTML for a notebook. It knows the facts that are shown, and no engine."""

from __future__ import annotations

import base64
from html import escape

from espalier.constraints.verdict import Verdict
from espalier.trace.page import render
from espalier.trace.records import Trace

LINE = 100
"""Characters of a line, at most."""
STYLE = "font-family:system-ui,sans-serif;max-width:60em"
PRE = "white-space:pre-wrap;overflow-wrap:anywhere;padding:.5em;border:1px solid #8886;border-radius:4px"


def judged(verdict: Verdict | None) -> str:
    """The verdict in words."""
    if verdict is None:
        return "not judged"
    return {True: "valid", False: "not valid", None: "nobody could judge"}[verdict.valid]


def facts(*, finish_reason: str, verdict: Verdict | None, tokens: int, trace: Trace | None) -> str:
    """Why it ended, the verdict, its length and what the constraint cost: `stop, valid, 27 tokens, tax 1.29 nats`."""
    parts = [finish_reason, judged(verdict), f"{tokens} token{'' if tokens == 1 else 's'}"]
    if trace is not None:
        parts.append(f"tax {trace.summary()['total_tax_nats']:.3g} nats")
    return ", ".join(parts)


def line(text: str, said: str) -> str:
    """`<Result 'the text' stop, valid, ...>` on one line of at most `LINE` characters, whatever the text holds."""
    room = LINE - len(said) - len("<Result  >")
    shown = repr(text[:LINE])
    if len(text) > LINE or len(shown) > room:
        shown = f"{shown[: room - 2]}…{shown[0]}"
    return f"<Result {shown} {said}>"


def block(text: str, said: str, verdict: Verdict | None, trace: Trace | None) -> str:
    """HTML: the text, the facts, what the judge found wrong, and a link that saves the page of the trace."""
    parts = [f'<pre style="{PRE}">{escape(text)}</pre>', f"<p>{escape(said)}</p>"]
    if verdict is not None and verdict.errors:
        parts.append("<ul>" + "".join(f"<li>{escape(error)}</li>" for error in verdict.errors) + "</ul>")
    if trace is not None and trace.steps:
        page = base64.b64encode(render(trace.to_json()).encode()).decode()
        parts.append(f'<p><a download="trace.html" href="data:text/html;base64,{page}">The trace as a page</a></p>')
    return f'<div style="{STYLE}">{"".join(parts)}</div>'
