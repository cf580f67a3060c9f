"""The `draft` strategy: the tokens of `mask`, several in one forward pass.

Sources propose tokens; they are appended to the taken ones and run in one pass with logits at each place. Then every
place is decided as `mask` decides it, with the next number of the random stream, until a decision differs from what was
proposed. So the text is that of `mask` whatever was proposed; only the cache is cut back. The module knows neither how
proposals are made nor how a constraint works.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import NamedTuple

from espalier.decoding.drafts.pace import MOST, Pace
from espalier.decoding.drafts.source import (
    FORCED,
    GRAMMAR,
    MODEL,
    SOURCES,
    USUAL,
    Drafter,
    DraftText,
    Source,
    check_sources,
)
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Drafting, Job, Outcome, Plan, Strategy, Taken
from espalier.decoding.ports import Append, Need, answered
from espalier.decoding.step.decide import decide
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask
from espalier.sampling.config import SamplingConfig
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.trace.records import Drafted

LISTENS = 16
"""Where nothing is worth drafting, every so many tokens a source is heard without a pass, so that its rate is known."""
QUIET = 8
"""Where no source is worth asking, none is asked for so many tokens."""
TRIES = 256
"""And every so many tokens a short draft is run, so that the cost of a pass is known."""
TRIED = 3
FAIR = 0.02
"""Seconds that the decisions after one pass may take: a slow constraint is not checked at many places in one turn."""


class Part(NamedTuple):
    """The tokens of one source in a draft."""

    source: str
    tokens: tuple[int, ...]


def draft_plan(job: Job) -> Plan:
    """One sequence; up to 16 tokens a pass. The outcome is that of `mask`, with `drafting`."""
    run = _Run(job)
    job.chain.start(job.prompt)
    try:
        answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
        rows = answered(answer)[0]
        run.passed(len(job.prompt), None)
        first = rows.shape[0] - 1
        while True:
            yield from run.take(rows[first:])
            if run.text.ending is not None:
                return run.outcome()
            cut, draft = run.cut, run.propose()
            tokens = (*run.feed, *draft)
            began = None if job.clock is None else job.clock()
            answer = yield Need(
                truncate=() if cut is None else ((0, cut),),
                append=(Append(branch=0, tokens=tokens, logits="all" if draft else "last", optional=len(draft)),),
            )
            run.passed(len(tokens), None if began is None or job.clock is None else job.clock() - began)
            rows = answered(answer)[0]
            first = len(run.feed) - 1 if draft else rows.shape[0] - 1
    finally:
        run.close()


class _Run:
    """The state of one plan between its passes.

    feed: taken tokens that are not in the cache. cut: the length to which the cache has to be cut first; None for none.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.text = TextRun(EndRule(job))
        self.feed: tuple[int, ...] = ()
        self.cut: int | None = None
        self._cached = 0  # tokens in the cache, wrong ones included
        self._passes = 0
        self._drafts: list[Drafted] = []
        self._parts: list[Part] = []
        self._heard: list[Part] = []  # proposals that no pass computes
        self._timed, self._questions = TimedMask(job), MatcherQuestions(job.matcher)
        self._mask: Mask | None = None
        self._has_mask = False
        self._seen = DraftText(job, self.text.tokens, job.kit.continuations(job.owner, job.constraint))
        names = job.options.drafts or ((*USUAL, MODEL) if job.kit.sibling is not None else USUAL)
        if job.matcher is None:  # nothing is forced, and no state was met before
            names = tuple(name for name in names if name not in (FORCED, GRAMMAR))
        self._quiet = 0  # tokens for which no source is asked, because none was worth its cost
        self._sources: dict[str, Source] = {name: SOURCES.load(name) for name in names}
        self._drafters: dict[str, Drafter] = {name: one.make(self._seen) for name, one in self._sources.items()}
        self._learns = GRAMMAR in names and job.matcher is not None
        self._is_forced = FORCED in names and not job.watch.is_on and not len(job.chain.filters)

    def take(self, rows: Logits) -> Iterator[Taken]:
        """Take tokens from the `(n, V) float32` rows, the first of which follows the last taken token, as long as they
        are what was drafted; then those that need no row."""
        draft = [token for part in self._parts for token in part.tokens]
        right, began = 0, self._now()
        step = len(self.text.tokens)
        for place, row in enumerate(rows):
            decision = decide(
                row, self._here(), vocab=self.job.vocab, chain=self.job.chain, stream=self.job.stream,
                context=self.job.context(self.text.tokens), watch=self.job.watch, questions=self._questions,
            )  # fmt: skip
            token = decision.token
            text = self._advance(token, decision.prob)
            is_right = place < len(draft) and token == draft[place]
            right += is_right
            yield Taken(token=token, text=text, record=decision.record)
            if not is_right or self.text.ending is not None or self._now() - began > FAIR:
                break
        right = min(right, len(rows) - 1)  # the last row computed nothing that was proposed
        if self._parts or self._heard:
            self._judge(step, right)
        taken = len(self.text.tokens) - step
        # The right drafts are in the cache, and what follows them there is wrong, or comes too early.
        # The last token is computed once more where nothing else would give the logits after it.
        kept = min(right, taken - 1)
        keep = self._cached - len(draft) + kept
        self.cut = keep if keep < self._cached else None
        self._cached = keep
        self.feed = tuple(self.text.tokens[step + kept :])
        yield from self._take_single()

    def propose(self) -> tuple[int, ...]:
        """The draft for the next pass; empty where none is worth its cost."""
        job, kit = self.job, self.job.kit
        # The last token of all needs no place in the cache.
        room = min(MOST, job.max_tokens - len(self.text.tokens) - 1)
        self._here()
        if room <= 0:
            return ()
        if self._quiet:
            self._quiet -= 1
            return tuple(self._listen(room))
        wanted = False
        ahead: list[int] = []
        pace = Pace(kit.costs, len(self.feed))
        known = self._seen.known
        for name, drafter in self._drafters.items():
            rate = known.rate(name)
            seconds = kit.asking.get(name, 0.0)
            count = pace.wanted(rate, room - len(ahead), seconds=seconds)
            if not count:
                continue
            wanted = True
            found = tuple(self._proposed(name, drafter, ahead, count))
            if found:
                self._parts.append(Part(name, found))
                pace.added(len(found), rate, seconds=seconds)
                ahead += found
        if not wanted:
            self._quiet = QUIET
        if not ahead:
            ahead = self._listen(room)
        return tuple(ahead)

    def passed(self, tokens: int, seconds: float | None) -> None:
        """Record a pass over so many tokens."""
        self._passes += 1
        self._cached += tokens
        if seconds is not None:
            self.job.kit.costs.note(tokens, seconds)

    def outcome(self) -> Outcome:
        found = self.text.outcome(self.job.matcher, mask_seconds=self._timed.seconds)
        drafting = Drafting(passes=self._passes, tokens=len(self.text.tokens), drafts=tuple(self._drafts))
        return replace(found, drafting=drafting)

    def close(self) -> None:
        for name, source in self._sources.items():
            if source.close is not None:
                source.close(self._drafters[name])

    def _listen(self, room: int) -> list[int]:
        """Where nothing was worth drafting: now and then hear each source, or run a short draft."""
        step = len(self.text.tokens)
        if step % LISTENS == 0:
            for name, drafter in self._drafters.items():
                found = tuple(self._proposed(name, drafter, [], min(TRIED, room)))
                if not found:
                    continue
                if step % TRIES == 0 and step:
                    self._parts.append(Part(name, found))
                    return [*found]
                self._heard.append(Part(name, found[:1]))
        return []

    def _proposed(self, name: str, drafter: Drafter, ahead: list[int], most: int) -> list[int]:
        """What a source proposes, as far as it can be run: ids of the vocabulary."""
        width = self.job.vocab.width
        found: list[int] = []
        began = self._now()
        with SOURCES.blamed(name):
            for token in [*drafter.propose(ahead, most)][:most]:
                if not 0 <= token < width or not self.job.vocab.real_ids[token]:
                    break
                found.append(int(token))
        if found:
            self.job.kit.asked(name, self._now() - began)
        return found

    def _judge(self, step: int, right: int) -> None:
        """Record how many tokens of the last draft were right."""
        known, tokens = self._seen.known, self.text.tokens
        place = step
        for source, drafted in self._parts:
            accepted = max(0, min(right - (place - step), len(drafted)))
            self._drafts.append(Drafted(step=place, source=source, drafted=len(drafted), accepted=accepted))
            for at in range(min(accepted + 1, len(drafted))):
                # Past the end of the text nothing is known about a proposal.
                if place + at < len(tokens):
                    known.was_right(source, tokens[place + at] == drafted[at])
            if accepted < len(drafted):
                break
            place += len(drafted)
        for source, drafted in self._heard:
            known.was_right(source, tokens[step] == drafted[0])
        self._parts, self._heard = [], []

    def _take_single(self) -> Iterator[Taken]:
        """Take tokens where exactly one is allowed, without their logits: `mask` would draw it, and uses its numbers of
        the random stream all the same. Where steps are recorded the logits are needed, so nothing is taken here."""
        job, chain = self.job, self.job.chain
        while self._is_forced and self.text.ending is None and job.matcher is not None:
            bits = self._here()
            if bits is None:
                return
            permitted = chain.fitted.permitted
            left = bits if permitted is None else bits & masks.resized(permitted, bits.shape[0] * 32)
            found = masks.single(left)
            if found is None:
                return
            for _ in range(chain.draws_per_token):
                job.stream.next()
            step = len(self.text.tokens)
            text = self._advance(found, 1.0)
            self._drafts.append(Drafted(step=step, source=FORCED, drafted=1, accepted=1))
            self.feed = (*self.feed, found)
            yield Taken(token=found, text=text, record=None)

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
        last = tokens[-1] if tokens else -1
        place: Hashable = (hash(self._mask.tobytes()), last)
        if seen.place is not None and tokens:
            seen.known.learn(seen.place, last, place)
        seen.place = place

    def _advance(self, token: int, prob: float) -> str:
        if self.job.matcher is not None:
            self.job.matcher.advance(token)
        self.job.chain.on_token(token, prob)
        self._has_mask = False
        return self.text.take(token)

    def _now(self) -> float:
        return 0.0 if self.job.clock is None else self.job.clock()


def check_drafts(options: Decoding, sampling: SamplingConfig) -> None:
    """Raises InputError for a source that does not exist."""
    check_sources(options.drafts or ())


DRAFT = Strategy(make_plan=draft_plan, check=check_drafts, truncates=True)
