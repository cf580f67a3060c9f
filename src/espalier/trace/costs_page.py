"""Renders the page of what constraints cost over time. Its script asks the server for the sums; the page itself holds
none."""

from __future__ import annotations

from espalier.trace import page

SCRIPTS, STYLES = (
    ("inspector.js", "stream.js", "door.js", "cost_list.js"),
    ("inspector.css", "traces.css", "cost_list.css"),
)


def render() -> tuple[str, str]:
    """The page, and the Content-Security-Policy that it is sent with."""
    shown, policy = page.fill_template(
        "cost_list.html", styles=STYLES, scripts=SCRIPTS, parts={"title": "Costs"}, connects=True
    )
    return shown, f"{policy}; frame-ancestors 'none'"
