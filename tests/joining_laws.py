"""The law of joining, for every pair of kinds and every edge: what is named holds, or an error names what cannot.

A text is judged by each member's own judge, never by the matcher that made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement

import espalier
from espalier.constraints.after.spec import After
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.ban import Ban
from espalier.constraints.channels.spec import Channels
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.free import Free, Region
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.verdict import judge
from espalier.constraints.words.spec import Wordlist
from espalier.errors import DeadEnd, EspalierError, InputError, LimitExceeded, UnsupportedError

TOOLS = {
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string", "maxLength": 30}},
        "required": ["path"],
        "additionalProperties": False,
    }
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}},
    "required": ["name"],
    "additionalProperties": False,
}
WORDS = ("a", "yes", "no", "name", "walk", "them", "all")
EXAMPLES: dict[str, Spec] = {
    "json_schema": JsonSchema(SCHEMA),
    "json_object": JsonObject(max_depth=2),
    "regex": Regex(r"[^\n#]*"),
    "choice": Choice(['{"name": "Ada"}', "yes", "a zebra", "7;"]),
    "gbnf": Gbnf("@json_object"),
    "wordlist": Wordlist(words=WORDS),
    "ban": Ban(["zebra", "krump"]),
    "safety": Safety(patterns=["krump them", {"regex": "zor+b"}]),
    "all_of": AllOf(Regex(r"[ -~]*"), Ban(["zor"])),
    "any_of": AnyOf(Choice(["yes", "no"]), Regex(r'[{"a-zA-Z:, }]+')),
    "after": After("</think>", Regex("[a-z{} ]{1,40}")),
    "free": Free({"$": Region(Regex("[0-9]{1,3}"), end=";")}),
    "thinking": Thinking(Regex(r'[{"a-zA-Z:, }]+')),
    "tool_calls": ToolCalls(TOOLS),
    "channels": Channels(),
}
"""One constraint of each kind, made so that most pairs have a text in common and the model is tempted to break both."""
WISHES = (
    '{"name": "zebra krump them zorb $7;"}',
    'yes a zebra walk $7; {"name": "read_file", "args": {"path": "krump them"}}',
    "<think>zebra</think>{}",
)
PAIRS = list(combinations_with_replacement(EXAMPLES, 2))
"""Every pair of kinds, each with itself too."""


def some(pairs: Iterable[tuple[str, str]], *, every: int) -> Iterator[tuple[str, str]]:
    """Every n-th pair, for the edges that cost more."""
    return (pair for place, pair in enumerate(pairs) if place % every == 0)


def held(text: str, *members: Spec) -> None:
    """Asserts that a complete text satisfies each member alone."""
    for one in members:
        verdict = judge(one, text)
        assert verdict.valid is not False, (one.kind, text, verdict.errors)


def refused(message: str, hint: str | None, *kinds: str) -> None:
    """Asserts that an error names all kinds, and the way out."""
    for kind in kinds:
        assert re.search(rf"\b{kind}\b", message), (kind, message)
    assert hint, message


REFUSALS = (InputError, UnsupportedError, LimitExceeded, DeadEnd)
"""What a request can be refused with; DeadEnd where members without an automaton prove to have no text in common."""


def outcome(error: EspalierError, *kinds: str) -> None:
    """Asserts that an error is one of the request, and names all kinds."""
    assert isinstance(error, REFUSALS), repr(error)
    refused(error.message, error.hint, *kinds)


__all__ = ["EXAMPLES", "PAIRS", "SCHEMA", "TOOLS", "WISHES", "WORDS", "espalier", "held", "outcome", "refused", "some"]
