"""Reads a JSON Schema argument: a file, stdin, JSON itself, or the shorthand of `schema/shorthand.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.cli.flags.groups import info_of
from espalier.cli.flags.inputs import read_text
from espalier.constraints.spec import JsonSchema
from espalier.engines.request_options import CLOSED, SCHEMA_ORDER
from espalier.errors import InputError, SchemaError
from espalier.files.json_shape import check_shape
from espalier.files.limits import SCHEMA
from espalier.schema.order import OLD, ORDERS
from espalier.schema.read.walk import subschemas
from espalier.schema.shorthand import parse_shorthand
from espalier.wiring import build_app

SchemaArgument = Annotated[
    str, typer.Argument(help="A file, `-` for stdin, JSON, or `name, age int`.", metavar="SCHEMA")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFlags:
    """How to read a JSON Schema, for commands that take one as their argument."""

    whitespace: Annotated[
        str, typer.Option(help="White space: natural, compact, flexible, indented.", metavar="STYLE")
    ] = "natural"
    format: Annotated[str, typer.Option(help="What `format` does: annotate, assert.", metavar="WHAT")] = "annotate"
    order: Annotated[
        str | None,
        typer.Option(help="Order of properties: schema (the default), any, required-first, a,b,c.", metavar="ORDER"),
    ] = None
    closed: Annotated[bool, info_of(CLOSED)] = False

    def spec(self, schema: str, *, indent: int = 2, allow: str | None = None) -> JsonSchema:
        """The constraint; without --order that of ESPALIER_SCHEMA_ORDER. Raises as `read_spec`."""
        order = build_app().settings.default_of(SCHEMA_ORDER) if self.order is None else self.order
        return read_spec(
            schema,
            whitespace=self.whitespace,
            indent=indent,
            format=self.format,
            order=order,
            allow=allow,
            closed=self.closed,
        )


def read_spec(
    argument: str,
    *,
    whitespace: str = "natural",
    indent: int = 2,
    format: str = "annotate",  # noqa: A002  # as the keyword is called
    order: str | None = None,
    allow: str | None = None,
    closed: bool = False,
) -> JsonSchema:
    """The constraint. order: one of `ORDERS`, or names of properties separated by commas; None leaves it open.
    `JsonSchema` checks the other values. Raises InputError, and what `read_schema_argument` and `JsonSchema` raise."""
    schema = read_schema_argument(argument, read_text)
    return JsonSchema(
        schema,
        whitespace=whitespace,  # type: ignore[arg-type]
        indent=indent,
        order=order if order is None or is_named(order) else read_names(order, schema),
        format=format,  # type: ignore[arg-type]
        allow=allow,  # type: ignore[arg-type]
        closed=closed or None,
    )


def is_named(order: str) -> bool:
    """Whether this is the name of an order, not a list of properties."""
    return order in ORDERS or order in OLD


def read_names(text: str, schema: Any) -> tuple[str, ...]:
    """Property names from `a,b,c`. Raises InputError for a name that the schema does not declare."""
    names = tuple(name.strip() for name in text.split(","))
    nodes = [node for _, node in subschemas(schema) if isinstance(node, Mapping)]
    groups = [node["properties"] for node in nodes if isinstance(node.get("properties"), Mapping)]
    for name in names:
        if not any(name in group for group in groups):
            raise InputError(
                f"order: {name!r} is no property of the schema",
                hint=f"{', '.join(ORDERS)}, or the names that come first: a,b,c",
                field="order",
            )
    return names


def read_schema_argument(text: str, read: Callable[[str, str], str]) -> Any:
    """The schema: `-` is stdin; a text that starts with `{`, or is `true` or `false`, is JSON; a file that exists is
    read; anything else is shorthand. What looks like the path of a missing file is an error, not a field's name.

    read: takes a path (`-` for stdin) and a noun for error messages, and returns the text. Raises InputError for a
    missing file, SchemaError with line and column for invalid JSON, or with the character for invalid shorthand.
    """
    stripped = text.strip()
    if stripped.startswith("{") or stripped in ("true", "false"):
        return parse_json(stripped, "the schema")
    if stripped == "-":
        return parse_json(read("-", "schema"), "stdin")
    if _is_file(text):
        return parse_json(read(text, "schema"), text)
    if stripped.endswith(".json") or ("/" in stripped and " " not in stripped):
        raise InputError(f"cannot read the schema {text}: there is no such file", field="schema")
    return parse_shorthand(text)


def parse_json(text: str, source: str) -> Any:
    """The value of a JSON text. Raises SchemaError naming the source for invalid JSON and for a repeated key."""
    check_shape(text, SCHEMA, source)
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise SchemaError(f"{source} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:  # brackets that are never closed
        raise SchemaError(f"{source} is nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise SchemaError(f"{source}: {error}") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    object_fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in object_fields:
            raise SchemaError(
                f"the key {key!r} occurs twice in one object", hint="JSON parsers disagree on which counts"
            )
        object_fields[key] = value
    return object_fields


def _is_file(text: str) -> bool:
    try:
        path = Path(text).expanduser()
        return path.exists() and not path.is_dir()  # a pipe is read too
    except (OSError, ValueError, RuntimeError):  # too long for a name, a NUL in it, no such home
        return False
