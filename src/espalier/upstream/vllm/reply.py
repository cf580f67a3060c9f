"""Cuts out of a vLLM's reply what the client did not ask for, byte by byte, and reads what it tells of each token.

Everything that the client would have received without us stays as the server wrote it. A chunk of a stream that vLLM
sends for its log probabilities alone, as within a tool call, is empty then, and left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from espalier.trace.foreign.responses import finite
from espalier.upstream.vllm.request import VllmRequest
from espalier.upstream.xray.wire.spans import JsonMember, Value, decoded, edited, parsed

INSIDE = frozenset({"choices"})
WITH_LISTS = INSIDE | {"logprobs", "content", "top_logprobs"}
NOTHING = -9999.0
"""What vLLM writes for a logarithm of 0."""
_ID = re.compile(r"token_id:(\d+)")
Edit = tuple[int, int, str]


class ListedToken(NamedTuple):
    """One candidate as a reply lists it. id: None where it is not told. bytes: None likewise."""

    text: str
    logprob: float
    id: int | None = None
    bytes: bytes | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether its probability is above 0."""
        return math.isfinite(self.logprob)


class ListedStep(NamedTuple):
    """One token of a reply. top: the candidates, the token itself among them."""

    token: ListedToken
    top: tuple[ListedToken, ...]


@dataclass(slots=True)
class ListedOutput:
    """What a reply has told so far of one output. ids: of its tokens. prompt_ids: of its prompt. has_calls: whether
    some of its text became calls of tools. stop_reason: the stop text; None, or a number, for an end
    token."""

    ids: list[int] = field(default_factory=list)
    steps: list[ListedStep] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    has_calls: bool = False
    finish: str | None = None
    stop_reason: Any = None
    reply_id: str = ""
    model: str = ""
    is_cut: bool = False


def stripped(raw: bytes, request: VllmRequest, outputs: dict[int, ListedOutput]) -> tuple[bytes, int]:
    """One JSON object of the reply as the client gets it, empty for a chunk that it would not have got; and of how many
    outputs it says why they ended. Raises UpstreamError for what is no object."""
    text = raw.decode("latin-1")
    reply = parsed(text, WITH_LISTS if request.has_logprobs else INSIDE)
    objects = reply.items if isinstance(reply.data, list) else [reply]
    ends = sum(_learn(decoded(value.data), outputs) for value in objects)
    if request.is_stream and not (request.has_logprobs or request.has_tokens) and _is_empty(reply.data):
        return b"", ends
    edits = [edit for value in objects for edit in _edits(value, request)]
    return edited(text, edits).encode("latin-1"), ends


def _is_empty(data: Any) -> bool:
    """Whether a chunk tells nothing but tokens."""
    choices = data.get("choices") if isinstance(data, Mapping) else None
    if not isinstance(choices, list) or not choices or data.get("usage") is not None:
        return False
    return all(
        isinstance(choice, Mapping)
        and isinstance(choice.get("delta"), Mapping)
        and not choice["delta"]
        and choice.get("finish_reason") is None
        for choice in choices
    )


def _edits(value: Value, request: VllmRequest) -> Iterator[Edit]:
    choices = value.members["choices"].value.items if "choices" in value.members else []
    for part in (value, *choices):
        for name in () if request.has_tokens else ("token_ids", "prompt_token_ids"):
            yield from _nulled(part.members.get(name))
    for choice in choices:
        listed = choice.members.get("logprobs")
        if not request.has_logprobs:
            yield from _nulled(listed)
        elif listed is not None:
            yield from _trims(listed.value, request)


def _nulled(member: JsonMember | None) -> Iterator[Edit]:
    if member is not None and member.value.data is not None:
        yield member.value.start, member.value.end, "null"


