"""Reads tools from Python functions and other descriptions, and builds the JSON Schema of a call. It knows no wire
format.

Functions become tools by their signatures; all other descriptions are read by `chat/tools.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from espalier.chat.tools import Tool, read_tools
from espalier.errors import EspalierError, InputError
from espalier.schema.contract import ContractEntry
from espalier.schema.normal.closing import NOTE
from espalier.schema.python.schemas import schema_of
from espalier.schema.read.walk import has_closable_objects, subschemas

SHOWN = 5
"""Names of tools in a text that names some of many."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
DEFINITIONS = ("$defs", "definitions")
REF_ALONE = ("draft-04", "draft-06", "draft-07")
"""Drafts in which keywords beside a `$ref` are ignored."""


_LOOSE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def tools_of(source: Any, *, where: str = "tools", skips_hosted: bool = False) -> tuple[Tool, ...]:
    """Tools from a Tool, a dict of any known shape, a Python function, a list of these, or a mapping of names to
    schemas, in the given order. skips_hosted: as in `read_tools`. Raises InputError naming the field."""
    if isinstance(source, Tool) or _is_function(source):
        source = [source]
    if isinstance(source, Mapping) and any(map(_is_function, source.values())):
        named = {
            name: _of_function(value, f"{where}.{name}").schema if _is_function(value) else value
            for name, value in source.items()
        }
        return read_tools(named, where=where)
    if isinstance(source, Mapping | str | bytes) or not isinstance(source, Iterable):
        return read_tools(source, where=where, skips_hosted=skips_hosted)
    tools = (
        _of_function(value, f"{where}[{place}]") if _is_function(value) else value for place, value in enumerate(source)
    )
    return read_tools(list(tools), where=where, skips_hosted=skips_hosted)


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value)


def _of_function(function: Any, where: str) -> Tool:
    loose = [
        parameter.name for parameter in inspect.signature(function).parameters.values() if parameter.kind in _LOOSE
    ]
    if loose:
        raise InputError(
            f"{function.__name__} takes any number of arguments as {loose[0]!r}, which no schema can name",
            hint="give its arguments one by one",
            field=where,
        )
    described = (inspect.getdoc(function) or "").partition("\n\n")[0]
    try:
        return Tool(
            name=function.__name__,
            parameters=schema_of(function),  # type: ignore[arg-type]  # a mapping is taken too
            description=" ".join(described.split()),
        )
    except EspalierError as error:
        raise InputError(
            f"{getattr(function, '__name__', function)!s} cannot be a tool: {error.message}",
            hint=error.hint,
            field=where,
        ) from error


def closed_entries(tools: Iterable[Tool]) -> list[ContractEntry]:
    """The entry of a contract that names the tools whose arguments are closed by default; none where no tool is."""
    names = [tool.name for tool in tools if tool.closed and has_closable_objects(tool.schema)]
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    note = f"arguments of {shown}: {NOTE}"
    return [ContractEntry(pointer="", keyword="closed", verdict="enforced", note=note)] if names else []


def closed_notes(tools: Iterable[Tool]) -> tuple[str, ...]:
    """The note of a request on tools that are closed by default, in one sentence for all of them. Who calls a tool
    strict expects it."""
    entries = closed_entries(tool for tool in tools if not tool.strict)
    return tuple(f"{entry.note} (`closed` false allows others)" for entry in entries)


def tool_call_schema(
    name: str, parameters: Mapping[str, Any] | None, *, name_key: str = "name", args_key: str = "args"
) -> dict[str, Any]:
    """The JSON Schema of `{"name": NAME, "args": {...}}`, without other properties, the name first.

    parameters: the schema of the arguments, None for no arguments. Its references stay valid: a schema that refers to
    itself gets an `$id` of its own. Raises InputError naming the field.
    """
    if name_key == args_key:
        raise InputError(f"name and arguments cannot both stand at {name_key!r}", field="args_key")
    tool = Tool(name=name, parameters=parameters)  # type: ignore[arg-type]  # a mapping, and None, are taken too
    return {
        "type": "object",
        "properties": {name_key: {"const": name}, args_key: _with_address(tool.schema, name)},
        "required": [name_key, args_key],
        "additionalProperties": False,
    }


def multi_tool_call_schema(
    tools: Mapping[str, Mapping[str, Any] | None], *, name_key: str = "name", args_key: str = "args"
) -> dict[str, Any]:
    """The JSON Schema of a call of one of these tools, in the given order. Raises as `tool_call_schema`."""
    if not isinstance(tools, Mapping) or not tools:
        raise InputError("there are no tools", hint='{"read_file": {"type": "object", ...}}', field="tools")
    return {
        "anyOf": [
            tool_call_schema(name, parameters, name_key=name_key, args_key=args_key)
            for name, parameters in tools.items()
        ]
    }


def _with_address(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema as a resource with its own `$id`, if it refers to itself or states its draft."""
    draft = str(schema.get("$schema", ""))
    # The schema around it is of the newest draft, in which draft 4's `id` has no meaning, so it gets both keywords.
    id_keywords = ("$id", "id") if "draft-04" in draft else ("$id",)
    if id_keywords[-1] in schema or not ("$schema" in schema or _refers_to_itself(schema)):
        return schema
    address = dict.fromkeys(id_keywords, f"urn:tool:{name}")
    if "$ref" in schema and any(old in draft for old in REF_ALONE):
        # In these drafts `$id` beside `$ref` would be ignored, and so is everything else but the definitions.
        shared = {key: value for key, value in schema.items() if key in ("$schema", *DEFINITIONS)}
        return {**address, **shared, "allOf": [{"$ref": schema["$ref"]}]}
    return {**address, **schema}


def _refers_to_itself(schema: dict[str, Any]) -> bool:
    return any(
        isinstance(node, Mapping) and any(str(node.get(keyword, "")).startswith("#") for keyword in REFERENCES)
        for _, node in subschemas(schema)
    )
