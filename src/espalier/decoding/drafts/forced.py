"""Drafts the text that the constraint forces, in the tokenizer's own split."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.decoding.canonical import canonical
from espalier.decoding.drafts.source import FORCED as NAME
from espalier.decoding.drafts.source import DraftSource, DraftText


class ForcedDrafter:
    """Asks the matcher for the bytes that every completion must go on with."""

    def __init__(self, text: DraftText) -> None:
        self._text = text
        job = text.job
        self._canonical = None if job.encode is None or job.matcher is None else canonical(job.vocab, job.encode)

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        matcher = self._text.job.matcher
        if matcher is None or matcher.is_finished or (not ahead and self._is_known()):
            return ()
        if ahead:
            matcher = matcher.fork()
            for token in ahead:
                if not matcher.allows(token):
                    return ()
                matcher.advance(token)
            if matcher.is_finished:
                return ()
        forced = matcher.forced()
        if not forced:
            return ()
        split: Sequence[int] = ()
        if self._canonical is not None:
            split = self._canonical.going_on(self._head(ahead), b"", forced)
        return (split or forced)[:most]

    def _is_known(self) -> bool:
        """Whether `grammar` has seen this place, and is right more often: this model may split what is forced in its
        own way, and to look is quicker than to ask the tokenizer."""
        text = self._text
        seen = None if text.place is None else text.known.likeliest(text.place)
        return seen is not None and seen[1] >= text.known.rate(NAME)

    def _head(self, ahead: Sequence[int]) -> bytes:
        """The bytes of the last token, and of tokens before it up to a character boundary."""
        head = b""
        bytes_of = self._text.job.vocab.bytes_of
        for tokens in (ahead, self._text.tokens):
            for token in reversed(tokens):
                piece = bytes_of(token)
                if not piece:
                    return head
                head = piece + head
                if head[0] & 0xC0 != 0x80:
                    return head
        return head


FORCED = DraftSource(make=ForcedDrafter)
