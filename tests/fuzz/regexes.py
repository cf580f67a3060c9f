"""Regular expressions against Python's `re`, in both directions.

Left out: case-insensitive classes beyond ASCII, in which `re` forgets letters, and longer texts where `re` may not
finish in time.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from random import Random

from espalier.constraints.spec import Regex
from espalier.schema.patterns.cost import is_quick
from tests.fuzz.cases import Case, CaseFuzzer, both_ways
from tests.fuzz.patterns import EASY, HARD, Patterns

FLAGS = ("", "", "", "", "(?i)", "(?s)", "(?m)", "(?x)", "(?a)", "(?im)")
ANCHORS = ("^", "$", r"\A", r"\Z", "(?m:^)", "(?m:$)")
LONGEST, LONGEST_IF_SLOW = 30, 10
"""The longest texts that are judged, in characters."""
MARKS = {
    "class": r"(?<!\\)\[",
    "negated class": r"(?<!\\)\[\^",
    "anchor": r"(?<![\\\[])\^|\$|\\[AZ]",
    "escaped set": r"\\[dwsDWS]",
    "escape": r"\\[xu]",
    "alternatives": r"(?<!\\)\|",
    "repetition": r"[*+?}]",
    "lazy": r"[*+?}]\?",
    "flags": r"\(\?[aimsx]",
}


class PythonPatterns(Patterns):
    """`Patterns` with what only Python has: flags, anchors anywhere, lazy quantifiers."""

    def pattern(self) -> str:
        return self.random.choice(FLAGS) + super().pattern()

    def _quantifier(self) -> str:
        found = super()._quantifier()
        return f"{found}?" if found and self.random.random() < 0.2 else found

    def _atom(self, depth: int) -> str:
        draw = self.random.random()
        if draw < 0.06:
            return f"(?:{self.random.choice(ANCHORS)})"
        if draw < 0.12 and depth < self.depth:
            return f"(?{self.random.choice(('i', 's', 'm', 'a', 'i-s'))}:{self._alternatives(depth + 1)})"
        return super()._atom(depth)


class RegexFuzzer(CaseFuzzer):
    def draw(self, random: Random, counts: Counter[str]) -> Case | None:
        pattern = PythonPatterns(random).pattern()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)
                judge = re.compile(pattern)
        except (re.error, FutureWarning):
            counts["not drawn: re refuses the pattern"] += 1
            return None
        longest = LONGEST if is_quick(pattern, LONGEST) else LONGEST_IF_SLOW
        if re.search(r"\(\?[ams]*i", pattern) and not pattern.isascii():
            counts["not drawn: re forgets letters"] += 1
            return None
        chars = (*HARD[:-1], *EASY, "a", "b", "A", "K", "\u212a", "\n", "ü")
        near = ["".join(random.choice(chars) for _ in range(random.randint(0, 4))) for _ in range(8)]
        return Case(
            spec=Regex(pattern),
            fault=both_ways(lambda text: bool(judge.fullmatch(text)) if len(text) <= longest else None, "re"),
            near=near,
            features=[name for name, mark in MARKS.items() if re.search(mark, pattern)],
            longest=8,
            inserted=chars,
        )
