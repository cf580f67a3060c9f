"""The query parameters of routes: declared beside each route, where the OpenAPI document shows them, and refused where
they are not. It knows no route."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute

from espalier.errors import InputError
from espalier.server.http.errors import UnknownParameter

KEY = "token"
"""The API key in the address, which ALLOW_QUERY_TOKEN takes on every route."""
READS = ("GET", "HEAD")
Word = TypeVar("Word", bound=str)
LARGEST = 2**53
"""The largest number of a parameter: every database can compare it, and every whole number up to it is exact."""


def parameter(name: str, description: str, *, kind: str = "string", **schema: Any) -> dict[str, Any]:
    """The declaration of a query parameter. kind, schema: its JSON Schema."""
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, **schema}}


def query_of(*parameters: dict[str, Any]) -> dict[str, Any]:
    """`openapi_extra` of a route with these parameters."""
    return {"parameters": list(parameters)}


def limit_parameter(*, default: int, most: int) -> dict[str, Any]:
    return parameter("limit", "How many, newest first.", kind="integer", minimum=1, maximum=most, default=default)


AFTER = parameter("after", "The `last_id` of the previous page.")
ORDER = parameter("order", "By time.", enum=["asc", "desc"])
BETA = parameter("beta", "Anthropic's SDK sends it; it has no effect.")


async def check_query(request: Request) -> None:
    """A dependency of every route. Raises UnknownParameter for a query parameter that a GET route does not have: a
    filter that is ignored would answer another question than the one that was asked."""
    route = request.scope.get("route")
    if request.method not in READS or not isinstance(route, APIRoute):
        return
    known = {declared["name"] for declared in (route.openapi_extra or {}).get("parameters", ())}
    for name in request.query_params:
        if name != KEY and name not in known:
            hint = f"there is {', '.join(sorted(known))}" if known else "this route has none"
            raise UnknownParameter(f"there is no query parameter {name[:60]!r} here", hint=hint, field=name[:60])


def limit_of(request: Request, *, default: int, most: int) -> int:
    """`?limit`. Raises InputError."""
    given = request.query_params.get("limit")
    if given is None:
        return default
    if not re.fullmatch(r"[0-9]{1,6}", given) or not 1 <= int(given) <= most:
        raise InputError(f"limit must be a whole number from 1 to {most}", field="limit")
    return int(given)


def number_of(request: Request, name: str, *, least: float = 0.0, is_whole: bool = False) -> float | None:
    """The number of a parameter, None without one. Raises InputError."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
        is_number = least <= value <= LARGEST and (not is_whole or value == int(value))
    except ValueError:
        is_number = False
    if not is_number:
        raise InputError(f"{name} must be a {'whole ' if is_whole else ''}number from {least:g} on", field=name)
    return value


def choice_of(request: Request, name: str, choices: tuple[Word, ...]) -> Word | None:
    """The word of a parameter, None without one. Raises InputError."""
    text = request.query_params.get(name)
    if text is None:
        return None
    for word in choices:
        if word == text:
            return word
    raise InputError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}", field=name)
