"""A body becomes what it asks for: requests to an engine, and what the reply must hold. It knows no route and runs
nothing; everything that can be wrong before rendering and compiling is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from espalier.api import check_capabilities, make_request, outputs_of
from espalier.chat.messages import check_messages
from espalier.chat.wire.formats import wire_format
from espalier.constraints.soft.spec import SoftSpec
from espalier.decoding.options import FIELDS
from espalier.engines.base import Request
from espalier.errors import CapabilityError, EspalierError, UnknownModel
from espalier.sampling.presets.catalogue import Presets
from espalier.server.asking.constraint import Constrained, read_constraint
from espalier.server.asking.decoding import check_decoding, read_decoding
from espalier.server.asking.draft import Asked, Draft
from espalier.server.asking.safety import join_safety
from espalier.server.asking.sampling import check_lists, read_sampling
from espalier.server.asking.token_ids import check_ids, text_of
from espalier.server.asking.truncate import in_buckets
from espalier.server.asking.words import word_lists
from espalier.server.bodies.openai import ChatBody, CompletionBody, EspalierOptions, SharedBody
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings
from espalier.tokens.vocab import Vocab
from espalier.trace.records import LEVELS, TraceLevel

COMPLETION_TOKENS = 16
"""`max_tokens` of `/v1/completions` where nothing is said, as OpenAI has it."""
SHOWN_CANDIDATES = 10
"""Of every stage of a step, where steps are shown or written down."""


def ask_chat(body: ChatBody, process: Process) -> Asked:
    """What a body of `/v1/chat/completions` asks for. Raises InputError and its kin naming the field."""
    settings = process.settings
    if len(body.messages) > settings.max_messages:
        raise BadRequest(
            f"there are {len(body.messages)} messages; {settings.max_messages} are taken", field="messages"
        )
    tools = body.tools or None
    if tools is not None and len(tools) > settings.max_tools:
        raise BadRequest(f"there are {len(tools)} tools; {settings.max_tools} are taken", field="tools")
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs wants logprobs", hint='"logprobs": true', field="top_logprobs")
    messages = tuple(one.model_dump(exclude_unset=True, exclude_none=True, by_alias=True) for one in body.messages)
    for message in messages:
        message.setdefault("content", None)
        for name in ("refusal", "annotations"):  # nothing for a template
            message.pop(name, None)
    check_messages(messages)
    body, variables = _for_template(body)
    draft = _draft(body, settings, process, messages=messages, request=variables, options={
        "tools": tools,
        "tool_choice": body.tool_choice,
        "parallel_tool_calls": body.parallel_tool_calls,
    })  # fmt: skip
    top = (body.top_logprobs or 0) if body.logprobs else None
    return _asked(body, draft, process, top=top)


def _for_template(body: ChatBody) -> tuple[ChatBody, dict[str, Any]]:
    """What a template may read besides, as fields of a Request. Its switch for thinking is the body's own field."""
    variables = dict(body.chat_template_kwargs or {})
    if "enable_thinking" in variables:
        wanted = variables.pop("enable_thinking")
        if not isinstance(wanted, bool) or body.enable_thinking not in (None, wanted):
            raise BadRequest("enable_thinking is true or false, said once", field="chat_template_kwargs")
        body = body.model_copy(update={"enable_thinking": wanted})
    return body, {"template_variables": variables} if variables else {}


def ask_completion(body: CompletionBody, process: Process) -> Asked:
    """What a body of `/v1/completions` asks for. Raises InputError and its kin naming the field."""
    if body.echo and body.logprobs is not None:
        raise UnsupportedParameter(
            "the tokens of the prompt have no log probabilities", hint="leave one of the two out", field="echo"
        )
    texts, ids = _prompts(body.prompt, process.engine.vocab)
    draft = _draft(body, process.settings, process, prompts=texts, ids=ids, options={"raw": True})
    if "max_tokens" not in draft.sampling:
        draft = replace(draft, defaults={**draft.defaults, "max_tokens": COMPLETION_TOKENS})
    return _asked(body, draft, process, top=body.logprobs, echo=bool(body.echo))


def _prompts(
    given: str | list[str] | list[int] | list[list[int]], vocab: Vocab
) -> tuple[tuple[str, ...], tuple[tuple[int, ...] | None, ...]]:
    """Texts, and the ids of those that were given as such."""
    if isinstance(given, str):
        return (given,), (None,)
    if not given:
        raise BadRequest("there is no prompt", field="prompt")
    if isinstance(given[0], int):
        ids = check_ids(given, vocab, "prompt")
        return (text_of(ids, vocab),), (ids,)
    several = [None if isinstance(one, str) else _ids(one, vocab, f"prompt[{i}]") for i, one in enumerate(given)]
    texts = (
        one if isinstance(one, str) else text_of(ids or (), vocab) for one, ids in zip(given, several, strict=True)
    )
    return tuple(texts), tuple(several)


