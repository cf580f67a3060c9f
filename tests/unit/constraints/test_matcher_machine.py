"""Matchers against a model of them: a finite language and its prefixes. Any order of tokens taken and refused, forks,
rollbacks and ends of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from espalier.constraints.ban import Ban
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.spec import Choice, Gbnf, Regex, Spec
from espalier.errors import NotAvailable, TokenRefused
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples

PIECES = (b"ab", b"bc", b"abc", b"aa", b"\xc3", b"\xa9", b"b\xc3", b"\xa9a", b"xx", b"cc")
EOS = 256 + len(PIECES)
VOCAB = Vocab(
    tokens=(*(bytes([byte]) for byte in range(256)), *PIECES, b"", b""),
    eos_ids=(EOS, EOS + 1),
    special_texts={EOS: "</s>", EOS + 1: "<end>"},
    width=EOS + 5,
)
LONGEST = 5


def language_of(accepts: Callable[[str], object], letters: str = "abcéx") -> frozenset[bytes]:
    """Every text of at most LONGEST letters that an oracle accepts."""
    texts = ("".join(parts) for size in range(LONGEST + 1) for parts in product(letters, repeat=size))
    return frozenset(text.encode() for text in texts if accepts(text))


PATTERN = r"(ab?|[bc]{1,2}é)(xa)?"
SPECS: dict[str, tuple[Spec, Callable[[str], object]]] = {
    "regex": (Regex(PATTERN), lambda text: re.fullmatch(PATTERN, text)),
    "choice": (Choice(("a", "ab", "abc", "é", "xx")), lambda text: text in ("a", "ab", "abc", "é", "xx")),
    "gbnf": (
        Gbnf('root ::= ("a" | "b" tail){1,2}\ntail ::= "c" | "é" | ""'),
        lambda text: re.fullmatch("(a|b[cé]?){1,2}", text),
    ),
    "all_of": (
        AllOf((Regex("[abc]{1,4}"), Ban(("bb", "ca")))),
        lambda text: re.fullmatch("[abc]{1,4}", text) and "bb" not in text and "ca" not in text,
    ),
    "any_of": (AnyOf((Regex("a{0,3}c"), Choice(("aab", "é")))), lambda text: re.fullmatch("a{0,3}c|aab|é", text)),
}


@cache
def compiled_of(name: str) -> tuple[Compiled, frozenset[bytes], frozenset[bytes]]:
    """The compiled spec, its language, and every beginning of a text of the language."""
    spec, accepts = SPECS[name]
    language = language_of(accepts)
    return (
        Compiler(VOCAB).compile(spec),
        language,
        frozenset(text[:i] for text in language for i in range(len(text) + 1)),
    )


class MatcherMachine(RuleBasedStateMachine):
    """branches: a matcher and the tokens that it took."""

    name: str

    def __init__(self) -> None:
        super().__init__()
        self.compiled, self.language, self.prefixes = compiled_of(self.name)
        self.branches: list[tuple[Matcher, list[int]]] = [(self.compiled.matcher(), [])]

    def allowed(self, taken: list[int]) -> list[int]:
        """What the model allows after these tokens."""
        if taken and taken[-1] in VOCAB.eos_ids:
            return []
        text = VOCAB.decode(taken)
        plain = [token for token, piece in enumerate(VOCAB.tokens) if piece and text + piece in self.prefixes]
        return [*plain, *(VOCAB.eos_ids if text in self.language else ())]

    @rule(branch=st.integers(0, 99), choice=st.integers(0, 99))
    def takes(self, branch: int, choice: int) -> None:
        matcher, taken = self.branches[branch % len(self.branches)]
        if allowed := self.allowed(taken):
            matcher.advance(allowed[choice % len(allowed)])
            taken.append(allowed[choice % len(allowed)])

    @rule(branch=st.integers(0, 99), token=st.integers(-1, VOCAB.width))
    def tries(self, branch: int, token: int) -> None:
        """Any id at all: taken if it is allowed, else refused with a reason, and nothing changes."""
        matcher, taken = self.branches[branch % len(self.branches)]
        if token in self.allowed(taken):
            with pytest.raises(ValueError, match="allowed"):
                matcher.explain(token)
            matcher.advance(token)
            taken.append(token)
            return
        with pytest.raises(TokenRefused):
            matcher.advance(token)

    @rule(branch=st.integers(0, 99), choice=st.integers(0, 99))
    def explains(self, branch: int, choice: int) -> None:
        matcher, taken = self.branches[branch % len(self.branches)]
        refused = [token for token in range(len(VOCAB.tokens)) if token not in self.allowed(taken)]
        if not matcher.is_finished:
            assert matcher.explain(refused[choice % len(refused)]) is not None

    @rule(branch=st.integers(0, 99), count=st.integers(0, 6))
    def rolls_back(self, branch: int, count: int) -> None:
        matcher, taken = self.branches[branch % len(self.branches)]
        if count > len(taken):
            with pytest.raises(ValueError, match="undo"):
                matcher.rollback(count)
            return
        matcher.rollback(count)
        del taken[len(taken) - count :]

    @rule(branch=st.integers(0, 99))
    def forks(self, branch: int) -> None:
        matcher, taken = self.branches[branch % len(self.branches)]
        if len(self.branches) < 4:
            self.branches.append((matcher.fork(), [*taken]))

    @rule(branch=st.integers(0, 99))
    def completes(self, branch: int) -> None:
        """A shortest completion ends in a text of the language, and no other is shorter."""
        matcher, taken = self.branches[branch % len(self.branches)]
        if matcher.is_finished:
            return
        try:
            completion = matcher.shortest_completion()
        except NotAvailable:
            return
        assert completion[-1] in VOCAB.eos_ids
        text = VOCAB.decode(taken)
        assert text + VOCAB.decode(completion) in self.language
        ends = [full[len(text) :] for full in self.language if full.startswith(text)]
        assert len(completion) == 1 + min(map(fewest_tokens, ends))

    @invariant()
    def every_branch_is_as_the_model_says(self) -> None:
        for matcher, taken in self.branches:
            allowed = self.allowed(taken)
            bits = masks.unpack(matcher.mask(), VOCAB.width)
            assert np.flatnonzero(bits).tolist() == sorted(allowed), VOCAB.decode(taken)
            assert [token for token in range(VOCAB.width) if matcher.allows(token)] == sorted(allowed)
            is_finished = bool(taken) and taken[-1] in VOCAB.eos_ids
            assert matcher.is_finished == is_finished
            assert matcher.is_accepting == (not is_finished and VOCAB.decode(taken) in self.language)
            forced = VOCAB.decode(matcher.forced())
            text = VOCAB.decode(taken)
            assert is_finished or all(full.startswith(text + forced) for full in self.language if full.startswith(text))


@cache
def fewest_tokens(data: bytes) -> int:
    """The fewest tokens that spell the bytes."""
    if not data:
        return 0
    return 1 + min(fewest_tokens(data[len(piece) :]) for piece in VOCAB.tokens if piece and data.startswith(piece))


@pytest.mark.parametrize("name", SPECS)
def test_a_matcher_is_as_its_finite_language_says_whatever_is_done_with_it(name: str) -> None:
    machine = type(f"{name}Machine", (MatcherMachine,), {"name": name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(25), stateful_step_count=20, deadline=None)
    )
