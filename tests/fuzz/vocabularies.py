"""Compares a constraint under a tokenizer's vocabulary with the same constraint under the vocabulary of bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler
from espalier.tokens.mask import unpack
from espalier.tokens.vocab import Vocab
from tests.laws import tokenisations

TOKENIZER = Path(__file__).parents[2] / "models" / "demo" / "tokenizer.json"
PROBES = 60


@cache
def byte_compiler() -> Compiler:
    return Compiler(Vocab.bytes())


@cache
def token_compiler() -> Compiler:
    """For the vocabulary of the demo model."""
    return Compiler(Vocab.from_tokenizer(TOKENIZER))


def check_masks(of_bytes: Compiled, of_tokens: Compiled, text: str, random: Random, *, before: str = "") -> None:
    """After a random part of an accepted text, a token must be allowed exactly if its bytes are, one after another.
    before: what the prompt holds of the turn. Raises AssertionError. Special tokens are left out: only some constraints
    let them stand for their text."""
    data = text.encode()
    part = data[: random.randint(0, len(data))]
    slow, fast = of_bytes.matcher(before=before), of_tokens.matcher(before=before)
    for byte in part:
        slow.advance(byte)
    for token in random.choice(tokenisations(of_tokens.vocab, token_compiler().trie, part, random)):
        assert fast.allows(token), f"token {token} is refused within {part!r}"
        fast.advance(token)
    vocab = of_tokens.vocab
    bits = unpack(fast.mask(), vocab.width)
    allowed = np.flatnonzero(bits).tolist()
    probes = {random.randrange(vocab.width) for _ in range(PROBES)} | set(random.sample(allowed, min(20, len(allowed))))
    for token in sorted(probes - set(vocab.special_ids) - set(vocab.eos_ids)):
        spelled = vocab.bytes_of(token)
        if spelled:
            expected = _allows(slow, spelled)
            assert bool(bits[token]) == expected, f"after {part!r} the token {spelled!r}: bytes say {expected}"
    assert fast.is_accepting == slow.is_accepting, f"after {part!r}: only one of the two vocabularies may end"


def _allows(matcher: Matcher, data: bytes) -> bool:
    count = 0
    for byte in data:
        if not matcher.allows(byte):
            break
        matcher.advance(byte)
        count += 1
    matcher.rollback(count)
    return count == len(data)
