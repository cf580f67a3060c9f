"""Which notes of a contract announce that a valid document is refused.

A note that no row knows announces nothing, so that every new one is a finding until it has its row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import Any

from espalier.schema.contract import Contract
from tests.fuzz.schema_grid.keywords import FORMATS
from tests.fuzz.schema_grid.oracles import numbers, strings


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A kind of note. explains: whether it announces the refusal of a value."""

    note: re.Pattern[str]
    explains: Callable[[re.Match[str], Any], bool]


def _before(number: Decimal) -> int:
    return len(str(abs(int(number))))


def _after(number: Decimal) -> int:
    return max(0, -int(number.normalize().as_tuple().exponent))


def _is_whole(number: Decimal) -> bool:
    return number == int(number)


def _has_equal_items(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_equal_items(held) for held in value.values())
    if not isinstance(value, list):
        return False
    return any(one == other for one, other in combinations(value, 2)) or any(map(_has_equal_items, value))


def _has_names(value: Any, count: int) -> bool:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and len(value) >= count) or any(_has_names(one, count) for one in held)


REASONS = (
    Reason(
        note=re.compile(r"whole numbers are written without a point or an exponent, with at most ([0-9]+) digits"),
        explains=lambda match, value: any(_is_whole(n) and _before(n) > int(match[1]) for n in numbers(value)),
    ),
    Reason(
        note=re.compile(r"numbers have at most ([0-9]+) digits before and after the point"),
        explains=lambda match, value: any(max(_before(n), _after(n)) > int(match[1]) for n in numbers(value)),
    ),
    Reason(
        note=re.compile(r"at most ([0-9]+) digits after the point"),
        explains=lambda match, value: any(_after(n) > int(match[1]) for n in numbers(value)),
    ),
    Reason(
        note=re.compile(r"at most ([0-9]+) digits before the point"),
        explains=lambda match, value: any(_before(n) > int(match[1]) for n in numbers(value)),
    ),
    Reason(
        note=re.compile(r"with a point they have at most ([0-9]+) digits in all"),
        explains=lambda match, value: any(
            _after(n) > 0 and _before(n) + _after(n) > int(match[1]) for n in numbers(value)
        ),
    ),
    Reason(
        note=re.compile("the undeclared name that satisfies it comes after all others"),
        explains=lambda _, value: _has_names(value, 2),
    ),
    Reason(
        note=re.compile(rf"^({'|'.join(FORMATS)}): "),
        explains=lambda match, value: any(text != FORMATS[match[1]][0] for text in strings(value)),
    ),
    Reason(
        note=re.compile(r"at most ([0-9]+) characters, as there is a pattern as well"),
        explains=lambda match, value: any(len(text) > int(match[1]) for text in strings(value)),
    ),
    Reason(
        note=re.compile("no items are equal, even where another option would allow it"),
        explains=lambda _, value: _has_equal_items(value),
    ),
    Reason(
        note=re.compile("one undeclared name at most counts, as it may come twice"),
        explains=lambda _, value: _has_names(value, 2),
    ),
)


def is_announced(contract: Contract, value: Any) -> bool:
    """Whether a note of a narrowed keyword says that documents like this one are refused."""
    return any(
        reason.explains(match, value)
        for note in _notes(contract)
        for reason in REASONS
        for match in reason.note.finditer(note)
    )


def is_ordered(contract: Contract) -> bool:
    """Whether the contract says that properties come in one order only."""
    return any(
        one.verdict == "narrowed" and (one.keyword == "order" or "in this order" in one.note)
        for one in contract.entries
    )


def _notes(contract: Contract) -> Iterable[str]:
    return (one.note for one in contract.entries if one.verdict == "narrowed" and one.note)
