"""The `beam` strategy: the texts with the highest scores that a search of `num_beams` branches finds. Nothing is drawn.

A step of transformers' `_beam_search`: of all continuations of all beams those are looked at that a sum of `ln p` puts
first; one that ends the text becomes a hypothesis if it is among the first `num_beams`, of the others as many go on.
Where fewer are allowed, fewer go on. A beam with one heir keeps its branch; only other heirs are forked.
It knows no model, and nothing of how a row is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from espalier.decoding.beam.hypotheses import Agreement, Beam, Heir, Hypothesis, Link, Pool
from espalier.decoding.beam.ranking import Ranked, Ranking
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Job, Outcome, Plan, Strategy, Taken
from espalier.decoding.ports import Answer, Append, Need, answered
from espalier.decoding.stops import TextAssembler
from espalier.decoding.text_run import EndRule, TextRun
from espalier.errors import DeadEnd, InputError, SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.samplers.registry import SAMPLERS

STEEPEST = 40.0
"""Of a length penalty: the length to this power stays within a float for any text."""
DRAWING = {
    name: one.switch.name for name, one in SAMPLERS.items() if one.truncates and one.switch.default == one.switch.off
}
"""Truncations that are off by default -> the field that switches them on."""


def check(options: Decoding, sampling: SamplingConfig) -> None:
    """Raises InputError and SamplingError. Temperature, top_k, top_p and min_p, which are on unless they are switched
    off, have no part in a search; what else draws is refused."""
    if options.num_return_sequences > options.beams:
        raise InputError(
            f"num_return_sequences: {options.num_return_sequences} texts of {options.beams} beams",
            hint="at most num_beams",
            field="num_return_sequences",
        )
    if abs(options.length_penalty) > STEEPEST:
        raise InputError(
            f"length_penalty: {options.length_penalty:g} must be from {-STEEPEST:g} to {STEEPEST:g}",
            field="length_penalty",
        )
    asked = [field for name, field in DRAWING.items() if name in sampling.active]
    asked += [name for name in ("dynatemp_range", "mirostat") if getattr(sampling, name)]
    if asked:
        raise SamplingError(
            f"{asked[0]} means nothing to a beam search, which draws nothing",
            hint=f"leave {asked[0]} out, or use another strategy",
            field=asked[0],
        )


def beam_plan(job: Job) -> Plan:
    """All beams in one forward pass a step, in as many sequences as there are beams."""
    return _Search(job).run()


class _Search:
    """One run."""

    def __init__(self, job: Job) -> None:
        options = job.options
        self._job, self._size = job, options.beams
        self._ranking = Ranking(job)
        self._pool = Pool(
            size=self._size,
            length_penalty=options.length_penalty,
            early_stopping=options.early_stopping,
            longest=job.max_tokens,
        )
        self._agreement = Agreement()
        self._rule = EndRule(job)
        self._told = TextRun(self._rule)
        text = TextAssembler(self._rule.stops) if self._rule.stops else None
        self._beams = [
            Beam(branch=0, total=0.0, matcher=job.matcher, chain=self._ranking.first_chain(), text=text),
        ]

    def run(self) -> Plan:
        need = Need(append=(Append(branch=0, tokens=self._job.prompt),))
        length = 0
        while True:
            answer = answered((yield need))
            length += 1
            moves = self._step(answer, length)
            if not self._beams or self._pool.is_done(self._beams[0].total, length):
                return (yield from self._end())
            yield from self._tell(self._agreement.reach(self._beams, self._pool))
            need = replace(
                moves,
                append=tuple(Append(branch=one.branch, tokens=(one.last.token,)) for one in self._beams if one.last),
            )

    def _step(self, answer: Answer, length: int) -> Need:
        """Go on to the beams with `length` tokens. Returns the frees and forks that this takes. Raises DeadEnd where
        nothing is left."""
        owners: list[Beam] = []
        rows: list[Ranked] = []
        fault: DeadEnd | None = None
        for place, beam in enumerate(self._beams):
            raw = answer[beam.branch][-1]  # (V,) float32
            said = [link.token for link in beam.path()] if self._ranking.has_filters else ()
            try:
                rows.append(self._ranking.rank(raw, beam.matcher, beam.chain, length - 1, said, place))
            except DeadEnd as error:  # this beam's end, and the search's where no other is left
                fault = fault or error
                continue
            owners.append(beam)
        held, self._beams = {beam.branch for beam in self._beams}, []
        if not rows:
            if fault is not None and not self._pool.hypotheses:
                raise fault
            return Need()
        heirs, ended = self._chosen(owners, rows, length)
        ended = [heir for heir in ended if self._pool.takes(self._pool.score(heir.total, length))]
        if self._job.watch.is_on:
            self._record(rows, [*heirs, *ended])
        for heir in ended:  # while the matchers still stand before their tokens
            self._finish(owners[heir.beam], heir, length)
        forks: list[tuple[int, int]] = []
        kept = {owners[heir.beam].branch for heir in heirs}
        spare = (branch for branch in range(self._size) if branch not in kept)
        for heir in heirs:
            beam = owners[heir.beam]
            if beam in self._beams:
                forks.append((beam.branch, branch := next(spare)))
                beam = beam.fork(branch)
            self._beams.append(beam)
        for beam, heir in zip(self._beams, heirs, strict=True):
            beam.total, beam.text = heir.total, heir.text
            beam.follow(Link(before=beam.last, token=heir.token, length=length, record=heir.record))
        return Need(free=tuple(sorted(held - kept)), fork=tuple(forks))

    def _chosen(self, owners: Sequence[Beam], rows: Sequence[Ranked], length: int) -> tuple[list[Heir], list[Heir]]:
        """Those that go on, and those that end and are among the first; both best first, of equals the better beam's,
        then the lowest id."""
        # So many of each row are enough, unless texts end at tokens that are no ends by themselves.
        most = self._size + len(self._rule.ends | self._rule.stop_ids)
        is_last = length >= self._job.max_tokens
        while True:
            heirs: list[Heir] = []
            ended: list[Heir] = []
            floor = -math.inf
            for beam, ranked in zip(owners, rows, strict=True):
                ranked.look(most, floor - beam.total)
                # A row that fills `most` has enough that go on by itself: what is worse than all of these is not asked.
                if not self._rule.stops and ranked.ids.size == most:
                    floor = max(floor, beam.total + float(ranked.gains[-1]))
            totals = np.concatenate([beam.total + row.gains for beam, row in zip(owners, rows, strict=True)])  # (n,)
            places = np.repeat(np.arange(len(rows)), [row.ids.size for row in rows])  # (n,)
            tokens = np.concatenate([row.ids for row in rows])  # (n,)
            for rank, at in enumerate(np.argsort(-totals, kind="stable").tolist()):
                is_first = rank < self._size
                if not is_first and (is_last or len(heirs) == self._size):
                    break
                place = int(places[at])
                heir = self._heir(owners[place], place, int(tokens[at]), float(totals[at]), length)
                if heir.ending is not None:
                    if is_first:
                        ended.append(heir)
                elif len(heirs) < self._size:
                    heirs.append(heir)
            is_full = len(heirs) == self._size
            if is_full and self._rule.stops:
                # Many of a row's best can end with a stop text: what it has left may then be better than a last heir.
                worst = heirs[-1].total
                is_full = all(
                    beam.total + float(row.gains[-1]) < worst
                    for beam, row in zip(owners, rows, strict=True)
                    if row.is_cut
                )
            if is_last or is_full or not any(row.is_cut for row in rows):
                return heirs, ended
            most *= 2

    def _heir(self, beam: Beam, place: int, token: int, total: float, length: int) -> Heir:
        text, met = beam.text, None
        if text is not None:
            text = text.fork()
            met = text.feed(self._rule.bytes_of(token)).stop
        return Heir(beam=place, token=token, total=total, text=text, ending=self._rule.ending(token, length, met))

    def _record(self, rows: Sequence[Ranked], heirs: Sequence[Heir]) -> None:
        for place, ranked in enumerate(rows):
            mine = [heir for heir in heirs if heir.beam == place]
            if mine:
                records = self._ranking.records(ranked, [heir.token for heir in mine])
                for heir, record in zip(mine, records, strict=True):
                    heir.record = record

    def _finish(self, beam: Beam, heir: Heir, length: int) -> None:
        """A text has ended: a hypothesis, if it is still among the best."""
        score = self._pool.score(heir.total, length)
        if not self._pool.takes(score):
            return
        matcher = None if beam.matcher is None else beam.matcher.fork()
        if matcher is not None:
            matcher.advance(heir.token)
        link = Link(before=beam.last, token=heir.token, length=length, record=heir.record)
        self._pool.add(Hypothesis(last=link, first=beam.first or link, score=score, matcher=matcher))

    def _end(self) -> Generator[Taken, None, Outcome]:
        """Tell the rest of the best one, with the next best beside it."""
        best, *others = self._pool.hypotheses[: self._job.options.num_return_sequences]
        yield from self._tell(best.last.since(self._agreement.told))
        beside = []
        for one in others:
            links = one.last.since(0)
            run = TextRun(self._rule)
            for link in links:
                run.take(link.token)
            records = tuple(link.record for link in links if link.record is not None)
            beside.append(replace(self._outcome(one, run), records=records))
        return replace(self._outcome(best, self._told), others=tuple(beside))

    def _outcome(self, one: Hypothesis, run: TextRun) -> Outcome:
        return replace(run.outcome(one.matcher, mask_seconds=self._ranking.seconds), score=one.score)

    def _tell(self, links: Sequence[Link]) -> Generator[Taken, None, None]:
        for link in links:
            yield Taken(token=link.token, text=self._told.take(link.token), record=link.record)


def _branches(options: Decoding) -> int:
    return options.beams


BEAM = Strategy(make_plan=beam_plan, check=check, sequences=_branches)
