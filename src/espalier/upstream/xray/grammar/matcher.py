"""What a grammar allows at each token of a text, by llama.cpp's own rules, bit for bit.

A state is a set of stacks of positions in a GrammarProgram. States and what follows from them are remembered in
`States`, which requests with the same grammar share. Code points that no symbol of the grammar tells apart are one
kind, and so are tokens of the same kinds of code points: what was found for one holds for all. It knows no sampler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.errors import LimitExceeded
from espalier.time_limit import check
from espalier.upstream.xray.grammar.kinds import TokenKinds
from espalier.upstream.xray.grammar.pieces import WHOLE, CodePointNode, DecodedToken, PartialCharacter, Pieces, decode
from espalier.upstream.xray.grammar.program import Chars, GrammarProgram, Ref, TokenSymbol

EMPTY = 0
"""The stack that is empty: the text may end."""
MOST_STATES = 50_000
MOST_STACKS = 500_000
SHOWN = 6


@dataclass(slots=True, eq=False)
class State:
    """stacks: ids, sorted. after: the state after a kind of code point, as far as it was asked for. masks: the allowed
    tokens by the part of a character that has begun, `(V,) bool` each. verdicts: by the kind of a token."""

    stacks: tuple[int, ...]
    after: dict[int, State] = field(default_factory=dict)
    masks: dict[PartialCharacter, NDArray[np.bool_]] = field(default_factory=dict)
    verdicts: dict[int, bool] = field(default_factory=dict)


class States:
    """The states of one grammar. Not for several threads at once."""

    def __init__(self, program: GrammarProgram, pieces: Pieces, kinds: TokenKinds | None = None) -> None:
        """kinds: of this program and these pieces, None to find them anew."""
        self.program, self.pieces = program, pieces
        self._has_tokens = any(isinstance(symbol, TokenSymbol) for symbol in program.symbols)
        self._kinds = kinds or TokenKinds(program, pieces)
        self._tops: list[int] = [-1]  # by stack id
        self._rests: list[int] = [-1]
        self._stacks: dict[tuple[int, int], int] = {}
        self._grown: dict[int, tuple[int, ...]] = {EMPTY: (EMPTY,)}
        self._states: dict[tuple[int, ...], State] = {}
        self.dead = self._state(())
        start: set[int] = set()
        for place in program.rules[0]:
            start.update(self._advance_stack(EMPTY if program.symbols[place] is None else self._stack(place, EMPTY)))
        self.start = self._state(start)

    @property
    def has_tokens(self) -> bool:
        """Whether the grammar names tokens by their numbers."""
        return self._has_tokens

    @property
    def is_small(self) -> bool:
        """Whether it is worth keeping for the next request."""
        return len(self._states) < MOST_STATES // 10 and len(self._tops) < MOST_STACKS // 10

    def after(self, state: State, char: int) -> State:
        """The state after a code point; `dead` if none may follow."""
        kind = self._kinds.of_char(char)
        following = state.after.get(kind)
        if following is None:
            stacks: set[int] = set()
            for stack in state.stacks:
                symbol = self.top(stack)
                if isinstance(symbol, Chars) and symbol.matches(char):
                    stacks.update(self._pop_symbol(stack))
            following = state.after[kind] = self._state(stacks)
        return following

    def top(self, stack: int) -> Chars | TokenSymbol | None:
        """The symbol that must come next; None for the empty stack."""
        if stack == EMPTY:
            return None
        symbol = self.program.symbols[self._tops[stack]]
        return symbol if isinstance(symbol, Chars | TokenSymbol) else None

    def rules(self, state: State) -> list[str]:
        """The rules in which the stacks are, without repetition."""
        return list(dict.fromkeys(self.program.names[self._tops[stack]] for stack in state.stacks if stack != EMPTY))

    def accept(self, state: State, token: int, begun: PartialCharacter) -> tuple[State, PartialCharacter]:
        """The state and the part of a character after a token that ends no text; `dead` if the grammar refuses it."""
        return self._take_token(state, token, self.pieces.decoded(token, begun))

    def accept_piece(
        self, state: State, token: int, piece: bytes, begun: PartialCharacter
    ) -> tuple[State, PartialCharacter]:
        """The same of a part of a token, or of a text. token: -1 for none."""
        return self._take_token(state, token, decode(piece, begun))

    def _take_token(self, state: State, token: int, decoded: DecodedToken) -> tuple[State, PartialCharacter]:
        stacks: set[int] = set()
        chars: list[int] = []
        for stack in state.stacks:
            symbol = self.top(stack)
            if isinstance(symbol, TokenSymbol) and symbol.matches(token):
                stacks.update(self._pop_symbol(stack))
            elif isinstance(symbol, Chars):
                chars.append(stack)
        walked = self._state(chars)
        for char in decoded.chars:
            walked = self.after(walked, char)
        stacks.update(walked.stacks)
        return self._state(stacks), decoded.part

    def allows(self, state: State, token: int, begun: PartialCharacter) -> bool:
        """Whether the grammar takes this token."""
        kind = self._kinds.of_token(token, begun)
        verdict = state.verdicts.get(kind)
        if verdict is None:
            verdict = state.verdicts[kind] = self._allows(state, token, begun)
        return verdict

    def allowed(self, state: State, tokens: NDArray[np.int64], begun: PartialCharacter) -> NDArray[np.bool_]:
        """`(n,) bool`, which of `(n,)` tokens the grammar takes."""
        verdicts = [*map(state.verdicts.get, self._kinds.of_tokens(tokens, begun))]
        for place, verdict in enumerate(verdicts):
            if verdict is None:
                verdicts[place] = self.allows(state, int(tokens[place]), begun)
        return np.array(verdicts, dtype=np.bool_)

    def _allows(self, state: State, token: int, begun: PartialCharacter) -> bool:
        if token in self.pieces.eog:
            return EMPTY in state.stacks
        if self.pieces.is_void(token):
            return False
        chars, part, _ = self.pieces.decoded(token, begun)
        if 0 in chars:
            chars = chars[: chars.index(0)]
        for char in chars:
            if self._has_tokens and self._takes_token(state, token):
                return True
            state = self.after(state, char)
            if not state.stacks:
                return False
        return self._may_end(state, part)

    def _takes_token(self, state: State, token: int) -> bool:
        return any(isinstance(top := self.top(stack), TokenSymbol) and top.matches(token) for stack in state.stacks)

    def _may_end(self, state: State, part: PartialCharacter) -> bool:
        """Whether a token may end here with this part of a character."""
        if part.missing == 0:
            return bool(state.stacks)
        return any(isinstance(top := self.top(stack), Chars) and top.matches_part(*part) for stack in state.stacks)

    def mask(self, state: State, begun: PartialCharacter) -> NDArray[np.bool_]:
        """All allowed tokens, `(V,) bool`; not to be written."""
        mask = state.masks.get(begun)
        if mask is None:
            mask = np.zeros(len(self.pieces), dtype=np.bool_)
            if EMPTY in state.stacks:
                mask[list(self.pieces.eog)] = True
            if begun != WHOLE or self._has_tokens:
                for token in self.pieces.ordinary():
                    check()
                    mask[token] = self._allows(state, token, begun)
            else:
                self._walk(state, self.pieces.trie, mask)
            mask.setflags(write=False)
            state.masks[begun] = mask
        return mask

    def _walk(self, state: State, trie: CodePointNode, out: NDArray[np.bool_]) -> None:
        todo = [(state, trie)]
        while todo:
            check()
            state, node = todo.pop()
            for token, part in node.ends:
                out[token] = self._may_end(state, part)
            for char, below in node.below.items():
                if (after := self.after(state, char)).stacks:
                    todo.append((after, below))

    def blame(self, state: State, token: int, begun: PartialCharacter) -> Blame:
        """Why the grammar refuses a token."""
        expected = self._describe_expected(state)
        rules = self.rules(state)
        if token in self.pieces.eog:
            return _blame("the text must not end here", rules, 0, expected)
        if self.pieces.is_void(token):
            return _blame("the grammar never takes this token", rules, 0, expected)
        chars, part, ends = self.pieces.decoded(token, begun)
        done = 0
        for char, end in zip(chars, ends, strict=True):
            after = self.after(state, char)
            if not after.stacks:
                if EMPTY in state.stacks and len(state.stacks) == 1:
                    return _blame("the text must end here", rules, done, "the end")
                return _blame(
                    f"{_spell_char(char)} cannot come here", self.rules(state), done, self._describe_expected(state)
                )
            state, done = after, end
        reason = "these bytes are no UTF-8 here" if part.missing < 0 else "no character that begins so can come here"
        return _blame(reason, self.rules(state), done, self._describe_expected(state))

    def _describe_expected(self, state: State) -> str:
        symbols = list(dict.fromkeys(_show_symbol(self.top(stack)) for stack in state.stacks))
        more = f" and {len(symbols) - SHOWN} more" if len(symbols) > SHOWN else ""
        return ", ".join(symbols[:SHOWN]) + more if symbols else "nothing"

    def _state(self, stacks: Iterable[int]) -> State:
        key = tuple(sorted(set(stacks)))
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MOST_STATES:
                raise LimitExceeded("the grammar has more states than are followed")
            state = self._states[key] = State(key)
        return state

    def _stack(self, place: int, rest: int) -> int:
        key = (place, rest)
        stack = self._stacks.get(key)
        if stack is None:
            if len(self._tops) >= MOST_STACKS:
                raise LimitExceeded("the grammar has more stacks than are followed")
            stack = self._stacks[key] = len(self._tops)
            self._tops.append(place)
            self._rests.append(rest)
        return stack

    def _pop_symbol(self, stack: int) -> tuple[int, ...]:
        """The stacks after the top symbol."""
        place, rest = self._tops[stack] + 1, self._rests[stack]
        return self._advance_stack(rest if self.program.symbols[place] is None else self._stack(place, rest))

    def _advance_stack(self, stack: int) -> tuple[int, ...]:
        """The stacks whose top is a symbol to be matched, or that are empty."""
        known = self._grown.get(stack)
        if known is not None:
            return known
        symbols, rules = self.program.symbols, self.program.rules
        seen, todo, out = {stack}, [stack], []
        while todo:
            check()
            current = todo.pop()
            symbol = None if current == EMPTY else symbols[self._tops[current]]
            if not isinstance(symbol, Ref):
                out.append(current)
                continue
            place, rest = self._tops[current] + 1, self._rests[current]
            below = rest if symbols[place] is None else self._stack(place, rest)
            for start in rules[symbol.rule]:
                grown = below if symbols[start] is None else self._stack(start, below)
                if grown not in seen:
                    seen.add(grown)
                    todo.append(grown)
        known = self._grown[stack] = tuple(out)
        return known


def _blame(reason: str, rules: list[str], offset: int, expected: str) -> Blame:
    return Blame(member="gbnf", reason=reason, rule=rules[0] if rules else None, offset=offset, expected=expected)


def _spell_char(char: int) -> str:
    return repr(chr(char)) if char < 0x110000 and not 0xD800 <= char < 0xE000 else f"U+{char:04X}"


def _show_symbol(symbol: Chars | TokenSymbol | None) -> str:
    if symbol is None:
        return "the end"
    if isinstance(symbol, TokenSymbol):
        return f"{'!' if symbol.is_negated else ''}<[{symbol.id}]>"
    if symbol.ranges is None:
        return "any character"
    if len(symbol.ranges) == 1 and symbol.ranges[0][0] == symbol.ranges[0][1] and not symbol.is_negated:
        return _spell_char(symbol.ranges[0][0])
    spans = (_plain(low) if low == high else f"{_plain(low)}-{_plain(high)}" for low, high in symbol.ranges[:SHOWN])
    return f"[{'^' if symbol.is_negated else ''}{''.join(spans)}{'…' if len(symbol.ranges) > SHOWN else ''}]"


def _plain(char: int) -> str:
    return chr(char) if 0x20 < char < 0x7F else f"\\u{char:04X}"
