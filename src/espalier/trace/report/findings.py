"""Findings of a diagnosis and their remedies, as data and as text. It reads no trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.wording import Edge, setting

Severity = Literal["fault", "cost", "note"]
"""fault: the output is spoilt, or soon will be. cost: the output is fine, but the model was moved far. note: worth
knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """action: a stable name. change: request fields that apply the remedy, as far as they are known without the schema
    or prompt. about: what to do, for people; its `{how}` is what the edge calls it. flag: that on the command line.
    others: that at other edges, where `change` does not say it."""

    action: str
    about: str
    change: Mapping[str, Any] = field(default_factory=dict)
    flag: str = ""
    others: Mapping[Edge, str] = field(default_factory=dict)

    def said(self, edge: Edge) -> str:
        """What to do, in the words of an edge."""
        return self.about.replace("{how}", self.how(edge))

    def how(self, edge: Edge) -> str:
        """The flag, argument or field alone."""
        if edge in self.others:
            return self.others[edge]
        if edge == "cli" or not self.change:
            return self.flag
        return ", ".join(setting(name, value, edge, flag="") for name, value in self.change.items())

    def to_json(self, edge: Edge = "cli") -> dict[str, Any]:
        return {"action": self.action, "text": self.said(edge), "change": dict(self.change)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """code: a stable name. steps: the first few steps concerned. evidence: the figures that met the threshold."""

    code: str
    severity: Severity
    message: str
    steps: tuple[int, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    remedies: tuple[Remedy, ...] = ()

    def to_json(self, edge: Edge = "cli") -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "steps": list(self.steps),
            "evidence": dict(self.evidence),
            "remedies": [remedy.to_json(edge) for remedy in self.remedies],
        }


def _whitespace(style: str) -> dict[Edge, str]:
    field = f'"whitespace": "{style}" in a constraint of JSON'
    return {"python": f'whitespace="{style}" of the constraint', "http": field, "tool": field}


BOUNDED_WHITESPACE = Remedy(
    action="bounded_whitespace",
    about="bound the whitespace: {how}",
    flag="--whitespace compact (or natural)",
    others=_whitespace("compact"),
    change={"whitespace": "compact"},
)
BOUND_NUMBERS = Remedy(
    action="bound_numbers",
    about="give the number bounds in the schema: minimum and maximum, or multipleOf",
)
BOUND_LENGTH = Remedy(
    action="bound_length",
    about="give the text an end in the schema: maxLength, or maxItems for an array",
)
BREAK_LOOPS = Remedy(
    action="break_loops",
    about="penalise what repeats: {how}, or repetition_penalty above 1",
    flag="-o dry_multiplier 0.8",
    change={"dry_multiplier": 0.8},
)
ANOTHER_STRATEGY = Remedy(
    action="another_strategy",
    about="masking overstates unlikely continuations here: {how} corrects for it",
    flag="--strategy smc",
    change={"strategy": "smc"},
)
LET_IT_THINK = Remedy(
    action="let_it_think",
    about="let the model think first: {how}",
    flag='--reasoning auto, or --after "</think>"',
    change={"reasoning": "auto"},
)
PROSE_FIRST = Remedy(
    action="prose_first",
    about="let the model write prose first: {how}, where the prompt asks for MARKER before the document",
    flag='--after "MARKER"',
    others={
        "python": 'After("MARKER", ...)',
        "http": '"espalier": {"constraint": {"kind": "after", "marker": "MARKER", ...}}',
        "tool": '"constraint": {"kind": "after", "marker": "MARKER", ...}',
    },
)
RENAME_KEYS = Remedy(
    action="rename_keys",
    about="name the keys as the model would, or put first the key that it writes first",
)
WIDEN = Remedy(
    action="widen",
    about="widen what is allowed there: add to the enum what the model wants, or allow null or text",
)
SHOW_THE_SCHEMA = Remedy(
    action="schema_in_prompt",
    about="show the model the schema: {how}",
    flag="--schema-in-prompt",
    change={"schema_in_prompt": True},
)
OWN_ORDER = Remedy(
    action="property_order",
    about="let the schema's properties come in the order in which the model writes them: {how}",
    flag="--schema-order a,b,c",
    others={
        "python": 'order=["a", "b", "c"] of the constraint',
        "http": '"espalier": {"schema_order": ["a", "b", "c"]}',
        "tool": '"order": ["a", "b", "c"] in a constraint of JSON',
    },
)
MORE_TOKENS = Remedy(
    action="larger_budget",
    about="allow more tokens: {how}",
    flag="--max-tokens",
    others={"python": "max_tokens", "http": "max_tokens", "tool": "max_tokens"},
)
CLOSE_IN_TIME = Remedy(
    action="close_in_time",
    about="close the text in time: {how}",
    flag="--on-budget close",
    change={"on_budget": "close"},
)
JUMP = Remedy(
    action="jump",
    about="let forced text be split as the tokenizer splits it: {how}",
    flag="--strategy jump",
    change={"strategy": "jump"},
)
NATURAL_LAYOUT = Remedy(
    action="natural_layout",
    about="take the layout that models write: {how}",
    flag="--whitespace natural",
    others=_whitespace("natural"),
    change={"whitespace": "natural"},
)
EOS_ALLOWED = Remedy(
    action="optional_rest",
    about="the model would stop here: make what follows optional, or ask for less of it",
)
LESS_CONFLICT = Remedy(
    action="less_conflict",
    about="members that rule each other out late cost rewinds: make one of them regular, or join them into one grammar",
)
RECORD_STEPS = Remedy(
    action="record_steps",
    about="record them: {how}",
    flag="--trace-level steps",
    others={"python": 'trace="steps"', "http": '"espalier": {"trace": "steps"}', "tool": '"trace": true'},
)
