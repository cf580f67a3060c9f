"""DRY ("don't repeat yourself"): penalise tokens that would continue a repetition, the longer the repetition the more.

Semantics are llama.cpp's (`llama_sampler_dry` in `src/llama-sampler.cpp`, after koboldcpp, after
github.com/oobabooga/text-generation-webui, pull request 5677), sequence breakers included; `resolve_breakers` states
the differences. This module does not know where the history comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from espalier.sampling.fields import Number, Texts, Whole
from espalier.sampling.samplers.context import NO_BREAKERS, Breakers, TransformContext
from espalier.sampling.samplers.sampler import Sampler
from espalier.tokens.mask import LARGEST, Logits
from espalier.tokens.vocab import Vocab

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
"""llama.cpp's default."""
MAX_BREAKER_BYTES = 40
MAX_TAIL_TOKENS = 20
FLOAT_MAX_LOG = np.float32(88.7228391)  # ln of the largest float32
BASE_OF_ONE = 1.000001  # below it the base counts as 1, and the penalty does not grow


def dry(
    logits: Logits,
    history: Sequence[int],
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
    window: int,
    breakers: Breakers = NO_BREAKERS,
) -> Logits:
    """Subtract `multiplier * base ** (length - allowed_length)` from the logit of each token that would extend a
    repetition of `length >= allowed_length` tokens; the longest repetition of a token counts. A multiplier of 0 changes
    nothing.

    A repetition is a suffix of the last `window` tokens (-1: all) that also occurs earlier in them. It does not extend
    back over the last breaker, and a token that is a breaker by itself is not penalised. Nothing is banned.
    """
    length = len(history) if window < 0 else min(len(history), window)
    if multiplier == 0.0 or length <= allowed_length:
        return logits
    limit = repeat_limit(history, length, breakers)
    if limit < allowed_length:
        return logits
    out = logits.copy()  # (V,) float32
    repeats = longest_repeats(history, length, limit, allowed_length)
    for token, loss in losses(repeats, multiplier, base, allowed_length, breakers).items():
        if token < logits.shape[0] and logits[token] > -np.inf:
            out[token] = lowered(logits[token], loss)
    return out


def losses(
    repeats: Mapping[int, int], multiplier: float, base: float, allowed_length: int, breakers: Breakers
) -> dict[int, float]:
    """Token -> amount to subtract. repeats: token -> length of the longest repetition that it would extend."""
    # In float32 as in llama.cpp: for a base of 4 the last digit decides between 63 and 64.
    largest_power = int(FLOAT_MAX_LOG / np.float32(math.log(base))) if base > BASE_OF_ONE else 0
    amounts: dict[int, float] = {}
    for token, repeated in repeats.items():
        if () not in breakers.get(token, ()):
            power = repeated - allowed_length
            power = min(power, largest_power) if largest_power > 0 else power
            amounts[token] = float(np.float32(min(multiplier * _power(base, power), LARGEST)))
    return amounts


def lowered(logit: np.float32, loss: float) -> np.float32:
    """A logit after the penalty; never -inf."""
    return np.float32(max(float(logit) - loss, -LARGEST))


def _power(base: float, exponent: int) -> float:
    try:
        return base**exponent
    except OverflowError:
        return math.inf


def repeat_limit(history: Sequence[int], length: int, breakers: Breakers, backs: Iterable[int] | None = None) -> int:
    """The number of tokens after the last breaker in the last `length` tokens; `length` if there is none. If several
    breakers begin at one token, the longest counts.

    backs: distances from the end of tokens that begin a breaker, ascending, if the caller knows them.
    """
    end = len(history) - 1
    if backs is None:
        backs = range(length if breakers else 0)
    for back in backs:
        longest = -1
        for tail in breakers.get(history[end - back], ()):
            fits = longest < len(tail) <= back
            if fits and all(history[end - back + 1 + i] == token for i, token in enumerate(tail)):
                longest = len(tail)
        if longest >= 0:
            return back - longest
    return length


def longest_repeats(history: Sequence[int], length: int, limit: int, least: int) -> dict[int, int]:
    """Token -> length of the longest suffix of the last `length` tokens that this token followed earlier, at most
    `limit`. Tokens with less than `least` are left out."""
    end = len(history) - 1
    longest: dict[int, int] = {}
    for back in range(1, length):
        same = 0
        while same < limit and same + back < length and history[end - same] == history[end - same - back]:
            same += 1
        follower = history[end - back + 1]
        if same >= least and longest.get(follower, -1) < same:
            longest[follower] = same
    return longest


