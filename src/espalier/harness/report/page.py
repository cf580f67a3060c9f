"""A report as one HTML page without scripts, which needs nothing else; `pages/tests.html` is its template.

Every text is escaped, and the page's policy allows its own style and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from espalier.harness.compare.runs import Comparison
from espalier.harness.results import Report
from espalier.harness.visible import visible
from espalier.trace.report.page_style import policy, style

CHECKS = {"contains": "text that must occur", "not_contains": "text that must not occur", "banned": "banned text"}
"""What a check is called, where its name with blanks does not say it."""


def report_page(report: Report, comparisons: Sequence[Comparison] = ()) -> str:
    """The HTML document."""
    failed = sum(not result.passed for result in report.results)
    title = f"{failed} of {len(report.results)} cases failed" if failed else "All cases passed"
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(files("espalier.pages").joinpath("tests.html").read_text("utf-8")).render(
        title=title,
        style=style(),
        policy=policy(),
        report=report,
        comparisons=comparisons,
        checks=CHECKS,
        has_errors=any(result.errors for result in report.results),
        visible=visible,
    )
