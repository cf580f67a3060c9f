"""GBNF grammars against llama.cpp's own grammar engine and against an Earley recogniser, both in both directions.

The recogniser judges every grammar. llama.cpp judges those whose ways to read a text it can keep (see
`is_tame`; no left recursion, no rule without a sentence), without the differences that
docs/constraints.md lists: NUL, and characters beyond ASCII where a class is negated.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from random import Random

import numpy as np
import pytest

from espalier.constraints.spec import Gbnf
from espalier.errors import EspalierError, TokenRefused
from espalier.grammar.ast import AnyChar, CharClass, Grammar, Repeat, RuleRef, postorder
from espalier.grammar.check import check
from espalier.grammar.parser import parse
from espalier.grammar.sample import SentenceSampler
from espalier.tokens.mask import unpack
from tests.fuzz.cases import Case, CaseFuzzer
from tests.fuzz.vocabularies import byte_compiler
from tests.llama_grammar import LlamaGrammar, LlamaVocab, llama_bytes
from tests.unit.grammar.oracle import Recogniser

RULES = ("root", "a", "b-1", "Cc", "x2")
CHARS = ("a", "b", "z", "0", " ", ",", "-", "]", "[", "\\", '"', "\n", "\t", "é", "😀", "\u2028", "^", "/", "#", "|")
RANGES = ("a-z", "0-9", "A-C", "\\x20-\\x2f", "é-ü", "\\u2020-\\u2030", "\\U0001F600-\\U0001F64F", "a-b")
ESCAPES = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", '"': '\\"', "]": "\\]", "[": "\\["}
COMPARED = [*range(1, 128), 256]
"""Ids of the byte vocabulary whose mask bits are compared: ASCII without NUL, and EOS."""
LONGEST, LONGEST_FOR_LLAMA = 24, 12
NOT_FOR_LLAMA = frozenset(("dead-rule", "left-recursion", "nullable-loop"))
"""Findings of `check` on grammars that llama.cpp does not judge: it overlooks some left recursions (behind a rule
that can be empty and stands further down), and then fills the memory."""


class GrammarTexts:
    """Draws the text of a grammar, with comments, groups, counted repetitions and escapes. depth: of groups. is_flat:
    only single characters and literals are repeated, as llama.cpp needs it."""

    def __init__(self, random: Random, *, depth: int = 2, is_flat: bool = False) -> None:
        self.random = random
        self.depth = depth
        self.is_flat = is_flat

    def grammar(self) -> tuple[str, str]:
        """A grammar, and the name of its root rule."""
        names = RULES[: self.random.randint(1, len(RULES))]
        root = self.random.choice(names) if self.random.random() < 0.3 else "root"
        rules = [f"{name} ::= {self._alternatives(names, 0)}" for name in names]
        self.random.shuffle(rules)
        comment = self.random.choice(("", "", "# a comment | not [read\n"))
        return comment + "\n".join(rules) + self.random.choice(("", "\n", " # end")), root

    def _alternatives(self, names: tuple[str, ...], depth: int) -> str:
        bar = self.random.choice((" | ", "|", " |\n  "))
        count = self.random.choice((1, 1, 2, 2, 3))
        return bar.join(self._sequence(names, depth) for _ in range(count))

    def _sequence(self, names: tuple[str, ...], depth: int) -> str:
        count = self.random.choice((1, 1, 2, 2, 3)) if self.random.random() < 0.95 else 0
        drawn = [self._item(names, depth) for _ in range(count)]
        items = " ".join(item + (self._quantifier() if item[0] in '"[.' or not self.is_flat else "") for item in drawn)
        return items or '""'

    def _quantifier(self) -> str:
        return self.random.choice(("", "", "", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}"))

    def _item(self, names: tuple[str, ...], depth: int) -> str:
        draw = self.random.random()
        if draw < 0.3:
            return self._literal()
        if draw < 0.55:
            return self._class()
        if draw < 0.6:
            return "."
        if draw < 0.72 and depth < self.depth:
            return f"({self._alternatives(names, depth + 1)})"
        return self.random.choice(names) if draw < 0.9 else self._literal()

    def _literal(self) -> str:
        return '"' + "".join(self._char("]") for _ in range(self.random.randint(1, 3))) + '"'

    def _class(self) -> str:
        members = [
            self.random.choice(RANGES) if self.random.random() < 0.4 else self._char("-^")
            for _ in range(self.random.randint(1, 3))
        ]
        return f"[{'^' if self.random.random() < 0.25 else ''}{''.join(members)}]"

    def _char(self, never_plain: str) -> str:
        char = self.random.choice(CHARS)
        if char in never_plain or self.random.random() < 0.2:
            code = ord(char)
            return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        return ESCAPES.get(char, char)


class GrammarFuzzer(CaseFuzzer):
    @cached_property
    def llama(self) -> LlamaVocab | str:
        """llama.cpp with the byte vocabulary; or why it is not there."""
        try:
            return llama_bytes()
        except pytest.skip.Exception as error:
            return str(error)

    def draw(self, random: Random, counts: Counter[str]) -> Case | None:
        text, root = GrammarTexts(random, is_flat=random.random() < 0.6).grammar()
        try:
            grammar = parse(text, root=root)
            findings = check(grammar)
            if any(finding.severity == "error" for finding in findings):
                counts["not drawn: no sentence"] += 1
                return None
            sampler = SentenceSampler(grammar)
            near = [sampler.draw(random, max_size=random.choice((3, 10, LONGEST))) for _ in range(8)]
        except EspalierError as error:
            counts[f"not drawn: {error.code}"] += 1
            return None
        spec = Gbnf(text, root=root)
        theirs = None
        if isinstance(self.llama, str):
            counts[f"llama.cpp is skipped: {self.llama}"] += 1
        elif is_tame(grammar) and NOT_FOR_LLAMA.isdisjoint(finding.code for finding in findings):
            theirs = self.llama
        recogniser = Recogniser(grammar)
        counts["judged by llama.cpp too"] += theirs is not None

        def fault(text: str, is_accepted: bool) -> str:
            if len(text) > LONGEST:
                return ""
            if recogniser.accepts(text) != is_accepted:
                return f"{'accepts' if is_accepted else 'refuses'} what the recogniser does not"
            return "" if theirs is None else by_llama(theirs, spec, text, is_accepted, grammar)

        nodes = [node for rule in grammar.rules.values() for node in postorder(rule.body)]
        return Case(
            spec=spec,
            fault=fault,
            near=near,
            features=[*{type(node).__name__ for node in nodes}, *(["named root"] if root != "root" else [])],
            inserted=CHARS,
        )


def is_tame(grammar: Grammar) -> bool:
    """Whether llama.cpp keeps few ways to read a text: nothing that repeats or recurs inside a repetition, and no rule
    that leads back to itself names two rules."""
    nodes = {name: list(postorder(rule.body)) for name, rule in grammar.rules.items()}
    names = {name: [node.name for node in found if isinstance(node, RuleRef)] for name, found in nodes.items()}
    if any(len(names[name]) > 1 for name in names if name in _reached(name, names)):
        return False
    return not any(
        isinstance(inner, Repeat | RuleRef)
        for found in nodes.values()
        for node in found
        if isinstance(node, Repeat)
        for inner in postorder(node.item)
    )


def _reached(name: str, names: dict[str, list[str]]) -> set[str]:
    """The rules that a rule leads to."""
    found: set[str] = set()
    todo = list(names[name])
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += names.get(one, [])
    return found


def has_wide_class(grammar: Grammar) -> bool:
    return any(
        isinstance(node, AnyChar) or (isinstance(node, CharClass) and node.negated)
        for rule in grammar.rules.values()
        for node in postorder(rule.body)
    )


def by_llama(llama: LlamaVocab, spec: Gbnf, text: str, is_accepted: bool, grammar: Grammar) -> str:
    """The fault that llama.cpp finds: another verdict, or another mask on the way."""
    if len(text) > LONGEST_FOR_LLAMA or "\0" in text or (not text.isascii() and has_wide_class(grammar)):
        return ""
    try:
        theirs = LlamaGrammar(llama, spec.grammar, spec.root)
    except ValueError:
        return "llama.cpp refuses the grammar"
    ours = byte_compiler().compile(spec).matcher()
    try:
        for place, byte in enumerate([*text.encode(), byte_compiler().vocab.eos_ids[0]]):
            mine, his = unpack(ours.mask(), llama.size), theirs.mask()
            if not np.array_equal(mine[COMPARED], his[COMPARED]):
                only = f"only ours {np.flatnonzero(mine & ~his)}, only llama.cpp's {np.flatnonzero(his & ~mine)}"
                return f"after {text.encode()[:place]!r} the masks differ: {only}"
            if not his[byte]:
                return "accepts what llama.cpp refuses" if is_accepted else ""
            theirs.accept(byte)
            ours.advance(byte)
    except TokenRefused:
        return "refuses a byte that llama.cpp takes"
    finally:
        theirs.close()
    return "" if is_accepted else "refuses what llama.cpp takes"
