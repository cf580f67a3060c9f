"""Compositions on Tekken's 131,072 ids: what a product costs to build, and what a step costs after it.

Build: from the spec to a compiled constraint, members' automata and their product included. States: of the product, or
positions of its network. Cold: a first walk over the text, a mask and an advance each token; warm: a second one, and
the members' own masks on top, as a full trace asks for them. CPU time, medians of rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from espalier.constraints.ban import Ban
from espalier.constraints.base import Composite
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import Free, Region
from espalier.constraints.spec import JsonObject, Regex, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.tokens import mask as masks
from espalier.tokens.trie import load_trie
from tests.tokenizers import tekken_vocab

ROUNDS = 3
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
        "JSON x 50 words": (AllOf(JsonObject(), in_json(listed[:50])), said_in_json),
        "free": (Free({"<tool_call>": Region(JsonObject(), end="</tool_call>")}), said),
        "free x ban": (AllOf(Free({"<tool>": Region(JsonObject(), end="</tool>")}), Ban(PHRASES)),
                       said.replace("_call", "")),
    }  # fmt: skip


def in_json(words: list[str]) -> Wordlist:
    """Whose words stand in strings: what JSON puts around them counts as separators. Each way into and out of a string
    is a rule of its own in the product, so the automaton must be small."""
    return Wordlist(words, capitals="never", quotes=True, colons=True, separators="{}[]", max_run=5)


def main() -> None:
    vocab = tekken_vocab()
    trie = load_trie(vocab, Path(tempfile.gettempdir()))
    Compiler(vocab).compile(Regex("a|b")).matcher().mask()  # numba compiles or loads
    head = ("tokens", "build ms", "states", "cold µs", "warm µs", "members µs")
    print(f"{'constraint':>16}" + ("{:>12}" * len(head)).format(*head))
    for name, (spec, text) in cases().items():
        tokens = vocab.encoder(text)  # type: ignore[misc]  # tekken has one
        rows = []
        for _ in range(ROUNDS):
            compiler = Compiler(vocab)
            compiler._trie = trie  # the trie is measured elsewhere
            compiled, build = timed(lambda compiler=compiler, spec=spec: compiler.compile(spec))
            _, cold = timed(lambda compiled=compiled, tokens=tokens: walk(compiled, tokens))
            _, warm = timed(lambda compiled=compiled, tokens=tokens: walk(compiled, tokens))
            per = 1e3 / len(tokens)
            rows.append([build, cold * per, warm * per])
            if isinstance(compiled.matcher(), Composite):
                walk(compiled, tokens, members=True)
                _, shared = timed(lambda compiled=compiled, tokens=tokens: walk(compiled, tokens, members=True))
                rows[-1].append((shared - warm) * per)
        a, b, c, *d = map(statistics.median, zip(*rows, strict=True))
        print(f"{name:>16}{len(tokens):>12}{a:>12.1f}{states(compiled):>12}{b:>12.1f}{c:>12.1f}"
              + (f"{d[0]:>12.1f}" if d else ""), flush=True)  # fmt: skip


def states(compiled: Any) -> int:
    machine = getattr(compiled, "whole", compiled).machine
    return len(machine.dfa) if hasattr(machine, "dfa") else len(machine.network.final)


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = action()
    return result, (time.process_time() - start) * 1e3


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
