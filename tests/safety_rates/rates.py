"""Reads the tables of texts to catch and to let pass, and counts what a filter makes of them, by `re` alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from espalier.constraints.safety.catalogue import CATEGORIES, NEEDS_LIST, PATTERNS
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.spec import Safety

FOLDER = Path(__file__).parent / "tables"
WITH_TABLE = tuple(name for name in CATEGORIES if name not in NEEDS_LIST)
PHRASES = (
    "krump",
    "gut punch",
    "d'oh",
    "zorb",
    "va-va-voom",
    "ñandú",
    "blast it",
    "skarn the foe",
    "maul",
    "end it all",
    "son of a biscuit",
    "snuggle club",
)
"""Harmless stand-ins for the lists of users."""
WIDE = {i: i + 0xFEE0 for i in range(0x21, 0x7F) if chr(i).isalnum()}


@dataclass(frozen=True, slots=True)
class Row:
    """One text. is_caught: whether it should be. source: where it comes from."""

    text: str
    is_caught: bool
    source: str


@dataclass(frozen=True, slots=True)
class Rates:
    """What a filter made of a table. missed: texts to catch that it let pass. banned: texts to let pass that it caught,
    each with the rule."""

    to_catch: int
    to_pass: int
    missed: tuple[str, ...]
    banned: tuple[tuple[str, str], ...]

    @property
    def caught(self) -> float:
        return 1 - len(self.missed) / self.to_catch

    @property
    def false_alarms(self) -> float:
        return len(self.banned) / self.to_pass


@cache
def table(category: str) -> tuple[Row, ...]:
    """The rows of a category. A category that needs a list has rows made of `PHRASES`."""
    if category in NEEDS_LIST:
        return tuple(_of_phrases())
    found, source = [], ""
    for line in (FOLDER / f"{category}.txt").read_text(encoding="utf-8").split("\n"):
        if line.startswith("== "):
            source = line[3:]
        elif line.startswith(("+ ", "- ")):
            found.append(Row(_unescaped(line[2:]), line[0] == "+", source))
        elif line and not line.startswith("#"):
            raise ValueError(f"{category}.txt has a line that is none: {line!r}")
    return tuple(found)


def filter_for(category: str) -> Safety:
    """The category alone, with every pattern and, where it needs one, the list `PHRASES`."""
    return Safety(
        categories=[category],
        include=[one.name for one in PATTERNS if one.is_option and one.category == category],
        lists={category: PHRASES} if category in NEEDS_LIST else {},
    )


def rates(category: str, spec: Safety | None = None) -> Rates:
    """What a filter, by default the category's own, makes of the category's table."""
    spec = filter_for(category) if spec is None else spec
    rows = table(category)
    missed = tuple(row.text for row in rows if row.is_caught and not find(spec, row.text))
    banned = tuple(
        (row.text, found[0].pattern) for row in rows if not row.is_caught and (found := find(spec, row.text))
    )
    return Rates(sum(row.is_caught for row in rows), sum(not row.is_caught for row in rows), missed, banned)


def _unescaped(text: str) -> str:
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\")


def _of_phrases() -> list[Row]:
    source = "docs/safety.md: phrases are matched as whole words, in any case and width"
    caught, left = [], []
    for phrase in PHRASES:
        caught += [
            phrase,
            f"well, {phrase}!",
            f"({phrase.upper()})",
            f"x {phrase.title()}\n",
            f'"{phrase}"',
            f"{phrase}.",
            phrase.translate(WIDE),
            f"日 {phrase}, 本",
            f"a {phrase}; b {phrase}",
        ]
        left += [
            f"x{phrase}",
            f"{phrase}s",
            f"un{phrase}able",
            f"{phrase}_",
            f"_{phrase}",
            f"1{phrase}",
            f"{phrase}é",
            phrase[:-1],
            phrase[1:],
        ]
    return [*(Row(text, True, source) for text in caught), *(Row(text, False, source) for text in left)]
