"""The border between a marker and the constraint behind it: up to four whitespace characters, then the inner text.

Whitespace that the inner constraint can begin with belongs to the inner text; other whitespace belongs to the gap
before it, and so does whitespace that the inner constraint only skips before an opening of its own. So every text has
one reading. It knows nothing about the marker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from espalier.automata.masks.cache import ByteCache
from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher
from espalier.errors import NotAvailable
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie

WHITESPACE = b" \n\t\r"
GAP = 4
"""Whitespace characters that may stand between the marker and the inner constraint's text."""
KNOWN_BYTES = 16 * 2**20
TOO_WIDE = f"at most {GAP} whitespace characters may stand between the marker and what follows it"


class Landing(NamedTuple):
    """The position after bytes behind the marker. gap: whitespace characters since the marker. tokens: what the inner
    matcher takes then, `()` while the inner text has not begun."""

    gap: int
    tokens: tuple[int, ...] = ()


class Border:
    """Reads the gap and the first bytes of the inner text. Its caches are bounded; safe across threads."""

    def __init__(self, inner: Compiled, trie: TokenTrie, *, gap: bool, beginnings: Iterable[Compiled]) -> None:
        """beginnings: what reads the first character of the inner text, see `Spec.beginnings`."""
        self.inner = inner
        self._trie = trie
        self._vocab = inner.vocab
        start = inner.matcher()
        self.accepts = start.is_accepting
        begun = frozenset(byte for beginning in beginnings for byte in self._first_bytes(beginning.matcher().mask()))
        self._skipped = frozenset(WHITESPACE) - begun if gap else frozenset()
        mask = start.mask()  # (W,) int32, of the inner constraint's start
        self._first = self._first_bytes(mask) - self._skipped
        in_gap = [token for token, data in enumerate(self._vocab.tokens) if data and data[0] in self._skipped]
        self.inner_mask = mask & ~masks.from_ids(in_gap, self._vocab.width)
        """The tokens with which the inner text may begin, (W,) int32."""
        self._known: ByteCache[bytes, tuple[int, ...]] = ByteCache(KNOWN_BYTES)
        self._masks: list[Mask] | None = None  # by gap
        self._lock = WorkLock()

    def land(self, data: bytes, gap: int = 0) -> Landing | None:
        """The position after these bytes, read after `gap` whitespace characters; None if they are refused."""
        count = self._leading(data)
        if gap + count > GAP:
            return None
        rest = data[count:]
        if not rest:
            return Landing(gap + count)
        tokens = self._spell(rest)
        return Landing(gap + count, tokens) if tokens else None

    def take(self, token: int, gap: int) -> Landing | None:
        """The position after one token; None if it is refused, and for EOS."""
        if not masks.test(self.mask(gap), token) or token in self._vocab.eos_ids:
            return None
        data = self._vocab.bytes_of(token)
        # A special token that the inner constraint names has no bytes.
        return self.land(data, gap) if self._leading(data) else Landing(gap, (token,))

    def mask(self, gap: int) -> Mask:
        """The tokens allowed after `gap` whitespace characters, `(W,) int32`, shared; EOS if the inner text may be
        empty."""
        with self._lock:
            if self._masks is None:
                self._masks = self._all_masks()
            return self._masks[gap]

    def gap_mask(self, gap: int) -> Mask:
        """The tokens of `mask` that begin with whitespace of the gap."""
        return self.mask(gap) & ~self.inner_mask

    def forced(self, gap: int) -> tuple[int, ...]:
        """Tokens that every completion continues with."""
        return () if self._skipped and gap < GAP else self.inner.matcher().forced()

    def shortest_completion(self) -> tuple[int, ...]:
        """A shortest completion, EOS last, without whitespace of the gap. Raises NotAvailable."""
        matcher = self.inner.matcher()
        completion = matcher.shortest_completion()
        if masks.test(self.inner_mask, completion[0]):
            return completion
        first = self._vocab.bytes_of(completion[0])  # one token with whitespace and an opening is the shorter way
        tokens = self._spell(first[self._leading(first) :]) if self._leading(first) < len(first) else completion[1:2]
        if not advanced(matcher, tokens):
            raise AssertionError("the inner constraint refuses what it took before")
        return (*tokens, *matcher.shortest_completion())

    def explain(self, data: bytes, gap: int, member: str) -> Blame:
        """Why `land` refuses these bytes. Raises NotAvailable where the inner constraint cannot tell."""
        count = self._leading(data)
        if gap + count > GAP:
            return Blame(member=member, reason=TOO_WIDE, offset=GAP - gap)
        probe = self.inner.matcher()
        for token in self._trie.segment(data[count:]) or ():
            if not probe.allows(token):
                reason = within(probe.explain(token), member)
                return reason if reason.offset is None else replace(reason, offset=count + reason.offset)
            probe.advance(token)
            count += len(self._vocab.bytes_of(token))
        raise NotAvailable("no sequence of tokens spells the rest of this one")

    def explain_token(self, token: int, gap: int, member: str) -> Blame:
        """Why `take` refuses a token. Raises NotAvailable."""
        data = self._vocab.bytes_of(token) if 0 <= token < self._vocab.width else b""
        if self._leading(data):
            return self.explain(data, gap, member)
        return within(self.inner.matcher().explain(token), member)

    def _first_bytes(self, mask: Mask) -> frozenset[int]:
        allowed = masks.allowed_ids(mask, self._vocab.width).tolist()
        return frozenset(data[0] for token in allowed if (data := self._vocab.bytes_of(token)))

    def _leading(self, data: bytes) -> int:
        """How many bytes at the start are whitespace of the gap."""
        return next((at for at, byte in enumerate(data) if byte not in self._skipped), len(data))

    def _spell(self, rest: bytes) -> tuple[int, ...]:
        """Tokens that spell `rest` and that the inner constraint takes from its start; `()` if it refuses `rest`."""
        if rest[0] not in self._first:
            return ()
        known = self._known.get(rest)
        if known is None:
            tokens = self._trie.segment(rest)
            known = () if tokens is None or not self._viable(tokens) else tokens
            self._known.put(rest, known, len(rest) + 8 * len(known))
        return known

    def _viable(self, tokens: tuple[int, ...]) -> bool:
        if not masks.test(self.inner_mask, tokens[0]):
            return False
        return len(tokens) == 1 or advanced(self.inner.matcher(), tokens)

    def _all_masks(self) -> list[Mask]:
        by_count: list[list[int]] = [[] for _ in range(GAP + 1)]
        for token, data in enumerate(self._vocab.tokens):
            if data and data[0] in self._skipped:
                count = self._leading(data)
                if count <= GAP and (count == len(data) or self._spell(data[count:])):
                    by_count[count].append(token)
        variants: list[Mask] = []
        for gap in range(GAP + 1):
            wide = [token for count in range(GAP - gap + 1) for token in by_count[count]]
            variants.append(self.inner_mask | masks.from_ids(wide, self._vocab.width))
            variants[-1].setflags(write=False)
        return variants


def advanced(matcher: Matcher, tokens: Iterable[int]) -> bool:
    """Advance by tokens until one is refused. Returns whether all were taken."""
    for token in tokens:
        if not matcher.allows(token):
            return False
        matcher.advance(token)
    return True


def within(blame: Blame, member: str) -> Blame:
    """The blame of an inner constraint, prefixed with the name of the outer one: `after.regex`."""
    return replace(blame, member=f"{member}.{blame.member}")
