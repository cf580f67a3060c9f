"""The `mask` strategy with rewinds, for constraints that refuse a text only later: tokens are taken back.

Tokens go back in two cases: the text has become what the constraint recalls (`Rewinding.recall`), or it has reached a
dead end. What was taken back is not taken again at the same place, so the search is depth-first and ends. A token is
streamed only when nothing can take it back, so shown text never changes. The random stream is not rolled back: the same
random numbers would make the same choice again. The module does not know what a match is, nor how members are joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Matcher
from espalier.constraints.matching.rewinding import RewindingMatcher
from espalier.decoding.matcher_questions import MatcherQuestions, NamedMasks
from espalier.decoding.plan import Job, Outcome, Plan, SampledToken
from espalier.decoding.ports import Append, Need
from espalier.decoding.rewinding.retries import Retries
from espalier.decoding.step.dead_ends import stranded
from espalier.decoding.step.decide import decide
from espalier.decoding.step.row import TokenDecision
from espalier.decoding.step.stages import CONSTRAINT
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.text.token_limit import without_token_limit
from espalier.decoding.timed_mask import TimedMask
from espalier.errors import DeadEnd
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.trace.records import Rewind
from espalier.wording import OptionText, Setting

REWIND = "rewind"
"""The name in `removed_by` for tokens that led into a dead end."""
MAX_SHOWN = 5
"""How many of the last rewinds an error shows."""


def rewind_plan(job: Job) -> Plan:
    """One sequence, one token per forward pass. The job's matcher must be `Rewinding`. Every streamed token is final.

    Raises DeadEnd where no text is left: none at all, none that begins with the shown text, or none within
    `max_rewinds`; it is a Stranded that names them where the members of a composition share none.
    """
    run = _RewindingRun(job)
    job.chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        back = run.step(answer[0][-1])  # (V,) float32
        yield from run.settled()
        if run.ended is not None:
            return run.ended
        if back:
            # Appending the last kept token once more gives the logits of the place that the text went back to.
            context = (*job.prompt, *run.generated)
            answer = yield Need(truncate=((0, len(context) - 1),), append=(Append(branch=0, tokens=context[-1:]),))
        else:
            answer = yield Need(append=(Append(branch=0, tokens=(run.generated[-1],)),))


class _RewindingRun:
    """The state of one plan between its passes."""

    def __init__(self, job: Job) -> None:
        matcher = job.matcher
        own = without_token_limit(matcher)
        if matcher is None or not isinstance(own, RewindingMatcher):
            raise AssertionError("the matcher of this job takes nothing back")
        self._job = job
        self._matcher = matcher
        self._rewinding = own  # tried tokens do not advance a matcher, so the token limit need not see them
        self._timed, self._questions = TimedMask(job), RewindQuestions(matcher)
        self._members = MatcherQuestions(matcher)
        self._end_rule = EndRule(job)
        self._text = TextRun(self._end_rule)
        self._retries = Retries()
        self._rewinds: list[Rewind] = []
        self._waiting: deque[SampledToken] = deque()  # taken tokens that may still go back
        self._strict: Mask = masks.empty(0)  # allowed by the matcher
        self._allowed: Mask = masks.empty(0)  # with tokens to try, without those that must not be taken again
        self.ended: Outcome | None = None

    @property
    def generated(self) -> list[int]:
        return self._text.tokens

    def step(self, raw: Logits) -> bool:
        """Take a token by `(V,) float32` logits. True where earlier tokens went back instead. Raises DeadEnd."""
        went_back = False
        while True:
            self._build_masks()
            fault: DeadEnd | None = None
            if self._allowed.any():
                if went_back:
                    return True  # `raw` belongs to a later place
                try:
                    decision = self._decide(raw)
                except DeadEnd as error:
                    fault = error
                else:
                    if masks.test(self._strict, decision.token):
                        self._take(decision)
                        return False
                    went_back = self._recall(decision.token)
                    continue
            went_back = self._dead_end(fault) or went_back

    def settled(self) -> Sequence[SampledToken]:
        """The tokens that nothing can take back any more, each once."""
        unsettled = 0
        if self.ended is None and self._can_rewind:
            unsettled = min(self._rewinding.unsettled, len(self._waiting))
        settled = [self._waiting.popleft() for _ in range(len(self._waiting) - unsettled)]
        self._retries.settled(len(self.generated) - unsettled)
        return settled

    @property
    def _can_rewind(self) -> bool:
        return len(self._rewinds) < self._job.options.max_rewinds

    def _build_masks(self) -> None:
        """Build the masks of this place."""
        timed = self._timed.timed
        self._strict = timed(self._matcher.mask)
        is_tempted = self._can_rewind and self._rewinding.unsettled > 0
        undoable = timed(self._undoable) if is_tempted else None  # what may be tried besides
        self._allowed = self._strict.copy() if undoable is None else self._strict | undoable
        self._questions.forbidden = forbidden = self._retries.forbidden
        self._questions.strict, self._questions.undoable = self._strict, undoable
        masks.set_bits_inplace(self._allowed, tuple(forbidden), False)

    def _undoable(self) -> Mask:
        """The tokens that may be tried, `(W,) int32`: those that take back no token that was streamed. After a rewind
        the matcher may count tokens as unsettled that were settled when the text went on from here before."""
        held = len(self._waiting)
        mask = self._rewinding.undoable()
        if held < min(self._rewinding.unsettled, len(self.generated)):
            ids = masks.allowed_ids(mask, self._job.vocab.width).tolist()
            far = (token for token in ids if not held or self._rewinding.recall(token).count > held + 1)
            masks.set_bits_inplace(mask, tuple(far), False)
        return mask

    def _decide(self, raw: Logits) -> TokenDecision:
        job = self._job
        return decide(
            raw,
            self._allowed,
            vocab=job.vocab,
            chain=job.chain,
            stream=job.stream,
            context=job.context(self.generated),
            watch=job.watch,
            questions=self._questions,
        )

    def _take(self, decision: TokenDecision) -> None:
        token = decision.token
        self._matcher.advance(token)
        self._job.chain.on_token(token, decision.prob)
        self._retries.taken(token)
        self._waiting.append(SampledToken(token=token, text=self._text.take(token), record=decision.record))
        if self._text.ending is not None:
            outcome = self._text.outcome(self._matcher, mask_seconds=self._timed.seconds)
            self.ended = replace(outcome, rewinds=tuple(self._rewinds))

    def _recall(self, token: int) -> bool:
        """Take back a tried token and those that led to it. True where more than the tried token goes back."""
        recall = self._rewinding.recall(token)
        tokens = [*self.generated[len(self.generated) - recall.count + 1 :], token]
        if not 2 <= recall.count <= len(self._waiting) + 1:
            raise AssertionError(f"{recall.count - 1} taken tokens are to go back where {len(self._waiting)} may")
        place = self._retries.recall(tokens, recall.blame)
        here = len(self.generated)
        self._go_back(place, [*self.generated[place:], token], recall.blame)
        return place < here

    def _dead_end(self, fault: DeadEnd | None) -> bool:
        """No token is left here: take up a deferred token (False), or take back the last token (True). Raises
        DeadEnd."""
        if self._retries.resume():
            return False
        step, members = len(self.generated), self._members.member_names()
        names = " and ".join(members)
        reason = f"no token is allowed at step {step} and the text is not complete" if fault is None else fault.message
        if not self._waiting or not self._can_rewind:
            raise self._dead_end_error(reason, members, fault)
        together = f"{names} allow no token in common after it" if names else reason
        why = Blame(member=REWIND, reason=together if fault is None else fault.message)
        token = self.generated[-1]
        self._retries.dead_end(token, why)
        self._go_back(step - 1, [token], why)
        return True

    def _dead_end_error(self, reason: str, members: Sequence[str], fault: DeadEnd | None) -> DeadEnd:
        if not self._rewinds:
            return fault or (stranded(members, reason) if members else DeadEnd(reason))
        last = ", ".join(repr(rewind.text) for rewind in self._rewinds[-MAX_SHOWN:])
        tried = f"text was taken back {len(self._rewinds)} times, last: {last}"
        if not self._can_rewind:
            used = Setting("max_rewinds", self._job.options.max_rewinds)
            hint: str = OptionText(used, " is used up; with more the search goes on")
        elif self.generated:
            hint = "the text before it has been shown and stays"
        else:
            hint = "every text was tried"
        reason = f"{reason}; {tried}"
        return stranded(members, reason, hint=hint) if members else DeadEnd(reason, hint=hint)

    def _go_back(self, place: int, tokens: Sequence[int], why: Blame) -> None:
        """Go back to before the token at `place`. tokens: all that are taken back, with a tried one."""
        count = len(self.generated) - place
        text = b"".join(map(self._end_rule.bytes_of, tokens)).decode("utf-8", "replace")
        self._rewinds.append(Rewind(step=place, tokens=tuple(tokens), text=text, blame=why))
        if not count:
            return
        self._matcher.rollback(count)
        self._job.chain.rollback(count)
        self._text.rollback(count)
        for _ in range(count):
            self._waiting.pop()


class RewindQuestions(MatcherQuestions):
    """The matcher's answers at one place, adapted to tokens that may be tried and tokens that must not be taken again.

    forbidden: as in `Retries`. strict: `(W,) int32`, allowed by the matcher. undoable: the same for tokens that may be
    tried besides.
    """

    __slots__ = ("forbidden", "strict", "undoable")

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self.forbidden: Mapping[int, Blame] = {}
        self.strict: Mask = masks.empty(0)
        self.undoable: Mask | None = None

    @property
    def has_members(self) -> bool:
        return super().has_members or bool(self.forbidden)

    def place(self) -> None:
        """The answers change with what is tried."""
        return

    def why_refused(self, token: int) -> Blame | None:
        return self.forbidden.get(token) or super().why_refused(token)

    def member_masks(self) -> NamedMasks:
        """The constraint's members, each with the tokens that may be tried; then the members that took back a token at
        this place."""
        undoable, named = self.undoable, super().member_masks()
        if undoable is not None:
            named = [(name, mask | undoable) for name, mask in named]
        if not self.forbidden:
            return named
        if not named:
            whole = self.strict.copy() if undoable is None else self.strict | undoable
            masks.set_bits_inplace(whole, tuple(self.forbidden), True)
            named = [(CONSTRAINT, whole)]
        without: dict[str, Mask] = {}
        for token, why in self.forbidden.items():
            mask = without.setdefault(why.member, np.full_like(self.strict, -1))
            masks.set_bits_inplace(mask, (token,), False)
        return [*named, *without.items()]
