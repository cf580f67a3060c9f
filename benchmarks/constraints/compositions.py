"""Compositions on Tekken's 131,072 ids: what it costs to join members, and what a step costs after it.

Members: what the members need by themselves, each from its spec to its first mask. Join: from the compiled members to
the compiled composition; first: its first mask. Cold: a first walk over the text, a mask and an advance each token;
warm: a second one. Ratio: warm against the slower member alone, in turns. Shares: the members' own masks on top, as a
full trace asks for them. MB: what the joint machine remembers after all that, beside its members. CPU time, medians of
rounds. `python -m benchmarks.constraints.compositions NAME` runs the cases with this text in their names.
"""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.figures import OURS, note
from benchmarks.harness import Table, medians, ratio, timed
from benchmarks.tekken import Tekken, tekken
from espalier.automata.joint.machine import JointMachine
from espalier.constraints.ban import Ban
from espalier.constraints.base import Composite
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import Free, Region
from espalier.constraints.safety.compile import filter_of
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.words.spec import Wordlist
from espalier.tokens import mask as masks

ROUNDS = 3
TURNS = 9
WORDS = 3_000
PHRASES = [f"banned phrase {i}" for i in range(100)] + ["http://", "https://", "```"]
DOCUMENT = '{"name": "Ada", "tags": ["math", "poetry"], "address": {"city": "London", "lines": [1, 2.5, null]}}'


def cases() -> dict[str, tuple[Spec, str]]:
    """Name: the spec, and a text of its language."""
    rng = Random(0)
    letters = "etaoinshrdlu"
    listed = list(dict.fromkeys("".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(2 * WORDS)))[:WORDS]
    words = Wordlist(listed, capitals="sentence")
    prose = " ".join(rng.choices(listed, k=200))
    nested = '{"all": [' + ", ".join([DOCUMENT] * 8) + "]}"
    said_in_json = '{"' + '", "'.join(f'{a} {b}": "{b}' for a, b in pairwise(listed[:12])) + '"}'
    twelve = "{" + ", ".join(f'"field_{i}": "some words here"' for i in range(12)) + "}"
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "weather in London", "most": 3}}\n</tool_call>'
    said = f"Let me see. <tool_call>{DOCUMENT}</tool_call> " * 6
    return {
        "words": (words, prose),
        "words x {1,60}": (AllOf(words, Regex(".{1,60}")), prose[:60].rsplit(" ", 1)[0]),
        "words x [^,]*": (AllOf(words, Regex("[^,]*")), prose),
        "words x ban": (AllOf(words, Ban(PHRASES)), prose),
        "JSON": (JsonObject(), nested),
        "JSON x [^\\\\]*": (AllOf(JsonObject(), Regex(r"[^\\]*")), nested),
        "JSON x ban": (AllOf(JsonObject(), Ban(PHRASES)), nested),
        "JSON x both": (AllOf(JsonObject(), Ban(PHRASES), Regex(r"[^\\]*")), nested),
        "array x {2,20}": (AllOf(JsonObject(kinds=("array",)), Regex(r"[^\n]{2,20}")), '["math", "poetry"]'),
        "JSON x {2,50}": (AllOf(JsonObject(), Regex("[^\\n]{2,50}")), '{"tags": ["math", "poetry"], "n": [1, 2.5]}'),
        "JSON x 50 words": (AllOf(JsonObject(), in_json(listed[:50])), said_in_json),
        "JSON x words": (AllOf(JsonObject(), in_json(listed)), said_in_json),
        "JSON x standard": (AllOf(JsonObject(), Safety("standard")), nested),
        "JSON x strict": (AllOf(JsonObject(), Safety("strict")), nested),
        "12 strings": (AllOf(TWELVE, Safety("standard")), twelve),
        "tools": (AllOf(TOOLS, Safety("standard")), call),
        "arithmetic": (AllOf(Gbnf(ARITHMETIC.read_text()), Safety("strict")), "(1 + 2) * (33 - 4) / 5 + 6 * 7 - 8 * 9"),
        "two grammars": (AllOf(JsonObject(), Gbnf(FLAT)), '{"name": "Ada", "tags": ["math", "poetry"]}'),
        "free": (Free({"<tool_call>": Region(JsonObject(), end="</tool_call>")}), said),
        "free x ban": (
            AllOf(Free({"<tool>": Region(JsonObject(), end="</tool>")}), Ban(PHRASES)),
            said.replace("_call", ""),
        ),
    }


