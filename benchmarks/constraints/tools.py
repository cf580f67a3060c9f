"""Tool calls on Tekken's 131,072 ids: what many tools cost to compile, and what a step costs, beside llguidance.

Each tool has five parameters: an enum, a nested object, an array, a number with a range, a text; two are optional.
llguidance compiles the same as one schema, `anyOf` of the objects that name a tool. Build: to a compiled constraint;
again: with another choice, the tools known from before. First: the first mask; worst: the slowest mask of a cold walk,
where a call comes to its arguments. Cold, warm: a step of walks over calls of three tools. Masks are compared at
each of their steps, but for tokens with DEL or a `\\u`: control characters have one spelling with us and another there.
The last rows have schemas that are not plain (`tools/plain.py`), each of which is lowered once. CPU time.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Table, timed
from benchmarks.schema.llguidance_peer import ESCAPES, WHITESPACE, LlgBackend, LlgCompiled
from benchmarks.tekken import tekken
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.constraints.tools.schemas import multi_tool_call_schema
from espalier.constraints.tools.spec import ToolCalls
from espalier.tokens import mask as masks

COUNTS = (1, 10, 100, 500)
VERBS = ("read", "read_file", "search", "create", "update", "delete", "list", "send", "find_by", "sum")
THINGS = ("user", "order", "invoice", "mail", "ticket", "file", "branch", "event", "order_item", "price")


def tools(count: int) -> dict[str, Any]:
    """So many tools by name, no two of them alike."""
    return {f"{VERBS[i % 10]}_{THINGS[i // 10 % 10]}{i // 100 or ''}": _parameters(i) for i in range(count)}


def lowered_tools(count: int) -> dict[str, Any]:
    """The same with a pattern that all names satisfy, so that no schema is plain."""
    found = tools(count)
    for schema in found.values():
        (identifier,) = (value for name, value in schema["properties"].items() if name.endswith("_id"))
        identifier["pattern"] = "^[a-z0-9-]*$"
    return found


def _parameters(i: int) -> dict[str, Any]:
    thing = THINGS[i % 10]
    properties: dict[str, Any] = {
        f"{thing}_id": {"type": "string", "minLength": 1, "maxLength": 40},
        "mode": {"enum": ["fast", "exact", f"mode-{i}", None]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100 + i},
        "filter": {
            "type": "object",
            "properties": {"field": {"type": "string"}, "value": {"type": ["string", "number", "boolean"]}},
            "required": ["field"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
    }
    required = [f"{thing}_id", "limit", "filter"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def calls(names: list[str]) -> Iterator[str]:
    """Calls of the first, the middle and the last tool, as the compact style writes them."""
    for name in dict.fromkeys((names[0], names[len(names) // 2], names[-1])):
        i = names.index(name)
        arguments = {
            f"{THINGS[i % 10]}_id": "a-17",
            "mode": f"mode-{i}",
            "limit": 42,
            "filter": {"field": "city", "value": "Zürich"},
            "tags": ["new", "blue"],
        }
        call = {"name": name, "arguments": arguments}
        yield json.dumps(call, ensure_ascii=False, separators=(",", ":"))


def through_llguidance(given: dict[str, Any], compiler: Compiler) -> Compiled:
    schema = multi_tool_call_schema(given, args_key="arguments")
    options = WHITESPACE["compact"] | {"json_allowed_escapes": ESCAPES}
    lark = '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(schema | {"x-guidance": options})
    return LlgCompiled(JsonSchema(schema), compiler.part(LlgBackend), lark)


def main() -> None:
    made = tekken()
    alike = np.array([b"\x7f" not in token and b"\\u" not in token for token in made.vocab.tokens])  # (V,)
    table = Table(
        {
            "tools": ">11",
            "": ">11",
            "build ms": ">12.1f",
            "again ms": ">12.1f",
            "first ms": ">12.1f",
            "worst ms": ">12.1f",
            "cold µs": ">12.1f",
            "warm µs": ">12.1f",
        }
    )
    for count, given in [(count, tools(count)) for count in COUNTS] + [(COUNTS[-1], lowered_tools(COUNTS[-1]))]:
        texts = [made.encode(text) for text in calls(list(given))]
        seen = []
        for name, make in (("Espalier", ours), ("llguidance", theirs)):
            compiler = made.compiler()
            compiler.part(LlgBackend)
            gc.collect()
            compiled, build, again = make(given, compiler)
            _, first = timed(compiled.matcher().mask)
            (found, worst), cold = timed(partial(walks, compiled, texts))
            _, warm = timed(partial(walks, compiled, texts))
            seen.append([masks.unpack(mask, made.vocab.width) for mask in found])
            per = 1e3 / sum(map(len, texts))
            table.row(count, name, build, again, first, worst, cold * per, warm * per)
        different = sum((one != other)[alike].any() for one, other in zip(*seen, strict=True))
        print(f"{'':>22}  {len(seen[0])} masks, {different} differ")


def ours(given: dict[str, Any], compiler: Compiler) -> tuple[Compiled, float, float]:
    wanted = {"format": "openai", "choice": "required", "whitespace": "compact", "max_calls": 1}
    spec = ToolCalls(given, **wanted)  # type: ignore[arg-type]  # each is what its name says
    compiled, build = timed(lambda: compiler.compile(spec))
    _, again = timed(lambda: Compiler.compile(compiler, ToolCalls(given, **wanted | {"choice": "auto"})))  # type: ignore[arg-type]
    return compiled, build, again


def theirs(given: dict[str, Any], compiler: Compiler) -> tuple[Compiled, float, str]:
    compiled, build = timed(lambda: through_llguidance(given, compiler))
    return compiled, build, ""


def walks(compiled: Compiled, texts: list[list[int]]) -> tuple[list[Any], float]:
    """The masks of walks over the texts, and the CPU milliseconds of the slowest."""
    found = []
    worst = 0.0
    for tokens in texts:
        matcher = compiled.matcher()
        for token in tokens:
            mask, spent = timed(matcher.mask)
            worst = max(worst, spent)
            if not masks.test(mask, token):
                raise SystemExit(f"{compiled.vocab.text_of(token)!r} is refused")
            found.append(mask)
            matcher.advance(token)
        found.append(matcher.mask())
    return found, worst


if __name__ == "__main__":
    main()
