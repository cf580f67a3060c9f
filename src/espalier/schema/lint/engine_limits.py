"""Tables of other engines: which keywords of JSON Schema they silently drop, and which they refuse.

Every entry was observed (llama.cpp: the converter of 0.6.0-dev, run on each keyword) or is in the engine's own
documentation or source, read in November 2026: xgrammar 0.2.8 and vLLM's check in front of it, and OpenAI's page on
structured outputs. It reads no schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """name: for messages. drops: keywords that the engine ignores. refuses: keywords that it refuses. Both map a
    keyword to a condition of `WHEN`, "" for always. formats: those it enforces; None where that is not known."""

    name: str
    drops: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    refuses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    formats: frozenset[str] | None = None


CONDITIONS = ("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies")
COUNTS = ("contains", "minContains", "maxContains", "uniqueItems", "minProperties", "maxProperties")
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


WHEN: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType(
    {
        "": lambda node: True,
        "fractions": lambda node: node.get("type") != "integer",
        "several": lambda node: len(node["allOf"]) > 1,
        "beside properties": lambda node: "properties" in node,
    }
)
"""Conditions of entries: whether one holds for a schema with the keyword."""


def _always(*keywords: str) -> dict[str, str]:
    return dict.fromkeys(keywords, "")


ENGINES: Mapping[str, EngineLimits] = MappingProxyType(
    {
        # Our engines refuse what they cannot enforce, each by its own contract, and drop nothing.
        "transformers": EngineLimits(name="Espalier"),
        "llamacpp": EngineLimits(name="Espalier"),
        "gbnf": EngineLimits(name="Espalier's GBNF"),
        "llama-server": EngineLimits(
            name="llama-server",
            drops=_always(*CONDITIONS, *COUNTS, *UNEVALUATED, "patternProperties", "propertyNames", "multipleOf")
            | dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "fractions")
            | _always("$dynamicRef"),
            formats=frozenset({"date", "time", "date-time", "uuid"}),
        ),
        "vllm": EngineLimits(
            name="vLLM with xgrammar",
            drops=_always(*CONDITIONS, *UNEVALUATED, "$dynamicRef") | {"allOf": "several"},
            refuses=_always("multipleOf", "uniqueItems", "contains", "minContains", "maxContains")
            | {"patternProperties": "beside properties"},
            formats=frozenset(
                {
                    *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
                    *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
                }
            ),
        ),
        "openai": EngineLimits(
            name="OpenAI's strict mode",
            refuses=_always(
                *CONDITIONS,
                *COUNTS,
                *UNEVALUATED,
                *("allOf", "oneOf", "patternProperties", "propertyNames", "minLength", "maxLength", "prefixItems"),
                "$dynamicRef",
            ),
            formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
        ),
    }
)
"""By the name of the engine in a request."""
