"""A member that reads the special tokens of other members as what they stand for in the text.

`<tool_call>` as one token is text to a ban beside the tool calls: the member takes the tokens that spell it, or none
where it is no part of the text. It works over any matcher, and knows no kind of constraint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher, RuleNames
from espalier.constraints.matching.base import CompiledWrapper, WrappingMatcher, check_undo
from espalier.errors import NotAvailable
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie


def reading(member: Compiled, spelled: Mapping[int, bytes], trie: TokenTrie) -> Compiled:
    """The member, which reads these special tokens as their bytes. It must name none of them itself."""
    return CompiledSpelling(member, spelled, trie) if spelled else member


class CompiledSpelling(CompiledWrapper):
    """See `reading`."""

    def __init__(self, inner: Compiled, spelled: Mapping[int, bytes], trie: TokenTrie) -> None:
        super().__init__(inner)
        self.pieces: dict[int, tuple[int, ...]] = {}
        for token, data in spelled.items():
            pieces = trie.segment(data)
            if pieces is not None:  # else the member cannot read it, and refuses it
                self.pieces[token] = pieces

    def matcher(self, *, before: str = "") -> SpelledMatcher:
        return SpelledMatcher(self, self._inner.matcher(before=before))


class SpelledMatcher(WrappingMatcher[CompiledSpelling, Matcher]):
    """The state of one sequence. Laws: tests/laws.py, but for special ids, which may be allowed."""

    __slots__ = ("_counts",)

    def __init__(self, compiled: CompiledSpelling, inner: Matcher) -> None:
        super().__init__(compiled, inner)
        self._counts: list[int] = []  # by token: how many the inner matcher took for it

    def mask(self) -> Mask:
        mask = self._inner.mask()
        masks.set_bits_inplace(mask, tuple(token for token in self._compiled.pieces if self.allows(token)), True)
        return mask

    def allows(self, token: int) -> bool:
        pieces = self._compiled.pieces.get(token)
        if pieces is None:
            return self._inner.allows(token)
        return not self._inner.is_finished and self._take_pieces(pieces)[1] == len(pieces)

    def _take_pieces(self, pieces: tuple[int, ...]) -> tuple[Matcher, int]:
        """A copy of the inner matcher after the pieces that it takes, and how many it takes."""
        ahead = self._inner.fork()
        for count, piece in enumerate(pieces):
            if not ahead.allows(piece):
                return ahead, count
            ahead.advance(piece)
        return ahead, len(pieces)

    def advance(self, token: int) -> None:
        pieces = self._compiled.pieces.get(token)
        if pieces is not None:
            if not self.allows(token):
                raise self._refusal(token)
            for piece in pieces:
                self._inner.advance(piece)
            self._counts.append(len(pieces))
        else:
            self._inner.advance(token)
            self._counts.append(1)

    def rollback(self, count: int) -> None:
        check_undo(count, len(self._counts))
        if count:
            self._inner.rollback(sum(self._counts[-count:]))
            del self._counts[-count:]

    def fork(self) -> Self:
        other = super().fork()
        other._counts = self._counts.copy()
        return other

    def rule_of(self, token: int) -> str | None:
        """See `RuleNames`."""
        pieces = self._compiled.pieces.get(token, (token,))
        return self._inner.rule_of(pieces[0]) if pieces and isinstance(self._inner, RuleNames) else None

    def _blame(self, token: int) -> Blame:
        pieces = self._compiled.pieces.get(token, (token,))
        ahead, count = self._take_pieces(pieces)
        if count == len(pieces):
            raise NotAvailable("the member takes this token")
        return ahead.explain(pieces[count])
