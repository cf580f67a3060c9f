"""`on_budget=close`: near the token limit, allows only tokens after which the text can still be completed in time.

`TokenLimitMatcher` wraps a constraint's matcher and is a matcher itself, so it works under every strategy. A token is
refused if the shortest known completion after it, EOS included, takes more tokens than would be left. While the limit
is near, such a completion is held as tokens, so some token is always allowed. The module knows no model, no probability
and no kind of constraint. It ignores filters and stop texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Matcher, RuleNames
from espalier.constraints.matching.closing import closing, is_loose, known, within
from espalier.decoding.matcher_questions import members_with_whole
from espalier.decoding.options import OnBudget
from espalier.errors import BudgetExceeded, CapabilityError, InputError, LimitExceeded, TokenRefused, UnsupportedError
from espalier.time_limit import OutOfTime
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab
from espalier.wording import OptionText, Setting

MEMBER = "budget"


class _LimitState(NamedTuple):
    """way: the held completion, EOS last; None while the limit is far. decided: whether the limit has refused a
    token."""

    way: tuple[int, ...] | None = None
    decided: bool = False


class TokenLimitMatcher:
    """A matcher under a token limit, for one sequence. Laws: tests/laws.py.

    left: how many more tokens the text may have, EOS included. name: the inner constraint's, for `member_masks`.
    Raises InputError naming max_tokens where no text fits, NotAvailable where no completion can be known.
    """

    __slots__ = ("_found", "_history", "_inner", "_left", "_name", "_state", "_vocab")

    def __init__(self, inner: Matcher, left: int, vocab: Vocab, *, name: str) -> None:
        self._inner = inner
        self._left = left
        self._vocab = vocab
        self._name = name
        self._state = _LimitState()
        self._history: list[_LimitState] = []  # before each token, EOS too
        self._found: tuple[Mask | None, bool] | None = None  # the answer of `_look`, kept until the next token
        if within(inner, left) is None:
            shortest = inner.shortest_completion()
            if len(shortest) > left:
                raise InputError(
                    f"no text of this constraint fits in {left} tokens: the shortest known takes {len(shortest)}, "
                    "its end counted",
                    hint=f"max_tokens of {len(shortest)} or more, room for it in the context, or on_budget=truncate",
                    field="max_tokens",
                )
            self._state = _LimitState(shortest)

    @property
    def inner(self) -> Matcher:
        """The constraint's own matcher. It may be asked, and must not be advanced."""
        return self._inner

    @property
    def decided(self) -> bool:
        """Whether the limit has refused a token so far that the constraint allows."""
        return self._state.decided

    @property
    def is_accepting(self) -> bool:
        return self._inner.is_accepting

    @property
    def is_finished(self) -> bool:
        return self._inner.is_finished

    def mask(self) -> Mask:
        mask, _ = self._look()
        return self._inner.mask() if mask is None else mask.copy()

    def allows(self, token: int) -> bool:
        if not self._inner.allows(token):
            return False
        mask, _ = self._look()
        return mask is None or masks.test(mask, token)

    def advance(self, token: int) -> None:
        mask, decides = self._look()
        if mask is not None and not masks.test(mask, token) and self._inner.allows(token):
            shown = self._vocab.text_of(token)
            raise TokenRefused(f"token {token} ({shown!r}) is refused: {self._reason(token)}")
        self._inner.advance(token)
        left, way = self._left - 1, self._state.way
        if mask is None or self._inner.is_finished:
            way = None
        elif way is not None and way[0] == token:
            way = way[1:]
        else:
            way = within(self._inner, left)
            if way is None:
                raise AssertionError(f"token {token} was allowed for a completion that is not there")
        self._history.append(self._state)
        self._state = _LimitState(way, self._state.decided or decides)
        self._left = left
        self._found = None

    def rollback(self, count: int) -> None:
        self._inner.rollback(count)
        if count:
            length = len(self._history) - count
            self._state = self._history[length]
            del self._history[length:]
            self._left += count
            self._found = None

    def fork(self) -> TokenLimitMatcher:
        other = object.__new__(type(self))
        other._inner = self._inner.fork()
        other._left, other._vocab, other._name = self._left, self._vocab, self._name
        other._state, other._history, other._found = self._state, self._history.copy(), self._found
        return other

    def forced(self) -> tuple[int, ...]:
        """The forced tokens of the constraint, as far as they fit."""
        tokens = self._inner.forced()
        ahead = self.fork()
        for count, token in enumerate(tokens):
            if not ahead.allows(token):
                return tokens[:count]
            ahead.advance(token)
        return tokens

    def explain(self, token: int) -> Blame:
        if self.allows(token):
            raise ValueError(f"token {token} is allowed")
        if not self._inner.allows(token):
            return self._inner.explain(token)
        return Blame(member=MEMBER, reason=self._reason(token))

    def shortest_completion(self) -> tuple[int, ...]:
        if self.is_finished:
            return ()
        held = self._held_completion()
        completion = known(self._inner)
        return held if completion is None else min(held, completion, key=len)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """As in `Composite`: the members of the constraint, the constraint, and last the mask under the limit."""
        return [*members_with_whole(self._inner, self._name), (MEMBER, self.mask())]

    def _look(self) -> tuple[Mask | None, bool]:
        """The allowed tokens, None where the limit is far and changes nothing; and whether the limit refuses any
        token."""
        if self._found is None:
            self._found = self._near()
        return self._found

    def _near(self) -> tuple[Mask | None, bool]:
        inner = self._inner
        if inner.is_finished or is_loose(inner, self._left - 1):
            return None, False
        whole = inner.mask()
        mask = whole & closing(inner, self._left - 1, self._vocab.width)
        way = self._held_completion()
        self._state = self._state._replace(way=way)
        masks.set_bits_inplace(mask, way[:1], True)
        return mask, not np.array_equal(mask, whole)

    def _held_completion(self) -> tuple[int, ...]:
        """A completion that fits in the tokens left. Raises LimitExceeded where none is known."""
        way = self._state.way
        if way is None:
            way = within(self._inner, self._left)
        if way is None:
            raise LimitExceeded(
                f"no completion of at most {self._left} tokens is known",
                hint=OptionText("a larger ", Setting("max_tokens"), ", or ", Setting("on_budget", "truncate")),
            )
        return way

    def _reason(self, token: int) -> str:
        left = self._left - 1
        ahead = self._inner.fork()
        ahead.advance(token)
        completion = known(ahead)
        if completion is None or len(completion) <= left:
            return f"no completion of {left} tokens is known after it, and no more would be left"
        return f"after it the text takes {len(completion)} more tokens, its end counted, and {left} would be left"


