"""Runs test cases on an engine, several at once: `Harness(engine).add(case).run()`.

A case's preset, filters and safety are applied as those of every request are. An error of one iteration is a failed
iteration with its reason; the others go on. It knows an engine by `requests` and `serve` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from espalier.constraints.joining.presets import merged
from espalier.constraints.joining.rule import together
from espalier.engines.base import FinishEvent, Request, Result
from espalier.engines.protocols import ServingEngine
from espalier.errors import EspalierError, GenerationError, InputError
from espalier.harness.cases.case import TestCase
from espalier.harness.cases.read import check_names
from espalier.harness.checks import Failure, MeasuredOutput, excerpt, failures
from espalier.harness.results import CaseResult, Report, Sample
from espalier.sampling.presets.spec import Preset
from espalier.trace.records import Trace

AT_ONCE = 8

Progressed = Callable[[int, int], None]
"""Told how many iterations of how many are done."""
Traced = Callable[[Trace, float], object]


class Generates(Protocol):
    """What an engine must have: `espalier.load` gives one."""

    @property
    def name(self) -> str: ...
    def requests(self, prompt: Any, /, **options: Any) -> tuple[list[Request], bool]: ...
    def serve(self, **options: Any) -> ServingEngine: ...


@dataclass(frozen=True, slots=True)
class _PreparedCase:
    """A case and its request for the first iteration, or why there is none."""

    case: TestCase
    request: Request | None
    error: str | None = None


class Harness:
    """Cases and the engine that they run on.

    preset: instead of the preset of every case: a Preset or the name of one. strategy: instead of every case's. seed:
    where neither the case nor its preset names one; iteration i draws from random stream i. free: without constraints,
    filters and bans, to compare with. at_once: iterations in one batch; a case with a limit on latency runs alone.
    options: further arguments of `generate` for every case; their constraint holds beside the case's own.
    warm: first generate one token of every case, so that no latency holds what is done once. clock: seconds. progress:
    told how far the run is. traced: given the trace of each answer, with its seconds, in no order. Raises InputError.
    """

    def __init__(
        self,
        engine: Generates,
        *,
        preset: Preset | str | None = None,
        strategy: str | None = None,
        seed: int = 0,
        free: bool = False,
        at_once: int = AT_ONCE,
        warm: bool = False,
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        progress: Progressed = lambda done, of: None,
        traced: Traced = lambda trace, seconds: None,
    ) -> None:
        if at_once < 1:
            raise InputError("at_once is at least 1", field="at_once")
        self._engine, self._preset, self._strategy = engine, preset, strategy
        self._seed, self._free, self._at_once, self._warms = seed, free, at_once, warm
        self._clock, self._progress, self._options = clock, progress, dict(options or {})
        self._traced = traced
        self._cases: list[TestCase] = []

    def add(self, *cases: TestCase | Mapping[str, Any]) -> Self:
        """Add cases, as values or as a file states them. Raises InputError, also for two of one name."""
        added = [case if isinstance(case, TestCase) else TestCase.from_json(case) for case in cases]
        check_names([*self._cases, *added], "the harness")
        self._cases += added
        return self

    def run(self) -> Report:
        """Run every case. Raises InputError if there is none; faults of a case are in its result."""
        if not self._cases:
            raise InputError("there is no case to run", hint="add(TestCase(...))", field="cases")
        start = self._clock()
        prepared = [self._prepare(case) for case in self._cases]
        samples = self._generate(prepared)
        results = [
            CaseResult(
                case=plan.case,
                samples=_same(plan.case, samples[index]),
                notes=() if plan.request is None else plan.request.notes,
            )
            for index, plan in enumerate(prepared)
        ]
        seconds = self._clock() - start
        return Report(model=self._engine.name, results=tuple(results), seconds=seconds, seed=self._seed)

    def _prepare(self, case: TestCase) -> _PreparedCase:
        try:
            return _PreparedCase(case, self._request(case))
        except EspalierError as error:
            return _PreparedCase(case, None, str(error))

    def _request(self, case: TestCase) -> Request:
        own = merged(case.own())
        fields = {**self._options, **case.config}
        if own.sampling.logit_bias:  # those of the case's filters too
            fields["logit_bias"] = own.sampling.logit_bias
        if case.max_tokens is not None:
            fields["max_tokens"] = case.max_tokens
        (request,), _ = self._engine.requests(
            case.prompt,
            constraint=together(own.constraint, case.constraint(), fields.pop("constraint", None)),
            preset=case.preset if self._preset is None else self._preset,
            system=case.system_prompt,
            strategy=case.strategy if self._strategy is None else self._strategy,
            trace="summary",
            tools=case.tools,
            tool_choice=case.tool_choice,
            **fields,
        )
        if request.sampling.seed is None:
            request = replace(request, sampling=replace(request.sampling, seed=self._seed))
        if self._free:
            sampling = replace(request.sampling, logit_bias=(), bad_words=())
            request = replace(request, constraint=None, soft=(), filters=(), sampling=sampling, notes=())
        return request

    def _generate(self, prepared: Sequence[_PreparedCase]) -> list[tuple[Sample, ...]]:
        """The samples of every case: cases with a limit on latency one iteration at a time, after the others."""
        samples: list[list[Sample]] = [[Sample(error=plan.error)] * plan.case.iterations for plan in prepared]
        runnable = [(number, plan) for number, plan in enumerate(prepared) if plan.request is not None]
        total = sum(plan.case.iterations for plan in prepared)
        done = total - sum(plan.case.iterations for _, plan in runnable)
        self._progress(done, total)
        if not runnable:
            return [tuple(row) for row in samples]
        service = self._engine.serve()
        try:
            for _, plan in runnable:
                if self._warms or plan.case.max_latency is not None:
                    self._warm(service, plan)
            for alone in (False, True):
                jobs = [
                    (number, index)
                    for number, plan in runnable
                    if (plan.case.max_latency is not None) is alone
                    for index in range(plan.case.iterations)
                ]
                pool = ThreadPoolExecutor(1 if alone else self._at_once, thread_name_prefix="espalier-test")
                try:
                    futures = {
                        pool.submit(self._sample, service, prepared[number], index): (number, index)
                        for number, index in jobs
                    }
                    for future in as_completed(futures):
                        number, index = futures[future]
                        samples[number][index] = future.result()
                        done += 1
                        self._progress(done, total)
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        finally:
            service.close()  # ends what still runs
        return [tuple(row) for row in samples]

    def _sample(self, service: ServingEngine, plan: _PreparedCase, index: int) -> Sample:
        """One iteration."""
        assert plan.request is not None
        case = plan.case
        request = replace(plan.request, stream=0 if case.deterministic else index)
        start = self._clock()
        try:
            result = _result(service, request, case.timeout)
        except EspalierError as error:
            return Sample(error=str(error), latency=self._clock() - start)
        latency = self._clock() - start
        if result.trace is not None:
            self._traced(result.trace, latency)
        tax = None if result.trace is None else result.trace.total_tax_nats
        rate = rejection_rate(result)
        measured = MeasuredOutput(result=result, latency=latency, tax=tax, rejection_rate=rate)
        return Sample(
            output=result.text,
            tokens=result.usage.completion_tokens,
            latency=latency,
            tax=tax,
            rejection_rate=rate,
            finish_reason=result.finish_reason,
            failures=failures(case, measured),
            token_ids=result.token_ids,
        )

    def _warm(self, service: ServingEngine, plan: _PreparedCase) -> None:
        """One token that is not measured: the constraint is compiled then, and kernels are loaded."""
        assert plan.request is not None
        with suppress(EspalierError):  # the measured run says the same
            request = replace(plan.request, sampling=replace(plan.request.sampling, max_tokens=1))
            _result(service, request, plan.case.timeout)


def rejection_rate(result: Result) -> float | None:
    """The share of steps at which the constraint refused the drawn token or the model's top choice; None where no step
    was measured. A strategy that masks first draws nothing that is refused, so draws alone would say nothing."""
    known = [step for step in result.records if not step.is_unknown]
    if not known:
        return None
    return sum(step.was_rejected or step.is_changed for step in known) / len(known)


def _result(service: ServingEngine, request: Request, seconds: float | None) -> Result:
    """Raises EspalierError, DeadlineExceeded among them."""
    for event in service.submit(request, deadline=seconds):
        if isinstance(event, FinishEvent):
            return event.result
    raise GenerationError("the run ended without a result")


def _same(case: TestCase, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The samples; where they must all be one, those that differ from the first have failed."""
    first = next((sample for sample in samples if sample.error is None), None)
    if not case.deterministic or first is None:
        return samples
    return tuple(
        sample if sample.error is not None or sample.token_ids == first.token_ids else _compare_sample(sample, first)
        for sample in samples
    )


def _compare_sample(sample: Sample, first: Sample) -> Sample:
    reason = f"the output differs from the first: {excerpt(sample.output)}, not {excerpt(first.output)}"
    remedy = "set temperature to 0; if it is, the engine's results depend on what else is in the batch"
    return replace(sample, failures=(*sample.failures, Failure(check="determinism", reason=reason, remedy=remedy)))
