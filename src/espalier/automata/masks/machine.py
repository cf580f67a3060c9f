"""The protocol between a matcher and an automaton over one vocabulary; `regular.py` and `pushdown.py` implement it.

States are values: immutable, hashable, shared between threads. EOS is handled by the matcher, not by the automaton.
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
"""An int (DFA) or a set of stacks (pushdown automaton). Opaque to callers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landings:
    """The state after each allowed token. ids: the tokens, `(n,) int32`, ascending. which: the index into `states` of
    each, `(n,) int32`. states: the distinct states."""

    ids: NDArray[np.int32]
    which: NDArray[np.int32]
    states: tuple[State, ...]


class Machine(Protocol):
    """An automaton over the bytes and tokens of one vocabulary. Thread-safe."""

    @property
    def start(self) -> State: ...

    def accepts(self, state: State) -> bool:
        """Whether the text so far is complete."""
        ...

    def mask(self, state: State) -> Mask:
        """The packed token mask without EOS, `(W,) int32`; shared and read-only."""
        ...

    def advance(self, state: State, token: int) -> State | None:
        """The state after a token, None if the token is refused. EOS ids are refused."""
        ...

    def step(self, state: State, byte: int) -> State | None:
        """The state after one byte, None if the byte is refused. It need not be a state in which a token may end."""
        ...

    def options(self, state: State) -> tuple[ByteSet, tuple[int, ...]]:
        """The bytes that can come next, and the numbers of the token references that can come next."""
        ...

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        """A token reference as the grammar wrote it, and the ids that match it."""
        ...

    def least(self, state: State) -> int:
        """The least number of bytes and named tokens that complete the text."""
        ...

    def successors(self, state: State) -> list[tuple[int, State]]:
        """The states that one token leads to, each with a token that leads there.

        A token that is allowed both by its bytes and by name leads to a union of two states in `advance`; here the two
        states may be listed one by one.
        """
        ...

    def fewest(self, state: State) -> int | None:
        """The least number of tokens that complete the text, None if finding it needs a search."""
        ...

    def stays_near(self, state: State, most: int) -> bool:
        """Whether at most `most` tokens complete the text after every allowed token. False if unknown."""
        ...

    def landings(self, state: State) -> Landings:
        """The state after each allowed token."""
        ...


def missing_bytes(needed: bytes, vocab: Vocab) -> bytes:
    """Those of the needed bytes that have no token of their own."""
    missing = vocab.missing_bytes()
    return bytes(b for b in needed if b in missing) if missing else b""


def missing_error(missing: bytes, why: str) -> VocabError:
    """The error that names the missing bytes, at most 16 of them."""
    shown = " ".join(f"{b:02x}" for b in missing[:16]) + (" …" if len(missing) > 16 else "")
    return VocabError(
        f"the constraint needs bytes that have no token of their own: {shown}; {why}",
        hint="use a tokenizer with byte fallback, or a constraint without these characters",
    )
