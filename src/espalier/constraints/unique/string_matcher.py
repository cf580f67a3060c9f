"""A matcher that enforces `uniqueItems` for arrays of strings, on top of the schema's automaton.

It removes from the mask the tokens that would close a string which its array already holds. That causes no dead end,
because such a string can always be made longer. `arrays.py` finds these arrays in the schema, and
`string_tracker.py` follows them in the text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import AnswerCache
from espalier.automata.masks.machine import Machine, State, missing_error
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.computed import computed
from espalier.constraints.matching.automaton import AutomatonMatcher, CompiledAutomaton
from espalier.constraints.matching.base import CompiledWrapper, WrappingMatcher
from espalier.constraints.unique.search import CompletionSearch, GaveUp
from espalier.constraints.unique.spots import Spots
from espalier.constraints.unique.string_tracker import ITEM, LETTERS, OUTSIDE, StringPosition, UniqueTracker
from espalier.constraints.watching import RepeatedItem
from espalier.errors import NotAvailable, TokenRefused
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MOST_STATES = 10_000
"""States of an automaton of which it is known which tokens with several quotes it allows."""
REPAIRS = 8
"""How many letters are tried as the first one added to a completion that would repeat a string."""


class QuoteTokens:
    """The tokens of a vocabulary that can close strings, each list ascending.

    closing: ids by the bytes before one of the token's quotes. several, many: ids of tokens with at least two, three
    quotes. arrays: ids of tokens that can open an array and close two strings in it. letters: for each of LETTERS the
    id of its own token.
    """

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        self.closing: dict[bytes, list[int]] = {}
        counts: dict[int, int] = {}
        arrays = []
        for token, data in enumerate(vocab.tokens):
            if b'"' not in data:
                continue
            pieces = data.split(b'"')
            counts[token] = len(pieces) - 1
            at = -1
            for piece in pieces[:-1]:
                at += len(piece) + 1
                self.closing.setdefault(data[:at], []).append(token)
            if b"[" in data and data[data.index(b"[") :].count(b'"') >= 4:
                arrays.append(token)
        self.several = np.array([token for token, n in counts.items() if n >= 2], dtype=np.int64)
        #: `(V,) bool`: whether each token has a quote, and whether it opens an array.
        self.has_quote, self.opens = np.zeros((2, vocab.width), dtype=np.bool_)
        self.has_quote[[*counts]] = True
        self.opens[: len(vocab.tokens)] = [b"[" in data for data in vocab.tokens]
        self.many = np.array([token for token, n in counts.items() if n >= 3], dtype=np.int64)
        self.arrays = np.array(arrays, dtype=np.int64)
        #: The bytes of the longest of `closing`.
        self.longest = max(map(len, self.closing), default=0)
        used = set(b"".join(vocab.tokens))
        self.lacking = bytes(byte for byte in vocab.missing_bytes() if byte in used)
        """Bytes that occur in tokens but have no token of their own: a string with one might not be continued."""
        single = {data[0]: token for token, data in enumerate(vocab.tokens) if len(data) == 1}
        self.letters = {byte: single[byte] for byte in LETTERS if byte in single}


def _find_several(machine: Machine, quotes: QuoteTokens, place: tuple[str, State]) -> list[int]:
    which, state = place
    return masks.chosen(machine.mask(state), getattr(quotes, which))


class CompiledUniqueStrings(CompiledWrapper):
    """The schema for one vocabulary. inner: its automaton. Raises VocabError for a vocabulary in which strings cannot
    always be continued."""

    def __init__(self, inner: CompiledAutomaton, spots: Spots, quotes: QuoteTokens) -> None:
        self.plain = all(spot.plain for spot in spots)
        """Whether appending any letter keeps an item valid, in every watched array."""
        if lacking := quotes.lacking if self.plain else inner.vocab.missing_bytes():
            raise missing_error(lacking, "an item could not be made different from the earlier ones")
        super().__init__(inner)
        self.inner = inner
        self.quotes = quotes
        self.tracker = UniqueTracker(spots)
        #: Those of the tokens in `QuoteTokens.arrays`, `many` or `several` that the automaton allows in a state.
        self.several: Callable[[tuple[str, State]], list[int]] = AnswerCache(
            partial(_find_several, inner.machine, quotes), MOST_STATES
        )

    @computed
    def search(self) -> CompletionSearch:
        """Finds completions of strings that letters alone make no longer."""
        return CompletionSearch(self.inner.machine, self.inner.ends, self.vocab.bytes_of, self.tracker)

    def matcher(self, *, before: str = "") -> UniqueMatcher:
        return UniqueMatcher(self, self.inner.matcher(before=before), [self.tracker.start])

    def accepts(self, text: str | bytes) -> bool:
        if not self.inner.accepts(text):
            return False
        data = text.encode() if isinstance(text, str) else text
        return isinstance(self.tracker.feed(self.tracker.start, data), StringPosition)


class UniqueMatcher(WrappingMatcher[CompiledUniqueStrings, AutomatonMatcher]):
    """One sequence's state. points: one after each token but EOS, and the first."""

    __slots__ = ("_points",)

    def __init__(self, compiled: CompiledUniqueStrings, inner: AutomatonMatcher, points: list[StringPosition]) -> None:
        super().__init__(compiled, inner)
        self._points = points

    def mask(self) -> Mask:
        out = self._inner.mask()
        if not self.is_finished:
            masks.set_bits_inplace(out, tuple(self._repeating()), False)
        return out

    def _repeating(self) -> list[int]:
        """The tokens that would close a string which its array already holds; some of them may not be allowed
        anyway."""
        compiled, point = self._compiled, self._points[-1]
        quotes = compiled.quotes
        repeating: list[int] = []
        several = "arrays"
        if point.mode == ITEM:
            offset = point.offset
            longest = offset + quotes.longest
            for rival in point.rivals or ():
                if len(rival) <= longest:
                    repeating += quotes.closing.get(rival[offset:], ())
            several = "many"
        elif point.frame is not None and point.frame.unique:
            several = "several"
        repeating += [token for token in compiled.several((several, self._inner.state)) if self._clash(token)]
        return repeating

    def _after(self, token: int) -> StringPosition | RepeatedItem:
        """The point after a token that the automaton allows."""
        return self._compiled.tracker.feed(self._points[-1], self._compiled.vocab.bytes_of(token))

    def _clash(self, token: int) -> RepeatedItem | None:
        after = self._after(token)
        return after if isinstance(after, RepeatedItem) else None

    def allows(self, token: int) -> bool:
        return self._inner.allows(token) and not self._clash(token)

    def advance(self, token: int) -> None:
        if self._inner.allows(token):
            after = self._after(token)
            if isinstance(after, RepeatedItem):
                vocab, reason = self._compiled.vocab, _reason(after)
                raise TokenRefused(f"token {token} ({vocab.text_of(token)!r}) is refused: {reason}")
            self._inner.advance(token)
            if not self._inner.is_finished:
                self._points.append(self._compiled.tracker.settle(after))
        else:
            self._inner.advance(token)  # raises

    def rollback(self, count: int) -> None:
        ended = self._inner.is_finished
        self._inner.rollback(count)
        if count:
            del self._points[len(self._points) - count + ended :]

    def fork(self) -> Self:
        other = super().fork()
        other._points = self._points.copy()
        return other

    # What is forced repeats no item: every completion goes on with it, and some of them repeat none.

    def _blame(self, token: int) -> Blame:
        if not self._inner.allows(token) or not (clash := self._clash(token)):
            return self._inner.explain(token)
        return Blame(
            member=self._kind,
            reason=_reason(clash),
            rule=clash.pointer or "/",
            offset=clash.offset,
            expected="another item",
        )

    def shortest_completion(self) -> tuple[int, ...]:
        """The automaton's completion if it repeats no string; otherwise one with letters added, not always the
        shortest. Raises NotAvailable if none is found."""
        completion = self._inner.shortest_completion()
        fixed = completion if not completion else self._fix_completion(completion)
        if fixed is None:
            raise NotAvailable("no completion was found that repeats no item")
        return fixed

    def _fix_completion(self, completion: tuple[int, ...]) -> tuple[int, ...] | None:
        """The automaton's completion, with letters added if it repeats a string, or another one where no letters make
        it right; None if none is found."""
        compiled, point = self._compiled, self._points[-1]
        data = compiled.vocab.decode(completion)
        clash = compiled.tracker.feed(point, data)
        if isinstance(clash, StringPosition):
            return completion
        ahead = self._inner.fork()
        for token in compiled.inner.trie.segment(data[: clash.offset]) or ():
            ahead.advance(token)
        letters = bytes(byte for byte, token in compiled.quotes.letters.items() if ahead.allows(token))
        for first in range(min(REPAIRS, len(letters))):
            text = compiled.tracker.repair(point, data, letters[first:] + letters[:first])
            tokens = compiled.inner.trie.segment(text)
            if tokens is not None and self._completes(tokens):
                return (*tokens, completion[-1])
        try:
            way = compiled.search.find(self._inner.state, point)
        except GaveUp:
            return None
        tokens = None if way is None else compiled.inner.trie.segment(way)
        return None if tokens is None else (*tokens, completion[-1])

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        if self.is_finished:
            return True
        # `within` fixes the completion of fewest bytes. `least` bytes hold at most `least / 2` strings, and each string
        # needs at most as many letters as it takes to halve the number of possible strings until none is left.
        longest = max(self._compiled.inner.trie.max_depth, 1)
        letters = (len(self._points) * longest + most).bit_length() + 1
        least = 2 * (most - 1 - letters) // (2 + letters)
        return self._compiled.plain and least > 0 and self._inner.is_loose(least + 1)

    def closing(self, most: int) -> Mask:
        mask = self._inner.closing(most) & self.mask()
        if self.is_finished:
            return mask
        compiled, point = self._compiled, self._points[-1]
        vocab, frame = compiled.vocab, point.frame
        while frame is not None and not frame.unique:
            frame = frame.parent
        allowed = masks.unpack(mask, vocab.width)
        landings = compiled.inner.machine.landings(self._inner.state)
        out: list[int] = []
        for number, after in enumerate(landings.states):
            ids = landings.ids[(landings.which == number) & allowed[landings.ids]]
            if not ids.size:
                continue
            way = compiled.inner.ends.within(after, most - 1)
            if way is None:
                out += ids.tolist()
                continue
            rest = vocab.decode(way)
            for token in self._unsettled(ids, rest, watched=frame is not None).tolist():
                if self._repeats(token, rest) and not self._can_fix(token, most):
                    out.append(token)
        masks.set_bits_inplace(mask, tuple(out), False)
        return mask

    def _unsettled(self, ids: NDArray[np.int32], rest: bytes, *, watched: bool) -> NDArray[np.int32]:
        """Those of the tokens, which lead to one state, for which it must be asked whether `rest` completes the text.
        watched: an array of unique strings is open."""
        quotes, point = self._compiled.quotes, self._points[-1]
        if not watched:
            return ids if b"[" in rest else ids[quotes.opens[ids]]
        if point.mode == OUTSIDE:
            return ids
        # Tokens without quotes differ in how they make the open string longer, which ends as `rest` ends it.
        left = rest.partition(b'"')[0]
        ends = [rival[point.offset :].removesuffix(left) for rival in point.rivals or () if rival.endswith(left)]
        trie = self._compiled.inner.trie
        nodes = [node for node in map(trie.node, ends) if node >= 0]
        risky = np.array([token for node in nodes for token in trie.ids_at(node)], dtype=np.int32)
        alike = ~(quotes.has_quote[ids] | np.isin(ids, risky))
        sure = ids[alike]
        if not sure.size or self._repeats(int(sure[0]), rest):
            return ids
        return ids[~alike]

    def _repeats(self, token: int, rest: bytes) -> bool:
        data = self._compiled.vocab.bytes_of(token) + rest
        return isinstance(self._compiled.tracker.feed(self._points[-1], data), RepeatedItem)

    def _can_fix(self, token: int, most: int) -> bool:
        ahead = self.fork()
        ahead.advance(token)
        return ahead.within(most) is not None

    def within(self, most: int) -> tuple[int, ...] | None:
        completion = self._inner.within(most)
        if not completion:
            return completion
        compiled = self._compiled
        if isinstance(compiled.tracker.feed(self._points[-1], compiled.vocab.decode(completion)), StringPosition):
            return completion
        fixed = self._fix_completion((*compiled.inner.ends.plainest(self._inner.state), completion[-1]))
        return fixed if fixed is not None and len(fixed) <= most else None

    def _completes(self, tokens: tuple[int, ...]) -> bool:
        ahead = self._inner.fork()
        for token in tokens:
            if not ahead.allows(token):
                return False
            ahead.advance(token)
        return ahead.is_accepting


def _reason(clash: RepeatedItem) -> str:
    shown = clash.item.decode("utf-8", "replace")
    return f"the item {quoted(shown)} is in the array already, and its items are unique"