@lru_cache(maxsize=16)
def resolve_breakers(texts: tuple[str, ...], vocab: Vocab) -> Breakers:
    """Find the breakers as tokens, as llama.cpp does. A token that contains the text is a breaker by itself; a token
    whose end is the beginning of the text is one together with the tokens of the rest. Only the first 40 bytes of a
    text and 20 tokens of a rest count. A vocabulary without an encoder splits the rest greedily into the longest
    tokens.

    Differences from llama.cpp: a token's bytes are what it adds to a text, while llama.cpp's detokenizer strips the
    space of a SentencePiece token that stands alone, so that a text with a leading space matches fewer tokens there;
    and a rest that begins inside a character is split into the longest tokens, since no encoder accepts half a
    character.
    """
    tails: dict[int, list[tuple[int, ...]]] = {}
    split = _Splitter(vocab)
    words = {token: text.encode() for token, text in vocab.special_texts.items()}
    words |= {token: data for token, data in enumerate(vocab.tokens) if data}
    for text in texts:
        wanted = text.encode()[:MAX_BREAKER_BYTES]
        for token, word in words.items():
            if wanted in word:
                tails.setdefault(token, []).append(())
                continue
            for start in range(max(0, len(word) - len(wanted) + 1), len(word)):
                if wanted.startswith(word[start:]):
                    rest = split(wanted[len(word) - start :])
                    if rest is not None and rest[:MAX_TAIL_TOKENS] not in tails.setdefault(token, []):
                        tails[token].append(rest[:MAX_TAIL_TOKENS])
    return {token: tuple(ways) for token, ways in tails.items() if ways}


class _Splitter:
    """Split bytes into tokens: with the vocabulary's encoder, or else greedily into the longest tokens.

    Returns None if a byte has no token.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._encode = vocab.encoder
        self._ids: dict[bytes, int] = {}
        for token, data in enumerate(vocab.tokens):
            self._ids.setdefault(data, token)

    def __call__(self, data: bytes) -> tuple[int, ...] | None:
        if self._encode is not None:
            try:
                return tuple(int(token) for token in self._encode(data.decode()))
            except UnicodeDecodeError:
                pass  # half a character: see `resolve_breakers`
        ids: list[int] = []
        start = 0
        while start < len(data):
            sizes = range(len(data) - start, 0, -1)
            size = next((n for n in sizes if data[start : start + n] in self._ids), 0)
            if not size:
                return None
            ids.append(self._ids[data[start : start + size]])
            start += size
        return tuple(ids)


def _transform(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    return dry(
        logits,
        context.history,
        multiplier=config.dry_multiplier,
        base=config.dry_base,
        allowed_length=config.dry_allowed_length,
        window=config.dry_window,
        breakers=context.breakers,
    )


def _is_on(config: Any) -> bool:
    return bool(config.dry_multiplier > 0 and config.dry_window != 0)


DRY = Sampler(
    name="dry",
    llama="dry",
    letter="d",
    transform=_transform,
    on_if=_is_on,
    fields=(
        Number(
            name="dry_multiplier",
            default=0.0,
            off=0.0,
            hint="0 is off",
            llama="dry_multiplier",
            help="How strongly a token is penalised that would extend a repetition; 0 is off.",
        ),
        Number(
            name="dry_base",
            default=1.75,
            low=1.0,
            llama="dry_base",
            help="By what that penalty grows with each token of the repetition.",
        ),
        Whole(
            name="dry_allowed_length",
            default=2,
            llama="dry_allowed_length",
            help="The length from which a repetition is penalised.",
        ),
        Whole(
            name="dry_window",
            default=-1,
            low=-1,
            hint="0 is off, -1 is everything",
            llama="dry_penalty_last_n",
            help="How many of the last tokens are searched for repetitions; 0 is off, -1 is all.",
        ),
        Texts(
            name="dry_breakers",
            default=DEFAULT_BREAKERS,
            llama="dry_sequence_breakers",
            help="Texts over which a repetition does not extend.",
        ),
    ),
)
