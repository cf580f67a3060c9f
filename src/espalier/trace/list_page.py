"""Renders the page that lists stored traces. Its script asks the server for them; the page itself holds none."""

from __future__ import annotations

from espalier.trace import page
from espalier.trace.measure import SCALE

SCRIPTS, STYLES = ("inspector.js", "stream.js", "door.js", "traces.js"), ("inspector.css", "traces.css")


def render(*, playground: str | None) -> tuple[str, str]:
    """The page, and the Content-Security-Policy that it is sent with. playground: where that page is, relative to this
    one; None where there is none, and no trace can be replayed in it."""
    parts = {"title": "Traces", "shown": {"scale": SCALE, "playground": playground}}
    shown, policy = page.fill_template("traces.html", styles=STYLES, scripts=SCRIPTS, parts=parts, connects=True)
    return shown, f"{policy}; frame-ancestors 'none'"