def _ids(given: object, vocab: Vocab, field: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not given:
        raise BadRequest(f"{field}: there is no token", field=field)
    return check_ids(given, vocab, field)


def _draft(
    body: SharedBody, settings: ServerSettings, process: Process, *,
    options: dict[str, Any], **given: Any,
) -> Draft:  # fmt: skip
    """What the body says, with what the parts of the server make of it."""
    if body.stream_options is not None and not body.stream:
        raise BadRequest("stream_options wants stream", hint='"stream": true', field="stream_options")
    ours = body.espalier or EspalierOptions()
    if ours.stream_steps and not (body.stream and ours.trace):
        raise BadRequest(
            "stream_steps wants a stream and a trace", hint='"stream": true and "espalier": {"trace": "full"}',
            field="espalier.stream_steps",
        )  # fmt: skip
    named = ("preset", "reasoning", "max_reasoning", "max_calls", "tool_format", "schema_in_prompt")
    options |= {name: value for name in named if (value := getattr(ours, name)) is not None}
    constrained: Constrained = read_constraint(body, max_bytes=settings.max_schema_bytes)
    constraint, told = join_safety(constrained.spec, ours.safety, max_bytes=settings.max_schema_bytes)
    sampling, defaults = read_sampling(body)
    check_lists(body, process)
    draft = Draft(
        constraint=constraint,
        soft=_soft(ours),
        sampling=sampling,
        defaults=defaults,
        options=options,
        names={**NAMES, **constrained.names},
        warnings=(*constrained.warnings, *told),
        **given,
    )
    draft = word_lists(body, draft, process)
    decoded = read_decoding(body, n=body.n or body.n_cmpl or 1, usual=draft.usual_beams)
    names = {**NAMES, **draft.names, **decoded.names}
    return replace(draft, decoded=decoded, names=names)


NAMES = {name: f"espalier.{name}" for name in ("preset", "reasoning", "max_reasoning", "max_calls", "tool_format",
                                               "schema_in_prompt", "soft")}  # fmt: skip
NAMES["template_variables"] = "chat_template_kwargs"
NAMES |= {name: f"espalier.{name}" for name in FIELDS}


def _soft(ours: EspalierOptions) -> tuple[SoftSpec, ...]:
    given = ours.soft if isinstance(ours.soft, list) else [] if ours.soft is None else [ours.soft]
    found = []
    for one in given:
        try:
            found.append(SoftSpec.from_json(one))
        except EspalierError as error:
            error.field = "espalier.soft" + (f".{error.field}" if error.field else "")
            raise
    return tuple(found)


def _asked(body: SharedBody, draft: Draft, process: Process, *, top: int | None, echo: bool = False) -> Asked:
    settings, ours = process.settings, body.espalier
    if top is not None and top > settings.max_top_logprobs:
        raise BadRequest(f"top_logprobs: at most {settings.max_top_logprobs} are given", field="top_logprobs")
    model = model_name(body.model, process)
    level = _level(settings, ours, top)
    prompts: Sequence[Any] = draft.prompts if draft.messages is None else [draft.messages]
    fields = dict(draft.sampling)
    if "preset" not in draft.options:
        fields = {**draft.defaults, **fields}
    if draft.decoded.is_search:
        fields["n"] = 1  # one run gives all of them
    decoding = with_usual(draft.decoded.fields, process, sampler=None if ours is None else ours.sampler)
    shows_steps = ours is not None and ours.trace in ("steps", "full")
    _check_names(draft.options, process.presets)
    requests: list[Request] = []
    n = returned = 1
    for prompt, ids in zip(prompts, draft.ids or (None,), strict=True):
        try:
            one = make_request(
                prompt,
                constraint=draft.constraint,
                soft=draft.soft,
                presets=process.presets,
                trace=level,
                trace_top_k=max(top or 0, SHOWN_CANDIDATES if shows_steps else 1),
                **draft.options,
                **decoding,
                **fields,
            )
            one = replace(one, prompt_ids=ids, sampling=in_buckets(one.sampling, settings), **draft.request)
            if ours is not None and ours.sampler is not None:
                one = replace(one, sampler=ours.sampler)
                if one.sampler == "native" and not process.engine.capabilities.native_sampler:
                    raise CapabilityError(f"{process.engine.name} has no sampler of its own", field="espalier.sampler")
            check_decoding(one, draft.names, process)
            check_capabilities(process.engine.engine, one)
        except EspalierError as error:
            error.field = draft.names.get(error.field or "", error.field)
            raise
        n, returned = one.sampling.n, one.decoding.num_return_sequences
        if (outputs := n * returned * len(prompts)) > settings.max_outputs:
            raise BadRequest(
                f"{outputs} outputs are asked for; {settings.max_outputs} are given",
                field="prompt" if len(prompts) > 1 else draft.names["num_return_sequences"] if returned > 1 else "n",
            )
        requests += outputs_of(one)
    _check_tools(requests[0], settings)
    check_candidates(requests, process, "top_logprobs" if top else "espalier.trace")
    return Asked(
        requests=tuple(requests),
        model=model,
        n=n,
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        top_logprobs=top,
        ends=frozenset(process.engine.vocab.eos_ids) | frozenset(requests[0].sampling.stop_ids),
        echo=tuple(text for text in draft.prompts for _ in range(n)) if echo else ("",) * len(requests),
        token_ids=bool(body.return_token_ids),
        keep_trace=settings.store_traces == "always"
        or (settings.store_traces == "asked" and ours is not None and bool(ours.trace)),
        report=ours is not None,
        shown_trace="none" if ours is None or not ours.trace else "steps" if shows_steps else "summary",
        stream_steps=ours is not None and bool(ours.stream_steps),
        constraint=requests[0].constraint,
        names=draft.names,
        warnings=draft.warnings,
        returned=returned,
    )


def with_usual(fields: Mapping[str, Any], process: Process, *, sampler: str | None) -> dict[str, Any]:
    """How to decode, with the server's own strategy where none is named."""
    usual = process.default_strategy
    if usual is None or "strategy" in fields or sampler == "native":
        return dict(fields)
    return {**fields, "strategy": usual}


def _check_names(options: Mapping[str, Any], presets: Presets) -> None:
    """Names that are looked up in a registry, whose errors name none of ours. Raises UnknownName, InputError."""
    look_ups: dict[str, Callable[[str], object]] = {"preset": presets.get, "tool_format": wire_format}
    for name, look_up in look_ups.items():
        try:
            if name in options:
                look_up(options[name])
        except EspalierError as error:
            error.field = f"espalier.{name}"
            raise


def check_candidates(requests: Sequence[Request], process: Process, field: str) -> None:
    """Raises BadRequest, naming the field that asks for them, where more candidates could be kept than the server has
    room for."""
    context = process.engine.capabilities.max_context
    found = 0
    for one in requests:
        if one.trace == "steps":
            tokens = one.sampling.max_tokens if context is None else min(one.sampling.max_tokens, context)
            found += tokens * max(1, one.trace_top_k) * one.decoding.num_return_sequences
    limit = process.settings.max_candidates
    if found > limit:
        raise BadRequest(
            f"{field}: outputs x tokens x candidates are up to {found}; {limit} are kept",
            hint="a smaller max_tokens, n or top_logprobs", field=field,
        )  # fmt: skip


def _check_tools(request: Request, settings: ServerSettings) -> None:
    size = sum(len(tool.parameters) for tool in request.tools)
    if size > settings.max_schema_bytes:
        raise BadRequest(
            f"the schemas of the tools have {size} characters; {settings.max_schema_bytes} are taken", field="tools"
        )


def model_name(asked: str | None, process: Process) -> str:
    """What the reply calls the model. Raises UnknownModel."""
    if not asked:
        return process.names[0]
    if process.settings.seed_compat:  # the word-list server had one model, whatever it was called
        return asked
    if asked not in process.names:
        raise UnknownModel(
            f"there is no model {asked[:100]!r} here", hint=f"there is {', '.join(process.names)}", field="model"
        )
    return asked


def _level(settings: ServerSettings, ours: EspalierOptions | None, top: int | None) -> TraceLevel:
    """The most that anyone wants of the steps: the server, the client, the log probabilities. Whole distributions are
    not kept here: they are in no reply, and the memory they take is the number of tokens times the vocabulary."""
    wanted: list[TraceLevel] = [server_level(settings)]
    if top is not None:  # that of the token itself is measured; the others are candidates
        wanted.append("steps" if top else "summary")
    if ours is not None and ours.trace:
        wanted.append("steps" if ours.trace in ("steps", "full") else "summary")
    if ours is not None and ours.safety is not None:  # what it refuses is counted
        wanted.append("summary")
    return max(wanted, key=LEVELS.index)


def server_level(settings: ServerSettings) -> TraceLevel:
    """Of requests that do not ask."""
    return "steps" if settings.trace_level == "full" else settings.trace_level
