"""Cuts out of a reply what the client did not ask for, byte by byte, and reads what it tells of each token.

Everything that the client would have received without us stays as the server wrote it: order, spaces, numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.upstream.xray.distribution import ReplyEntry, entries_of, entry_of
from espalier.upstream.xray.sampler.settings import RANDOM_SEED
from espalier.upstream.xray.wire.request import ClientRequest
from espalier.upstream.xray.wire.spans import Value, decoded, edited, parsed, text_of

INSIDE = frozenset({"choices", "generation_settings", "completion_probabilities", "logprobs", "content"})
WITH_LISTS = INSIDE | {"top_logprobs"}
ENTRIES = {"completion_probabilities": entry_of, "content": entry_of}
Edit = tuple[int, int, str]


@dataclass(slots=True)
class OutputSoFar:
    """What a reply has told so far of one output. entries: by the position of their token. ids: the token there, if it
    was named. count: how many tokens were generated, as far as is known. tokens: all of them, from a reply that is no
    stream. listed: entries whose positions are not told; is_rest: of which nothing else tells the tokens, either.
    settings, prompt: the effective ones; has_prompt: whether the prompt is told. prefill: the end of the prompt, where
    the grammar begins with it. is_cut: whether the reply ended before its end."""

    entries: dict[int, ReplyEntry] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    count: int = 0
    tokens: list[int] | None = None
    listed: list[ReplyEntry] = field(default_factory=list)
    settings: Mapping[str, Any] | None = None
    prompt: str = ""
    prefill: str = ""
    prompt_count: int | None = None
    text: list[str] = field(default_factory=list)
    finish: str | None = None
    reply_id: str = ""
    model: str = ""
    is_stopped_by_word: bool = False
    is_rest: bool = False
    has_prompt: bool = True
    is_cut: bool = False


Tolds = dict[int, OutputSoFar]
"""By the index of the output."""


def stripped(raw: bytes, client_request: ClientRequest, tolds: Tolds) -> tuple[bytes, bool]:
    """One JSON object of the reply, or its list of them, as the client gets it; and whether it says why a text has
    ended. Raises UpstreamError for anything else."""
    text = raw.decode("latin-1")
    reply = parsed(text, WITH_LISTS) if client_request.top else parsed(text, INSIDE, ENTRIES)
    edits: list[Edit] = []
    objects = reply.items if isinstance(reply.data, list) else [reply]
    for schema_object in objects:
        _learn(schema_object.data, client_request, tolds)
        edits += _edits(schema_object, client_request)
    return edited(text, edits).encode("latin-1"), any(is_last(parsed_object.data) for parsed_object in objects)


def is_last(data: Mapping[str, Any]) -> bool:
    """Whether the chunk says why a text has ended."""
    if data.get("stop") is True:
        return True
    first = next(iter(_choices(data)), None)
    return first is not None and first.get("finish_reason") is not None


def _choices(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The choices that are objects; a server may send anything."""
    choices = data.get("choices")
    return [choice for choice in choices if isinstance(choice, Mapping)] if isinstance(choices, list) else []


def _edits(value: Value, client_request: ClientRequest) -> Iterator[Edit]:
    members = value.members
    if client_request.dialect == "completion":
        yield from _probabilities(members.get("completion_probabilities"), client_request)
        settings = members.get("generation_settings")
        if settings is not None:
            yield from _settings(settings.value, client_request)
        tokens = members.get("tokens")
        if tokens is not None and not client_request.is_stream and not client_request.has_tokens:
            yield tokens.value.start, tokens.value.end, "[]"
        return
    if (verbose := members.get("__verbose")) is not None:
        yield (*verbose.whole, "")
    choices = members["choices"].value.items if "choices" in members else []
    is_open = bool(_choices(value.data)) and not is_last(value.data)
    if (
        client_request.is_stream
        and not client_request.has_timings
        and is_open
        and (timings := members.get("timings")) is not None
    ):
        yield (*timings.whole, "")
    for choice in choices:
        logprobs = choice.members.get("logprobs")
        if logprobs is None or logprobs.value.data is None:
            continue
        if client_request.top:
            content = logprobs.value.members.get("content")
            yield from () if content is None else _trim_entries(content.value, client_request.top)
        elif client_request.dialect == "text":
            yield logprobs.value.start, logprobs.value.end, "null"
        else:
            yield (*logprobs.whole, "")


def _probabilities(member: Any, client_request: ClientRequest) -> Iterator[Edit]:
    if member is None:
        return
    if client_request.top:
        yield from _trim_entries(member.value, client_request.top)
    else:
        yield (*member.whole, "")


def _trim_entries(entries: Value, top: int) -> Iterator[Edit]:
    """Leave the first `top` candidates of each entry."""
    for entry in entries.items:
        listed = entry.members.get("top_logprobs")
        if listed is not None and len(listed.value.items) > top:
            yield listed.value.items[top - 1].end, listed.value.end - 1, ""


