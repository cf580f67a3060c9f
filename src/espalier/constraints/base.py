"""The interfaces of every constraint: Spec -> Compiled -> Matcher, and the verdict on a finished text. Laws:
tests/laws.py.

A `Compiled` is immutable and shared between sequences and threads; a `Matcher` holds the state of one sequence. A token
is allowed if its bytes keep the text viable, however the text is split into tokens. Special ids are allowed only where
a constraint names them, or as EOS; every EOS id is allowed exactly when the text so far is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias, runtime_checkable

from espalier.json_record import OMITTED, JsonRecord

if TYPE_CHECKING:
    from espalier.automata.reasons.blame import Blame
    from espalier.constraints.spec import Spec
    from espalier.tokens.mask import Mask
    from espalier.tokens.vocab import Vocab


@runtime_checkable
class Matcher(Protocol):
    """The state of one constraint along one sequence. Not safe to share between threads."""

    @property
    def is_accepting(self) -> bool:
        """Whether the text so far is complete. False once finished."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether an EOS was taken. The mask is then empty and `advance` raises."""
        ...

    def mask(self) -> Mask:
        """The allowed tokens, `(W,) int32`; a fresh copy that the caller may change. Changes nothing."""
        ...

    def allows(self, token: int) -> bool:
        """Bit `token` of the mask, without building it. Ids outside the vocabulary are not allowed."""
        ...

    def advance(self, token: int) -> None:
        """Take one token. Raises TokenRefused, and changes nothing, if it is not allowed."""
        ...

    def rollback(self, count: int) -> None:
        """Undo the last `count` advances, EOS included. Raises ValueError if there were fewer."""
        ...

    def fork(self) -> Matcher:
        """An independent copy in the same state."""
        ...

    def forced(self) -> tuple[int, ...]:
        """Tokens that spell the bytes every completion must go on with; `()` if there is a choice."""
        ...

    def explain(self, token: int) -> Blame:
        """Why a token is refused. Raises ValueError if it is allowed, NotAvailable where it cannot be known."""
        ...

    def shortest_completion(self) -> tuple[int, ...]:
        """A shortest sequence of tokens, EOS last, that completes the text. Raises NotAvailable."""
        ...


@runtime_checkable
class Composite(Protocol):
    """Implemented besides `Matcher` by matchers of several members."""

    def member_masks(self) -> list[tuple[str, Mask]]:
        """The mask of each member alone, `(W,) int32`, in order of blame and with the names that `explain` uses; last,
        the mask of the whole. Changes nothing. Raises NotAvailable, LimitExceeded."""
        ...


@runtime_checkable
class RuleNames(Protocol):
    """Implemented besides `Matcher` by matchers whose text has named parts."""

    def rule_of(self, token: int) -> str | None:
        """The grammar rule, or the JSON pointer into the schema, that the first byte of an allowed token belongs to;
        None where there is none. Changes nothing. Raises LimitExceeded."""
        ...


class BlamePosition(Protocol):
    """Where a matcher stood. It answers for that place after the matcher has moved on, in any thread."""

    def explain(self, token: int) -> Blame:
        """Why the constraint refused a token there; what it says of an allowed one means nothing. Raises NotAvailable,
        LimitExceeded."""
        ...

    def rule_of(self, token: int) -> str | None:
        """As in `RuleNames`."""
        ...


@runtime_checkable
class DeferredBlames(Protocol):
    """Implemented besides `Matcher` by matchers whose explanations can wait until somebody reads them."""

    def place(self) -> BlamePosition | None:
        """Where the matcher stands, in constant time and memory; it answers as the matcher would now. None where it
        cannot. Changes nothing."""
        ...


@runtime_checkable
class Compiled(Protocol):
    """A spec made ready for one vocabulary. Immutable; safe across threads."""

    @property
    def spec(self) -> Spec: ...

    @property
    def vocab(self) -> Vocab: ...

    @property
    def spelled(self) -> Mapping[int, bytes]:
        """Special ids that are part of the text when this constraint takes them, and their bytes in the text."""
        ...

    def matcher(self, *, before: str = "") -> Matcher:
        """A new matcher at the start of a text. before: what the prompt already holds of the model's turn; constraints
        that wait for a marker look for it there, the others ignore it. Raises InputError where it does not fit."""
        ...

    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text is complete and valid, by walking a matcher over its tokens."""
        ...


Promise: TypeAlias = Literal["enforced", "checked", "cut"]
"""What an invalid text breaks.

enforced: something that the matcher was to enforce, which is a fault of Espalier, or of the engine that enforces it.
checked: only what the contract says is checked when the text is complete. cut: nothing; the text ended too early, at
the token limit or a stop text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JsonRecord):
    """The result of judging one text. In JSON, `breaks` stands only in the verdict on an invalid text."""

    #: None where no independent judge could decide.
    valid: bool | None
    #: The validator's name.
    judge: str
    #: Messages, at most five.
    errors: tuple[str, ...] = ()
    #: What an invalid text breaks; `enforced` if the judge does not say. None for any other text.
    breaks: Annotated[Promise | None, OMITTED] = None

    def __post_init__(self) -> None:
        if self.valid is False and self.breaks is None:
            object.__setattr__(self, "breaks", "enforced")
