"""The style of the pages of reports, of batches and of tests, and the policy that allows it."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

STYLES = ("inspector.css", "report.css")


@cache
def style() -> str:
    """The style sheet, for a `<style>` element."""
    return "".join(files("espalier.pages").joinpath(name).read_text("utf-8") for name in STYLES)


@cache
def policy() -> str:
    """The Content-Security-Policy of a report: its own style, and nothing more."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
