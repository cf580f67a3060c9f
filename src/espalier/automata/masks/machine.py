"""What a matcher asks of an automaton over one vocabulary. `regular.py` and `pushdown.py` answer.

States are values: never changed, hashable, shared between threads. EOS is the matcher's affair, not the automaton's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.nfa import ByteSet
from espalier.errors import VocabError
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

State: TypeAlias = Any
"""An int or a set of stacks: whoever holds one only hands it back."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landings:
    """Where the tokens of a state lead. ids: `(n,)`, ascending. which: `(n,)`, the place in `states` of each."""

    ids: NDArray[np.int32]
    which: NDArray[np.int32]
    states: tuple[State, ...]


class Machine(Protocol):
    """An automaton over bytes and tokens, for one vocabulary. Safe across threads."""

    @property
    def start(self) -> State: ...

    def accepts(self, state: State) -> bool:
        """Whether the text so far is complete."""
        ...

    def mask(self, state: State) -> Mask:
        """The allowed tokens without EOS, `(W,) int32`; shared, read only."""
        ...

    def advance(self, state: State, token: int) -> State | None:
        """The state after a token, None if it is refused. EOS ids are refused."""
        ...

    def step(self, state: State, byte: int) -> State | None:
        """The state after one byte; None if there is none. A token may not be able to end there."""
        ...

    def options(self, state: State) -> tuple[ByteSet, tuple[int, ...]]:
        """The bytes that can come next, and the numbers of the token references that can."""
        ...

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        """A token reference as the grammar wrote it, and the ids that match it."""
        ...

    def least(self, state: State) -> int:
        """How few bytes and named tokens complete the text."""
        ...

    def successors(self, state: State) -> list[tuple[int, State]]:
        """States that one token leads to, each with a token that does: together they hold every text that any holds.

        A token that can be taken by its bytes and by name leads to one state for both; here it may stand for each.
        """
        ...

    def fewest(self, state: State) -> int | None:
        """How few tokens complete the text, where that is known without a search."""
        ...

    def stays_near(self, state: State, most: int) -> bool:
        """Whether no token leads to where more than `most` tokens are to come. May be False where it is not known."""
        ...

    def landings(self, state: State) -> Landings:
        """Where each of the allowed tokens leads."""
        ...


def missing_bytes(needed: bytes, vocab: Vocab) -> bytes:
    """Of the bytes that a grammar needs, those that no token spells alone."""
    missing = vocab.missing_bytes()
    return bytes(b for b in needed if b in missing)


def missing_error(missing: bytes, why: str) -> VocabError:
    shown = " ".join(f"{b:02x}" for b in missing[:16]) + (" …" if len(missing) > 16 else "")
    return VocabError(
        f"the constraint needs bytes that have no token of their own: {shown}; {why}",
        hint="use a tokenizer with byte fallback, or a constraint without these characters",
    )
