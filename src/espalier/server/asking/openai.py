"""Reads bodies of OpenAI's routes, `/v1/chat/completions` and `/v1/completions`, into a `RequestDraft`. It runs
nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from espalier.chat.messages import check_messages
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.decoding.options import OPTIONS as DECODING
from espalier.engines.base import TurnStart
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.engines.request_options import given_options
from espalier.errors import CapabilityError, NotHere, PromptTooLong
from espalier.server.asking.assemble import AskedType, assemble
from espalier.server.asking.constraint import join_safety, read_constraint
from espalier.server.asking.custom_tools import as_function_choice, as_functions
from espalier.server.asking.decoding import read_decoding
from espalier.server.asking.draft import ParsedRequest, RequestDraft
from espalier.server.asking.fim import fim_prompt, plain_ids
from espalier.server.asking.naming import field_names
from espalier.server.asking.sampling import check_lists, read_extra, read_sampling, reads_only
from espalier.server.asking.thinking import IN_CONTENT, can_reason, read_reasoning_place, read_thinking
from espalier.server.asking.token_ids import check_ids, known_vocab, text_of
from espalier.server.asking.words import word_lists
from espalier.server.bodies.base import FieldWarnings
from espalier.server.bodies.openai import ChatBody, CompletionBody, EspalierOptions, SharedBody
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.hidden_states import HiddenStates
from espalier.server.process.state import Process
from espalier.tokens.vocab import Vocab

COMPLETION_TOKENS = 16
"""OpenAI's default of `max_tokens` for `/v1/completions`."""
NAMES = (
    {name: f"espalier.{name}" for name in (*REQUEST, "soft", *DECODING)}
    | {"template_variables": "chat_template_kwargs", "prompt_top": "logprobs", "safety": "espalier.safety"}
    | {name: f"espalier.activations.{name}" for name in ("layers", "sites", "positions", "dtype", "run_id")}
)
"""From the field that an error names to the field of the body."""


def ask_chat(body: ChatBody, process: Process, *, make: Callable[..., AskedType] = ParsedRequest) -> AskedType:  # type: ignore[assignment]  # a default of a type variable
    """Read a body of `/v1/chat/completions`. make: as in `assemble`. Raises InputError and its kin, each naming the
    field."""
    settings = process.settings
    if len(body.messages) > settings.max_messages:
        raise BadRequest(
            f"there are {len(body.messages)} messages; the limit is {settings.max_messages}", field="messages"
        )
    tools, choice, warnings = _tools(body)
    custom: frozenset[str] = frozenset()
    if tools is not None:
        (tools, custom), choice = as_functions(tools), as_function_choice(choice)
    formats = (None if body.espalier is None else body.espalier.formats) or settings.schema_formats
    if tools is not None and formats != "assert":
        tools = [_annotate_formats(tool) for tool in tools]
    if tools is not None and len(tools) > settings.max_tools:
        raise BadRequest(f"there are {len(tools)} tools; the limit is {settings.max_tools}", field="tools")
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs needs logprobs", hint='"logprobs": true', field="top_logprobs")
    messages = tuple(
        message.model_dump(exclude_unset=True, exclude_none=True, by_alias=True) for message in body.messages
    )
    for message in messages:
        message.setdefault("content", None)
    check_messages(messages)
    field_warnings = body.told
    thinking = read_thinking(body, process)
    parallel = None if tools is None else False if body.functions else body.parallel_tool_calls
    draft = _draft(
        body,
        process,
        prompts=(messages,),
        ids=(None,),
        options={"tools": tools, "tool_choice": choice, "parallel_tool_calls": parallel} | thinking.options,
        request=thinking.request | {"turn": _turn(body, messages)} | _measure_prompt(body, process),
        prompt_logprobs=body.prompt_logprobs is not None,
        top_logprobs=_top(body),
        has_functions=bool(body.functions),
        reasoning_place=read_reasoning_place(body),
        custom_tools=custom,
    )
    names = {**draft.names, **thinking.names, "prompt": "messages"}  # a prompt that is too long is one of messages
    warnings = (*warnings, *thinking.warnings)
    if (
        draft.constraint is not None
        and draft.reasoning_place in ("content", "both")
        and can_reason(process.engine.engine)
    ):
        warnings = (*warnings, IN_CONTENT)
    more = (*thinking.hints, *_idle(body))
    draft = replace(draft, told=field_warnings + FieldWarnings(hints=more, warnings=warnings), names=names)
    return assemble(draft, process, make)


