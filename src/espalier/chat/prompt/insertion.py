"""Puts a schema into a prompt that is rendered already, at the place where rendering it with the schema would have.

Where that is shows when two short conversations are rendered with and without a schema. It knows no template itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from espalier.chat.prompt.texts import schema_text
from espalier.errors import EspalierError

ASKED, TOLD = "Q7asked", "S7told"
"""Stand for what a user asks and a system message says. No template has them, nor changes them."""
Render = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""The prompt of messages, with or without the schema."""


def with_schema(prompts: Sequence[str], schema: Any, render: Render) -> list[str | None]:
    """The prompts with the schema in their instructions; None for one that does not begin as the chat template writes,
    or where that does not show whether there are instructions."""
    told, asked = {"role": "system", "content": TOLD}, {"role": "user", "content": ASKED}
    plain = _around([asked], render, (ASKED,), has_schema=False)
    shown = _around([asked], render, (ASKED,), has_schema=True)
    instructed = _around([told, asked], render, (TOLD, ASKED), has_schema=False)
    text = schema_text(schema)

    def put(prompt: str) -> str | None:
        if instructed is not None:
            before, between = instructed
            if plain is not None and plain[0].startswith(before) and plain[0] != before + between:
                return None  # a user's turn begins with instructions: whether there are any does not show
            end = prompt.find(between, len(before)) if prompt.startswith(before) else -1
            if end >= 0:
                return f"{prompt[:end]}\n\n{text}{prompt[end:]}" if end > len(before) else before + text + prompt[end:]
        if plain is not None and shown is not None and prompt.startswith(plain[0]):
            return shown[0] + prompt[len(plain[0]) :]
        return None

    return [put(prompt) for prompt in prompts]


def _around(
    messages: Sequence[Mapping[str, Any]], render: Render, texts: Sequence[str], *, has_schema: bool
) -> tuple[str, ...] | None:
    """What is rendered before each of the texts; None where the template refuses the messages or leaves one out."""
    try:
        rest = render(messages, has_schema)
    except EspalierError:
        return None
    parts = []
    for text in texts:
        before, separator, rest = rest.partition(text)
        if not separator:
            return None
        parts.append(before)
    return tuple(parts)