def _settings(settings: Value, client_request: ClientRequest) -> Iterator[Edit]:
    """The settings as they would be without us."""
    probs, seed = settings.members.get("n_probs"), settings.members.get("seed")
    if probs is not None:
        yield probs.value.start, probs.value.end, str(client_request.top)
    if seed is not None and client_request.seed is None:
        yield seed.value.start, seed.value.end, str(RANDOM_SEED)


def _learn(data: Mapping[str, Any], client_request: ClientRequest, tolds: Tolds) -> None:
    choices = _choices(data)
    if client_request.outputs > 1 and client_request.dialect != "completion" and not choices:
        return  # the counts of a stream, which do not say of which output
    output = tolds.setdefault(_index(choices[0] if choices else data, 0), OutputSoFar())
    _learn_one(data, client_request, output, choices[:1])
    for place, choice in enumerate(choices[1:], 1):
        _learn_rest(
            choice,
            client_request,
            output,
            tolds.setdefault(_index(choice, place), OutputSoFar()),
            _index(choice, place),
        )


def _learn_one(
    data: Mapping[str, Any], client_request: ClientRequest, output: OutputSoFar, choices: Sequence[Mapping[str, Any]]
) -> None:
    output.reply_id = output.reply_id or str(data.get("id") or "")
    output.model = text_of(data.get("model")) or output.model
    verbose = data if client_request.dialect == "completion" else data.get("__verbose")
    verbose = verbose if isinstance(verbose, Mapping) else {}
    entries, ids = entries_of(data), verbose.get("tokens")
    if client_request.is_stream:
        place = _position(data, verbose)
        if place is not None and place > 0:
            output.count = max(output.count, place)
            for back, entry in enumerate(reversed(entries)):
                output.entries[place - 1 - back] = reply_entry = _entry(entry)
                if reply_entry.chosen is not None:
                    output.ids[place - 1 - back] = reply_entry.chosen
            if isinstance(ids, list) and len(ids) == 1 and not entries:
                output.ids[place - 1] = ids[0]
    elif isinstance(ids, list):
        output.tokens, output.listed = ids, [_entry(entry) for entry in entries]
        output.count = len(ids)
    if isinstance(verbose.get("generation_settings"), Mapping):
        output.settings = decoded(verbose["generation_settings"])
        output.prefill = _prefill(output.settings, client_request)
        output.prompt = text_of(verbose.get("prompt")) or output.prompt
        count = verbose.get("tokens_evaluated")
        output.prompt_count = count if isinstance(count, int) else None
        output.is_stopped_by_word = verbose.get("stop_type") == "word"
        if client_request.dialect == "completion":
            output.finish = "length" if verbose.get("stop_type") == "limit" else "stop"
    _learn_text(data, choices, output)


def _learn_rest(
    choice: Mapping[str, Any], client_request: ClientRequest, first: OutputSoFar, output: OutputSoFar, index: int
) -> None:
    """Learn of a further output in a reply that tells settings and tokens of the first only."""
    entries = entries_of({"choices": [choice]})
    output.is_rest, output.listed = True, [_entry(entry) for entry in entries]
    output.reply_id, output.model = first.reply_id, first.model
    if first.settings is not None and type(seed := first.settings.get("seed")) is int:
        output.settings = {**first.settings, "seed": client_request.seed_of(seed, index)}
    output.prefill = first.prefill
    is_same = index < client_request.copies
    output.prompt, output.prompt_count = (first.prompt, first.prompt_count) if is_same else ("", None)
    output.has_prompt = is_same
    _learn_text({}, [choice], output)


def _index(data: Mapping[str, Any], place: int) -> int:
    index = data.get("index")
    return index if type(index) is int else place


def _prefill(settings: Mapping[str, Any], client_request: ClientRequest) -> str:
    """A grammar that the server made of a schema or of tools has taken the generation prompt of the chat template
    before the first token; the client's own grammar has not."""
    is_theirs = settings.get("grammar") == client_request.body.get("grammar")
    return "" if is_theirs or settings.get("grammar_lazy") else str(settings.get("generation_prompt") or "")


def _entry(entry: Any) -> ReplyEntry:
    return entry if isinstance(entry, ReplyEntry) else entry_of(entry)


def _learn_text(data: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], output: OutputSoFar) -> None:
    if isinstance(data.get("content"), str):
        output.text.append(data["content"])
    for choice in choices:
        part = choice.get("delta") or choice.get("message") or choice
        part = part if isinstance(part, Mapping) else {}
        for name in ("content", "text"):
            if isinstance(part.get(name), str):
                output.text.append(part[name])
        output.finish = choice.get("finish_reason") or output.finish


def _position(data: Mapping[str, Any], verbose: Mapping[str, Any]) -> int | None:
    """How many tokens there are with this chunk."""
    timings = data.get("timings")
    for count in (
        verbose.get("tokens_predicted"),
        timings.get("predicted_n") if isinstance(timings, Mapping) else None,
    ):
        if type(count) is int:
            return count
    return None
