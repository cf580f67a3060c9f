"""Any OpenAI-compatible server as an Engine. It renders, samples and enforces in its own way; here its text is judged.

A plain server gets `response_format`, vLLM `structured_outputs` (`guided_…` before 0.11), either one `tools`. What it
makes of them is not known here, so the result says that the constraint was checked, and the verdict says whether it
holds.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from espalier.constraints.after.thinking import Thinking
from espalier.constraints.compiler import NOWHERE, Compiler, Folders
from espalier.constraints.joining.rule import filters_in
from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import Gbnf, Spec
from espalier.constraints.verdict import has_judge, judge
from espalier.engines.base import Capabilities, Event, Request
from espalier.engines.capabilities import check_capabilities
from espalier.errors import CapabilityError, InputError, Unavailable, UnknownModel, UpstreamError
from espalier.owners import owner
from espalier.tokens.vocab import Vocab
from espalier.trace.foreign.responses import step_of
from espalier.trace.foreign.steps import of_reply
from espalier.upstream.link import ServerLink
from espalier.upstream.openai.body import MOST_LISTED, Server, body_of, kinds_of
from espalier.upstream.openai.chunks import Chunk, chunks_of
from espalier.upstream.openai.turns import TurnText, markers_of, turn_of
from espalier.upstream.runs import SEEDS, AnswerEnd, Begin, Current, IncomingAnswer, UpstreamEngine, no_matcher
from espalier.upstream.safety import SentConstraint, sent_constraint

CHAT, TEXT = "/chat/completions", "/completions"
STRUCTURED = (0, 11)
"""The version of vLLM that brought `structured_outputs`."""
SEED_STEP = 1_000_003
"""Between the seeds of one text's attempts, far from the seeds of its neighbours."""


