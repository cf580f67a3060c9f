"""The `draft` strategy: the tokens of `mask`, several in one forward pass.

Sources propose tokens; they are appended to the taken ones and run in one pass with logits at each place. Then every
place is decided as `mask` decides it, with the next number of the random stream, until a decision differs from what was
proposed. So the text is that of `mask` whatever was proposed; only the cache is cut back. The module knows neither how
proposals are made nor how a constraint works.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

from espalier.decoding.drafting.continuations import PAUSE, HistoryPosition
from espalier.decoding.drafts.pace import MOST, Pace, least_rate
from espalier.decoding.drafts.source import FORCED, GRAMMAR, MODEL, USUAL, Drafter, DraftSource, DraftText, SureDrafter
from espalier.decoding.drafts.sources import SOURCES, check_sources
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Drafting, Job, Outcome, Plan, SampledToken, Strategy
from espalier.decoding.ports import Append, Need
from espalier.decoding.step.decide import decide
from espalier.decoding.step.row import TokenDecision
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask
from espalier.sampling.config import SamplingConfig
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.trace.records import DraftTokens

TRIES = 8
"""A source that was not worth a draft is still heard, without a pass, so that its rate is known; and every so many
times a draft is run, so that the cost of a pass is known."""
TRIED = (3, 1, 7)
"""The tokens of such drafts, in turn."""
WINDOW = 48
"""Once it is asked again, a source that is asked at every place is asked for so many tokens at least."""
SURE_STEP = 0.03
"""How fast it is learnt how often such a source has something to say."""
NOTED = 4
"""One of so many passes without a draft is noted."""
HEARING = 200
"""A source that is only heard is asked so seldom that this takes one part of so many of the time."""
SAMPLED = 16
"""At one of so many places it is measured what asking takes."""
NO_TOKEN = -1
"""What stands for the token before the first one."""
FAIR = 0.02
"""Seconds that the decisions after one pass may take: a slow constraint is not checked at many places in one turn."""


class DraftPart(NamedTuple):
    """The tokens of one source in a draft."""

    source: str
    tokens: tuple[int, ...]


def draft_plan(job: Job) -> Plan:
    """One sequence; up to 16 tokens a pass. The outcome is that of `mask`, with `drafting`."""
    run = _DraftRun(job)
    job.chain.start(job.prompt)
    try:
        answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
        rows = answer[0]
        run.passed(len(job.prompt), None)
        first = rows.shape[0] - 1
        while True:
            yield from run.take(rows[first:])
            if run.text.ending is not None:
                return run.outcome()
            cut, draft = run.cut, run.propose()
            while not draft and cut is None:
                if not run.is_awake:
                    yield from run.sleep()
                else:
                    began = run.begins()
                    answer = yield Need(append=(Append(branch=0, tokens=run.feed),))
                    run.passed(len(run.feed), began)
                    yield run.take_one(answer[0][-1])
                    yield from run.take_single()
                if run.text.ending is not None:
                    return run.outcome()
                draft = run.propose()
            tokens = (*run.feed, *draft)
            began = run.begins()
            answer = yield Need(
                truncate=() if cut is None else ((0, cut),),
                append=(Append(branch=0, tokens=tokens, logits="all" if draft else "last", optional=len(draft)),),
            )
            run.passed(len(tokens), began, len(draft))
            rows = answer[0]
            first = len(run.feed) - 1 if draft else rows.shape[0] - 1
    finally:
        run.close()


class _DraftRun:
    """The state of one plan between its passes.

    feed: taken tokens that are not in the cache. cut: the length to which the cache has to be cut first; None for none.
    is_awake: whether any source is asked; else nothing is learnt either.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.text = TextRun(EndRule(job))
        self.feed: tuple[int, ...] = ()
        self.cut: int | None = None
        self._cached = 0  # tokens in the cache, wrong ones included
        self._passes = 0
        self._asking = self._beside = 0.0  # seconds before the pass: of sources, and of what is done with their answers
        self._next = 0  # the value of `known.taken` from which on a source is asked
        self._misses = 0  # places at which nothing was proposed, since that was recorded
        self._learning = 0.0  # seconds that recording a place takes
        self._ended: float | None = None  # when the last pass ended that was timed
        self._spent = 0.0  # its seconds
        self._before = 0  # tokens before it
        self._is_drafts = False  # whether it is one of those that drafts pay for
        self._has_drafted = False  # whether the last pass held a draft
        self._drafts: list[DraftTokens] = []
        self._parts: list[DraftPart] = []
        self._heard: list[DraftPart] = []  # proposals that no pass computes
        self._timed, self._questions = TimedMask(job), MatcherQuestions(job.matcher)
        self._mask: Mask | None = None
        self._has_mask = False
        self._seen = DraftText(job, self.text.tokens, job.kit.continuations(job.owner, job.constraint))
        names = job.options.drafts or ((*USUAL, MODEL) if job.kit.sibling is not None else USUAL)
        if job.matcher is None:  # nothing is forced, and no state was met before
            names = tuple(name for name in names if name not in (FORCED, GRAMMAR))
        self._sources: dict[str, DraftSource] = {name: SOURCES.load(name) for name in names}
        self._drafters: dict[str, Drafter] = {name: source.make(self._seen) for name, source in self._sources.items()}
        self._sure = {
            name: cast(SureDrafter, self._drafters[name]) for name, source in self._sources.items() if source.is_sure
        }
        known = self._seen.known
        self._woken = {name: known.due.get(name, 0) for name in self._sure}  # when such a source is asked again
        self._learns = GRAMMAR in names and job.matcher is not None
        self.is_awake = self._waits()
        self._is_forced = FORCED in names and not job.watch.is_on and not len(job.chain.filters)

    def take(self, rows: Logits) -> Iterator[SampledToken]:
        """Take tokens from the `(n, V) float32` rows, the first of which follows the last taken token, as long as they
        are what was drafted; then those that need no row."""
        draft = [token for part in self._parts for token in part.tokens]
        right, began = 0, self._now()
        step = len(self.text.tokens)
        for place, row in enumerate(rows):
            decision = self._decide(row)
            token = decision.token
            text = self._advance(token, decision.prob)
            is_right = place < len(draft) and token == draft[place]
            right += is_right
            yield SampledToken(token=token, text=text, record=decision.record)
            if not is_right or self.text.ending is not None or self._now() - began > FAIR:
                break
        right = min(right, len(rows) - 1)  # the last row computed nothing that was proposed
        if self._parts or self._heard:
            self._judge(step, right)
        count = len(self.text.tokens) - step
        # The right drafts are in the cache, and what follows them there is wrong, or comes too early.
        # The last token is computed once more where nothing else would give the logits after it.
        cached = min(right, count - 1)
        keep = self._cached - len(draft) + cached
        self.cut = keep if keep < self._cached else None
        self._cached = keep
        self.feed = tuple(self.text.tokens[step + cached :])
        yield from self.take_single()

    def take_one(self, row: Logits) -> SampledToken:
        """Take one token after a pass over `feed`. row: `(V,) float32`."""
        decision = self._decide(row)
        token = decision.token
        text = self._advance(token, decision.prob)
        if self._heard:
            self._judge(len(self.text.tokens) - 1, 0)
        self.feed = (token,)
        return SampledToken(token=token, text=text, record=decision.record)

    def sleep(self) -> Generator[Need | SampledToken, Any, None]:
        """Take tokens one by one, as `mask` does and at its cost, until a source is asked again or the text ends."""
        job, text, known, timed = self.job, self.text, self._seen.known, self._timed
        matcher, chain, questions = job.matcher, job.chain, self._questions
        job.kit.is_wanted = False  # what other texts then lack they measure themselves
        for _ in range(self._next - known.taken):
            answer = yield Need(append=(Append(branch=0, tokens=self.feed),))
            self._passes += 1
            self._cached += len(self.feed)
            decision = decide(
                answer[0][-1],
                self._mask if self._has_mask else timed.mask(matcher),
                vocab=job.vocab,
                chain=chain,
                stream=job.stream,
                context=job.context(text.tokens),
                watch=job.watch,
                questions=questions,
            )
            token = decision.token
            if matcher is not None:
                matcher.advance(token)
            chain.on_token(token, decision.prob)
            self._has_mask = False
            known.taken += 1
            self.feed = (token,)
            yield SampledToken(token=token, text=text.take(token), record=decision.record)
            if text.ending is not None:
                return
        self._has_drafted = False
        self._ended = None
        self._seen.place = None

    def _decide(self, row: Logits) -> TokenDecision:
        job = self.job
        return decide(
            row,
            self._here(),
            vocab=job.vocab,
            chain=job.chain,
            stream=job.stream,
            context=job.context(self.text.tokens),
            watch=job.watch,
            questions=self._questions,
        )

    def propose(self) -> tuple[int, ...]:
        """The draft for the next pass; empty where none is worth its cost."""
        self.is_awake = self._seen.known.taken >= self._next
        if not self.is_awake:
            return ()
        # The last token of all needs no place in the cache.
        room = min(MOST, self.job.max_tokens - len(self.text.tokens) - 1)
        self._here()
        # Before a pass is known a draft cannot be compared with it.
        if room <= 0 or not self.job.kit.costs.is_known:
            return ()
        self._asking, began = 0.0, self._now()
        draft = self._draft_tokens(room)
        self._beside = self._now() - began - self._asking
        return draft

    def _draft_tokens(self, room: int) -> tuple[int, ...]:
        seen, kit = self._seen, self.job.kit
        known = seen.known
        pace: Pace | None = None
        if kit.listed is not (listed := kit.costs.listed()):
            kit.listed, kit.least = listed, least_rate(kit.costs, kit.worth.least)
        seen.least = kit.least
        ahead: list[int] = []
        for name, drafter in self._drafters.items():
            if len(ahead) >= room:
                break  # the rest is not asked, and has missed nothing
            if known.due.get(name, 0) > known.taken:
                continue
            if name in self._sure:
                draft, rates = self._ask_source(name, drafter, ahead, room - len(ahead)), []
                if draft:
                    pace = pace or Pace(kit.costs, len(self.feed), kit.worth.least)
                    rates = [*self._sure[name].sure][: len(draft)]
                    count = pace.kept(rates)
                    draft, rates = draft[:count], rates[:count]
                self._was_asked(name, 0.0 if pace is None or not draft else pace.saved)
            else:
                pace = pace or Pace(kit.costs, len(self.feed), kit.worth.least)
                rate = known.rate(name)
                hit, seconds = known.hit(name), kit.asking.get(name, 0.0)
                count = pace.wanted(rate, room - len(ahead), seconds=seconds, hit=hit)
                if count:
                    known.was_worth_it(name, pace.saved)
                    draft = self._ask_source(name, drafter, ahead, count)
                else:  # behind others it has another rate
                    draft = [] if ahead else self._listen(name, room)
                rates = [rate] * len(draft)
            if draft and pace is not None:
                self._parts.append(DraftPart(name, tuple(draft)))
                pace.added(rates)
                ahead += draft
        return tuple(ahead)

    def _was_asked(self, name: str, saved: float) -> None:
        """Record what a source that is asked at every place is expected to save here. It pauses where this is less than
        what asking takes."""
        known = self._seen.known
        self._misses += 1
        if saved:
            known.was_worth_it(name, saved)
        elif self._misses < SAMPLED:
            return
        known.was_asked(name, saved > 0, 1.0 - (1.0 - SURE_STEP) ** self._misses)
        self._misses = 0
        gained = known.hit(name) * known.saved.get(name, 0.0)
        if known.taken >= self._woken[name] + WINDOW and gained < self.job.kit.asking.get(name, 0.0):
            self._pause(name, 2 * WINDOW)
            self._woken[name] = known.due[name]

    def _pause(self, name: str, least: int = 0) -> None:
        self._seen.known.pause(name, least)
        self._waits()

    def _waits(self) -> bool:
        """Work out when a source is asked next. Returns whether one is now."""
        known = self._seen.known
        self._next = min((known.due.get(name, 0) for name in self._drafters), default=0)
        return known.taken >= self._next

    def begins(self) -> float | None:
        """When the next pass begins; records what the one before it came to, our own time included."""
        self.job.kit.is_wanted = True
        if self.job.clock is None:
            return None
        now = self.job.clock()
        if self._ended is not None:
            count = len(self.text.tokens) - self._before
            self.job.kit.worth.note(self._spent + now - self._ended, count, drafted=self._is_drafts)
        return now

    def passed(self, tokens: int, began: float | None, drafted: int = 0) -> None:
        """Record a pass over so many tokens. began: None for a prompt's. What we compute ourselves is part of it."""
        self._passes += 1
        self._cached += tokens
        follows, self._has_drafted = self._has_drafted, drafted > 0
        if began is None or self.job.clock is None:
            return
        self._ended = self.job.clock()
        self._before = len(self.text.tokens)
        # What is done with the last tokens is not part of a pass; a driver knows when it begins.
        kit, self._is_drafts = self.job.kit, drafted > 0 or follows
        self._spent = seconds = kit.last_pass() or self._ended - began
        if drafted or follows or self._passes % NOTED == 0 or not kit.costs.is_known:
            seconds += self._beside if drafted else 0.0
            kit.costs.note(tokens, seconds, drafted=drafted > 0, switched=follows and not drafted)

    def outcome(self) -> Outcome:
        outcome = self.text.outcome(self.job.matcher, mask_seconds=self._timed.seconds)
        drafting = Drafting(passes=self._passes, tokens=len(self.text.tokens), drafts=tuple(self._drafts))
        return replace(outcome, drafting=drafting)

    def close(self) -> None:
        for name, source in self._sources.items():
            if source.close is not None:
                source.close(self._drafters[name])

    def _listen(self, name: str, room: int) -> list[int]:
        """Where a source is not worth a draft: hear it, or run a draft all the same; and ask it later."""
        kit = self.job.kit
        kit.heard += 1
        turn, is_tried = divmod(kit.heard, TRIES)
        self._pause(name, int(HEARING * kit.asking.get(name, 0.0) / kit.listed[1]))
        draft = self._ask_source(name, self._drafters[name], [], min(TRIED[turn % len(TRIED)], room))
        if not draft or is_tried == 0:
            return draft
        self._heard.append(DraftPart(name, tuple(draft[:1])))
        return []

    def _ask_source(self, name: str, drafter: Drafter, ahead: list[int], most: int) -> list[int]:
        """What a source proposes, as far as it can be run: ids of the vocabulary."""
        width = self.job.vocab.width
        draft: list[int] = []
        is_timed = name not in self._sure or not self._seen.known.taken % SAMPLED
        began = self._now() if is_timed else 0.0
        with SOURCES.blamed(name):
            for token in [*drafter.propose(ahead, most)][:most]:
                if not 0 <= token < width or not self.job.vocab.real_ids[token]:
                    break
                draft.append(int(token))
        if is_timed:
            seconds = self._now() - began + (self._learning if name in self._sure else 0.0)
            self._asking += seconds
            self.job.kit.asked(name, seconds)
        if name not in self._sure:
            self._seen.known.was_asked(name, bool(draft))
        return draft

    def _judge(self, step: int, right: int) -> None:
        """Record how many tokens of the last draft were right."""
        known, tokens = self._seen.known, self.text.tokens
        place = step
        for source, drafted in self._parts:
            accepted = max(0, min(right - (place - step), len(drafted)))
            self._drafts.append(DraftTokens(step=place, source=source, drafted=len(drafted), accepted=accepted))
            for at in range(0 if source in self._sure else min(accepted + 1, len(drafted))):
                # Past the end of the text nothing is known about a proposal.
                if place + at < len(tokens):
                    known.was_right(source, tokens[place + at] == drafted[at])
            if accepted < len(drafted):
                break
            place += len(drafted)
        for source, drafted in self._heard:
            known.was_right(source, tokens[step] == drafted[0])
        self._parts, self._heard = [], []

    def take_single(self) -> Iterator[SampledToken]:
        """Take tokens where exactly one is allowed, without their logits: `mask` would draw it, and uses its numbers of
        the random stream all the same. Where steps are recorded the logits are needed, so nothing is taken here."""
        job, chain = self.job, self.job.chain
        while self._is_forced and self._is_short() and self.text.ending is None and job.matcher is not None:
            bits = self._here()
            if bits is None:
                return
            permitted = chain.fitted.permitted
            left = bits if permitted is None else bits & masks.resized(permitted, bits.shape[0] * 32)
            token = masks.single(left)
            if token is None:
                return
            for _ in range(chain.draws_per_token):
                job.stream.next()
            step = len(self.text.tokens)
            self._seen.known.pauses[FORCED] = PAUSE
            text = self._advance(token, 1.0)
            self._drafts.append(DraftTokens(step=step, source=FORCED, drafted=1, accepted=1))
            self.feed = (*self.feed, token)
            yield SampledToken(token=token, text=text, record=None)

    def _is_short(self) -> bool:
        """Whether one more token in the next pass takes less than a pass of its own."""
        listed, size = self.job.kit.listed, len(self.feed)
        if size + 1 >= len(listed):
            return not listed
        switch = 2 * self.job.kit.costs.switch if size == 1 else 0.0
        return listed[size + 1] + switch < listed[size] + listed[1]

    def _here(self) -> Mask | None:
        """The mask of the current place, `(W,) int32`; it is built once."""
        if not self._has_mask:
            self._mask = self._timed.mask(self.job.matcher)
            self._has_mask = True
            self._learn()
        return self._mask

    def _learn(self) -> None:
        """Record the place that the last token led to."""
        if not self._learns or self._mask is None:
            return
        tokens, seen = self.text.tokens, self._seen
        if not self.is_awake or seen.known.due.get(GRAMMAR, 0) > seen.known.taken:
            seen.place = None
            return
        is_timed = not seen.known.taken % SAMPLED
        began = self._now() if is_timed else 0.0
        last = tokens[-1] if tokens else NO_TOKEN
        place = HistoryPosition((hash(self._mask.tobytes()), last), tokens[-2] if len(tokens) > 1 else NO_TOKEN)
        if seen.place is not None and tokens:
            seen.known.learn(seen.place, last, place)
        seen.place = place
        if is_timed:
            self._learning = self._now() - began

    def _advance(self, token: int, prob: float) -> str:
        if self.job.matcher is not None:
            self.job.matcher.advance(token)
        self.job.chain.on_token(token, prob)
        self._has_mask = False
        self._seen.known.taken += 1
        return self.text.take(token)

    def _now(self) -> float:
        return 0.0 if self.job.clock is None else self.job.clock()


def check_drafts(options: Decoding, sampling: SamplingConfig) -> None:
    """Raises InputError for a source that does not exist."""
    check_sources(options.drafts or ())


DRAFT = Strategy(make_plan=draft_plan, check=check_drafts, truncates=True)
