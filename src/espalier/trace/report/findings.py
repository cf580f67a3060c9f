"""Findings of a diagnosis and their remedies, as data and as text. It reads no trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["fault", "cost", "note"]
"""fault: the output is spoilt, or soon will be. cost: the output is fine, but the model was moved far. note: worth
knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """action: a stable name. change: request fields that apply the remedy, as far as they are known without the schema
    or prompt. text: the same for people."""

    action: str
    text: str
    change: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"action": self.action, "text": self.text, "change": dict(self.change)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """code: a stable name. steps: the first few steps concerned. evidence: the figures that met the threshold."""

    code: str
    severity: Severity
    message: str
    steps: tuple[int, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    remedies: tuple[Remedy, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "steps": list(self.steps),
            "evidence": dict(self.evidence),
            "remedies": [one.to_json() for one in self.remedies],
        }


BOUNDED_WHITESPACE = Remedy(
    action="bounded_whitespace",
    text='bound the whitespace: --whitespace compact (or natural), whitespace="compact"',
    change={"whitespace": "compact"},
)
BOUND_NUMBERS = Remedy(
    action="bound_numbers",
    text="give the number bounds in the schema: minimum and maximum, or multipleOf",
)
BOUND_LENGTH = Remedy(
    action="bound_length",
    text="give the text an end in the schema: maxLength, or maxItems for an array",
)
BREAK_LOOPS = Remedy(
    action="break_loops",
    text="penalise what repeats: -o dry_multiplier 0.8, or repetition_penalty above 1",
    change={"dry_multiplier": 0.8},
)
ANOTHER_STRATEGY = Remedy(
    action="another_strategy",
    text="sample faithfully: --strategy smc weighs what masking would book as likely",
    change={"strategy": "smc"},
)
LET_IT_THINK = Remedy(
    action="let_it_think",
    text='let the model think first: --reasoning auto, or --after "</think>"',
    change={"reasoning": "auto"},
)
PROSE_FIRST = Remedy(
    action="prose_first",
    text='let the model write prose first: --after "MARKER", where the prompt asks for MARKER before the document',
)
RENAME_KEYS = Remedy(
    action="rename_keys",
    text="name the keys as the model would, or put first the key that it writes first",
)
WIDEN = Remedy(
    action="widen",
    text="widen what is allowed there: add to the enum what the model wants, or allow null or text",
)
SHOW_THE_SCHEMA = Remedy(
    action="schema_in_prompt",
    text="show the model the schema: --schema-in-prompt",
    change={"schema_in_prompt": True},
)
OWN_ORDER = Remedy(
    action="property_order",
    text="let the schema's properties come in the order in which the model writes them: --schema-order a,b,c",
)
MORE_TOKENS = Remedy(action="larger_budget", text="allow more tokens: --max-tokens")
CLOSE_IN_TIME = Remedy(
    action="close_in_time",
    text="close the text in time: --on-budget close",
    change={"on_budget": "close"},
)
JUMP = Remedy(
    action="jump",
    text="let forced text be split as the tokenizer splits it: --strategy jump",
    change={"strategy": "jump"},
)
NATURAL_LAYOUT = Remedy(
    action="natural_layout",
    text="take the layout that models write: --whitespace natural",
    change={"whitespace": "natural"},
)
EOS_ALLOWED = Remedy(
    action="optional_rest",
    text="the model would stop here: make what follows optional, or ask for less of it",
)
LESS_CONFLICT = Remedy(
    action="less_conflict",
    text="members that rule each other out late cost rewinds: make one of them regular, or join them into one grammar",
)
