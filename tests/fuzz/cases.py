"""One case of a fuzzer: a spec with texts near it, tried under two vocabularies and against an oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from espalier.constraints.base import Compiled
from espalier.constraints.spec import Spec
from espalier.errors import EspalierError, NotAvailable
from espalier.time_limit import time_limit
from tests.fuzz.session import Finding, Totals
from tests.fuzz.texts import changed, walk
from tests.fuzz.vocabularies import byte_compiler, check_masks, token_compiler
from tests.laws import check_no_trap, check_walk

COMPILE_SECONDS = 2.0
LAW_SECONDS = 5.0
"""CPU time for the texts of a case, and for its laws. More is counted as out of time: one text or completion of an
ambiguous grammar may take a minute."""
WALKS = 6
WITH_TOKENS = 0.34
"""Share of the cases that are compiled for a tokenizer too."""
LONGEST_FOR_LAWS = 40
EXPLAINED = 3
"""Tokens whose refusal is asked for in one place."""
INSERTED = (
    '"',
    "\\",
    "/",
    "\x00",
    "\x1f",
    "\x7f",
    "é",
    "😀",
    "\u2028",
    "\n",
    " ",
    "a",
    "A",
    "0",
    "-",
    "(",
    "]",
    ".",
    "ı",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """fault(text, is_accepted): what is wrong with the matcher's answer, "" if nothing is. near: texts near the spec.
    features: what the spec has, for the counts. liked, begin, longest: as in `walk`. inserted: as in `changed`."""

    spec: Spec
    fault: Callable[[str, bool], str]
    near: Sequence[str]
    features: Collection[str] = ()
    liked: bytes = b""
    begins: Sequence[bytes] = (b"",)
    longest: int = 20
    inserted: Sequence[str] = INSERTED


def both_ways(is_right: Callable[[str], bool | None], oracle: str) -> Callable[[str, bool], str]:
    """A fault where matcher and oracle differ; None: the oracle does not know."""

    def fault(text: str, is_accepted: bool) -> str:
        expected = is_right(text)
        if expected is None or expected == is_accepted:
            return ""
        return f"{'accepts' if is_accepted else 'refuses'} what {oracle} {'takes' if expected else 'refuses'}"

    return fault


class CaseFuzzer(ABC):
    """A fuzzer whose cases have one spec each."""

    @abstractmethod
    def draw(self, random: Random, counts: Counter[str]) -> Case | None:
        """A case; None where the draw gives none, which is counted."""

    def one(self, seed: int, totals: Totals) -> None:
        random = Random(seed)
        case = self.draw(random, totals.counts)
        if case is None:
            return
        totals.spec = case.spec

        def found(fault: str, text: str = "") -> None:
            totals.findings.append(Finding(seed=seed, fault=fault, spec=case.spec, text=text))

        try:
            with time_limit(COMPILE_SECONDS):
                compiled = byte_compiler().compile(case.spec)
                has_tokens = random.random() < WITH_TOKENS
                of_tokens = token_compiler().compile(case.spec) if has_tokens else None
        except EspalierError as error:
            totals.counts[f"not compiled: {error.code}"] += 1
            return
        totals.counts["compiled"] += 1
        totals.counts["compiled for a tokenizer"] += of_tokens is not None
        totals.features.update(case.features)
        text = ""
        try:
            accepted = []
            with time_limit(LAW_SECONDS):
                for text in _texts(case, compiled, random):
                    totals.text = text
                    is_accepted = compiled.accepts(text)
                    totals.counts[f"text: {'accepted' if is_accepted else 'refused'}"] += 1
                    if is_accepted:
                        accepted.append(text)
                    if (fault := case.fault(text, is_accepted)) != "":
                        found(fault, text)
                    if of_tokens is not None and of_tokens.accepts(text) != is_accepted:
                        found("bytes and tokens disagree", text)
            text = random.choice(accepted) if accepted else ""
            with time_limit(LAW_SECONDS):
                check_laws(compiled, of_tokens, text if accepted else None, random)
        except AssertionError as error:
            found(f"a law: {error}", text)
        except EspalierError as error:
            totals.counts[f"texts and laws: {error.code}"] += 1


def check_laws(compiled: Compiled, of_tokens: Compiled | None, text: str | None, random: Random) -> None:
    """The laws of matchers along one accepted text, if it is short, and along a random walk. compiled: for the
    vocabulary of bytes; of_tokens: for a tokenizer's. Raises AssertionError."""
    if text is not None:
        if len(text) <= LONGEST_FOR_LAWS:
            check_walk(compiled, tuple(text.encode()), random)
            check_explanation(compiled, text.encode(), random)
        if of_tokens is not None:
            check_masks(compiled, of_tokens, text, random)
    check_no_trap(of_tokens or compiled, random, steps=10)


def check_explanation(compiled: Compiled, data: bytes, random: Random) -> None:
    """After a random part of an accepted text, a refused token must have a reason, unless none can be known, and an
    allowed one none. compiled: for the vocabulary of bytes. Raises AssertionError."""
    matcher = compiled.matcher()
    for byte in data[: random.randint(0, len(data))]:
        matcher.advance(byte)
    for token in random.sample(range(compiled.vocab.width), EXPLAINED):
        is_allowed = matcher.allows(token)
        try:
            blame = matcher.explain(token)
        except NotAvailable:
            continue
        except ValueError:
            assert is_allowed, f"the refusal of token {token} is not explained"
        else:
            assert not is_allowed, f"token {token} is allowed, and is blamed: {blame}"


def _texts(case: Case, compiled: Compiled, random: Random) -> list[str]:
    texts = list(case.near)
    for _ in range(WALKS):
        try:
            found = walk(
                compiled,
                random,
                liked=case.liked,
                begin=random.choice(case.begins),
                longest=random.randint(0, case.longest),
            )
        except NotAvailable:
            break
        if found is not None:
            texts.append(found)
    texts += [changed(text, random, case.inserted) for text in texts for _ in range(2)]
    return [text for text in dict.fromkeys(texts) if _is_unicode(text)]


def _is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(char) < 0xE000 for char in text)
