"""Checks the fields of another API's body that have no effect here, or are refused by name. It knows no body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.server.bodies.fields import Refusal
from espalier.server.http.errors import UnsupportedParameter

Json = dict[str, Any]


def check_given(data: Mapping[str, Any], table: Mapping[str, Refusal], hints: Mapping[str, str]) -> Json:
    """The fields of a body without those of other servers that have no effect. Raises UnsupportedParameter for one of
    `table` that asks for something."""
    found: Json = {}
    for name, value in data.items():
        if name in table:
            if value is not None and value not in table[name].idle:
                raise UnsupportedParameter(f"{name} is not supported here", hint=table[name].why, field=name)
        elif name not in hints:
            found[name] = value
    return found
