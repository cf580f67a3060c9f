"""The `beam` strategy: beam search for the texts with the highest scores. Nothing is drawn.

A step works as in `_beam_search` of transformers: the continuations of all beams are sorted by their sum of `ln p`. One
that ends the text becomes a hypothesis if it is among the first `num_beams`. Of the others, the best `num_beams` go on,
or fewer where fewer are allowed. A beam's first continuation keeps its branch; only further ones are forked. The module
knows no model, and not how a row is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from espalier.decoding.beam.hypotheses import Agreement, Beam, Continuation, Hypothesis, Pool, TokenLink
from espalier.decoding.beam.ranking import Ranking, RowRanking
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Job, Outcome, Plan, SampledToken, Strategy
from espalier.decoding.ports import Answer, Append, Need
from espalier.decoding.step.record import RefusedFavourites
from espalier.decoding.text.run import EndRule, TextRun
from espalier.errors import DeadEnd, InputError, SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.samplers.registry import SAMPLERS
from espalier.wording import OptionText, Setting

STEEPEST = 40.0
"""The largest length penalty: the length of any text to this power is a finite float."""
DRAWING = {
    name: sampler.switch.name
    for name, sampler in SAMPLERS.items()
    if sampler.truncates and sampler.switch.default == sampler.switch.off
}
"""Truncations that are off by default -> the field that switches them on."""


def check(options: Decoding, sampling: SamplingConfig) -> None:
    """Raises InputError and SamplingError. A search ignores the temperature and the truncations that are on by
    default; other fields that shape a draw are refused."""
    if options.num_return_sequences > options.beams:
        raise InputError(
            f"num_return_sequences: {options.num_return_sequences} texts of {options.beams} beams",
            hint=OptionText("at most ", Setting("num_beams")),
            field="num_return_sequences",
        )
    if abs(options.length_penalty) > STEEPEST:
        raise InputError(
            f"length_penalty: {options.length_penalty:g} must be from {-STEEPEST:g} to {STEEPEST:g}",
            field="length_penalty",
        )
    ignored = [field for name, field in DRAWING.items() if name in sampling.active]
    ignored += [sampler.switch.name for sampler in sampling.plugged]
    ignored += [name for name in ("dynatemp_range", "mirostat") if getattr(sampling, name)]
    if ignored:
        raise SamplingError(
            f"{ignored[0]} means nothing to a beam search, which draws nothing",
            hint=f"leave {ignored[0]} out, or use another strategy",
            field=ignored[0],
        )


def beam_plan(job: Job) -> Plan:
    """One forward pass a step for all beams, one sequence for each beam."""
    return _BeamSearch(job).run()


class _BeamSearch:
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
        self._streamed_text = TextRun(self._rule)
        text = self._rule.assembler() if self._rule.stops else None
        self._beams = [Beam(branch=0, total=0.0, matcher=job.matcher, chain=self._ranking.first_chain(), text=text)]

    def run(self) -> Plan:
        need = Need(append=(Append(branch=0, tokens=self._job.prompt),))
        length = 0
        while True:
            answer = yield need
            length += 1
            moves = self._step(answer, length)
            if not self._beams or self._pool.is_done(self._beams[0].total, length):
                return (yield from self._end())
            yield from self._stream(self._agreement.reach(self._beams, self._pool))
            need = moves._replace(
                append=tuple(Append(branch=beam.branch, tokens=(beam.last.token,)) for beam in self._beams if beam.last)
            )

    def _step(self, answer: Answer, length: int) -> Need:
        """Make the beams with `length` tokens. Returns the frees and forks that they need. Raises DeadEnd where no beam
        and no hypothesis is left."""
        owners: list[Beam] = []
        rows: list[RowRanking] = []
        fault: DeadEnd | None = None
        for place, beam in enumerate(self._beams):
            raw = answer[beam.branch][-1]  # (V,) float32
            tokens = [link.token for link in beam.path()] if self._ranking.has_filters else ()
            try:
                rows.append(self._ranking.rank(raw, beam.matcher, beam.chain, length - 1, tokens, place))
            except DeadEnd as error:  # this beam's end, and the search's where no other is left
                fault = fault or error
                continue
            owners.append(beam)
        held, self._beams = {beam.branch for beam in self._beams}, []
        if not rows:
            if fault is not None and not self._pool.hypotheses:
                raise fault
            return Need()
        live, ended = self._best(owners, rows, length)
        ended = [cont for cont in ended if self._pool.takes(self._pool.score(cont.total, length))]
        if self._job.watch.refused is not None:
            for cont in (*live, *ended):
                cont.refused = rows[cont.beam].refused
        if self._job.watch.is_on:
            self._record(rows, [*live, *ended])
        for cont in ended:  # while the matchers still stand before their tokens
            self._finish(owners[cont.beam], cont, length)
        forks: list[tuple[int, int]] = []
        branches = {owners[cont.beam].branch for cont in live}
        spare = (branch for branch in range(self._size) if branch not in branches)
        for cont in live:
            beam = owners[cont.beam]
            if beam in self._beams:
                forks.append((beam.branch, branch := next(spare)))
                beam = beam.fork(branch)
            self._beams.append(beam)
        for beam, cont in zip(self._beams, live, strict=True):
            beam.total, beam.text = cont.total, cont.text
            beam.follow(cont.link(beam.last, length))
        return Need(free=tuple(sorted(held - branches)), fork=tuple(forks))

    def _best(
        self, owners: Sequence[Beam], rows: Sequence[RowRanking], length: int
    ) -> tuple[list[Continuation], list[Continuation]]:
        """The continuations that go on, and those that end and are among the first `num_beams`. Both best first; of
        equal ones, the better beam's, then the lowest id."""
        # So many tokens of each row are enough, unless a stop text ends texts.
        most = self._size + len(self._rule.ends | self._rule.stop_ids)
        is_last = length >= self._job.max_tokens
        while True:
            live: list[Continuation] = []
            ended: list[Continuation] = []
            floor = -math.inf
            for beam, ranked in zip(owners, rows, strict=True):
                ranked.look(most, floor - beam.total)
                # A row that fills `most` alone has enough continuations: worse ones of other rows are not needed.
                if not self._rule.stops and ranked.ids.size == most:
                    floor = max(floor, beam.total + float(ranked.gains[-1]))
            totals = np.concatenate([beam.total + row.gains for beam, row in zip(owners, rows, strict=True)])  # (n,)
            places = np.repeat(np.arange(len(rows)), [row.ids.size for row in rows])  # (n,)
            tokens = np.concatenate([row.ids for row in rows])  # (n,)
            for rank, at in enumerate(np.argsort(-totals, kind="stable").tolist()):
                is_first = rank < self._size
                if not is_first and (is_last or len(live) == self._size):
                    break
                place = int(places[at])
                cont = self._continue(owners[place], place, int(tokens[at]), float(totals[at]), length)
                if cont.ending is not None:
                    if is_first:
                        ended.append(cont)
                elif len(live) < self._size:
                    live.append(cont)
            is_full = len(live) == self._size
            if is_full and self._rule.stops:
                # Many of a row's best tokens can end with a stop text: one that was not looked at may then be better.
                worst = live[-1].total
                is_full = all(
                    beam.total + float(row.gains[-1]) < worst
                    for beam, row in zip(owners, rows, strict=True)
                    if row.is_cut
                )
            if is_last or is_full or not any(row.is_cut for row in rows):
                return live, ended
            most *= 2

    def _continue(self, beam: Beam, place: int, token: int, total: float, length: int) -> Continuation:
        text, met = beam.text, None
        if text is not None:
            text = text.fork()
            met = text.feed(self._rule.bytes_of(token)).stop
        return Continuation(
            beam=place, token=token, total=total, text=text, ending=self._rule.ending(token, length, met)
        )

    def _record(self, rows: Sequence[RowRanking], live: Sequence[Continuation]) -> None:
        for place, ranked in enumerate(rows):
            mine = [cont for cont in live if cont.beam == place]
            if mine:
                records = self._ranking.records(ranked, [cont.token for cont in mine])
                for cont, record in zip(mine, records, strict=True):
                    cont.record = record

    def _finish(self, beam: Beam, cont: Continuation, length: int) -> None:
        """Make a hypothesis of a finished text, if it is still among the best."""
        score = self._pool.score(cont.total, length)
        if not self._pool.takes(score):
            return
        matcher = None if beam.matcher is None else beam.matcher.fork()
        if matcher is not None:
            matcher.advance(cont.token)
        link = cont.link(beam.last, length)
        self._pool.add(Hypothesis(last=link, first=beam.first or link, score=score, matcher=matcher))

    def _end(self) -> Generator[SampledToken, None, Outcome]:
        """Yield the rest of the best text; the outcome holds the next best ones too."""
        best, *others = self._pool.hypotheses[: self._job.options.num_return_sequences]
        yield from self._stream(best.last.since(self._agreement.streamed))
        beside = []
        for hypothesis in others:
            links = hypothesis.last.since(0)
            run = TextRun(self._rule)
            for link in links:
                run.take(link.token)
            records = tuple(link.record for link in links if link.record is not None)
            beside.append(replace(self._outcome(hypothesis, run), records=records))
        return replace(self._outcome(best, self._streamed_text), others=tuple(beside))

    def _outcome(self, hypothesis: Hypothesis, run: TextRun) -> Outcome:
        refused: RefusedFavourites = {}
        if self._job.watch.refused is not None:
            links = hypothesis.last.since(0)
            refused = {link.length - 1: link.refused for link in links if link.refused is not None}
        outcome = run.outcome(hypothesis.matcher, mask_seconds=self._ranking.seconds)
        return replace(outcome, score=hypothesis.score, refused=refused)

    def _stream(self, links: Sequence[TokenLink]) -> Generator[SampledToken, None, None]:
        for link in links:
            yield SampledToken(token=link.token, text=self._streamed_text.take(link.token), record=link.record)


def _branches(options: Decoding) -> int:
    return options.beams


BEAM = Strategy(make_plan=beam_plan, check=check, sequences=_branches)
