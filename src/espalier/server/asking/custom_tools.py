"""Reads OpenAI's custom tools, whose input is a text, as functions with one argument, the text; a grammar holds for it.

The chat route nests a tool under `custom` and a grammar under `grammar`; `/v1/responses` does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from espalier.chat.tools import SCHEMA_FIELDS
from espalier.constraints.tools.text_grammar import KEYWORD
from espalier.grammar.lark.read import read_lark
from espalier.grammar.printer import print_grammar
from espalier.server.asking.naming import field_names
from espalier.server.http.errors import BadRequest, UnsupportedParameter

Json = dict[str, Any]
INPUT = "input"
"""The one field of a custom tool's arguments."""


def read_custom(tool: Mapping[str, Any], place: str) -> tuple[Json, Json]:
    """The function that a custom tool becomes, and its format. place: of the tool in the body. Raises BadRequest and
    UnsupportedParameter naming the field."""
    name, shape = name_of(tool, place), tool.get("format")
    if shape is None:
        shape = {"type": "text"}
    kind = shape.get("type") if isinstance(shape, Mapping) else None
    if not isinstance(kind, str) or kind not in FORMATS:
        raise BadRequest(f"{place}: a format has the type {' or '.join(FORMATS)}", field=f"{place}.format.type")
    text = FORMATS[kind](shape, f"{place}.format")
    parameters = {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}
    inner: Json = {"name": name, "parameters": parameters}
    if kind == "grammar":
        inner["strict"] = True  # what cannot be enforced is refused, not checked afterwards
    if tool.get("description") is not None:
        inner["description"] = tool["description"]
    return inner, dict(shape)


def name_of(tool: Mapping[str, Any], place: str) -> str:
    """The name of a tool. Raises BadRequest."""
    name = tool.get("name")
    if not isinstance(name, str):
        raise BadRequest(f"{place}: the tool has no name", field=f"{place}.name")
    return name


def arguments_of(text: str) -> str:
    """The arguments of a call of a custom tool."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def as_functions(tools: Sequence[Json]) -> tuple[list[Json], frozenset[str]]:
    """The tools of a chat with functions in place of custom tools, and the names of these. Raises what `read_custom`
    raises."""
    functions, names = [], set()
    for index, tool in enumerate(tools):
        nested, place = tool.get("custom"), f"tools[{index}]"
        if tool.get("type") != "custom" or (nested is None and not _is_custom(tool)):
            functions.append(tool)
            continue
        if nested is not None and not isinstance(nested, Mapping):
            raise BadRequest(f"{place}: custom is an object", field=f"{place}.custom")
        inner, _ = read_custom(tool if nested is None else nested, place if nested is None else f"{place}.custom")
        functions.append({"type": "function", "function": inner})
        names.add(inner["name"])
    return functions, frozenset(names)


def _is_custom(tool: Json) -> bool:
    """Whether a tool that is not nested is one of the Responses API: Anthropic calls a function with a schema so."""
    return "format" in tool and not any(name in tool for name in SCHEMA_FIELDS)


def as_function_choice(choice: Any) -> Any:
    """A tool choice of a chat, in which custom tools are functions."""
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(nested := choice.get("custom"), Mapping) and choice.get("type") == "custom":
        return {"type": "function", "function": nested}
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, Mapping) and isinstance(allowed.get("tools"), list):
        tools = [as_function_choice(tool) for tool in allowed["tools"]]
        return {**choice, "allowed_tools": {**allowed, "tools": tools}}
    return choice


def _free(_shape: Mapping[str, Any], _place: str) -> Json:
    return {"type": "string"}


def _grammar(shape: Mapping[str, Any], place: str) -> Json:
    if isinstance(nested := shape.get("grammar"), Mapping):
        shape, place = nested, f"{place}.grammar"
    syntax, definition = shape.get("syntax"), shape.get("definition")
    if not isinstance(definition, str):
        raise BadRequest(f"{place}: the definition of a grammar is a text", field=f"{place}.definition")
    if syntax == "regex":
        return {"type": "string", "pattern": f"^(?:{definition})$"}
    if syntax != "lark":
        raise UnsupportedParameter(f"{place}: the syntax is lark or regex", field=f"{place}.syntax")
    with field_names({"": f"{place}.definition"}, otherwise=f"{place}.definition"):
        lark = read_lark(definition)
        if lark.token_limits:
            raise UnsupportedParameter(
                f"{place}: the input of a tool has no limits of tokens by rule",
                hint="count characters, such as /.{0,40}/",
                field=f"{place}.definition",
            )
        return {"type": "string", KEYWORD: print_grammar(lark.grammar)}


FORMATS: Mapping[str, Callable[[Mapping[str, Any], str], Json]] = {"text": _free, "grammar": _grammar}
