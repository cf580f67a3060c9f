"""Regexes on Tekken's 131,072 ids: our automata against llguidance's regex engine, on which the choice rests.

Same pattern, same text, checked to be accepted by both. Compile: from the pattern to the first mask, included. Cold:
a first walk over the text, a mask and an advance each token. Warm: a second walk. CPU time, medians of rounds in which
the two take turns. llguidance with forcing off, default slices.
"""

from __future__ import annotations

import re
from typing import Any

from llguidance import LLMatcher

from benchmarks.harness import Table, medians, timed
from benchmarks.tekken import Tekken, all_of, tekken, walk, walk_llguidance
from espalier.constraints.spec import Regex

ROUNDS = 5
WORDS = "The quick brown fox jumps over the lazy dog while the old clock in the hall strikes nine "
CASES = {
    "date": (r"\d{4}-\d{2}-\d{2}", "2026-11-21"),
    "e-mail": (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}", "rosa.parker@mail.example.org"),
    "sentence": (r"[A-Z][a-z]+( [a-z]+)*[.!?]", WORDS.strip().capitalize() + "."),
    "prose": (r"(\w+\s)+", WORDS * 3),
    "any, bounded": (r".{1,400}", (WORDS * 4)[:390]),
    "letters, bounded": (r"[a-z]{1,500}", "abcdefghij" * 40),
    "unicode": (r"\p{L}+( \p{L}+)*", "Zoë läuft über die Straße nach Hause " * 4 + "heim"),
    "alternatives": ("|".join(f"word{i}" for i in range(500)), "word321"),
    "quoted": (r'"([^"\\]|\\.)*"', '"' + WORDS * 3 + '"'),
}


def main() -> None:
    made = tekken()
    table = Table(
        {
            "pattern": ">18",
            "tokens": ">12",
            "compile": ">12.2f",
            "cold": ">12.2f",
            "warm µs": ">12.2f",
            "llg compile": ">12.2f",
            "llg cold": ">12.2f",
            "llg warm µs": ">12.2f",
            "cold ÷ llg": ">12.2f",
        }
    )
    for name, (pattern, text) in CASES.items():
        tokens = made.encode(text)
        found = medians(measured(made, pattern, tokens) for _ in range(ROUNDS))
        table.row(name, len(tokens), *found, found[1] / found[4])
    print("\ncompile, cold: ms of CPU")


def measured(made: Tekken, pattern: str, tokens: list[int]) -> list[float]:
    """Ours, then llguidance: ms to compile and of a cold walk, µs of a warm step."""
    compiled, compiling = timed(lambda: first(made, pattern))
    walks = [timed(lambda: all_of(walk(compiled, tokens), tokens, "ours"))[1] for _ in range(2)]
    start, llg_compiling = timed(lambda: first_theirs(made, pattern))
    width = made.vocab.width
    llg = [timed(lambda: all_of(walk_llguidance(start, tokens, width), tokens, "llguidance"))[1] for _ in range(2)]
    per = 1e3 / len(tokens)
    return [compiling, walks[0], walks[1] * per, llg_compiling, llg[0], llg[1] * per]


def first(made: Tekken, pattern: str) -> Any:
    compiled = made.compiler().compile(Regex(pattern))
    compiled.matcher().mask()
    return compiled


def first_theirs(made: Tekken, pattern: str) -> LLMatcher:
    body = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern)
    start = made.llguidance_start(f"start: /{body}/")
    walk_llguidance(start, [0], made.vocab.width)  # its first mask
    return start


if __name__ == "__main__":
    main()
