"""What a reconstruction found, row by row counted, and how it is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SHOWN = 5
"""Examples kept of each kind of loss."""
CLIP = 50
"""Characters shown of a prompt, as the original script shows them."""


@dataclass(slots=True)
class ReconstructionReport:
    """Counts of one reconstruction.

    rows: of the QA file. matched: rows with an entry. written: rows of the output (more than matched with `all`).
    entries: read from the store and within the filters; filtered: outside them; used: of those, entries that a row was
    made of. duplicates: rows for which more than one entry was found. templates: matched rows by the template that
    found them. models: entries by model. conflicts: rows whose entries come from more than one model.
    lacking: unmatched rows without a column that any template names.
    """

    layout: str
    rows: int = 0
    matched: int = 0
    written: int = 0
    entries: int = 0
    filtered: int = 0
    used: int = 0
    duplicates: int = 0
    conflicts: int = 0
    lacking: int = 0
    damaged: int = 0
    templates: Counter[str] = field(default_factory=Counter)
    models: dict[str, int] = field(default_factory=dict)
    unmatched_shown: list[tuple[int, str]] = field(default_factory=list)
    unused_shown: list[str] = field(default_factory=list)
    damaged_shown: list[tuple[str, str]] = field(default_factory=list)
    #: How much of a damaged store could be read, "" where none was salvaged; and every loss.
    salvaged: str = ""
    losses: tuple[str, ...] = ()

    @property
    def unmatched(self) -> int:
        """Rows of the QA file without an entry."""
        return self.rows - self.matched

    @property
    def unused(self) -> int:
        """Entries within the filters of which no row was made."""
        return self.entries - self.used

    def to_json(self) -> dict[str, Any]:
        """All counts, and the examples as objects."""
        more = {"salvaged": self.salvaged, "losses": list(self.losses)} if self.salvaged else {}
        return {
            "layout": self.layout,
            **more,
            "rows": self.rows,
            "matched": self.matched,
            "unmatched": self.unmatched,
            "written": self.written,
            "entries": self.entries,
            "used": self.used,
            "unused": self.unused,
            "filtered": self.filtered,
            "damaged": self.damaged,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "lacking": self.lacking,
            "templates": dict(self.templates),
            "models": self.models,
            "examples": {
                "unmatched": [{"line": line, "prompt": prompt} for line, prompt in self.unmatched_shown],
                "unused": self.unused_shown,
                "damaged": [{"key": key, "reason": reason} for key, reason in self.damaged_shown],
            },
        }

    def lines(self, rule: str) -> Iterator[str]:
        """The report in words. rule: what was done with duplicates."""
        yield f"{self.matched:,} of {self.rows:,} rows matched; {self.written:,} rows written"
        for name, count in self.templates.most_common():
            yield f"  {count:,} by {name}"
        if self.unmatched:
            yield f"{self.unmatched:,} rows have no entry in the store, among them:"
            yield from (f"  line {line}: {prompt}" for line, prompt in self.unmatched_shown)
        if self.lacking:
            yield f"{self.lacking:,} of them lack the columns that the templates name"
        yield f"{self.used:,} of {self.entries:,} entries used ({self.layout})"
        if self.unused:
            yield f"{self.unused:,} entries belong to no row, among them:"
            yield from (f"  {prompt}" for prompt in self.unused_shown)
        if self.filtered:
            yield f"{self.filtered:,} entries were left out by the filters"
        if self.duplicates:
            yield f"{self.duplicates:,} rows have more than one entry: {rule}"
        if self.conflicts:
            models = ", ".join(f"{name or 'no name'} ({count:,})" for name, count in [*self.models.items()][:SHOWN])
            yield f"{self.conflicts:,} rows have entries of more than one model: {models}; --model picks one"
        if self.salvaged:
            yield f"salvaged: {self.salvaged}; losses: {len(self.losses):,}"
            yield from (f"  {loss}" for loss in self.losses)
        if self.damaged:
            yield f"{self.damaged:,} entries cannot be read, among them:"
            yield from (f"  {key}: {reason}" for key, reason in self.damaged_shown)


def clipped(text: str) -> str:
    """The beginning of a prompt, on one line."""
    shown = text.replace("\n", "\\n")
    return shown if len(shown) <= CLIP else f"{shown[:CLIP]}…"
