"""The header `warning`: what a client is told of its request beside the reply. It knows no field."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 300
"""Characters of one warning."""
MOST = 2000
"""Characters of the header: many clients and proxies refuse headers of 8 KiB in all."""


def warning_header(lines: Iterable[str]) -> dict[str, str]:
    """The header, or none. Texts may quote what a client sent: whatever could end a header or its quotes is escaped."""
    found: list[str] = []
    size = 0
    for line in lines:
        one = f'299 - "{_quote(line)}"'
        size += len(one) + 2
        if size > MOST:
            found.append('299 - "and further warnings"')
            break
        found.append(one)
    return {"warning": ", ".join(found)} if found else {}


def _quote(text: str) -> str:
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    plain = cut.replace("\\", "/").replace('"', "'")
    return "".join(one if " " <= one <= "~" else f"\\u{ord(one):04x}" for one in plain)
