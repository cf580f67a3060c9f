"""Tokenizes text as the tokenizer does, and finds the tokens that stay the same whatever text follows.

It calls a function that encodes text, and knows nothing of how that function works, of models or of constraints.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from espalier.automata.masks.cache import ByteCache
from espalier.tokens.vocab import Vocab

KNOWN_BYTES = 4 * 2**20
PROBES = (b"a", b"0", b" ", b".")
"""Continuations that a pre-tokenizer treats differently: a letter, a digit, a space, punctuation."""
MAX_TESTED = 32
"""At most so many tokens that could cover the end of a text are tried one by one; with more, one is assumed to cover
it."""
WINDOW = 24
"""So many bytes before a token boundary decide whether a token may follow there."""


class Canonical:
    """The tokenizer's encoding of texts in one vocabulary. Caches results within a size limit; thread-safe."""

    def __init__(self, vocab: Vocab, encode: Callable[[str], Sequence[int]]) -> None:
        self.vocab, self._encode = vocab, encode
        self._tokens = sorted({token for token in vocab.tokens if token})
        self._longest = max(map(len, self._tokens))
        self._known: ByteCache[bytes, tuple[int, ...]] = ByteCache(KNOWN_BYTES)

    def whole(self, data: bytes) -> tuple[int, ...] | None:
        """The tokens of a whole text. None where they do not spell the text (a tokenizer that normalises), and for
        incomplete UTF-8."""
        try:
            ids = tuple(int(token) for token in self._encode(data.decode()))
        except UnicodeDecodeError:
            return None
        return ids if self.vocab.decode(ids) == data else None

    def stable(self, data: bytes) -> tuple[int, ...]:
        """The tokens with which the encoding of every text that begins with `data` begins; `()` where there are none,
        or they cannot be known. The last token of `data` itself is never among them.

        Why: some token of a longer text covers the last byte of `data`. Say it begins at p. An encoder that works from
        left to right, or by merges, splits what is before a border of its own as it splits it alone (Berglund and van
        der Merwe, Formalizing BPE tokenization, 2023), so the longer text begins with the encoding of `data[:p]`. Where
        p may be is known: a token begins with `data[p:]`, and it is taken there when it follows. What the encodings of
        all these beginnings share is stable. Pre-tokenizers look ahead one character, and at a run of whitespace:
        the run at the end is left out, and several characters are tried after it.
        """
        tokens = self._known.get(data)
        if tokens is None:
            tokens = self._stable(data)
            self._known.put(data, tokens, len(data) + 8 * len(tokens))
        return tokens

    def going_on(self, head: bytes, held: bytes, forced: Sequence[int]) -> tuple[int, ...]:
        """The tokens of the `held` bytes and the bytes of the `forced` tokens after them, as far as they stay the same
        whatever follows. head: the bytes before, which keep their tokens. A special token is a boundary: the text
        before it is complete. EOS and what follows it are left out."""
        tokens: list[int] = []
        data = bytearray(held)
        for token in forced:
            more = self.vocab.bytes_of(token)
            if more:
                data += more
                continue
            part = self._after(self.whole, head, bytes(data))
            if part is None or token in self.vocab.eos_ids:
                return (*tokens, *(part or ()))
            tokens += (*part, token)
            head = b""
            data.clear()
        return (*tokens, *(self._after(self.stable, head, bytes(data)) or ()))

    def _after(
        self, split: Callable[[bytes], tuple[int, ...] | None], head: bytes, data: bytes
    ) -> tuple[int, ...] | None:
        """The tokens of `data` after `head`. Where the tokenizer would merge the two, the tokens of `data` alone."""
        for before in dict.fromkeys((head, b"")):
            ids, place, size = split(before + data), 0, 0
            while ids is not None and size < len(before) and place < len(ids):
                size += len(self.vocab.bytes_of(ids[place]))
                place += 1
            if ids is not None and size == len(before):
                return ids[place:]
        return None

    def _stable(self, data: bytes) -> tuple[int, ...]:
        try:
            text, _ = codecs.utf_8_decode(data, "strict", False)  # without a character that is cut at the end
        except UnicodeDecodeError:
            return ()
        stripped = text.rstrip().encode()
        now = self.whole(stripped)
        if not now:
            return ()
        best = now[:-1]
        for probe in PROBES:
            longer = self.whole(stripped + probe)
            if longer is None:
                return ()
            best = best[: shared(best, longer)]
        for place in range(len(stripped) - 1, max(-1, len(stripped) - self._longest), -1):
            if not best:
                break
            covering = self._beginning_with(stripped[place:])
            if not covering:
                continue
            for cut in self._cuts(stripped, place):
                before = self.whole(stripped[:cut])
                if before is None:
                    return ()
                same = shared(best, before)
                if same < len(best) and (cut != place or self._may_follow(stripped[:place], before, covering)):
                    best = best[:same]
        return best

    def _beginning_with(self, rest: bytes) -> list[bytes]:
        """The tokens that are longer than `rest` and begin with it."""
        at = bisect_left(self._tokens, rest)
        longer: list[bytes] = []
        for token in self._tokens[at : at + MAX_TESTED + 2]:
            if not token.startswith(rest):
                break
            if len(token) > len(rest):
                longer.append(token)
        return longer

    def _cuts(self, data: bytes, place: int, seen: frozenset[int] = frozenset()) -> Iterator[int]:
        """`place`; if it is inside a character, the character boundaries from which tokens lead to it."""
        if data[place] & 0xC0 != 0x80:
            yield place
            return
        for start in range(place - 1, max(-1, place - self._longest - 1), -1):
            piece = data[start:place]
            at = bisect_left(self._tokens, piece)
            if at < len(self._tokens) and self._tokens[at] == piece:
                yield from self._cuts(data, start)

    def _may_follow(self, before: bytes, ids: tuple[int, ...], covering: list[bytes]) -> bool:
        """Whether the encoder can produce one of these tokens after a text with these ids; True where that is
        unknown."""
        if len(covering) > MAX_TESTED:
            return True
        start = max(0, len(before) - WINDOW)
        while start and before[start] & 0xC0 == 0x80:
            start -= 1
        near = before[start:]
        head = self.whole(near)
        if head is None or head[-1:] != ids[-1:]:
            return True
        for token in covering:
            both = self.whole(near + token)
            if both is None or self.vocab.bytes_of(both[-1]) == token:
                return True
        return False


@lru_cache(maxsize=4)
def canonical(vocab: Vocab, encode: Callable[[str], Sequence[int]]) -> Canonical:
    """The shared `Canonical` of a vocabulary: its cache serves all texts."""
    return Canonical(vocab, encode)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common beginning of two sequences, in tokens."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
