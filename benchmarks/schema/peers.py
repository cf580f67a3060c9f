"""The engines to compare, each as `compile(schema) -> Compiled`: Espalier, and llguidance alone on the same schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from benchmarks.schema.llguidance_peer import WHITESPACE, LlgBackend, LlgCompiled, LlgRefusal
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.errors import UnsupportedError
from espalier.tokens.vocab import Vocab

CompileSchema: TypeAlias = "Callable[[Any], Compiled]"


def ours(
    compiler: Compiler | None = None,
    *,
    format: Literal["annotate", "assert"] = "annotate",  # noqa: A002
    order: str | None = None,
) -> CompileSchema:
    """As `JsonSchema(schema)` compiles; over bytes by default."""
    found = compiler or Compiler(Vocab.bytes())
    return lambda schema: found.compile(JsonSchema(schema, format=format, order=order))


def llguidance_alone(compiler: Compiler | None = None, *, escapes: str | None = None) -> CompileSchema:
    """The schema unchanged, without forced tokens, with the same whitespace and otherwise llguidance's defaults.
    escapes: the letters of the short escapes that it allows."""
    options = WHITESPACE["natural"] | ({} if escapes is None else {"json_allowed_escapes": escapes})
    backend = (compiler or Compiler(Vocab.bytes())).part(LlgBackend)

    def compile_schema(schema: Any) -> Compiled:
        body = schema | {"x-guidance": options} if isinstance(schema, dict) else schema
        try:
            return LlgCompiled(
                JsonSchema(schema), backend, '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(body)
            )
        except LlgRefusal as refusal:
            said = str(refusal).split("failed to compile JSON schema:", 1)[-1].split("\n   1 |", 1)[0]
            raise UnsupportedError(" ".join(said.split())) from refusal

    return compile_schema
