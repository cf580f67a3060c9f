"""Reasoning markers of known models, as values. `reading/turn_parser.py` splits a text by them.

`detect_reasoning` finds the pair that a model's template or vocabulary shows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from espalier.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """start, end: the markers around the reasoning, which comes first in a turn. Raises InputError for empty or equal
    markers."""

    start: str
    end: str

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise InputError(f"the {name} marker of reasoning is a text", field="reasoning")
        if self.start == self.end:
            raise InputError("reasoning begins and ends with the same marker", field="reasoning")

    @property
    def in_channels(self) -> bool:
        """Whether the whole turn consists of messages in channels, of which the reasoning is one, see
        `reading/channel_walk.py`."""
        return self == HARMONY


HARMONY = Reasoning(start="<|channel|>analysis<|message|>", end="<|end|><|start|>assistant")
REASONING: dict[str, Reasoning] = {
    "think": Reasoning(start="<think>", end="</think>"),
    "thinking": Reasoning(start="<thinking>", end="</thinking>"),
    "thought": Reasoning(start="<thought>", end="</thought>"),
    "reasoning": Reasoning(start="<reasoning>", end="</reasoning>"),
    "mistral": Reasoning(start="[THINK]", end="[/THINK]"),
    "seed": Reasoning(start="<seed:think>", end="</seed:think>"),
    "kimi": Reasoning(start="◁think▷", end="◁/think▷"),
    "begin_of_thought": Reasoning(start="<|begin_of_thought|>", end="<|end_of_thought|>"),
    "start_thinking": Reasoning(start="<|START_THINKING|>", end="<|END_THINKING|>"),
    "harmony": HARMONY,
    "granite": Reasoning(start="Here is my thought process:", end="Here is my response:"),
}
"""think: DeepSeek, Qwen, GLM, MiniMax and most others. mistral: Magistral. seed: Seed-OSS. kimi: Kimi-VL.
begin_of_thought: Sky-T1, OpenThinker. start_thinking: Cohere's Command A. harmony: gpt-oss. granite:
IBM Granite 3.2."""


ReasoningMode: TypeAlias = Literal["auto", "none"]
MODES: tuple[ReasoningMode, ...] = get_args(ReasoningMode)
"""What can be said in place of markers: those that the model has, or an answer without reasoning."""


def read_reasoning(data: Any) -> Reasoning | ReasoningMode:
    """From a name in REASONING or MODES, a pair of markers, or a Reasoning. Raises InputError."""
    if isinstance(data, Reasoning):
        return data
    if isinstance(data, str) and data in MODES:
        return data
    if isinstance(data, str) and data in REASONING:
        return REASONING[data]
    if isinstance(data, Sequence) and not isinstance(data, str) and len(data) == 2:
        return Reasoning(start=data[0], end=data[1])
    raise InputError(
        f"unknown reasoning markers {data!r}",
        hint=f"{', '.join((*MODES, *REASONING))}, or a pair of texts",
        field="reasoning",
    )


def detect_reasoning(template: str, special_texts: Collection[str] = ()) -> Reasoning | None:
    """The first pair whose two markers are both tokens of the vocabulary, or of which the template contains one.

    special_texts: the spellings of added tokens. None if no pair is found.
    """
    known = frozenset(special_texts)
    for markers in REASONING.values():
        if markers.start in template or markers.end in template or {markers.start, markers.end} <= known:
            return markers
    return None
