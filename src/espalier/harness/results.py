"""The results of a run: samples, results of cases, the report. Names and counts are PedroCLI's; errors count as failed.

It judges nothing; `to_json` and `from_json` are the form in which reports are stored and compared. `print(report)`
shows PedroCLI's lines for each case, then why it failed and what to do.
"""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from espalier.errors import InputError
from espalier.harness.cases.case import TestCase
from espalier.harness.checks import Failure
from espalier.harness.visible import visible
from espalier.json_record import INTERNAL, NEEDED, Json, JsonRecord, in_json, object_of, read_json

WIDTH = 80
CONTENT = ("banned", "not_contains", "required", "contains")
"""The checks of what is said. Each of them counts for the content pass rate."""
MOST_REASONS = 5
"""Reasons of failures that the text of a case lists."""


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


NANOSECONDS = Json(write=_nanoseconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(JsonRecord):
    """One iteration: an output and what failed, or an error. latency: seconds. tax: nats; None where unmeasured."""

    output: str = ""
    tokens: int = 0
    latency: float = 0.0
    tax: float | None = None
    rejection_rate: float | None = None
    finish_reason: str = ""
    failures: Annotated[tuple[Failure, ...], NEEDED] = ()
    error: str | None = None
    token_ids: Annotated[tuple[int, ...], INTERNAL] = field(default=(), repr=False)

    @property
    def passed(self) -> bool:
        return self.error is None and not self.failures

    def meets(self, *checks: str) -> bool:
        return self.error is None and all(failure.check not in checks for failure in self.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(JsonRecord):
    """Rates are shares of all iterations, so that one that ended in an error counts as failed. Latencies in seconds,
    over the iterations without an error; 0 without any."""

    total_iterations: int
    success_rate: float
    format_pass_rate: float
    json_pass_rate: float
    content_pass_rate: float
    avg_latency: Annotated[float, NANOSECONDS]
    min_latency: Annotated[float, NANOSECONDS]
    max_latency: Annotated[float, NANOSECONDS]
    avg_tokens: float
    error_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The samples of one case, in order of iterations. notes: what of the preset was replaced or is not enforced."""

    case: TestCase
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return [sample.output for sample in self._finished_samples]

    @property
    def latencies(self) -> list[float]:
        """Seconds."""
        return [sample.latency for sample in self._finished_samples]

    @property
    def token_counts(self) -> list[int]:
        return [sample.tokens for sample in self._finished_samples]

    @property
    def errors(self) -> list[str]:
        return [sample.error for sample in self.samples if sample.error is not None]

    @property
    def format_passed(self) -> int:
        return sum(sample.meets("format") for sample in self.samples)

    @property
    def json_passed(self) -> int:
        """Outputs that are JSON and, where a schema is expected, valid under it."""
        return sum(sample.meets("json", "schema") for sample in self.samples)

    @property
    def content_passed(self) -> int:
        """Outputs without what is banned."""
        return sum(sample.meets("banned", "not_contains") for sample in self.samples)

    @property
    def required_passed(self) -> int:
        return sum(sample.meets("required", "contains") for sample in self.samples)

    @property
    def total_passed(self) -> int:
        return sum(sample.passed for sample in self.samples)

    @property
    def passed(self) -> bool:
        """Whether enough iterations passed."""
        return self.total_passed >= self.case.min_success_rate * len(self.samples) - 1e-9

    @property
    def summary(self) -> RunSummary:
        count, latencies = len(self.samples), self.latencies
        return RunSummary(
            total_iterations=count,
            success_rate=self.total_passed / count,
            format_pass_rate=self.format_passed / count,
            json_pass_rate=self.json_passed / count,
            content_pass_rate=sum(sample.meets(*CONTENT) for sample in self.samples) / count,
            avg_latency=statistics.fmean(latencies) if latencies else 0.0,
            min_latency=min(latencies, default=0.0),
            max_latency=max(latencies, default=0.0),
            avg_tokens=statistics.fmean(self.token_counts) if latencies else 0.0,
            error_count=len(self.errors),
        )

    def reasons(self) -> list[tuple[Failure, int]]:
        """The different failures, errors included, and how many iterations each stopped; the most frequent first."""
        failures = Counter(failure for sample in self.samples for failure in sample.failures)
        failures.update(Failure(check="error", reason=reason) for reason in self.errors)
        return failures.most_common()

    @property
    def _finished_samples(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.error is None]

    def to_json(self) -> dict[str, Any]:
        """PedroCLI's names, latencies in nanoseconds; then `Passed`, `Notes` and `Samples`, which are ours."""
        return {
            "Case": self.case.to_json(),
            "Outputs": self.outputs,
            "FormatPassed": self.format_passed,
            "JSONPassed": self.json_passed,
            "ContentPassed": self.content_passed,
            "RequiredPassed": self.required_passed,
            "TotalPassed": self.total_passed,
            "Latencies": [_nanoseconds(latency) for latency in self.latencies],
            "TokenCounts": self.token_counts,
            "Errors": self.errors,
            "Summary": self.summary.to_json(),
            "Passed": self.passed,
            "Notes": list(self.notes),
            "Samples": [sample.to_json() for sample in self.samples],
        }

    def __str__(self) -> str:
        """The lines of the printed report about this case."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        case, sums = self.case, self.summary
        yield from _wrap_text(f"Test: {case.name}")
        if case.description:
            yield from _wrap_text(f"Description: {case.description}", "  ")
        yield f"  Iterations: {sums.total_iterations}"
        yield f"  Success Rate: {sums.success_rate:.1%}"
        yield f"  Format Pass Rate: {sums.format_pass_rate:.1%}"
        yield f"  JSON Pass Rate: {sums.json_pass_rate:.1%}"
        yield f"  Content Pass Rate: {sums.content_pass_rate:.1%}"
        yield f"  Avg Latency: {sums.avg_latency:.3f} s"
        yield f"  Avg Tokens: {sums.avg_tokens:.1f}"
        if sums.error_count:
            yield f"  Errors: {sums.error_count}"
        for note in self.notes:
            yield from _wrap_text(f"Note: {note}", "  ")
        yield f"  {'PASSED' if self.passed else 'FAILED'}"
        reasons = self.reasons()
        for failure, count in reasons[:MOST_REASONS]:
            yield from _wrap_text(f"{failure.check} ({count} of {sums.total_iterations}): {failure.reason}", "  - ")
            if failure.remedy:
                yield from _wrap_text(f"try: {failure.remedy}", "    ")
        if len(reasons) > MOST_REASONS:
            yield f"  - and {len(reasons) - MOST_REASONS} more reasons: --json shows all"

    @staticmethod
    def from_json(data: Any) -> CaseResult:
        """Raises Mismatch, and InputError for a case that is not valid."""
        values = _read_result(data)
        case = TestCase.from_json(values["Case"])
        return CaseResult(case=case, samples=tuple(values["Samples"]), notes=tuple(values["Notes"]))


_read_result = object_of({"Case": Any, "Samples": list[Sample], "Notes": list[str]}, is_open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(JsonRecord):
    """The results of all cases, in their order. seconds: of the whole run, loading the model not included."""

    #: `to_json` of another version may have written more.
    is_open = True

    model: str
    seed: Annotated[int, Json(most=2.0**64, needed=True)] = 0
    seconds: Annotated[float, NEEDED] = 0.0
    results: tuple[CaseResult, ...]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises InputError for what is no report."""
        try:
            return read_json(cls, data)
        except InputError as error:
            message = f"this is no report of test cases: {error.message}"
            raise InputError(message, hint=error.hint, field="compare") from error

    @property
    @in_json(after="seconds")
    def passed(self) -> bool:
        return all(result.passed for result in self.results)

    def __str__(self) -> str:
        """The printed report, without a last newline."""
        failed = [result.case.name for result in self.results if not result.passed]
        count = len(self.results)
        lines = ["=== Logit Test Results ===", *(f"\n{result}" for result in self.results), ""]
        lines += _wrap_text(f"{count - len(failed)} of {count} cases passed on {self.model} in {self.seconds:.1f} s")
        if failed:
            lines += _wrap_text(f"Failed: {', '.join(failed)}")
        return "\n".join(lines)


def _wrap_text(text: str, first: str = "") -> list[str]:
    """Lines of at most 80 columns; a control character is shown as its number."""
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=first, subsequent_indent=" " * max(len(first), 2), break_on_hyphens=False
    )