TWELVE = JsonSchema(
    {
        "type": "object",
        "properties": {f"field_{i}": {"type": "string"} for i in range(12)},
        "required": [f"field_{i}" for i in range(12)],
        "additionalProperties": False,
    }
)
TOOLS = ToolCalls(
    {
        "search": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "most": {"type": "integer"}},
            "required": ["query"],
            "additionalProperties": False,
        }
    }
)
ARITHMETIC = Path(__file__).parents[2] / "examples" / "arithmetic.gbnf"
FLAT = r"""
root ::= "{" pair (", " pair)* "}"
pair ::= string ": " (string | "[" (string (", " string)*)? "]")
string ::= "\"" [^"\\\x00-\x1f]* "\""
"""
"""Objects of strings and of lists of strings."""


def in_json(words: list[str]) -> Wordlist:
    """Whose words stand in strings: what JSON puts around them counts as separators."""
    return Wordlist(words, capitals="never", quotes=True, colons=True, separators="{}[]", max_run=5)


def main() -> None:
    made = tekken()
    made.compiler().compile(AllOf(JsonObject(), Regex("[^x]*"))).matcher().mask()  # numba compiles or loads
    table = Table(
        {
            "constraint": ">16",
            "tokens": ">11.0f",
            "members ms": ">11.1f",
            "join ms": ">11.1f",
            "first ms": ">11.1f",
            "cold µs": ">11.1f",
            "warm µs": ">11.1f",
            "ratio": ">11.2f",
            "shares µs": ">11.1f",
            "MB": ">11.1f",
        }
    )
    for name, (spec, text) in cases().items():
        if len(sys.argv) > 1 and sys.argv[0].endswith("compositions.py") and sys.argv[1] not in name:
            continue
        row = medians(measured(made, spec, text) for _ in range(ROUNDS))
        table.row(name, *row)
        warm, over = row[5], row[6]
        note("Compositions, 131,072 ids", f"{name}: a step", "µs", {OURS: warm, "the slower member alone": warm / over})
        firsts = {OURS: row[2] + row[3], "its members": row[1]}
        note("Compositions, 131,072 ids", f"{name}: to first mask", "ms", firsts)


def measured(made: Tekken, spec: Spec, text: str) -> tuple[float, ...]:
    tokens, compiler = made.encode(text), made.compiler()
    members = spec.members if isinstance(spec, AllOf) else (spec,)
    filter_of.cache_clear()
    alone, making = timed(lambda: [compiler.compile(member) for member in members])
    _, masking = timed(lambda: [member.matcher().mask() for member in alone])
    compiled, join = timed(lambda: compiler.compile(spec))
    _, first = timed(lambda: compiled.matcher().mask())
    _, cold = timed(lambda: walk(compiled, tokens))
    for member in alone:
        walk(member, tokens)
    warms, slowest = [], []
    for _ in range(TURNS):
        warms.append(timed(lambda: walk(compiled, tokens))[1])
        slowest.append(max(timed(lambda member=member: walk(member, tokens))[1] for member in alone))
    shared = 0.0
    warm = statistics.median(warms)
    if isinstance(compiled.matcher(), Composite):
        walk(compiled, tokens, members=True)
        shared = timed(lambda: walk(compiled, tokens, members=True))[1] - warm
    per = 1e3 / len(tokens)
    machine = getattr(getattr(compiled, "whole", compiled), "machine", None)
    memory = machine.size / 1e6 if isinstance(machine, JointMachine) else 0.0
    return (
        len(tokens),
        making + masking,
        join,
        first,
        cold * per,
        warm * per,
        ratio(warms, slowest),
        shared * per,
        memory,
    )


def walk(compiled: Any, tokens: list[int], *, members: bool = False) -> None:
    matcher = compiled.matcher()
    for token in tokens:
        if not masks.test(matcher.mask(), token):
            raise SystemExit(f"{compiled.spec.kind} refuses {token} {compiled.vocab.text_of(token)!r}")
        if members:
            matcher.member_masks()
        matcher.advance(token)


if __name__ == "__main__":
    main()
