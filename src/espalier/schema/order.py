"""The order of properties in an object: its names, and how it is read from what a user gives.

    "any"             every order of the declared names, undeclared ones anywhere between
    "schema"          as in the text of the schema, undeclared names after the declared ones
    "required-first"  the same, but required names come before all others
    ("a", "b")        these come first, the others follow as in the text

It does not know what enforces an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from espalier.errors import SpecError

Order: TypeAlias = "str | tuple[str, ...]"
"""One of ORDERS, or the names that come first."""

ORDERS = ("schema", "any", "required-first")
DEFAULT: Order = "schema"
OLD = {"required_first": "required-first"}
"""Earlier spellings."""
HINT = f"{', '.join(ORDERS)}, or a list of the names that come first"


def read_order(value: Any) -> Order:
    """The order that a user gives: a name or a list of property names. Raises SpecError."""
    if isinstance(value, str):
        order = OLD.get(value, value)
        if order not in ORDERS:
            raise SpecError(f"unknown order {value!r}", hint=HINT, field="order")
        return order
    if not isinstance(value, Sequence) or any(not isinstance(name, str) for name in value):
        raise SpecError("order is a name, or a list of property names", hint=HINT, field="order")
    return tuple(value)
