"""A constraint as a llama-server gets it: as our grammar, or as a schema for its own converter; and how its text is
held to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf, JsonSchema, Spec
from espalier.constraints.to_gbnf import portable
from espalier.engines.base import Event, FinishEvent
from espalier.engines.local.turns import PreparedTurn
from espalier.errors import EspalierError, UpstreamError
from espalier.upstream.llama_server.native_schema import OWN_LAYOUT, check_native
from espalier.upstream.llama_server.proof import OWN_SCHEMA, Proofs
from espalier.upstream.safety import SentConstraint

SCHEMA_AS = "gbnf"
"""What a schema is sent as, if nobody says: our grammar."""
LLGUIDANCE = "%llguidance"
"""How the grammar of a llama-server begins that is built with LLGuidance: it reads schemas by itself."""
OURS = "schema_as=gbnf sends our grammar"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """fields: of the body. grammar: what the server's replies must name. is_native: whether it is the server's own.
    follows: what the text is held to while it comes; None without a constraint, and under a grammar of the server's
    that is not GBNF. follows_from: what the prompt holds of it. may_break: whether a text that breaks the constraint is
    a result, since the request allows that.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    grammar: str | None = None
    is_native: bool = False
    follows: Spec | None = None
    follows_from: str = ""
    notes: tuple[str, ...] = ()
    may_break: bool = False


def asked_of(turn: PreparedTurn, sent: SentConstraint, compiler: Compiler, native: Proofs | None) -> ServerRequest:
    """The constraint of a turn. sent: what of it is sent. native: what the server shows, where schemas are left to its
    own converter. Raises what `portable`, `check_native` and `Proofs.schema` raise."""
    spec = sent.spec
    if sent.grammar is not None:
        if spec is not None:
            compiler.compile(spec)
        return ServerRequest(
            fields={"grammar": sent.grammar}, grammar=sent.grammar, follows=sent.follows, notes=sent.notes
        )
    if spec is None:
        return ServerRequest(notes=sent.notes)
    if native is not None and isinstance(spec, JsonSchema):
        sent_natively = _native(spec, compiler, native)
        return replace(sent_natively, notes=(*sent_natively.notes, *sent.notes))
    compiler.compile(spec)  # what is wrong with it is told as our own engines tell it
    grammar = portable(spec, compiler, before=turn.before)
    notes = (
        () if native is None else (f"{spec.kind} was sent as our grammar: the server has no form of its own for it",)
    )
    return ServerRequest(
        fields={"grammar": grammar},
        grammar=grammar,
        follows=spec,
        follows_from=turn.before,
        notes=(*notes, *sent.notes),
    )


def _native(spec: JsonSchema, compiler: Compiler, proofs: Proofs) -> ServerRequest:
    left = [entry.pointer for entry in check_native(spec).by_verdict("checked")]
    schema = spec.explicit().schema
    grammar = proofs.schema(schema)
    is_ours = grammar.startswith(OWN_SCHEMA)
    follows = None if is_ours or grammar.startswith(LLGUIDANCE) else _parse_grammar(grammar, compiler)
    notes: tuple[str, ...] = (f"json_schema is held by the server's own grammar: {OWN_LAYOUT}",)
    if follows is None:
        holder = "as espalier does" if is_ours else "with LLGuidance"
        notes += (f"the server holds schemas {holder}: the text is judged when it is complete",)
    if left:
        notes += (f"the server may not hold {', '.join(left)}: the verdict says whether the text does",)
    return ServerRequest(
        fields={"json_schema": schema},
        grammar=grammar,
        is_native=True,
        follows=follows,
        notes=notes,
        may_break=bool(left),
    )


def _parse_grammar(grammar: str, compiler: Compiler) -> Gbnf:
    try:
        gbnf = Gbnf(grammar)
        compiler.compile(gbnf)
    except EspalierError as error:
        raise UpstreamError(
            f"the grammar that the server makes of the schema cannot be followed: {error.message}", hint=OURS
        ) from error
    return gbnf


def sound(last: Event, server_request: ServerRequest, name: str) -> Event:
    """The end of a text of the server `name`. Raises UpstreamError where it breaks a schema that the server holds by a
    grammar of its own."""
    verdict = last.result.verdict if isinstance(last, FinishEvent) and server_request.is_native else None
    if verdict is None or verdict.valid is not False or verdict.breaks == "cut" or server_request.may_break:
        return last
    raise UpstreamError(
        f"{name} did not keep to the schema: {'; '.join(verdict.errors[:2])}",
        hint=f"its own json_schema reads it in another way; {OURS}",
    )
