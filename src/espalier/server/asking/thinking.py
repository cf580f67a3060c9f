"""Says whether a model can reason, and asks for reasoning in the fields of the chat route. It reads no body."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from espalier.chat.reasoning import REASONING, Reasoning, detect_reasoning
from espalier.engines.protocols import Engine
from espalier.tokens.vocab import Vocab

SWITCH, EFFORT = "enable_thinking", "reasoning_effort"
"""Variables of chat templates."""


def can_reason(engine: Engine) -> bool:
    """Whether the chat template or the vocabulary shows reasoning markers."""
    return _detect_reasoning("" if engine.template is None else engine.template.source, engine.vocab) is not None


@lru_cache(maxsize=8)
def _detect_reasoning(template: str, vocab: Vocab | None) -> Reasoning | None:
    if vocab is None:
        return detect_reasoning(template)
    wanted = {text for reasoning in REASONING.values() for text in (reasoning.start, reasoning.end)}
    plain = {text.encode() for text in wanted} & set(vocab.tokens)
    special = wanted & set(vocab.special_texts.values())
    return detect_reasoning(template, special | {text.decode() for text in plain})


def thinking_fields(engine: Engine, *, wanted: bool, effort: str | None = None) -> dict[str, Any]:
    """Variables of the chat template that turn reasoning on or off, of those that it reads."""
    source = "" if engine.template is None else engine.template.source
    fields: dict[str, Any] = {SWITCH: wanted} if SWITCH in source else {}
    if effort is not None and wanted and EFFORT in source:
        fields["chat_template_kwargs"] = {EFFORT: effort}
    return fields
