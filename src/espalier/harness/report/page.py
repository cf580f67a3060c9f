"""A report as one HTML page without scripts, which needs nothing else; `pages/tests.html` is its template.

Every text is escaped, and the page's policy allows its own style and nothing more.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from espalier.harness.compare.runs import Comparison
from espalier.harness.results import Report
from espalier.harness.visible import visible


def report_page(report: Report, comparisons: Sequence[Comparison] = ()) -> str:
    """The HTML document."""
    style = _resource("tests.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    failed = sum(not result.passed for result in report.results)
    title = f"{failed} of {len(report.results)} cases failed" if failed else "All cases passed"
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(_resource("tests.html")).render(
        title=title, style=style, style_hash=f"sha256-{digest}", report=report, comparisons=comparisons, visible=visible
    )


def _resource(name: str) -> str:
    return files("espalier.pages").joinpath(name).read_text("utf-8")
