"""Reads structural tags, as vLLM, SGLang and xgrammar have them: free text in which a trigger opens a tagged region.

The old form is `structures` with `triggers`, the newer one a `format`. Both are translated exactly; a construct for
which there is no constraint of the same texts is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.constraints.free import Free, Region
from espalier.constraints.spec import Choice, Regex, Spec
from espalier.server.http.errors import BadRequest, UnsupportedParameter

SHAPE = '{"structures": [{"begin": "<a>", "schema": {...}, "end": "</a>"}], "triggers": ["<a>"]}'
FORMAT = '{"format": {"type": "triggered_tags", "triggers": ["<a>"], "tags": [{"begin", "content", "end"}]}}'
INSTEAD = "use `tools`, or `espalier.constraint` with kind `free`"
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Readers:
    """schema: from a schema to its constraint. grammar: from a grammar's text to its constraint."""

    schema: Callable[[Any], Spec]
    grammar: Callable[[str], Spec]


def structural_tag(given: Any, path: str, readers: Readers) -> Spec | None:
    """The constraint, None for one that allows any text. given: the object or its JSON text; a `type` beside it is read
    too. Raises BadRequest for another shape, UnsupportedParameter naming the construct, SpecError."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the structural tag is not JSON: {str(error)[:200]}", field=path) from error
    if not isinstance(given, Mapping):
        raise BadRequest("a structural tag is an object", hint=SHAPE, field=path)
    if "format" in given:
        where = f"{path}.format"
        return None if _kind(given["format"], where) == "any_text" else _content(given["format"], where, readers)
    structures, triggers = given.get("structures"), given.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list) or not structures:
        raise BadRequest("a structural tag has structures and triggers", hint=SHAPE, field=path)
    regions_found: list[tuple[str, Region]] = []
    for place, structure in enumerate(structures):
        where = f"{path}.structures[{place}]"
        begin, end = _tag_texts(structure, where)
        schema = structure.get("schema")
        if not isinstance(schema, Mapping | bool):
            raise BadRequest("a structure has a schema", hint=SHAPE, field=f"{where}.schema")
        regions_found.append((begin, Region(readers.schema(schema), end=end)))
    return _free(regions_found, triggers, path, "structures")


def _kind(given: Any, path: str) -> str:
    if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
        raise BadRequest("a format is an object with a type", hint=FORMAT, field=path)
    return str(given["type"])


def _content(given: Any, path: str, readers: Readers) -> Spec:
    """The constraint of a format of xgrammar's."""
    kind = _kind(given, path)
    make = FORMATS.get(kind)
    if make is None:
        raise UnsupportedParameter(
            f"the format {kind[:40]!r} of a structural tag is not supported here", hint=INSTEAD, field=f"{path}.type"
        )
    known = {"type", *FIELDS[kind]}
    for name, value in given.items():
        if name not in known and value not in (None, False, [], {}):
            raise UnsupportedParameter(
                f"{name[:40]!r} of the format {kind!r} is not supported here", hint=INSTEAD, field=f"{path}.{name[:40]}"
            )
    return make(given, path, readers)


def _schema(given: Json, path: str, readers: Readers) -> Spec:
    schema = given.get("json_schema")
    if not isinstance(schema, Mapping | bool):
        raise BadRequest("the format has a schema", field=f"{path}.json_schema")
    if given.get("style", "json") != "json":
        raise UnsupportedParameter("the only style here is json", hint=INSTEAD, field=f"{path}.style")
    return readers.schema(schema)


def _text(given: Json, name: str, path: str) -> str:
    if not isinstance(given.get(name), str):
        raise BadRequest(f"{name} is a text", field=f"{path}.{name}")
    return str(given[name])


def _read_triggered_tags(given: Json, path: str, readers: Readers) -> Spec:
    regions_found: list[tuple[str, Region]] = []
    for place, tag in enumerate(_list(given, "tags", path)):
        where = f"{path}.tags[{place}]"
        begin, end = _tag_texts(tag, where)
        regions_found.append((begin, Region(_content(tag.get("content"), f"{where}.content", readers), end=end)))
    return _free(regions_found, _list(given, "triggers", path), path, "tags")


def _list(given: Json, name: str, path: str) -> list[Any]:
    values = given.get(name)
    if not isinstance(values, list) or not values:
        raise BadRequest(f"{name} is a list with at least one entry", hint=FORMAT, field=f"{path}.{name}")
    return values


FIELDS = {
    "json_schema": ("json_schema", "style"),
    "regex": ("pattern",),
    "grammar": ("grammar",),
    "const_string": ("value",),
    "triggered_tags": ("triggers", "tags"),
}
"""Fields of each format that do something."""
FORMATS: Mapping[str, Callable[[Json, str, Readers], Spec]] = {
    "json_schema": _schema,
    "regex": lambda given, path, _: Regex(_text(given, "pattern", path)),
    "grammar": lambda given, path, readers: readers.grammar(_text(given, "grammar", path)),
    "const_string": lambda given, path, _: Choice((_text(given, "value", path),)),
    "triggered_tags": _read_triggered_tags,
}


def _tag_texts(given: Any, path: str) -> tuple[str, str]:
    """The texts around a region."""
    if not isinstance(given, Mapping) or not all(isinstance(given.get(name), str) for name in ("begin", "end")):
        raise BadRequest("a tag has begin, end and what is between them", hint=SHAPE, field=path)
    if given.get("type", "tag") not in ("tag", "structure"):
        raise BadRequest("the type of a tag is tag", field=f"{path}.type")
    return given["begin"], given["end"]


def _free(tags: list[tuple[str, Region]], triggers: list[Any], path: str, name: str) -> Spec:
    """Free text in which after a trigger one of the tags that begin with it must go on."""
    if not all(isinstance(trigger, str) for trigger in triggers):
        raise BadRequest("triggers are texts", field=f"{path}.triggers")
    regions: dict[str, list[Region]] = {trigger: [] for trigger in triggers}
    for place, (begin, region) in enumerate(tags):
        met = [region for region in regions if begin.startswith(region)]
        if len(met) != 1:
            raise BadRequest(
                f"{begin[:40]!r} begins with {'no' if not met else 'more than one'} trigger",
                field=f"{path}.{name}[{place}].begin",
            )
        regions[met[0]].append(Region(region.spec, begin=begin[len(met[0]) :], end=region.end))
    unused = [begin[:40] for begin, region in regions.items() if not region]
    if unused:
        raise BadRequest(f"nothing begins with the trigger {unused[0]!r}", field=f"{path}.triggers")
    return Free(regions)
