"""Findings of a diagnosis and their remedies, as data and as text. It reads no trace."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.wording import Edge, Setting

Severity = Literal["fault", "cost", "note"]
"""fault: the output is spoilt, or soon will be. cost: the output is fine, but the model was moved far. note: worth
knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do about a finding."""

    #: A stable name.
    action: str
    #: What to do, for people; its `{how}` is what the edge calls it.
    about: str
    #: The options that apply the remedy, as far as they are known without the schema or prompt.
    change: Mapping[str, Any] = field(default_factory=dict)
    #: What an edge calls it, where `change` does not say it.
    others: Mapping[Edge, str] = field(default_factory=dict)

    def said(self, edge: Edge) -> str:
        """What to do, in the words of an edge."""
        return self.about.replace("{how}", self.how(edge))

    def how(self, edge: Edge) -> str:
        """The flag, argument or field alone."""
        if edge in self.others:
            return self.others[edge]
        return ", ".join(Setting(name, value).said(edge) for name, value in self.change.items())

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


WORDS: Mapping[str, str] = {
    "whitespace_loop": "white space runs on",
    "digit_loop": "a number runs on",
    "phrase_loop": "a phrase comes again and again",
    "rewinds": "text was taken back",
    "eos_forbidden": "the model wanted to end the text earlier",
    "eos_forced": "the constraint ended the text",
    "closed_by_budget": "the token limit decided the end",
    "cut_off": "the text was cut off at the token limit",
    "misaligned": "tokens are split differently from what the model wanted",
    "blocked_at_once": "the model wanted to begin differently",
    "fights_the_prompt": "the constraint asks for something else than the model wants",
    "one_place": "most of the cost is in one place",
    "reasoning_suppressed": "the model wanted to think first",
    "word_not_listed": "a word is not in the list",
    "not_recorded": "what the model wanted was not recorded",
    "rejections_unknown": "not every rejection is known",
}
"""The code of a finding -> what it says of several texts."""


def words_of(code: str) -> str:
    """A finding's code in words."""
    return WORDS.get(code, code.replace("_", " "))


def _whitespace(style: str) -> dict[Edge, str]:
    field = f'"whitespace": "{style}" in a constraint of JSON'
    said: dict[Edge, str] = {"python": f'whitespace="{style}" of the constraint', "http": field, "tool": field}
    return said


BOUNDED_WHITESPACE = Remedy(
    action="bounded_whitespace",
    about="bound the whitespace: {how}",
    others={**_whitespace("compact"), "cli": "--whitespace compact (or natural)"},
    change={"whitespace": "compact"},
)
BOUND_NUMBERS = Remedy(
    action="bound_numbers", about="give the number bounds in the schema: minimum and maximum, or multipleOf"
)
BOUND_LENGTH = Remedy(
    action="bound_length", about="give the text an end in the schema: maxLength, or maxItems for an array"
)
BREAK_LOOPS = Remedy(
    action="break_loops",
    about="penalise what repeats: {how}, or repetition_penalty above 1",
    change={"dry_multiplier": 0.8},
)
ANOTHER_STRATEGY = Remedy(
    action="another_strategy",
    about="masking overstates unlikely continuations here: {how} corrects for it",
    change={"strategy": "smc"},
)
LET_IT_THINK = Remedy(
    action="let_it_think",
    about="let the model think first: {how}",
    change={"reasoning": "auto"},
    others={"cli": '--reasoning auto, or --after "</think>"'},
)
PROSE_FIRST = Remedy(
    action="prose_first",
    about="let the model write prose first: {how}, where the prompt asks for MARKER before the document",
    others={
        "cli": '--after "MARKER"',
        "python": 'After("MARKER", ...)',
        "http": '"espalier": {"constraint": {"kind": "after", "marker": "MARKER", ...}}',
        "tool": '"constraint": {"kind": "after", "marker": "MARKER", ...}',
    },
)
RENAME_KEYS = Remedy(
    action="rename_keys", about="name the keys as the model would, or put first the key that it writes first"
)
BOUNDS = ("pattern", "format", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems")
"""Keywords of a schema that `widen` names where they stand."""
SHOW_THE_SCHEMA = Remedy(
    action="schema_in_prompt", about="show the model the schema: {how}", change={"schema_in_prompt": True}
)
ORDER = Setting("schema_order", ["a", "b", "c"])
OWN_ORDER = Remedy(
    action="property_order",
    about="let the schema's properties come in the order in which the model writes them: {how}",
    others={
        "cli": ORDER.said("cli"),
        "python": 'order=["a", "b", "c"] of the constraint',
        "http": ORDER.said("http"),
        "tool": '"order": ["a", "b", "c"] in a constraint of JSON',
    },
)
MORE_TOKENS = Remedy(
    action="larger_budget",
    about="allow more tokens: {how}",
    others={"cli": "--max-tokens", "python": "max_tokens", "http": "max_tokens", "tool": "max_tokens"},
)
CLOSE_IN_TIME = Remedy(action="close_in_time", about="close the text in time: {how}", change={"on_budget": "close"})
JUMP = Remedy(
    action="jump", about="let forced text be split as the tokenizer splits it: {how}", change={"strategy": "jump"}
)
NATURAL_LAYOUT = Remedy(
    action="natural_layout",
    about="take the layout that models write: {how}",
    others=_whitespace("natural"),
    change={"whitespace": "natural"},
)
EOS_ALLOWED = Remedy(
    action="optional_rest", about="the model would stop here: make what follows optional, or ask for less of it"
)
LESS_CONFLICT = Remedy(
    action="less_conflict",
    about="members that rule each other out late cost rewinds: make one of them regular, or join them into one grammar",
)


def allow_word(word: str) -> Remedy:
    """Add a word to a word list."""
    quoted = shlex.quote(word)
    return Remedy(
        action="extra_word",
        about="allow the word: {how}",
        others={
            "cli": f"--vocab-extra {quoted}",
            "python": f"extra=({word!r},) of the word list",
            "http": f'"extra": [{json.dumps(word, ensure_ascii=False)}] in the word list',
            "tool": f'"extra": [{json.dumps(word, ensure_ascii=False)}] in the word list',
        },
    )


RECORD_STEPS = Remedy(
    action="record_steps",
    about="record them: {how}",
    others={
        "cli": "--trace-level steps",
        "python": 'trace="steps"',
        "http": '"espalier": {"trace": "steps"}',
        "tool": '"trace": true',
    },
)
