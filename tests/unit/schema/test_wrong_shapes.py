"""Every keyword with values of every wrong shape: a schema or an error of ours, however far it is read."""

from __future__ import annotations

import math
from typing import Any

import pytest

import espalier
from espalier.constraints.compiler import Compiler
from espalier.errors import EspalierError, SchemaError
from espalier.schema.lint.hazards import hazards
from espalier.schema.read.drafts import DRAFTS
from espalier.tokens.vocab import Vocab

ANNOTATIONS = {"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "default", "contentSchema"}
KEYWORDS = sorted(frozenset().union(*(draft.keywords for draft in DRAFTS.values())) | ANNOTATIONS)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 10**400, math.nan, "", "x", "\ud800", "("),
    *([], [True], [[]], [["v", "v"]], [{}], ["a", "a"]),
    *({}, {"a": 1}, {"a": [True]}, {"a": [["v"]]}, {"a": None}, {"a": True}, {"(": True}, {"": {"": {}}}),
)
COMPILER = Compiler(Vocab.bytes())


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_keyword_of_any_shape_is_read_or_refused(keyword: str) -> None:
    draft = next((draft for draft in DRAFTS.values() if keyword in draft.keywords), DRAFTS[max(DRAFTS)])
    for value in VALUES:
        schema = {"$schema": draft.uri, keyword: value}
        try:
            spec = espalier.JsonSchema(schema)
            hazards(schema)
            espalier.contract(spec)
            COMPILER.compile(spec).matcher().mask()
        except EspalierError:
            continue


@pytest.mark.parametrize("needed", [[True], [["v"]], ["a", None], 1, "a", None])
def test_dependencies_are_names_or_schemas_and_the_error_says_so(needed: Any) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": needed}}
    with pytest.raises(SchemaError, match="lists of names and of schemas"):
        espalier.compile(schema)