def _turn(body: ChatBody, messages: tuple[dict[str, Any], ...]) -> TurnStart:
    """How the model's turn begins: a last message of the assistant's is continued, as in llama-server, unless the body
    says otherwise in vLLM's fields. Raises BadRequest for fields that contradict each other."""
    last = messages[-1]
    can_continue = last["role"] == "assistant" and not last.get("tool_calls")
    wanted, begins = body.continue_final_message, body.add_generation_prompt
    if wanted and begins:
        raise BadRequest(
            "continue_final_message contradicts add_generation_prompt",
            hint="leave one of them out",
            field="continue_final_message",
        )
    if wanted and not can_continue:
        raise BadRequest(
            "only a last message of the assistant's, without calls, can be continued", field="continue_final_message"
        )
    if can_continue and len(messages) > 1 and last["content"] and (wanted or (wanted is None and not begins)):
        return "continue"
    return "none" if begins is False else "new"


def _measure_prompt(body: ChatBody | CompletionBody, process: Process) -> dict[str, Any]:
    """Raises BadRequest for a stream, in which vLLM does not give them either, and for too many candidates."""
    if body.prompt_logprobs is None:
        return {}
    if body.stream:
        raise BadRequest("a stream has no prompt_logprobs", hint='"stream": false', field="prompt_logprobs")
    if body.prompt_logprobs > (most := process.settings.max_top_logprobs):
        raise BadRequest(f"prompt_logprobs: at most {most}", field="prompt_logprobs")
    return {"prompt_top": body.prompt_logprobs}


def _tools(body: ChatBody) -> tuple[list[dict[str, Any]] | None, Any, tuple[str, ...]]:
    """The tools, what may be called of them, and warnings. `functions` and `function_call` are their old names. Raises
    BadRequest for both at once."""
    if body.functions and body.tools:
        raise BadRequest("functions are an old name of tools", hint="leave one of the two out", field="functions")
    if body.functions:
        choice = body.function_call
        named = {"type": "function", "function": choice} if isinstance(choice, dict) else choice
        tools = [{"type": "function", "function": function} for function in body.functions]
        return tools, named, ("functions is an old field: write tools",)
    if body.tools:
        return body.tools, body.tool_choice, ()
    if body.tool_choice in (None, "none", "auto"):
        return None, None, ()
    return None, None, ("tool_choice has no effect without tools",)


