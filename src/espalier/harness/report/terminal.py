"""A report as text of 80 columns: PedroCLI's lines for each case, then why it failed and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from espalier.harness.report.visible import visible
from espalier.harness.results import CaseResult, Report

WIDTH = 80
MOST_REASONS = 5


def report_text(report: Report) -> str:
    """The whole report, without a last newline."""
    return "\n".join(_lines(report))


def case_text(result: CaseResult) -> str:
    """The lines of one case."""
    return "\n".join(_case(result))


def _lines(report: Report) -> Iterator[str]:
    yield "=== Logit Test Results ==="
    for result in report.results:
        yield ""
        yield from _case(result)
    yield ""
    failed = [one.case.name for one in report.results if not one.passed]
    count = len(report.results)
    yield from _wrapped(f"{count - len(failed)} of {count} cases passed on {report.model} in {report.seconds:.1f} s")
    if failed:
        yield from _wrapped(f"Failed: {', '.join(failed)}")


def _case(result: CaseResult) -> Iterator[str]:
    case, sums = result.case, result.summary
    yield from _wrapped(f"Test: {case.name}")
    if case.description:
        yield from _wrapped(f"Description: {case.description}", "  ")
    yield f"  Iterations: {sums.total_iterations}"
    yield f"  Success Rate: {sums.success_rate:.1%}"
    yield f"  Format Pass Rate: {sums.format_pass_rate:.1%}"
    yield f"  JSON Pass Rate: {sums.json_pass_rate:.1%}"
    yield f"  Content Pass Rate: {sums.content_pass_rate:.1%}"
    yield f"  Avg Latency: {sums.avg_latency:.3f} s"
    yield f"  Avg Tokens: {sums.avg_tokens:.1f}"
    if sums.error_count:
        yield f"  Errors: {sums.error_count}"
    for note in result.notes:
        yield from _wrapped(f"Note: {note}", "  ")
    yield f"  {'PASSED' if result.passed else 'FAILED'}"
    reasons = result.reasons()
    for failure, count in reasons[:MOST_REASONS]:
        yield from _wrapped(f"{failure.check} ({count} of {sums.total_iterations}): {failure.reason}", "  - ")
        if failure.remedy:
            yield from _wrapped(f"try: {failure.remedy}", "    ")
    if len(reasons) > MOST_REASONS:
        yield f"  - and {len(reasons) - MOST_REASONS} more reasons: --json shows all"


def _wrapped(text: str, first: str = "") -> list[str]:
    """Lines of at most 80 columns; a control character is shown as its number."""
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=first, subsequent_indent=" " * max(len(first), 2), break_on_hyphens=False
    )
