"""Closes objects: where a schema declares `properties` and no schema that applies to the same value says what other
names are, there are no other names.

    {"properties": {"a": A}}                                    {"a": 1} fits, {"a": 1, "b": 2} does not
    {"allOf": [{"properties": {"a": A}}, {"properties": {"b": B}}]}     both names fit: both schemas apply
    {"anyOf": [{"properties": {"a": A}}, {"properties": {"b": B}}]}     the names of one option fit

It is `unevaluatedProperties: false` of everything that applies to one value, for every draft. What `oneOf` and `not`
exclude is read as it stands, so a closed schema never has a value that the schema itself does not have. Required names
and listed values count as declared. It builds no cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.schema.normal.branch import Branch
from espalier.schema.normal.container_facts import ObjectFacts
from espalier.schema.normal.literals import ObjectGroup
from espalier.schema.read.documents import Subschema
from espalier.schema.read.walk import SAYING

NOTE = "objects take no names beyond their `properties`, where the schema says nothing of other names"
LEFT = "undeclared names were not refused, since other keywords were left out here"


def says_others(schema: Mapping[str, Any], keywords: frozenset[str]) -> bool:
    """Whether a schema says what undeclared names are. keywords: of its draft."""
    return any(name in schema and name in keywords for name in SAYING)


def is_closable(subschema: Subschema) -> bool:
    """Whether a schema declares properties, and does not say what other names are."""
    schema, draft = subschema.value, subschema.resource.draft
    if not isinstance(schema, dict) or "properties" not in schema or (draft.ref_alone and "$ref" in schema):
        return False
    return not says_others(schema, draft.keywords)


def close_object(branch: Branch, facts: ObjectFacts) -> None:
    """State that an object has no undeclared names. branch: finished, of type object."""
    declared: dict[str, None] = {}
    closing: Subschema | None = None
    for literal in branch.parents:
        schema, draft = literal.subschema.value, literal.subschema.resource.draft
        if not literal.positive or (draft.ref_alone and "$ref" in schema):
            continue
        if says_others(schema, draft.keywords):
            return
        if "properties" in schema:
            closing = closing or literal.subschema
            declared.update(dict.fromkeys(schema["properties"]))
    if closing is None:
        return
    if branch.left:  # what was left out may declare more
        branch.leave(closing.at("properties"), LEFT)
        return
    declared.update(dict.fromkeys(facts.required))
    names = dict.fromkeys(declared, branch.table.anything)
    facts.group(ObjectGroup(names, (), branch.table.nothing, closing.at("properties")))
