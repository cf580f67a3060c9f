"""The laws of every matcher (see `constraints/base.py`), run against every implementation.

`check_matcher(compiled, accepted=[...], rejected=[...])` walks each accepted text under several tokenisations and
checks every law at every step. It asserts; it returns nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from espalier.constraints.base import Compiled, Matcher
from espalier.errors import NotAvailable, TokenRefused
from espalier.tokens import mask as masks
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab
from tests.examples import examples

PROBES = examples(200)
"""Tokens probed one by one in a state, beside the special and allowed ones."""
AGAIN = 20
"""The same, where another spelling of the same text comes to the same state."""


def check_matcher(
    compiled: Compiled,
    *,
    trie: TokenTrie,
    accepted: Sequence[str | bytes],
    rejected: Sequence[str | bytes] = (),
    seed: int = 0,
    walks: int = 3,
) -> None:
    """All laws. `walks`: random walks through the masks, looking for traps."""
    rng = random.Random(seed)
    for text in accepted:
        data = text.encode() if isinstance(text, str) else text
        assert compiled.accepts(text), f"refused: {text!r}"
        probed: set[bytes] = set()
        for tokens in tokenisations(compiled.vocab, trie, data, rng):
            check_walk(compiled, tokens, rng, probed)
    for text in rejected:
        assert not compiled.accepts(text), f"accepted: {text!r}"
    for _ in range(walks):
        check_no_trap(compiled, rng)


def matcher_after(compiled: Compiled, text: str) -> Matcher:
    """The matcher after a text, one byte a token. The vocabulary has a token for each byte of it."""
    matcher = compiled.matcher()
    for byte in text.encode():
        matcher.advance(compiled.vocab.tokens.index(bytes([byte])))
    return matcher


def tokenisations(vocab: Vocab, trie: TokenTrie, data: bytes, rng: random.Random) -> list[tuple[int, ...]]:
    """The fewest-token spelling, a random one, and the one of shortest tokens."""
    fewest = trie.segment(data)
    assert fewest is not None, f"the vocabulary cannot spell {data!r}"
    return list(dict.fromkeys([fewest, _spell(vocab, trie, data, rng), _spell(vocab, trie, data, None)]))


def _spell(vocab: Vocab, trie: TokenTrie, data: bytes, rng: random.Random | None) -> tuple[int, ...]:
    out: list[int] = []
    at = 0
    while at < len(data):
        choices = trie.prefixes(data, at)  # shortest first
        # Any prefix may be taken as long as the rest can still be spelled; single bytes always can be.
        token = rng.choice(choices) if rng else choices[0]
        out.append(token)
        at += len(vocab.bytes_of(token))
    return tuple(out)


def check_walk(compiled: Compiled, tokens: Sequence[int], rng: random.Random, probed: set[bytes] | None = None) -> None:
    """Walk one accepted sequence and check every law on the way, at its end, and on the way back. probed: the texts
    after which all of PROBES were looked at already; those of this walk are added."""
    vocab = compiled.vocab
    matcher = compiled.matcher()
    seen, text = [matcher.mask()], b""
    probed = set() if probed is None else probed
    for token in tokens:
        check_state(matcher, vocab, rng, AGAIN if text in probed else PROBES)
        probed.add(text)
        text += vocab.bytes_of(token)
        fork = matcher.fork()
        assert masks.test(matcher.mask(), token), f"token {token} {vocab.text_of(token)!r} is not allowed"
        matcher.advance(token)
        assert np.array_equal(fork.mask(), seen[-1]), "a fork moved with its origin"
        fork.advance(token)
        assert np.array_equal(fork.mask(), matcher.mask()), "a fork behaves differently"
        seen.append(matcher.mask())
    check_state(matcher, vocab, rng, AGAIN if text in probed else PROBES)
    probed.add(text)
    assert matcher.is_accepting
    for eos in vocab.eos_ids:
        check_end(matcher, vocab, eos)
    for depth in range(1, len(tokens) + 1):
        copy = matcher.fork()
        copy.rollback(depth)
        assert np.array_equal(copy.mask(), seen[-1 - depth]), f"rollback({depth}) gives another mask"
    with pytest.raises(ValueError, match="undo"):
        matcher.rollback(len(tokens) + 1)


def check_state(matcher: Matcher, vocab: Vocab, rng: random.Random, count: int = PROBES) -> None:
    """`allows` of `count` random tokens, and of all that matter, equals the mask; EOS exactly when accepting; padding
    and plain specials never; refusal harmless."""
    mask = matcher.mask()
    assert mask.shape == (masks.words(vocab.width),)
    assert mask.dtype == np.int32
    bits = masks.unpack(mask, len(mask) * 32)
    assert not bits[vocab.width :].any(), "a bit past the width is set"
    assert bits.any(), "nothing is allowed before the end: a trap"
    allowed = np.flatnonzero(bits[: vocab.width])
    probes = {rng.randrange(vocab.width) for _ in range(min(count, vocab.width))}
    probes |= {int(i) for i in rng.sample(list(allowed), min(20, len(allowed)))}
    probes |= set(vocab.special_ids) if len(vocab.special_ids) < 50 else set(vocab.eos_ids)
    probes |= {0, vocab.width - 1}
    for token in probes:
        assert matcher.allows(token) == bool(bits[token]), f"allows({token}) is not bit {token}"
    for eos in vocab.eos_ids:
        assert bool(bits[eos]) == matcher.is_accepting, "EOS is allowed exactly when accepting"
    assert not matcher.allows(-1)
    assert not matcher.allows(vocab.width)
    refused = next((t for t in sorted(probes) if not bits[t]), None)
    if refused is not None:
        with pytest.raises(TokenRefused):
            matcher.advance(refused)
        assert np.array_equal(matcher.mask(), mask), "a refused token changed the matcher"
    forced = matcher.forced()
    walker = matcher.fork()
    for token in forced:
        walker.advance(token)  # raises if it is not allowed
    assert np.array_equal(matcher.mask(), mask), "asking changed the matcher"


def check_end(matcher: Matcher, vocab: Vocab, eos: int) -> None:
    """After an EOS: finished, nothing allowed, no advance; one rollback restores."""
    before = matcher.mask()
    ended = matcher.fork()
    ended.advance(eos)
    assert ended.is_finished
    assert not ended.is_accepting
    assert not ended.mask().any()
    assert not ended.allows(eos)
    assert ended.forced() == ()
    with pytest.raises(TokenRefused):
        ended.advance(eos)
    ended.rollback(1)
    assert not ended.is_finished
    assert np.array_equal(ended.mask(), before)
    assert not matcher.is_finished, "a fork ended its origin"


def check_no_trap(compiled: Compiled, rng: random.Random, steps: int = 40) -> None:
    """A random walk: something is always allowed, and where the matcher knows a completion it is a true one."""
    vocab = compiled.vocab
    matcher = compiled.matcher()
    for _ in range(steps):
        check_completion(matcher)
        allowed = [int(i) for i in masks.allowed_ids(matcher.mask(), vocab.width) if int(i) not in vocab.eos_ids]
        if not allowed:
            assert matcher.is_accepting, "nothing is allowed and the text is not complete: a trap"
            return
        matcher.advance(rng.choice(allowed))
    check_completion(matcher)


def check_completion(matcher: Matcher) -> None:
    """`shortest_completion`, where it is available, leads to the end."""
    try:
        completion = matcher.shortest_completion()
    except NotAvailable:
        return
    walker = matcher.fork()
    for token in completion:
        walker.advance(token)
    assert walker.is_finished
