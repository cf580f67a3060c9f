"""`ConstraintProcessor`: our constraints inside vLLM's V1 engine, each request under its own.

    llm = LLM(model, logits_processors=["espalier.integrations.vllm:ConstraintProcessor"])
    llm.generate(prompts, SamplingParams(extra_args={"espalier": {"json_schema": schema, "safety": "minimal"}}))

vLLM tells which requests join, leave and change places, and shows their tokens as they come; a row follows those of its
request (`rows/row.py`). A request that returns after a preemption brings its tokens along. Constraints are checked when
a request arrives (`validate_params`). What goes wrong later with one request cannot be told to its client by a logits
processor: its row may only end, the log has the error, and so has the reporter.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from espalier.constraints.compiler import Compiler
from espalier.errors import DeadEnd, EspalierError, VocabError
from espalier.integrations.asked import read_asked
from espalier.integrations.rows.device import forbid_inplace, only_inplace, taxes
from espalier.integrations.rows.row import Row
from espalier.integrations.vllm.checks import check_config, check_params
from espalier.integrations.vllm.interface import BatchUpdate, LogitsProcessor, MoveDirectionality
from espalier.integrations.vllm.report import Reporter, StepReport
from espalier.integrations.vllm.reporter import reporter_of
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.wiring import App, build_app

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Place:
    """A request in the batch. id, report: as it asked. told: whether its failure has been told."""

    row: Row
    id: str = ""
    report: bool = False
    told: bool = False


@cache
def _app() -> App:
    return build_app()


class ConstraintProcessor(LogitsProcessor):
    """See the module. `reporter` gets the StepReports of requests with `report: true`; set it on the class, or name it
    as `MODULE:FUNCTION` in vLLM's `additional_config={"espalier": {"reporter": ...}}`; `"store": URL` keeps their sums
    in our database."""

    reporter: ClassVar[Reporter | None] = None

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError, as vLLM wants it, for what cannot be enforced: a constraint that is malformed or cannot be
        compiled, and params that cannot stand beside one. It is compiled over bytes here, since the vocabulary is the
        engine's."""
        try:
            constraint = read_asked(getattr(sampling_params, "extra_args", None), _app())
            if constraint is None:
                return
            check_params(sampling_params, report=constraint.report)
            with suppress(VocabError):  # a token that the grammar names: the engine's vocabulary decides
                _app().compiler(Vocab.bytes()).compile(constraint.spec).matcher().mask()
        except EspalierError as error:
            raise ValueError(f"espalier: {error}") from error

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        """Raises CapabilityError for an engine that does not pass us its rows, VocabError."""
        check_config(vllm_config, tells_tokens=hasattr(LogitsProcessor, "needs_output_token_ids"))
        self._pin = bool(is_pin_memory) and device.type == "cuda"
        self._compiler: Compiler = _app().compiler(self.vocab_of(vllm_config))
        self._places: dict[int, _Place] = {}
        self._count = 0  # requests with a report, for the names of those that have none
        self._report = reporter_of(vllm_config, type(self).reporter)
        self._checks: tuple[list[_Place], torch.Tensor] | None = None

    @classmethod
    def vocab_of(cls, vllm_config: Any) -> Vocab:
        """The model's vocabulary, with the ids that vLLM ends a text at. Raises VocabError."""
        from transformers import AutoTokenizer  # noqa: PLC0415  # vLLM has it

        model = vllm_config.model_config
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer, revision=model.tokenizer_revision, trust_remote_code=model.trust_remote_code
        )
        ends = (model.try_get_generation_config() or {}).get("eos_token_id", [])
        listed = [ends] if isinstance(ends, int) else list(ends)
        own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        return Vocab.from_tokenizer(tokenizer, eos_ids=[*dict.fromkeys([*own, *listed])],
                                    width=model.get_vocab_size())  # fmt: skip

    def is_argmax_invariant(self) -> bool:
        """False: a constraint changes what is most probable, so greedy requests come here too."""
        return False

    def needs_output_token_ids(self) -> bool:
        return bool(self._places)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Rows join, leave and change places, in the order that vLLM states. Their tokens are read in `apply`, when
        those of the last step are known."""
        self._settle()
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._leave(self._places.pop(index, None))
        for index, params, _, output in batch_update.added:
            place = self._open_row(params, output)
            self._leave(self._places.pop(index, None))
            if place is not None:
                self._places[index] = place
        for first, second, direction in batch_update.moved:
            moved, other = self._places.pop(first, None), self._places.pop(second, None)
            if moved is not None:
                self._places[second] = moved
            if other is not None and direction is MoveDirectionality.SWAP:
                self._places[first] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """`(B, V)` float, changed in place: what a row's constraint forbids becomes -inf."""
        if not self._places:
            return logits
        width = int(logits.shape[1])
        packed = np.empty((len(self._places), masks.words(width)), dtype=np.int32)  # (N, W)
        open_rows: list[int] = []
        for index in sorted(self._places):
            place = self._places[index]
            place.row.follow()
            if place.row.fill(packed[len(open_rows)], width):
                open_rows.append(index)
            else:
                only_inplace(logits, index, self._compiler.vocab.eos_ids[0])
                self._tell(place)
        self._mask_rows(logits, open_rows, packed[: len(open_rows)])
        return logits

    def _mask_rows(self, logits: torch.Tensor, rows: list[int], packed: NDArray[np.int32]) -> None:
        if not rows:
            return
        told = [index for index in rows if self._places[index].report] if self._report is not None else []
        raw = logits[told].clone() if told else None  # (n, V)
        forbid_inplace(logits, rows, packed, pin=self._pin)
        if raw is not None:
            for index, tax in zip(told, taxes(raw, logits[told]), strict=True):
                self._tell_step(self._places[index], masks.count(packed[rows.index(index)]), tax)
        # A row that another processor has left without any allowed token ends. It is read at the next step, so that
        # the host need not wait for the device now.
        of_rows = logits if len(rows) == logits.shape[0] else logits[rows]  # (n, V); rows are in order
        dead = of_rows.amax(dim=1) == -torch.inf  # (n,)
        ends = self._compiler.vocab.eos_ids[0]
        logits[rows, ends] = torch.where(dead, torch.zeros_like(logits[rows, ends]), logits[rows, ends])
        self._checks = [self._places[index] for index in rows], dead

    def _settle(self) -> None:
        """Rows that had no token left at the last step have failed."""
        if self._checks is None:
            return
        (places, dead), self._checks = self._checks, None
        for place, is_dead in zip(places, dead.tolist(), strict=True):
            if is_dead:
                place.row.fail(DeadEnd("every allowed token had been banned by the model or by another processor"))
                self._tell(place)

    def _open_row(self, params: Any, output: list[int]) -> _Place | None:
        try:
            constraint = read_asked(getattr(params, "extra_args", None), _app())
        except EspalierError as error:  # params that nobody has validated
            return _Place(Row(None, output, failure=error))
        if constraint is None:
            return None
        try:
            check_params(params, report=constraint.report)
            row = Row(self._compiler.compile(constraint.spec), output)
        except EspalierError as error:
            row = Row(None, output, failure=error)
        self._count += constraint.report
        return _Place(row, constraint.id or (f"unnamed-{self._count}" if constraint.report else ""), constraint.report)

    def _leave(self, place: _Place | None) -> None:
        """A request left the batch: finished, cut off, or preempted, which a processor is not told."""
        if place is None or not place.report or self._report is None:
            return
        place.row.follow()
        is_finished = place.row.is_finished
        self._report(StepReport(id=place.id, step=place.row.length, left="finished" if is_finished else "unfinished"))

    def _tell(self, place: _Place) -> None:
        failure = place.row.failure
        if failure is None or place.told:
            return
        place.told = True
        log.error("the request %r was ended after %d tokens: %s", place.id, place.row.length, failure)
        if self._report is not None:
            self._report(StepReport(id=place.id, step=place.row.length, failure=str(failure)))

    def _tell_step(self, place: _Place, allowed: int, tax: float) -> None:
        if self._report is not None:
            self._report(StepReport(id=place.id, step=place.row.length, allowed_count=allowed, tax_nats=tax,
                                    removed_mass=-math.expm1(-tax)))  # fmt: skip