class RuledTokenLimitMatcher(TokenLimitMatcher):
    """A `RuleNames` matcher under a token limit."""

    __slots__ = ()

    def rule_of(self, token: int) -> str | None:
        """The constraint's own answer."""
        inner = self._inner
        if not isinstance(inner, RuleNames):
            raise AssertionError("the matcher inside knows no rules")
        return inner.rule_of(token)


def with_token_limit(inner: Matcher, left: int, vocab: Vocab, *, name: str) -> TokenLimitMatcher:
    """`inner` under a token limit; `RuleNames` where `inner` is. Raises as `TokenLimitMatcher`."""
    kind = RuledTokenLimitMatcher if isinstance(inner, RuleNames) else TokenLimitMatcher
    return kind(inner, left, vocab, name=name)


def without_token_limit(matcher: Matcher | None) -> Matcher | None:
    """The constraint's own matcher, where this one adds a token limit to it; else the argument."""
    return matcher.inner if isinstance(matcher, TokenLimitMatcher) else matcher


def is_closed_by_limit(matcher: Matcher | None) -> bool:
    """Whether a finished text ended as it did because of the token limit."""
    return isinstance(matcher, TokenLimitMatcher) and matcher.decided and matcher.is_finished


def exceeded(matcher: Matcher, used: int) -> BudgetExceeded:
    """The error for a text that is incomplete at the token limit. used: the number of its tokens."""
    way = known(matcher)
    more = "" if way is None else f"; the shortest end known takes {len(way)} more"
    return BudgetExceeded(
        f"the text is not complete after {used} tokens{more}",
        hint="a larger max_tokens, or room for it in the context; on_budget=close brings a text to its end in time",
        field="max_tokens",
    )


def check_on_budget(on_budget: OnBudget, *, has_constraint: bool, is_native: bool, bans: Sequence[str]) -> None:
    """Raises InputError or CapabilityError naming `on_budget` where the option cannot be used. bans: the fields of the
    sampling config that ban tokens."""
    if on_budget == "truncate":
        return
    if not has_constraint:
        raise InputError(
            OptionText(
                Setting("on_budget", on_budget), " needs a constraint: without one, text is complete wherever it is cut"
            ),
            hint="leave on_budget out, or give a constraint",
            field="on_budget",
        )
    if on_budget == "error":
        return
    if is_native:
        raise CapabilityError(
            "on_budget=close does not work with the engine's own sampler: its grammar knows no token limit",
            hint=OptionText("leave on_budget out, or ", Setting("sampler", "native")),
            field="on_budget",
        )
    if bans:
        raise CapabilityError(
            f"on_budget=close cannot be promised where {bans[0]} bans tokens: completing the text may need them",
            hint=f"put the ban into the constraint, or leave {bans[0]} out",
            field="on_budget",
        )


@contextmanager
def closable(closes: bool) -> Iterator[None]:
    """Put around code that makes a matcher for `on_budget=close`. Raises CapabilityError naming `on_budget`, with the
    reason, where completions of the constraint cannot be known. closes: whether `on_budget` is `close`."""
    try:
        yield
    except OutOfTime:
        raise
    except (UnsupportedError, LimitExceeded) as error:
        if not closes:
            raise
        raise CapabilityError(
            f"on_budget=close cannot be had with this constraint: {error.message}",
            hint=OptionText(Setting("on_budget", "error"), " and truncate go with every constraint"),
            field="on_budget",
        ) from error
