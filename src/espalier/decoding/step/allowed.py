"""The tokens that a step allows: by the mask, by the end of the vocabulary, by the bans of a config, and before
`min_tokens`. It knows no filters and no draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.chain import Chain
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab

NEG_INF = np.float32(-np.inf)


def permitted(mask: Mask | None, vocab: Vocab, width: int) -> NDArray[np.bool_] | None:
    """The tokens that the constraint allows, `(V,) bool`; None for all. Without a mask, ids past the tokenizer's last
    are still forbidden."""
    if mask is not None:
        return masks.unpack(mask, width)
    return vocab.real_ids if vocab.has_padding else None


def real(mask: Mask | None, vocab: Vocab) -> Mask | None:
    """The same as a mask, `(W,) int32`."""
    return _real_bits(vocab) if mask is None and vocab.has_padding else mask


@lru_cache(maxsize=16)
def _real_bits(vocab: Vocab) -> Mask:
    return masks.from_bool(vocab.real_ids)


def allowed_bits(raw: Logits, mask: Mask | None, vocab: Vocab, chain: Chain) -> Mask | None:
    """The allowed tokens, `(W,) int32`: the mask, or all real ids without one, less the bans of the config; None where
    every token is allowed."""
    left = chain.fitted.permitted
    if mask is not None:
        bits = masks.resized(mask, raw.shape[0])
    elif vocab.has_padding:
        bits = _real_bits(vocab)
    else:
        return left
    return bits if left is None else bits & left


def held_back(biased: Logits, allowed: NDArray[np.bool_] | None, ends: Sequence[int]) -> NDArray[np.bool_] | None:
    """`allowed` without the tokens that would end the text too early; `allowed` itself where no other token is left."""
    rest = biased > NEG_INF if allowed is None else allowed & (biased > NEG_INF)  # (V,) bool
    rest[list(ends)] = False
    return rest if bool(rest.any()) else allowed
