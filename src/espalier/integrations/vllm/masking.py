"""Masks the rows of a step of vLLM, each by the constraint of its request: what both model runners' ways of calling a
processor (`runner_v1.py`, `runner_v2.py`) have in common. It knows neither how rows are numbered nor who tells tokens.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from espalier.constraints.compiler import Compiler
from espalier.errors import DeadEnd, EspalierError
from espalier.integrations.asked import read_asked
from espalier.integrations.rows.device import forbid_inplace, only_inplace, taxes
from espalier.integrations.rows.row import EngineRow
from espalier.integrations.vllm.checks import check_params
from espalier.integrations.vllm.report import Reporter, StepReport
from espalier.tokens import mask as masks
from espalier.wiring import App

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Place:
    """A request in the batch. id, report: as it asked. told: whether its failure has been told. steps: reports of
    steps whose token is not known yet: logits of a prompt's chunk, or of a draft that is not kept, are no step.
    constraint: as JSON, for reports."""

    row: EngineRow
    id: str = ""
    report: bool = False
    told: bool = False
    steps: list[StepReport] = field(default_factory=list)
    constraint: Mapping[str, Any] | None = None


class PlacedRows(NamedTuple):
    """What a request has in a step. rows: its rows of the logits. drafts: the tokens that lie between them, one fewer:
    the second row is what follows the first draft, and so on."""

    place: Place
    rows: Sequence[int]
    drafts: Sequence[int] = ()


class RowMasker:
    """Opens rows for requests and masks them. compiler: over the model's vocabulary. pin: whether masks travel through
    pinned memory."""

    def __init__(self, app: App, compiler: Compiler, *, report: Reporter | None, pin: bool) -> None:
        self._app, self._compiler, self._report, self._pin = app, compiler, report, pin
        self._count = 0  # requests with a report, for the names of those that have none
        self._checks: list[tuple[list[Place | None], torch.Tensor]] = []

    def open_place(self, params: Any, output: list[int]) -> Place | None:
        """The place of a request, None for one that asks nothing of us. output: its tokens so far, which grow."""
        try:
            constraint = read_asked(getattr(params, "extra_args", None), self._app)
        except EspalierError as error:  # params that nobody has validated
            return Place(EngineRow(None, output, failure=error))
        if constraint is None:
            return None
        try:
            check_params(params, report=constraint.report)
            row = EngineRow(self._compiler.compile(constraint.spec), output)
        except EspalierError as error:
            row = EngineRow(None, output, failure=error)
        self._count += constraint.report
        if not constraint.report:
            return Place(row, constraint.id)
        own_id = constraint.id or f"unnamed-{self._count}"
        return Place(row, own_id, report=True, constraint=constraint.spec.to_json())

    def mask_rows(self, logits: torch.Tensor, placed: Sequence[PlacedRows]) -> None:
        """`(B, V)` float, changed in place: what the constraint of a row forbids becomes -inf. placed: in the order of
        their rows."""
        self.settle()
        width, last = int(logits.shape[1]), self._compiler.vocab.eos_ids[0]
        most = sum(len(rows.rows) for rows in placed)
        packed = np.empty((most, masks.words(width)), dtype=np.int32)  # (N, W)
        open_rows: list[int] = []
        places: list[Place] = []
        steps: list[int] = []
        for place, rows, drafts in placed:
            place.row.follow()
            self._tell_steps(place)
            number = 0
            for number, row in enumerate(rows):
                if number and not place.row.take_draft(drafts[number - 1]):
                    break
                if place.row.fill(packed[len(open_rows)], width, is_drafted=number > 0):
                    open_rows.append(row)
                    places.append(place)
                    steps.append(place.row.length + number)
                else:
                    only_inplace(logits, row, last)
            else:
                number = len(rows)
            for row in rows[number:]:  # what follows a draft that is refused is never sampled
                only_inplace(logits, row, last)
            place.row.undo_drafts()
            self._tell_failure(place)
        if open_rows:
            self._forbid(logits, open_rows, packed[: len(open_rows)], places, steps)

    def settle(self) -> None:
        """Rows that had no token left at the last step have failed."""
        checks, self._checks = self._checks, []
        for places, dead in checks:
            for place, is_dead in zip(places, dead.tolist(), strict=True):
                if is_dead and place is not None:
                    place.row.fail(DeadEnd("every allowed token had been banned by the model or by another processor"))
                    self._tell_failure(place)

    def leave(self, place: Place | None) -> None:
        """A request left the batch: finished, cut off, or preempted, which a processor is not told."""
        if place is None or not place.report or self._report is None:
            return
        place.row.follow()
        self._tell_steps(place)
        is_finished = place.row.is_finished
        left: Literal["finished", "unfinished"] = "finished" if is_finished else "unfinished"
        self._report(StepReport(id=place.id, step=place.row.length, left=left, constraint=place.constraint))

    def _forbid(
        self, logits: torch.Tensor, rows: list[int], packed: Any, places: list[Place], steps: list[int]
    ) -> None:
        told = [i for i, place in enumerate(places) if place.report] if self._report is not None else []
        told_rows = [rows[i] for i in told]
        raw = logits[told_rows].clone() if told else None  # (n, V)
        forbid_inplace(logits, rows, packed, pin=self._pin)
        if raw is not None:
            costs, changed = taxes(raw, logits[told_rows])
            for i, tax, was_changed in zip(told, costs, changed, strict=True):
                places[i].steps.append(
                    StepReport(
                        id=places[i].id,
                        step=steps[i],
                        allowed_count=masks.count(packed[i]),
                        tax_nats=tax,
                        removed_mass=-math.expm1(-tax),
                        was_changed=was_changed,
                        constraint=places[i].constraint,
                    )
                )
        # A row that another processor has left without any allowed token ends. It is read at the next step, so that
        # the host need not wait for the device now. Of a draft's row nobody knows yet whether it is one of the text.
        of_rows = logits if len(rows) == logits.shape[0] else logits[rows]  # (n, V); rows are in order
        dead = of_rows.amax(dim=1) == -torch.inf  # (n,)
        ends = self._compiler.vocab.eos_ids[0]
        logits[rows, ends] = torch.where(dead, torch.zeros_like(logits[rows, ends]), logits[rows, ends])
        is_text = [step == place.row.length for place, step in zip(places, steps, strict=True)]
        self._checks.append(
            ([place if is_kept else None for place, is_kept in zip(places, is_text, strict=True)], dead)
        )

    def _tell_steps(self, place: Place) -> None:
        """Those whose token the engine has kept."""
        steps, place.steps = place.steps, []
        if self._report is not None:
            for step in steps:
                if step.step < place.row.length:
                    self._report(step)

    def _tell_failure(self, place: Place) -> None:
        failure = place.row.failure
        if failure is None or place.told:
            return
        place.told = True
        log.error("the request %r was ended after %d tokens: %s", place.id, place.row.length, failure)
        if self._report is not None:
            told = StepReport(id=place.id, step=place.row.length, failure=str(failure), constraint=place.constraint)
            self._report(told)