def _annotate_formats(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool, in whose schema `format` is a remark."""
    inner = tool.get("function")
    mine = {"formats": "annotate"}
    return {**tool, "function": {**mine, **inner}} if isinstance(inner, dict) else {**mine, **tool}


def _top(body: ChatBody) -> int | None:
    """How many candidates beside each token; None without log probabilities. Raises BadRequest."""
    if not body.logprobs:
        return None
    if body.logprobs is True:
        return body.top_logprobs or 0
    if body.top_logprobs not in (None, body.logprobs):
        raise BadRequest("logprobs and top_logprobs are two different numbers", field="top_logprobs")
    return body.logprobs


def ask_completion(
    body: CompletionBody,
    process: Process,
    *,
    make: Callable[..., AskedType] = ParsedRequest,  # type: ignore[assignment]  # a default of a type variable
    default_tokens: int = COMPLETION_TOKENS,
) -> AskedType:
    """Read a body of `/v1/completions`. make: as in `assemble`. default_tokens: the most tokens where the body does not
    say. Raises InputError and its kin, each naming the field."""
    measures = bool(body.echo) and body.logprobs is not None
    if measures and body.prompt_logprobs is not None:
        raise BadRequest(
            "echo with logprobs tells those of the prompt too", hint="leave one of them out", field="prompt_logprobs"
        )
    texts, ids = _prompts(body.prompt, process)
    if body.suffix:
        if measures:
            raise UnsupportedParameter(
                "echo with logprobs does not go with suffix", hint="leave one of them out", field="suffix"
            )
        ids = _before(body.suffix, texts, ids, process)
    draft = _draft(
        body,
        process,
        prompts=texts,
        ids=ids,
        options={"raw": True},
        top_logprobs=body.logprobs,
        echo=bool(body.echo),
        request={"prompt_top": body.logprobs} if measures else _measure_prompt(body, process),
        prompt_logprobs=body.prompt_logprobs is not None,
    )
    draft = replace(draft, told=body.told + FieldWarnings(hints=_idle(body)))
    if "max_tokens" not in draft.sampling:
        draft = replace(draft, defaults={**draft.defaults, "max_tokens": default_tokens})
    return assemble(draft, process, make)


def _idle(body: ChatBody | CompletionBody) -> tuple[str, ...]:
    """Fields that have no effect without another one."""
    needs = {
        "stream_options": bool(body.stream),
        "logprobs_mode": body.logprobs not in (None, False),
        "enable_thinking": isinstance(body, ChatBody),  # the chat template opens the reasoning
    }
    return tuple(name for name, is_met in needs.items() if getattr(body, name) is not None and not is_met)


def _before(
    suffix: str, texts: Sequence[str], ids: Sequence[tuple[int, ...] | None], process: Process
) -> tuple[tuple[int, ...], ...]:
    """The prompts, each before a gap and the suffix. Raises UnsupportedParameter for a model that fills no gaps."""
    engine = process.engine.engine
    vocab = known_vocab(engine, "suffix")
    try:
        return tuple(
            tuple(
                fim_prompt(
                    engine,
                    vocab,
                    process.settings,
                    prefix=given or plain_ids(engine, text),
                    suffix=suffix,
                    field="prompt",
                )
            )
            for text, given in zip(texts, ids, strict=True)
        )
    except NotHere as error:
        raise UnsupportedParameter(f"suffix: {error.message}", field="suffix") from error


def _prompts(
    given: str | list[str] | list[int] | list[list[int]], process: Process
) -> tuple[tuple[str, ...], tuple[tuple[int, ...] | None, ...]]:
    """The prompts as texts, and the token ids of those that were given as ids."""
    if isinstance(given, str):
        return (given,), (None,)
    if not given:
        raise BadRequest("there is no prompt", field="prompt")
    if all(isinstance(prompt, str) for prompt in given):
        return tuple(str(prompt) for prompt in given), (None,) * len(given)
    vocab = known_vocab(process.engine.engine, "prompt")
    if isinstance(given[0], int):
        _check_length(given, process)
        ids = check_ids(given, vocab, "prompt")
        return (text_of(ids, vocab),), (ids,)
    several = [
        None if isinstance(prompt, str) else _ids(prompt, vocab, f"prompt[{i}]") for i, prompt in enumerate(given)
    ]
    texts = (
        prompt if isinstance(prompt, str) else text_of(ids or (), vocab)
        for prompt, ids in zip(given, several, strict=True)
    )
    return tuple(texts), tuple(several)


def _check_length(ids: Sequence[object], process: Process) -> None:
    """Raises PromptTooLong before ids that cannot fit are turned into text, which takes a second for a full body."""
    most = process.engine.engine.capabilities.max_context
    if most and len(ids) > most and process.settings.max_input_tokens is None:
        raise PromptTooLong.over(most, tokens=len(ids))


def _ids(given: object, vocab: Vocab, field: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not given:
        raise BadRequest(f"{field}: there is no token", field=field)
    return check_ids(given, vocab, field)


def _draft(body: SharedBody, process: Process, *, options: dict[str, Any], **given: Any) -> RequestDraft:
    """Read the fields that both routes share. given: fields of the RequestDraft that differ."""
    body = body.model_copy(update=process.overwrites.sampling())
    ours = body.espalier or EspalierOptions()
    states = _states(body, process)
    _check_stream(body, ours)
    limit = process.settings.max_schema_bytes
    constrained = read_constraint(body, max_bytes=limit, formats=process.settings.schema_formats)
    constraint = join_safety(constrained.spec, ours.safety, max_bytes=limit)
    check_lists(body, process)  # before each of a hundred thousand entries is looked at
    sampling, defaults, notes = read_sampling(body)
    if ours.extra:
        sampling |= {"extra": read_extra(ours.extra)}
    shown = _shown_trace(ours)
    # A safety filter counts its refusals, which needs a summary.
    least = shown if shown != "none" else "summary" if ours.safety is not None else "off"
    draft = RequestDraft(
        model=body.model,
        constraint=constraint,
        default_order=constrained.default_order,
        soft=_soft(ours),
        sampling=sampling,
        defaults=defaults,
        options=options | ({} if states is None else {"activations": True}) | given_options(ours, REQUEST.values()),
        states=states,
        names={**NAMES, **constrained.names}
        | ({"prompt_top": "prompt_logprobs"} if given.get("prompt_logprobs") else {}),
        warnings=(*constrained.warnings, *notes, *_gives_way(body, constraint)),
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        processed_logprobs=body.logprobs_mode == "processed_logprobs",
        token_ids=bool(body.return_token_ids),
        shows_prompt_ids=bool(body.return_token_ids),
        report=body.espalier is not None,
        shown_trace=shown,
        stream_steps=bool(ours.stream_steps),
        timings_per_token=isinstance(body, ChatBody | CompletionBody) and bool(body.timings_per_token),
        trace=least,
        strict=bool(ours.strict) or process.settings.strict_fields,
        **given,
    )
    if reads_only(body):
        draft = replace(draft, request={**draft.request, "only_prompt": True})
    draft = word_lists(body, draft, process)
    decoded = read_decoding(body, n=body.n or body.n_cmpl or 1, default_beams=draft.default_beams)
    return replace(draft, decoded=decoded, names={**draft.names, **decoded.names})


def _states(body: SharedBody, process: Process) -> HiddenStates | None:
    """The store that the body or an overwrite names, as the logging server takes it. Raises UnsupportedParameter, and
    what opening it raises."""
    if body.lmdb_path is not None and not process.settings.wordlist_server_compat:
        raise UnsupportedParameter(
            "lmdb_path is the logging server's",
            hint='set WORDLIST_SERVER_COMPAT=true, or use "espalier": {"activations": true}',
            field="lmdb_path",
        )
    name = process.overwrites.lmdb_path or body.lmdb_path
    if name is None:
        return None
    if process.named_stores is None:
        raise CapabilityError("this server stores no hidden states", hint="set ACTIVATIONS_STORE", field="lmdb_path")
    if not process.engine.capabilities.activations:
        raise CapabilityError(f"{process.engine.name} gives no hidden states", field="lmdb_path")
    return process.named_stores.get(name)


def _check_stream(body: SharedBody, ours: EspalierOptions) -> None:
    if ours.stream_steps and not (body.stream and ours.trace):
        raise BadRequest(
            "stream_steps needs a stream and a trace",
            hint='"stream": true and "espalier": {"trace": "full"}',
            field="espalier.stream_steps",
        )


def _gives_way(body: SharedBody, constraint: Spec | None) -> tuple[str, ...]:
    """What the constraint is stronger than."""
    if constraint is None or not body.min_tokens:
        return ()
    return ("min_tokens gives way where the constraint leaves nothing but the end of the text",)


def _shown_trace(ours: EspalierOptions) -> Literal["none", "summary", "steps"]:
    if not ours.trace:
        return "none"
    return "steps" if ours.trace in ("steps", "full") else "summary"


def _soft(ours: EspalierOptions) -> tuple[SoftSpec, ...]:
    given = ours.soft if isinstance(ours.soft, list) else [] if ours.soft is None else [ours.soft]
    with field_names({"": "espalier.soft"}, otherwise="espalier.soft.{field}"):
        return tuple(SoftSpec.from_json(constraint) for constraint in given)
