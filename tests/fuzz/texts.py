"""Texts to try on a compiled constraint: random walks of its matcher, and texts with something changed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from espalier.constraints.base import Compiled
from espalier.tokens.mask import unpack

RARE_LETTERS = 9.0
"""How much rarer a-z and non-ASCII bytes are, so that ranges of letters do not drown single characters."""
LIKED = 4.0


def walk(
    compiled: Compiled, random: Random, *, liked: bytes = b"", begin: bytes = b"", longest: int = 60, before: str = ""
) -> str | None:
    """A text that the matcher accepts, drawn byte by byte from the masks and then completed; None if the completion
    does not end. liked: bytes that are drawn more often. begin: bytes to start with, as far as they are allowed.
    before: what the prompt holds of the turn. The vocabulary is of bytes, EOS last. Raises NotAvailable."""
    matcher = compiled.matcher(before=before)
    eos = compiled.vocab.eos_ids[0]
    taken = bytearray()
    for byte in begin:
        if not matcher.allows(byte):
            break
        matcher.advance(byte)
        taken.append(byte)
    likely = np.ones(256)
    likely[list(liked)] += LIKED
    for _ in range(longest):
        allowed = np.flatnonzero(unpack(matcher.mask(), compiled.vocab.width))
        if matcher.is_accepting and (len(allowed) == 1 or random.random() < 0.3):
            return taken.decode("utf-8")
        bytes_ = allowed[allowed < 256]
        weights = likely[bytes_] / (1.0 + RARE_LETTERS * (((bytes_ > 0x60) & (bytes_ < 0x7B)) | (bytes_ >= 0x80)))
        token = int(random.choices(bytes_.tolist(), weights.tolist())[0])
        matcher.advance(token)
        taken.append(token)
    for token in matcher.shortest_completion():
        if token == eos:
            return taken.decode("utf-8")
        taken += compiled.vocab.bytes_of(token)
    return None


def changed(text: str, random: Random, inserted: Sequence[str]) -> str:
    """The text with something inserted, left out, doubled or exchanged. inserted: pieces to insert."""
    at = random.randint(0, len(text))
    how = random.random()
    if how < 0.5:
        return text[:at] + random.choice(inserted) + text[at:]
    if how < 0.7:
        return text[:at] + text[at + 1 :]
    if how < 0.85:
        end = min(len(text), at + random.randint(1, 6))
        return text[:end] + text[at:end] + text[end:]
    return text[:at] + random.choice(inserted) + text[at + 1 :]
