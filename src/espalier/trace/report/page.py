"""The pages of reports, of batches and of tests: HTML documents without scripts, which need nothing else.

Every text is escaped, and a page's policy allows its own style and nothing more.
"""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from espalier.pages import parts

STYLE = ("inspector.css", "report.css")


def render_report(template: str, *, title: str, **values: Any) -> str:
    """The document made from a template of Jinja in `pages/`."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    source = environment.from_string(parts.template(template))
    return source.render(title=title, style=Markup(parts.part(*STYLE)), policy=policy(), **values)


def policy() -> str:
    """The Content-Security-Policy of a report."""
    return parts.policy(parts.part(*STYLE))
