"""A report of test cases as one HTML page; `pages/tests.html` is its template."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.harness.compare.runs import Comparison
from espalier.harness.results import Report
from espalier.harness.visible import visible
from espalier.trace.report.page import render_report

CHECKS = {"contains": "text that must occur", "not_contains": "text that must not occur", "banned": "banned text"}
"""What a check is called, where its name with blanks does not say it."""


def report_page(report: Report, comparisons: Sequence[Comparison] = ()) -> str:
    """The HTML document."""
    failed = sum(not result.passed for result in report.results)
    title = f"{failed} of {len(report.results)} cases failed" if failed else "All cases passed"
    return render_report(
        "tests.html",
        title=title,
        report=report,
        comparisons=comparisons,
        checks=CHECKS,
        has_errors=any(result.errors for result in report.results),
        visible=visible,
    )
