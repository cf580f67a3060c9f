"""One generated text: its tokens, the text that may be shown, and why it ended.

`EndRule` holds what ends any text of a job; `TextRun` applies it token by token. A strategy that follows several texts
forks a run, one that takes tokens back rolls it back. This module knows no logits, masks or models.
"""

from __future__ import annotations

from typing import NamedTuple

from espalier.constraints.base import Matcher
from espalier.decoding.plan import FinishReason, Job, Outcome
from espalier.decoding.text.stops import TextAssembler
from espalier.decoding.text.token_limit import exceeded, is_closed_by_limit


class TextEnd(NamedTuple):
    """Why a text ended. stop: the stop text or stop id; None for EOS and for the token limit."""

    finish: FinishReason
    stop: str | int | None = None


class EndRule:
    """What ends a text of one job: EOS (unless `ignore_eos`), a stop id, a stop text, or `max_tokens`, in
    this order; and the limit on new lines.

    ends, stop_ids: token ids. stops: the stop texts. on_budget: what a text that `max_tokens` cuts comes to.
    """

    __slots__ = (
        "_line_limit",
        "_max_tokens",
        "_spelled",
        "_thoughts",
        "_vocab",
        "ends",
        "has_line_limit",
        "on_budget",
        "stop_ids",
        "stops",
    )

    def __init__(self, job: Job) -> None:
        config = job.chain.config
        self._vocab, self._spelled, self._max_tokens = job.vocab, job.spelled, job.max_tokens
        self._line_limit = job.line_limit
        self.has_line_limit = job.line_limit is not None
        self.on_budget = job.options.on_budget
        self.stops = config.stop
        self._thoughts = job.thoughts
        self.stop_ids = frozenset(config.stop_ids)
        self.ends = frozenset(() if config.ignore_eos else job.vocab.eos_ids)

    def assembler(self) -> TextAssembler:
        """What makes text of a new sequence's tokens."""
        return TextAssembler(self.stops, self._thoughts() if self._thoughts is not None and self.stops else None)

    def bytes_of(self, token: int) -> bytes:
        """What a token adds to the text. A stop id adds nothing."""
        if token in self.stop_ids:
            return b""
        return (self._spelled and self._spelled.get(token)) or self._vocab.bytes_of(token)

    def ending(self, token: int, length: int, stop_text: str | None) -> TextEnd | None:
        """Why a text of `length` tokens ends with `token`; None where it goes on. stop_text: the stop text that this
        token completed."""
        if token in self.ends:
            return TextEnd("stop", stop_text)
        if token in self.stop_ids:
            return TextEnd("stop", token)
        if stop_text is not None:
            return TextEnd("stop", stop_text)
        return TextEnd("length") if length >= self._max_tokens else None

    def is_late(self, token: int) -> bool:
        """Whether the text ends with this token, just taken, because it makes a new line late."""
        return self._line_limit is not None and self._line_limit.is_over(self.bytes_of(token))


class TextRun:
    """One text while it grows. tokens: all that were taken. ending: why it ended; None while it goes on."""

    __slots__ = ("_assembler", "_rule", "ending", "tokens")

    def __init__(self, rule: EndRule) -> None:
        self._rule = rule
        self._assembler = rule.assembler()
        self.tokens: list[int] = []
        self.ending: TextEnd | None = None

    def take(self, token: int) -> str:
        """Append a token. Returns the text that may be shown now; `ending` says whether the text ends here."""
        rule, tokens = self._rule, self.tokens
        tokens.append(token)
        text, stop = self._assembler.feed(rule.bytes_of(token))
        self.ending = rule.ending(token, len(tokens), stop)
        if rule.has_line_limit and self.ending is None and rule.is_late(token):
            self.ending = TextEnd("length")
        return text

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens."""
        if not count:
            return
        del self.tokens[-count:]
        self._assembler = self._rule.assembler()
        self.ending = None
        for length, token in enumerate(self.tokens, 1):
            stop = self._assembler.feed(self._rule.bytes_of(token)).stop
            self.ending = self._rule.ending(token, length, stop)  # whatever the time is now, the text went on there

    def fork(self) -> TextRun:
        """An independent copy in the same state."""
        copy = object.__new__(TextRun)
        copy._rule, copy._assembler = self._rule, self._assembler.fork()
        copy.tokens, copy.ending = self.tokens.copy(), self.ending
        return copy

    def outcome(self, matcher: Matcher | None, *, mask_seconds: float | None = None) -> Outcome:
        """The outcome of an ended text; made once of each run. matcher: after the last token, None without a
        constraint.

        Raises BudgetExceeded where the token limit cut an incomplete text under `on_budget=error`.
        """
        if self.ending is None:
            raise AssertionError("a text that goes on has no outcome")
        finish, stop = self.ending
        tail = self._assembler.finish()
        is_closed = is_closed_by_limit(matcher)
        is_complete = matcher is None or matcher.is_finished or (finish == "length" and matcher.is_accepting)
        if finish == "length" and not is_complete and matcher is not None and self._rule.on_budget == "error":
            raise exceeded(matcher, len(self.tokens))
        return Outcome(
            tokens=tuple(self.tokens),
            text=self._assembler.text,
            tail=tail.text,
            finish="length" if is_closed else finish,
            # Of two stop texts, one may wait for the other, longer one: it is met when no more text comes.
            stop=stop if stop is not None else tail.stop,
            # A stop text may hide tokens that were taken: the matcher's state is then not the state of the shown text.
            is_complete=is_complete,
            mask_seconds=mask_seconds,
            closed_by_budget=is_closed,
        )
