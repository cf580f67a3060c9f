"""From a `RequestDraft` to `ParsedRequest`: the engine's requests, checked, with what the reply needs. Every dialect
ends here.

Everything that can be wrong before rendering and compiling is found here. It knows no body and no route.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from espalier.api import check_capabilities, make_request, outputs_of
from espalier.chat.tools import hosted_types
from espalier.chat.wire.formats import wire_format
from espalier.constraints.json_schema.typos import refuse_unknown
from espalier.engines.base import Request
from espalier.engines.request_options import REASONING, SCHEMA_ORDER
from espalier.errors import CapabilityError, UnknownModel
from espalier.schema.order import Order
from espalier.server.asking.draft import ParsedRequest, ReplyOptions, RequestDraft
from espalier.server.asking.naming import field_names
from espalier.server.asking.sampling import in_buckets
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings
from espalier.trace.records import LEVELS, TraceLevel

SHOWN_CANDIDATES = 10
"""Candidates of each stage of a step, where steps are shown or written down."""
DRAFTS = "draft"
"""The strategy that has sources of drafts."""
REPLY = tuple(field.name for field in fields(ReplyOptions))
AskedType = TypeVar("AskedType", bound=ParsedRequest)


def assemble(draft: RequestDraft, process: Process, make: Callable[..., AskedType]) -> AskedType:
    """The engine's requests of a draft, checked. make: `ParsedRequest`, or a subclass of it. Raises InputError and its
    kin, each naming the field of the body."""
    settings, top = process.settings, draft.top_logprobs
    top_field = draft.names.get("top_logprobs", "top_logprobs")
    if top is not None and draft.has_most_top and top > settings.max_top_logprobs:
        raise BadRequest(f"{top_field}: at most {settings.max_top_logprobs}", field=top_field)
    can = process.engine.capabilities
    if top is not None and not (can.logits or can.logprobs):
        field = draft.names.get("top_logprobs", "logprobs")
        raise CapabilityError(f"{process.engine.name} tells no log probabilities", field=field)
    if draft.processed_logprobs and not can.logits:
        raise CapabilityError(
            f"{process.engine.name} tells no log probabilities after the constraint",
            hint="leave out logprobs_mode, for those of the model itself",
            field="logprobs_mode",
        )
    model, unknown_name = model_name(draft.model, process)
    requests = _requests(draft, process)
    request = requests[0]
    _check_tools(request, settings)
    asks = "prompt_logprobs" if draft.prompt_logprobs else top_field if top else "espalier.trace"
    _check_candidates(requests, process, asks)
    echoed = (text if draft.echo and isinstance(text, str) else "" for text in draft.prompts)
    return make(
        requests=requests,
        model=model,
        n=request.sampling.n,
        returned=request.decoding.num_return_sequences,
        ends=process.eos_ids | frozenset(request.sampling.stop_ids),
        echo=tuple(text for text in echoed for _ in range(request.sampling.n)),
        keep_trace=keeps_all(settings) or (settings.trace_level != "off" and draft.shown_trace != "none"),
        constraint=request.constraint,
        states=draft.states,
        names=draft.names,
        warnings=tuple(
            dict.fromkeys(
                (*draft.told.warnings, *unknown_name, *draft.warnings, *_no_ids(draft, process), *request.notes)
            )
        ),
        hints=tuple(dict.fromkeys(draft.told.hints)),
        **{name: getattr(draft, name) for name in REPLY},
    )


def _no_ids(draft: RequestDraft, process: Process) -> tuple[str, ...]:
    if not draft.token_ids or process.engine.capabilities.token_ids:
        return ()
    return (f"token_ids stay empty: {process.engine.name} tells no ids of its tokens",)


def _requests(draft: RequestDraft, process: Process) -> tuple[Request, ...]:
    """Every run of every prompt."""
    _check_registered(draft.options, process)
    options = _request_options(draft, process)
    requests: list[Request] = []
    for prompt, ids in zip(draft.prompts, draft.ids, strict=True):
        with field_names(draft.names):
            request = make_request(prompt, **options)
            if draft.strict:
                refuse_unknown(request.constraint, request.tools, "the request is strict")
                for kind in hosted_types(draft.options.get("tools")):
                    raise UnsupportedParameter(
                        f"tools of type {kind!r} cannot be called here, and the request is strict", field="tools"
                    )
            request = replace(
                request,
                prompt_ids=ids,
                sampling=in_buckets(request.sampling, process.settings),
                logprobs=draft.top_logprobs is not None,
                live=_reads_steps(draft),
                whole=process.reports_items,
                **draft.request,
            )
            request = _within_room(request, draft, process)
            check_capabilities(process.engine.engine, request)
            _check_activations(request, process)
        _check_outputs(request, draft, process.settings)
        requests += outputs_of(request)
    return tuple(requests)


def _reads_steps(draft: RequestDraft) -> bool:
    """Whether the event loop reads the records of steps one by one, where each should be made already."""
    return draft.stream and (draft.top_logprobs is not None or draft.stream_steps)


def _request_options(draft: RequestDraft, process: Process) -> dict[str, Any]:
    """The arguments of `make_request` beside the prompt."""
    sampling = dict(draft.sampling)
    if "preset" not in draft.options:
        sampling = {**draft.defaults, **sampling}
    if draft.decoded.is_search:
        sampling["n"] = 1  # one run gives all outputs
    decoding = dict(draft.decoded.fields)
    if process.default_strategy is not None and draft.options.get("sampler") != "native":
        decoding.setdefault("strategy", process.default_strategy)
    if decoding.get("strategy") == DRAFTS and process.settings.drafts:
        decoding.setdefault("drafts", process.settings.drafts)
    return {
        "constraint": draft.constraint,
        "soft": draft.soft,
        "presets": process.presets,
        "default_order": process.app.settings.default_of(SCHEMA_ORDER) or _default_order(draft, process),
        "default_reasoning": process.app.settings.default_of(REASONING),
        "trace": _level(draft, process),
        "trace_top_k": max(draft.top_logprobs or 0, SHOWN_CANDIDATES if _shows_candidates(draft, process) else 1),
        **draft.options,
        **decoding,
        **sampling,
    }


def _default_order(draft: RequestDraft, process: Process) -> Order | None:
    """An engine that is sent a grammar keeps the order of the schema: every order would have to be written out."""
    return None if process.engine.engine.compiler is None else draft.default_order


def _level(draft: RequestDraft, process: Process) -> TraceLevel:
    """The highest level that anyone reads: the server, the body, the log probabilities. Never `full`: no reply has
    whole distributions, and they would take tokens times vocab width of memory."""
    usual: TraceLevel = "steps" if process.settings.trace_level in ("steps", "full") else "summary"
    if usual == "summary" and not _reads_summary(draft, process):
        usual = "off"
    needed: list[TraceLevel] = [usual, draft.trace]
    if draft.top_logprobs is not None:  # the token's own is in the summary; the others are candidates
        needed.append("steps" if draft.top_logprobs or draft.processed_logprobs else "summary")
    return max(needed, key=LEVELS.index)


def _reads_summary(draft: RequestDraft, process: Process) -> bool:
    """Whether anyone reads the sums of a text whose request did not ask for them: metrics, where something holds the
    text to a form; the store of traces, the log of generations, and the report of a batch."""
    is_held = draft.constraint is not None or bool(draft.options.get("tools"))
    is_kept = keeps_all(process.settings) or process.log is not None
    return is_held or is_kept or process.reports_items


def keeps_all(settings: ServerSettings) -> bool:
    """Whether the trace of every answer is kept, and not only those that requests ask for."""
    return settings.trace_level in ("summary", "steps", "full")


def _shows_candidates(draft: RequestDraft, process: Process) -> bool:
    """Whether the candidates of each step are shown, or stored."""
    return draft.shown_trace == "steps" or process.settings.trace_level == "full"


def _within_room(request: Request, draft: RequestDraft, process: Process) -> Request:
    """The request with its sums alone where only the server wants its steps, and MAX_CANDIDATES has no room for them:
    what nobody asked for refuses no request."""
    if request.trace != "steps" or draft.trace == "steps" or draft.top_logprobs or draft.processed_logprobs:
        return request
    room = process.settings.max_candidates // max(1, len(draft.prompts) * request.sampling.n)
    steps = _count_steps(request, process)
    if steps * max(1, request.trace_top_k) <= room:
        return request
    return replace(request, trace_top_k=1) if steps <= room else replace(request, trace="summary")


def _count_steps(request: Request, process: Process) -> int:
    """The most steps that the trace of a request can have."""
    context = process.engine.capabilities.max_context
    tokens = min(request.sampling.max_tokens, context or request.sampling.max_tokens)
    return tokens * request.decoding.num_return_sequences


def _check_registered(options: Mapping[str, Any], process: Process) -> None:
    """Look up the names of presets and tool formats early, for an error of theirs may name a field of a file. Raises
    UnknownName, InputError."""
    look_ups: dict[str, Callable[[str], object]] = {"preset": process.presets.get, "tool_format": wire_format}
    for name, look_up in look_ups.items():
        if name in options:
            with field_names(otherwise=f"espalier.{name}"):
                look_up(options[name])


def _check_activations(request: Request, process: Process) -> None:
    if request.activations is not None and process.activations is None:
        raise CapabilityError(
            "this server stores no hidden states", hint="ACTIVATIONS_STORE names the folder", field="activations"
        )


def _check_outputs(request: Request, draft: RequestDraft, settings: ServerSettings) -> None:
    prompts, returned = len(draft.prompts), request.decoding.num_return_sequences
    outputs = request.sampling.n * returned * prompts
    if outputs > settings.max_outputs:
        own = "num_return_sequences" if returned > 1 else "n"
        raise BadRequest(
            f"{outputs} outputs are asked for; the limit is {settings.max_outputs}",
            field="prompt" if prompts > 1 else draft.names.get(own, own),
        )


def _most_prompt_tokens(request: Request) -> int:
    """A bound on the tokens of a prompt: those of its ids, else its bytes, of a conversation with what a chat template
    may put around each message."""
    if request.prompt_ids is not None:
        return len(request.prompt_ids)
    if request.messages is not None:
        return len(json.dumps([dict(message) for message in request.messages], ensure_ascii=False).encode())
    return len((request.prompt or "").encode())


def _check_candidates(requests: Sequence[Request], process: Process, field: str) -> None:
    """Raises BadRequest, naming `field`, which asks for candidates, if the traces could hold over max_candidates, or
    over all tokens once."""
    context = process.engine.capabilities.max_context
    total = 0
    for request in requests:
        if request.prompt_top:
            size = _most_prompt_tokens(request)
            total += min(size, context or size) * request.prompt_top
        if request.trace == "steps":
            total += _count_steps(request, process) * max(1, request.trace_top_k)
    vocab = process.engine.engine.vocab
    limit = max(process.settings.max_candidates, 0 if vocab is None else vocab.width)
    if total > limit:
        raise BadRequest(
            f"{field}: outputs x tokens x candidates are up to {total}; the limit is {limit}",
            hint="a smaller max_tokens, n or top_logprobs",
            field=field,
        )


def _check_tools(request: Request, settings: ServerSettings) -> None:
    size = sum(len(tool.parameters) for tool in request.tools)
    if size > settings.max_schema_bytes:
        raise BadRequest(
            f"the schemas of the tools have {size} characters; the limit is {settings.max_schema_bytes}", field="tools"
        )


def model_name(asked: str | None, process: Process) -> tuple[str, tuple[str, ...]]:
    """The model's name in the reply, and a warning where another one was asked for. Raises UnknownModel if the server
    is strict about names."""
    if not asked:
        return process.names[0], ()
    if process.settings.wordlist_server_compat:  # the word-list server took any name for its one model
        return asked, ()
    if asked in process.names:
        return asked, ()
    error = unknown_model(asked, process)
    if process.settings.strict_model:
        raise error
    return process.names[0], (f"{error.message}: {process.names[0]} answers",)


def unknown_model(asked: str, process: Process) -> UnknownModel:
    """The error for a model that this server does not have."""
    return UnknownModel(
        f"there is no model {asked[:100]!r} here", hint=f"there is {', '.join(process.names)}", field="model"
    )