def _trims(logprobs: Value, request: VllmRequest) -> Iterator[Edit]:
    """Leave as many candidates as vLLM lists for the client's own number: the token itself, then the best; in a chat so
    many, in a completion one more where the token is none of the best."""
    if request.dialect == "chat":
        content = logprobs.members.get("content")
        for entry in () if content is None else content.value.items:
            top = entry.members.get("top_logprobs")
            if top is not None and len(top.value.items) > request.top:
                first = top.value.items[request.top - 1].end if request.top else top.value.start + 1
                yield first, top.value.end - 1, ""
        return
    top = logprobs.members.get("top_logprobs")
    for candidates in () if top is None else top.value.items:
        members = list(candidates.members.values())
        values = [_logprob(member.value.data) for member in members]
        better = sum(value > values[0] for value in values)
        kept = request.top + (better >= request.top)
        if len(members) > kept:
            yield members[kept - 1].value.end, candidates.end - 1, ""


def _learn(data: Any, outputs: dict[int, ListedOutput]) -> int:
    """How many outputs ended."""
    choices = data.get("choices") if isinstance(data, Mapping) else None
    ends = 0
    for place, choice in enumerate(choices if isinstance(choices, list) else ()):
        if not isinstance(choice, Mapping):
            continue
        index = choice.get("index")
        output = outputs.setdefault(index if type(index) is int else place, ListedOutput())
        output.reply_id = output.reply_id or str(data.get("id") or "")
        output.model = str(data.get("model") or "") or output.model
        _learn_choice(choice, output)
        output.prompt_ids = (
            _ids(choice.get("prompt_token_ids")) or _ids(data.get("prompt_token_ids")) or output.prompt_ids
        )
        ends += choice.get("finish_reason") is not None
    return ends


def _learn_choice(choice: Mapping[str, Any], output: ListedOutput) -> None:
    output.ids += _ids(choice.get("token_ids"))
    output.steps += listed_steps(choice.get("logprobs"))
    message = choice.get("delta") or choice.get("message") or choice
    message = message if isinstance(message, Mapping) else {}
    for name in ("content", "text"):
        if isinstance(message.get(name), str):
            output.text.append(message[name])
    output.has_calls = output.has_calls or bool(message.get("tool_calls"))
    output.finish = choice.get("finish_reason") or output.finish
    if choice.get("stop_reason") is not None:
        output.stop_reason = choice["stop_reason"]


def listed_steps(data: Any) -> list[ListedStep]:
    """The steps in `logprobs` of a chat or a completion. Entries that are none are steps that tell nothing."""
    if not isinstance(data, Mapping):
        return []
    content = data.get("content")
    if isinstance(content, list):
        return [_chat_step(entry) for entry in content]
    tokens, own, tops = (data.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(tokens, list):
        return []
    return [_text_step(str(token), _at(own, place), _at(tops, place)) for place, token in enumerate(tokens)]


def _chat_step(entry: Any) -> ListedStep:
    entry = entry if isinstance(entry, Mapping) else {}
    top = entry.get("top_logprobs")
    listed = [part for part in top if isinstance(part, Mapping)] if isinstance(top, list) else []
    return ListedStep(_listed(entry), tuple(_listed(part) for part in listed))


def _listed(entry: Mapping[str, Any]) -> ListedToken:
    """A candidate that is named by its id has the bytes of that name."""
    text, spelled = str(entry.get("token") or ""), entry.get("bytes")
    number = _ID.fullmatch(text)
    known = isinstance(spelled, list) and all(type(byte) is int and 0 <= byte < 256 for byte in spelled)
    return ListedToken(
        "" if number else text,
        _logprob(entry.get("logprob")),
        int(number[1]) if number else None,
        bytes(spelled) if known and number is None else None,  # type: ignore[arg-type]  # checked above
    )


def _text_step(token: str, own: Any, near: Any) -> ListedStep:
    candidates = near if isinstance(near, Mapping) else {}
    named = [_listed({"token": text, "logprob": value}) for text, value in candidates.items()]
    return ListedStep(_listed({"token": token, "logprob": own}), tuple(named))


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, Sequence) and place < len(values) else None


def _logprob(value: Any) -> float:
    """-inf for what is not told or no float, and for a probability of 0."""
    number = finite(value)
    return number if number is not None and number > NOTHING else -math.inf


def _ids(value: Any) -> list[int]:
    return value if isinstance(value, list) and all(type(number) is int for number in value) else []
