"""Makes the row of a generation log from a request and its result. Prompts, texts and what judges quote of them are in
it only if content is kept. It stores nothing: `store/writer.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import contract_of
from espalier.constraints.spec import JsonSchema
from espalier.constraints.tools.schemas import closed_entries
from espalier.engines.base import Request, Result
from espalier.errors import EspalierError
from espalier.harness.run import rejection_rate
from espalier.sampling.config import SamplingConfig
from espalier.schema.contract import Contract
from espalier.time_limit import time_limit

CONTRACT_SECONDS = 0.5
"""CPU time for saying a contract, which no answer waits for; 100 objects take 0.04 s."""
DEFAULTS = SamplingConfig().to_json()


def log_row(
    request: Request,
    result: Result | None,
    *,
    model: str,
    caller: str,
    with_content: bool,
    compiler: Compiler | None,
    **columns: Any,
) -> dict[str, Any]:
    """A row with the fields of `store.generations.FIELDS`. result: None if the run failed. caller: the name of the API
    key. compiler: the engine's, None where it has none. columns: what request and result do not tell, such as
    `engine`, `route`, `request_id`, `total` (seconds), `error`."""
    asked = _describe_request(request, result) | contract_fields(request, compiler)
    content = _content(request, result) if with_content else None
    words = [*_texts(asked.get("constraint")), *asked.get("tools", ())]
    if content is not None:
        words = [*_texts(content, names=False), *words]
    return {
        "request_id": request.request_id,
        "caller": caller,
        "model": model,
        "strategy": request.strategy,
        "constraint_kind": kind_of(request),
        **({} if result is None else _figures(result)),
        "request": asked,
        "content": content,
        "words": words,
        **columns,
    }


def kind_of(request: Request) -> str | None:
    """The kind of the constraint, None without one."""
    if request.constraint is None:
        return "tool_calls" if request.tools else None
    return request.constraint.kind


def contract_fields(request: Request, compiler: Compiler | None) -> dict[str, Any]:
    """`contract`: how each keyword of the request's schema is enforced, and which tools are closed; or
    `contract_error`, where that takes too long or cannot be said. Nothing without a schema."""
    spec = request.constraint
    closed = Contract(tuple(closed_entries(request.tools))).to_json()
    if not isinstance(spec, JsonSchema):
        return {"contract": closed} if closed else {}
    try:
        with time_limit(CONTRACT_SECONDS):
            return {"contract": [*contract_of(spec, compiler, request=request).to_json(), *closed]}
    except EspalierError as error:
        return {"contract_error": error.message}


def _figures(result: Result) -> dict[str, Any]:
    sums = None if result.trace is None else result.trace.summary()
    return {
        "prompt_tokens": result.usage.prompt_tokens,
        "completion_tokens": sum(output.usage.completion_tokens for output in (result, *result.others)),
        "tax_nats": None if sums is None else sums["total_tax_nats"],
        "removed_mass": None if sums is None else sums["mean_removed_mass"],
        "rejection_rate": rejection_rate(result),
        "finish_reason": result.finish_reason,
        "valid": None if result.verdict is None else result.verdict.valid,
    }


def _describe_request(request: Request, result: Result | None) -> dict[str, Any]:
    """What was asked, without prompt and messages; fields of the sampling that differ from their defaults."""
    sampling = {name: value for name, value in request.sampling.to_json().items() if value != DEFAULTS[name]}
    described: dict[str, Any] = {
        "sampling": sampling,
        "decoding": request.decoding.to_json(),
        "constraint": None if request.constraint is None else request.constraint.to_json(),
    }
    if request.soft:
        described["soft"] = [constraint.to_json() for constraint in request.soft]
    if request.filters:
        described["filters"] = [member.name for member in request.filters]
    if request.tools:
        described |= {"tools": [tool.name for tool in request.tools], "tool_choice": request.tool_choice.to_json()}
    if request.notes:
        described["notes"] = list(request.notes)
    if result is not None:
        described["seed"] = result.seed
        if result.verdict is not None:
            described["verdict"] = {"valid": result.verdict.valid, "judge": result.verdict.judge}
            if result.verdict.breaks is not None:
                described["verdict"]["breaks"] = result.verdict.breaks
    return described


def _content(request: Request, result: Result | None) -> dict[str, Any]:
    messages = request.messages
    content: dict[str, Any] = (
        {"prompt": request.prompt} if messages is None else {"messages": [dict(message) for message in messages]}
    )
    if result is not None:
        content["text"] = result.text
        if result.others:
            content["others"] = [other.text for other in result.others]
        if result.verdict is not None and result.verdict.errors:
            content["errors"] = list(result.verdict.errors)  # they quote the text
    return content


def _texts(value: Any, *, names: bool = True) -> Iterator[str]:
    """The texts of a JSON value, with the names of its members or without; a message's role is none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if names:
                yield str(name)
            if name != "role":
                yield from _texts(item, names=names)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, names=names)