class Repairs:
    """What came of checked answers, by kind of constraint: how many were answered, asked for again, never valid. From
    any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[str, int | bool]] = {}

    def add(self, kind: str, again: int, *, is_broken: bool, is_sent: bool) -> None:
        with self._lock:
            counts = self._kinds.setdefault(kind, {"sent": is_sent, "answers": 0, "again": 0, "broken": 0})
            counts["answers"] += 1
            counts["again"] += again
            counts["broken"] += is_broken

    def to_json(self) -> dict[str, dict[str, int | bool]]:
        """By kind. sent: whether the constraint was sent to the server."""
        with self._lock:
            return {kind: dict(counts) for kind, counts in self._kinds.items()}


class OpenAIEngine(UpstreamEngine):
    """An Engine over one model of a server. From any thread."""

    def __init__(
        self,
        link: ServerLink,
        model: str = "",
        *,
        folders: Folders = NOWHERE,
        repair: int | None = None,
        version: Callable[[], str] = lambda: "",
    ) -> None:
        """link: to the address that ends with `/v1`. model: its name there; "" for the only one. repair: how often a
        text that breaks its constraint is asked for again; with a number, 0 included, constraints that the server
        cannot hold are taken and checked, else refused. version: asks a vLLM for its version, "" where it does not
        tell. Raises UnknownModel where it has no such model, UpstreamError."""
        listed = link.get("/models")
        data = listed.get("data") if isinstance(listed, Mapping) else None
        if not isinstance(data, list):
            raise UpstreamError(
                f"{link.url} lists no models", hint="is this the address of an OpenAI-compatible server?"
            )
        entries = {entry["id"]: entry for entry in data if isinstance(entry, Mapping) and _is_name(entry.get("id"))}
        owners = {name: entry.get("owned_by") for name, entry in entries.items()}
        if (model and owners and model not in owners) or (not model and len(owners) != 1):
            known = ", ".join(sorted(owners)[:10]) or "none"
            what = f"has no model {model}" if model else f"has {len(owners)} models"
            raise UnknownModel(f"{link.url} {what}", hint=f"--model, one of: {known}", field="model")
        self._link, self._model = link, model or next(iter(owners))
        self._context = _count(entries.get(self._model, {}).get("max_model_len"))  # vLLM tells it
        self._server: Server = "plain"
        if owners.get(self._model) == "espalier":  # which reads vLLM's fields
            self._server = "vllm"
        elif owners.get(self._model) == "vllm":
            self._server = "old-vllm" if _is_before(version(), STRUCTURED) else "vllm"
        self._is_vllm = self._server == "vllm" and owners[self._model] == "vllm"
        self._has_processor = self._is_vllm and _has_processor(link, self._model)
        self._repair, self._salt = repair, secrets.token_bytes(16)
        self.repairs = Repairs()
        self._compiler = Compiler(replace(Vocab.bytes(), name=self._model), folders=folders)

    @property
    def name(self) -> str:
        """The model's name there, without folders: it shows up in replies and traces."""
        return PurePath(self._model).name

    @property
    def capabilities(self) -> Capabilities:
        takes_all = self._has_processor or self._repair is not None
        kinds = frozenset(KINDS) if takes_all else self._held_kinds | {"tool_calls"}
        return Capabilities(
            logprobs=True,
            constraints=kinds,
            chat_template=True,
            max_context=self._context,
            native_sampler=True,
            token_ids=False,
        )

    @property
    def _held_kinds(self) -> frozenset[str]:
        """The kinds of constraints that the server is asked to hold."""
        return frozenset(kinds_of(self._server))

    @property
    def vocab(self) -> None:
        """Not known here."""
        return None

    @property
    def compiler(self) -> None:
        """Constraints are not compiled here."""
        return None

    @property
    def template(self) -> None:
        """The server's, which is not known here."""
        return None

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        raise CapabilityError(f"{self.name} runs elsewhere: its tokens are not known here", field="model")

    def prompt_text(self, request: Request) -> str:
        raise CapabilityError(f"{self.name} runs elsewhere: its chat template is not known here", field="model")

    def prompt_ids(self, request: Request) -> list[int]:
        return self.encode("", add_special=False)

    def forward(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._link.forward(path.removeprefix("/v1"), {**body, "model": self._model})

    def _cache_salt(self, name: str) -> str | None:
        """What separates a key's requests in vLLM's prefix cache from those of others: the time to a first token would
        tell what they have sent. Nobody who knows names of keys can guess it. None outside a server."""
        return hashlib.blake2b(name.encode(), key=self._salt, digest_size=16).hexdigest() if name else None

    def _prepare(self, request: Request) -> tuple[IncomingAnswer, Begin]:
        check_capabilities(self, request)
        _refuse(self.name, request)
        turn = turn_of(request)
        answer = IncomingAnswer(model=self.name, request=request, turn=turn, compiler=self._compiler, is_followed=False)
        takes_grammar = Gbnf.kind in self._held_kinds and not request.tools
        by_processor = self._is_by_processor(request)
        if by_processor:
            sent = SentConstraint(spec=request.constraint)
        else:
            sent = sent_constraint(request.constraint, self._compiler, takes_grammar=takes_grammar)
        spec = sent.follows
        if spec is not None and spec.kind == "tool_calls":
            raise CapabilityError(
                f"{self.name} writes calls in a format of its own", hint="give `tools`", field="constraint"
            )
        is_sent = spec is None or by_processor or spec.kind in self._held_kinds
        asked = replace(request, constraint=spec if is_sent else None)
        if not is_sent:
            self._compiler.compile(spec)  # type: ignore[arg-type]  # what is wrong with it is told before anything is sent
        if turn.spec is not None and not has_judge(turn.spec):
            answer.run.holds = self._compiler.compile(turn.spec).accepts
        seed = answer.seed + request.stream
        body, notes = body_of(
            asked,
            model=self._model,
            seed=seed,
            server=self._server,
            cache_salt=self._cache_salt(owner()),
            by_processor=by_processor,
            strict_tools=self._is_vllm,
        )
        if by_processor:
            notes += ("the constraint is held by Espalier's processor inside vLLM",)
        else:
            notes += sent.notes + (no_matcher(spec) if is_sent else (not_sent(spec),))
        if request.tools:
            notes += ("tool calls are checked by the verdict: whether the server enforces them is not known here",)

        def begin(current: Current, index: int) -> Iterator[Event]:
            return self._events(answer, body, notes, current, index)

        return answer, begin

    def _is_by_processor(self, request: Request) -> bool:
        """Whether the constraint is one that our processor holds, and vLLM alone does not."""
        spec = request.constraint
        if not self._has_processor or spec is None or request.tools:
            return False
        return bool(filters_in(spec)) or spec.kind not in (*self._held_kinds, "tool_calls")

    def _events(
        self, answer: IncomingAnswer, body: Mapping[str, Any], notes: tuple[str, ...], current: Current, index: int
    ) -> Iterator[Event]:
        if not answer.is_traced:
            return (yield from self._ask_server(answer, body, notes, current, index))
        asked = max(answer.request.trace_top_k, 1)
        if asked > MOST_LISTED:
            notes += (f"such servers list {MOST_LISTED} candidates of a step at most, not {asked}",)
        most = min(asked, MOST_LISTED)
        listed = {"logprobs": most} if answer.request.raw else {"logprobs": True, "top_logprobs": most}
        try:
            yield from self._ask_server(answer, {**body, **listed}, notes, current, index)
        except InputError as error:  # before the first event: a refused body
            if "logprob" not in error.message or answer.request.logprobs:
                raise
            notes += ("the server tells no probabilities: the trace has no steps",)
            yield from self._ask_server(answer, body, notes, current, index)

    def _chunks(self, body: Mapping[str, Any], current: Current) -> Iterator[Chunk]:
        exchange = self._link.exchange("POST", CHAT if "messages" in body else TEXT, body)
        current.is_now(exchange)
        return chunks_of(exchange, self._link.url)

    def _repair_answer(
        self, answer: IncomingAnswer, body: Mapping[str, Any], current: Current
    ) -> tuple[list[Chunk], tuple[str, ...]]:
        """The first answer that satisfies the constraint, or the last one that was asked for, and a note. Each has a
        seed of its own; the whole answer is read before any of it is passed on."""
        most, spec = self._repair or 0, answer.turn.spec
        if spec is None:
            raise AssertionError("an answer without a constraint is not repaired")
        kind = (spec.spec if isinstance(spec, Thinking) else spec).kind  # of what was asked for
        for attempt in range(most + 1):
            chunks = list(self._chunks({**body, "seed": (body["seed"] + attempt * SEED_STEP) % SEEDS}, current))
            text = self._text_of(answer)
            try:
                is_broken = not self._satisfies(spec, "".join([text.feed(chunk) for chunk in chunks]))
            except UpstreamError:  # a call that is none: told again where the last answer is passed on
                is_broken = True
            if not is_broken:
                break
        self.repairs.add(kind, attempt, is_broken=is_broken, is_sent=kind in self._held_kinds or kind == "tool_calls")
        if is_broken:
            return chunks, (f"no answer satisfied {kind}: {attempt + 1} were asked for",)
        return chunks, () if attempt == 0 else (f"{kind} is satisfied by answer {attempt + 1}",)

    def _satisfies(self, spec: Spec, text: str) -> bool:
        """By the independent verdict, and by our matcher over bytes for a kind without one."""
        valid = judge(spec, text, self._compiler.words).valid
        return self._compiler.compile(spec).accepts(text) if valid is None else valid

    def _text_of(self, answer: IncomingAnswer) -> TurnText:
        request = answer.request
        return TurnText(self.name, markers=markers_of(request), has_tools=bool(request.tools))

    def _ask_server(
        self, answer: IncomingAnswer, body: Mapping[str, Any], notes: tuple[str, ...], current: Current, index: int
    ) -> Iterator[Event]:
        usage: Mapping[str, Any] = {}
        last, count = Chunk(), 0
        if answer.turn.spec is None or self._repair is None:
            chunks = self._chunks(body, current)
        else:
            repaired, more = self._repair_answer(answer, body, current)
            chunks, notes = iter(repaired), notes + more
        text = self._text_of(answer)
        for chunk in chunks:
            records = [
                of_reply(count + number, step_of(step, f"logprobs.content[{number}]"), None)
                for number, step in enumerate(chunk.steps)
            ]
            count += len(records)
            usage = chunk.usage or usage
            last = chunk if chunk.finish is not None else last
            piece = text.feed(chunk)
            for record in records[:-1]:  # several tokens in one chunk: its text goes with the last
                yield answer.take("", record=record, index=index)
            if piece or records:
                yield answer.take(piece, record=records[-1] if records else None, index=index)
        yield answer.end(_summarise_end(last, usage, notes + text.notes), index=index)


def _has_processor(link: ServerLink, model: str) -> bool:
    """Whether a vLLM has our processor: then it refuses an empty constraint, and says who does."""
    probe = {"model": model, "prompt": "a", "max_tokens": 1, "vllm_xargs": {"espalier": "{}"}}
    try:
        link.post(TEXT, probe)
    except InputError as error:
        return "nothing to enforce" in error.message
    except (UpstreamError, Unavailable):
        return False
    return False


def not_sent(spec: Spec | None) -> str:
    """The note on a constraint that is not sent to the server."""
    return f"{'' if spec is None else spec.kind} is only checked: the server cannot hold it, and it was not sent"


def _summarise_end(last: Chunk, usage: Mapping[str, Any], notes: tuple[str, ...]) -> AnswerEnd:
    details = usage.get("prompt_tokens_details")
    if not usage:
        notes += ("the server does not tell how many tokens there were",)
    return AnswerEnd(
        finish=last.finish or "stop",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0,
        notes=notes,
    )


def _refuse(name: str, request: Request) -> None:
    """Raises CapabilityError for what goes into a prompt that is rendered elsewhere."""
    asked = {
        "raw": request.raw and bool(request.tools or request.messages is not None),
        "prompt_ids": request.prompt_ids is not None and not request.raw,
        "schema_in_prompt": request.schema_in_prompt,
        "tool_format": request.tool_format is not None,
    }
    for field, is_asked in asked.items():
        if is_asked:
            raise CapabilityError(
                f"{name} renders its prompts itself, so {field} cannot be had",
                hint=f"leave `{field}` out, or use llama-server",
                field=field,
            )


def _is_before(version: str, least: tuple[int, int]) -> bool:
    """Whether a version such as `0.10.2` is known, and an earlier one."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) < least


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
