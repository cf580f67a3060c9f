"""The header `warning`: warnings about a request, sent beside the reply. It knows no field."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 300
"""Characters of one warning."""
MOST = 2000
"""Characters of the header: many clients and proxies refuse headers of 8 KiB in all."""


def warning_header(lines: Iterable[str]) -> dict[str, str]:
    """The header, or none. Texts may quote what a client sent: whatever could end a header or its quotes is escaped."""
    lines_sent: list[str] = []
    size = 0
    for line in lines:
        warning = f'299 - "{_quote(line)}"'
        size += len(warning) + 2
        if size > MOST:
            lines_sent.append('299 - "and further warnings"')
            break
        lines_sent.append(warning)
    return {"warning": ", ".join(lines_sent)} if lines_sent else {}


def _quote(text: str) -> str:
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    plain = cut.replace("\\", "/").replace('"', "'")
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in plain)
