"""From a question to the exact prompt that a model was given: templates, which are data.

A template is a text with `{column}` for a column of the QA file, `{{` and `}}` for braces. A chat template is rendered
with the text as the one user message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from espalier.errors import InputError

QUESTION = "Answer in one sentence. Q:{prompt}\n A:"
"""How HalluLens asks for one sentence."""
KNOWN: Mapping[str, str] = MappingProxyType(
    {"user-line": f"user: {QUESTION}", "question": QUESTION, "as-is": "{prompt}"}
)
"""By name: a chat as `role: content` lines (until February 2026), the question raw (since then), and a QA file whose
prompts are those sent, as `generation.jsonl` has them."""
_PART = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """name: what the report calls it. text: with `{column}`. render: a chat template, from the text of the user message
    to the prompt."""

    name: str
    text: str
    render: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        """Raises InputError for a lone brace."""
        for part in _PART.finditer(self.text):
            if part.group() in "{}":
                raise InputError(
                    f"the template {self.name!r} has a lone {part.group()!r} at character {part.start()}",
                    hint="{column} names a column; write {{ and }} for braces",
                    field="template",
                )

    def prompt(self, row: Mapping[str, Any]) -> str | None:
        """The prompt for a row, None if the row lacks a column that the template names."""
        missing = False

        def filled(part: re.Match[str]) -> str:
            nonlocal missing
            if part.group() in ("{{", "}}"):
                return part.group()[0]
            value = row.get(part.group(1))
            missing = missing or value is None
            return value if isinstance(value, str) else str(value)

        text = _PART.sub(filled, self.text)
        if missing:
            return None
        return text if self.render is None else self.render(text)


def templates_of(
    names: Sequence[str], texts: Sequence[str] = (), *, chat: Callable[[str], str] | None = None
) -> tuple[PromptTemplate, ...]:
    """Templates in the order in which they are tried: your own texts, then the known ones by name, then the chat
    template around the question and around the bare prompt. Without any, all known ones. Raises InputError for an
    unknown name."""
    own = [PromptTemplate(f"template {number}", text) for number, text in enumerate(texts, 1)]
    for name in names:
        if name not in KNOWN:
            raise InputError(f"there is no template {name!r}", hint=f"known: {', '.join(KNOWN)}", field="template")
    picked = names or (() if own or chat else tuple(KNOWN))
    known = [PromptTemplate(name, KNOWN[name]) for name in picked]
    chats = []
    if chat is not None:
        chats = [
            PromptTemplate("chat template, question", QUESTION, chat),
            PromptTemplate("chat template, as-is", KNOWN["as-is"], chat),
        ]
    return (*own, *known, *chats)
