"""llama-server as an Engine: our templates and constraints, its model, its sampler and its grammar.

A constraint becomes GBNF text, or with `schema_as=json_schema` a schema is left to the server's own converter. Before
either is used, the server has to show that it enforces it (`proof.py`). Afterwards each piece of text is held to the
matcher of the grammar, and a text under the server's own grammar to the verdict too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from espalier.chat.prompt.template import ChatTemplate, template_of
from espalier.chat.reading.thoughts import marker_spellings
from espalier.constraints.compiler import NOWHERE, Compiler, Folders
from espalier.constraints.joining.rule import with_bad_words, without_filters
from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import JsonSchema
from espalier.constraints.to_gbnf import portable
from espalier.engines.base import Capabilities, Event, Request
from espalier.engines.capabilities import check_capabilities
from espalier.engines.local.turns import PreparedTurn, TurnMaker
from espalier.errors import EspalierError, InputError, PromptTooLong, UpstreamError
from espalier.owners import owner
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import llama_notes, to_llama
from espalier.schema.contract import Contract
from espalier.tokens.vocab import Vocab
from espalier.trace.foreign.estimate import estimates
from espalier.trace.foreign.responses import Response, step_of
from espalier.trace.foreign.steps import of_reply
from espalier.trace.records import StepRecord
from espalier.upstream.llama_server.asked import SCHEMA_AS, ServerRequest, asked_of, sound
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.llama_server.native_schema import native_contract
from espalier.upstream.llama_server.proof import Proofs, used_grammar
from espalier.upstream.llama_server.thought_limit import CHANNELS, FILTERED, ThoughtLimit
from espalier.upstream.llama_server.vocabulary import fetch
from espalier.upstream.runs import NO_ID, AnswerEnd, Begin, Current, IncomingAnswer, UpstreamEngine, check
from espalier.upstream.safety import SentConstraint, sent_constraint
from espalier.wording import RAW, OptionText

WINDOWS = ("repeat_last_n", "dry_penalty_last_n")
INT32 = 2**31 - 1


class LlamaServerEngine(UpstreamEngine):
    """An Engine over one llama-server. From any thread."""

    def __init__(
        self,
        server: LlamaServer,
        *,
        folders: Folders = NOWHERE,
        tool_format: str | None = None,
        schema_as: str = SCHEMA_AS,
    ) -> None:
        """Asks the server who it is. schema_as: what a schema is sent as, one of SCHEMAS_AS. Raises what
        `LlamaServer.props` and `vocabulary.fetch` raise."""
        server.health()
        props = server.props()
        self._server, self._props = server, props
        self._vocab = fetch(server)
        self._template = (
            None if props.template is None else template_of(props.template, bos_token=props.bos, eos_token=props.eos)
        )
        # Bytes: what the server writes is read as text, and its tokens are not ours to split.
        self._compiler = Compiler(replace(Vocab.bytes(), name=props.model), folders=folders)
        self._turns = TurnMaker(name=props.model, template=self._template, vocab=self._vocab, tool_format=tool_format)
        self._proofs = Proofs(server, self._vocab, props.model)
        self._is_native = schema_as != SCHEMA_AS
        self._owners: set[str] = set()  # the first two for whom was asked
        if self._is_native:
            self._compiler.held_elsewhere = self._contract

    @property
    def name(self) -> str:
        return self._props.model

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            logprobs=True,
            constraints=frozenset(KINDS.names()),  # those that no grammar expresses are refused when they are written
            chat_template=self._template is not None,
            max_context=self._props.context,
            max_sequences=self._props.slots,
            native_sampler=True,
            thought_limits=True,
        )

    @property
    def vocab(self) -> Vocab:
        return self._vocab

    @property
    def compiler(self) -> Compiler:
        """For bytes: what is followed here is text."""
        return self._compiler

    @property
    def template(self) -> ChatTemplate | None:
        return self._template

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        return self._server.tokenize(text, add_special=add_special)

    def prompt_text(self, request: Request) -> str:
        return self._turns.prepare(request).text

    def prompt_ids(self, request: Request) -> list[int]:
        return self._ids(request, self.prompt_text(request))

    def forward(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._server.link.forward(path, body)

    def _prepare(self, request: Request) -> tuple[IncomingAnswer, Begin]:
        check_capabilities(self, request)
        turn = self._turn(request)
        turn = replace(turn, notes=(*turn.notes, *llama_notes(request.sampling)))
        # The server would end a thought at a stop text: then the text is cut here.
        stops = () if turn.reasoning is None else request.sampling.stop
        check(request)  # before the server is asked for a proof
        sent = sent_constraint(turn.spec, self._compiler, vocab=self._vocab)
        asked = asked_of(turn, sent, self._compiler, self._proofs if self._is_native else None)
        answer = IncomingAnswer(
            model=self.name,
            request=request,
            turn=turn,
            compiler=self._compiler,
            is_followed=asked.follows is not None,
            follows=asked.follows,
            follows_from=asked.follows_from,
            is_enforced=sent.is_whole and not asked.may_break,
            stops=stops,
        )
        # Bad words are part of the constraint by now.
        sampling = replace(request.sampling, n=1, bad_words=(), seed=answer.seed + request.stream)
        config = self._settings(replace(sampling, stop=()) if stops else sampling)
        ids = self._ids(request, turn.text)
        body = {**config, "prompt": ids, "return_tokens": True, **asked.fields}
        body["logit_bias"] = [*config["logit_bias"], *([token, False] for token in sent.banned)]
        grammar = asked.grammar
        if "grammar" in asked.fields and answer.matcher is not None:
            self._proofs.grammar(asked.fields["grammar"], answer.matcher)
        if kept := self._written_out(turn, grammar):
            body["preserved_tokens"] = kept
        if answer.is_traced:
            body["n_probs"] = max(1, request.trace_top_k)
        if self._has_several_owners():
            body["cache_prompt"] = False

        limit, notes = _limit_of(request, turn, sent)
        asked = replace(asked, notes=(*asked.notes, *notes))

        def begin(current: Current, index: int) -> Iterator[Event]:
            return self._events(answer, body, asked, current, index, None if limit is None else limit())

        return answer, begin

    def _has_several_owners(self) -> bool:
        """Whether a second key has asked by now. The server has one prefix cache for all of them, and the time to a
        first token would tell each what others have sent: from then on it is not used."""
        self._owners |= {owner()} if len(self._owners) < 2 else set()
        return len(self._owners) > 1

    def _turn(self, request: Request) -> PreparedTurn:
        whole = with_bad_words(request.constraint, request.sampling.bad_words)
        # The server counts no tokens of a thought: `_events` does.
        mode = request.reasoning or (None if request.max_reasoning is None else "auto")
        return self._turns.prepare(replace(request, constraint=whole, reasoning=mode, max_reasoning=None))

    def _contract(self, spec: JsonSchema, request: Request | None) -> Contract | None:
        """What the server's own json_schema holds; None where other constraints join the schema, so that our grammar
        goes."""
        if request is not None:
            try:
                sent = self._turn(request).spec
            except EspalierError:  # the run tells it
                return native_contract(spec)
            if not isinstance(without_filters(sent), JsonSchema):
                return None
        return native_contract(spec)

    def _settings(self, config: SamplingConfig) -> dict[str, Any]:
        """The sampling fields of the body. Raises SamplingError for what llama.cpp cannot do."""
        llama = to_llama(config)
        for name in WINDOWS:  # -1, the whole text, is refused by newer servers
            if llama[name] == -1:
                llama[name] = self._props.context or INT32
        return llama

    def _ids(self, request: Request, text: str) -> list[int]:
        if request.prompt_ids is not None:
            if not request.raw:
                raise InputError("a prompt of token ids must be raw", hint=OptionText(RAW), field="raw")
            for token in request.prompt_ids:
                if not 0 <= token < self._vocab.width:
                    raise InputError(f"there is no token {token}", field="prompt_ids")
            ids = list(request.prompt_ids)
        else:
            # A rendered template spells its own BOS; a plain prompt gets what the tokenizer adds by default.
            plain = request.messages is None and (self._template is None or request.raw)
            ids = self.encode(text, add_special=plain)
        if not ids:
            raise InputError("the prompt is empty", hint="this model needs at least one token", field="prompt")
        context = self._props.context
        if context and len(ids) >= context:
            raise PromptTooLong.over(context, tokens=len(ids))
        return ids

    def _written_out(self, turn: PreparedTurn, grammar: str | None) -> list[str]:
        """The special tokens that the text may hold: the server drops others from what it sends."""
        marks = () if turn.reasoning is None else marker_spellings(turn.reasoning, self._vocab)
        ends = {self._vocab.special_texts[token] for token in self._vocab.eos_ids}
        special = {text: token for token, text in self._vocab.special_texts.items()}
        return [
            text
            for text, token in special.items()
            if text and text not in ends and (token in marks or (grammar is not None and text in grammar))
        ]

    def _events(
        self,
        answer: IncomingAnswer,
        body: Mapping[str, Any],
        server_request: ServerRequest,
        current: Current,
        index: int,
        limit: ThoughtLimit | None,
    ) -> Iterator[Event]:
        """The events of one text. Where its thought has had its tokens, the rest comes from a second request."""
        before: list[int] = []  # tokens of the first request, and of the marker that closes the thought
        written = ""
        place = 0
        while True:
            chunks = self._server.stream(body)
            current.is_now(chunks)
            ids: list[int] = []
            with closing(chunks):
                for chunk in chunks:
                    tokens = [token for token in chunk.get("tokens") or () if type(token) is int]
                    ids += tokens
                    records = self._records(chunk, body, server_request, place)
                    place += len(records)
                    text = chunk["content"]
                    written += text
                    for record in records[:-1]:  # several tokens in one chunk: its text goes with the last
                        yield answer.take("", record=record, index=index)
                    if text or tokens or records:
                        last = records[-1] if records else None
                        yield answer.take(text, token=tokens[-1] if tokens else NO_ID, record=last, index=index)
                    if answer.stopped is not None:
                        end = AnswerEnd(
                            finish="stop",
                            stop=None,  # the answer knows it
                            prompt_tokens=len(body["prompt"]) - len(before),
                            completion_tokens=len(before) + len(ids),
                            token_ids=(*before, *ids),
                            notes=server_request.notes,
                        )
                        yield sound(answer.end(end, index=index), server_request, self.name)
                        return
                    if chunk.get("stop") is True:
                        end = self._summarise_end(chunk, ids, body, server_request)
                        end = _after_thought(end, before)
                        yield sound(answer.end(end, index=index), server_request, self.name)
                        return
                    if limit is not None:
                        limit.take(text, max(len(tokens), 1))
                        if limit.is_spent:
                            break
                else:
                    return  # the client raises for a stream without an end
            assert limit is not None  # nothing else leaves the loop
            closed = limit.close()
            marker = self.encode(closed, add_special=False)
            yield answer.take(closed, token=marker[-1] if marker else NO_ID, index=index)
            written += closed
            before += [*ids, *marker]
            limit = None
            body, server_request = self._rest(answer, body, server_request, written, [*ids, *marker])

    def _rest(
        self,
        answer: IncomingAnswer,
        body: Mapping[str, Any],
        server_request: ServerRequest,
        written: str,
        ids: Sequence[int],
    ) -> tuple[dict[str, Any], ServerRequest]:
        """The second request: what follows the thought. written, ids: the thought with its marker."""
        left = body["n_predict"] if body["n_predict"] < 0 else max(body["n_predict"] - len(ids), 0)
        rest = {**body, "prompt": [*body["prompt"], *ids], "n_predict": left}
        if server_request.grammar is None or server_request.follows is None:
            return rest, server_request
        turn = answer.turn
        grammar = portable(server_request.follows, self._compiler, before=turn.before + written)
        return {**rest, "grammar": grammar}, replace(server_request, grammar=grammar)

    def _summarise_end(
        self, last: Mapping[str, Any], ids: Sequence[int], body: Mapping[str, Any], server_request: ServerRequest
    ) -> AnswerEnd:
        url = self._server.link.url
        if last.get("truncated") is True:
            raise UpstreamError(
                f"{url} cut the text or its prompt to fit its context", hint="start it with a larger -c"
            )
        if server_request.grammar is not None and used_grammar(last) != server_request.grammar:
            raise UpstreamError(f"{url} did not use the grammar that it was given", hint="update the server")
        kind = last.get("stop_type")
        if kind not in ("eos", "word", "limit"):
            raise UpstreamError(f"{url} does not say why the text ended", hint="it may be older than December 2024")
        count, timings = last.get("tokens_predicted"), last.get("timings")
        cached = timings.get("cache_n") if isinstance(timings, Mapping) else None
        predicted = count if type(count) is int else len(ids)
        # Some versions send the id of the token that ends the text, others do not.
        is_known = kind == "word" or len(ids) == predicted or (kind == "eos" and len(ids) + 1 == predicted)
        notes: tuple[str, ...] = () if is_known else ("the server does not tell the ids of tokens within a character",)
        notes += server_request.notes
        if "n_probs" in body and server_request.grammar is not None:
            notes += ("which tokens were rejected is estimated from the probabilities that the server tells",)
        return AnswerEnd(
            finish="length" if kind == "limit" else "stop",
            stop=str(last.get("stopping_word", "")) if kind == "word" else None,
            prompt_tokens=len(body["prompt"]),
            completion_tokens=predicted,
            cached_tokens=cached if type(cached) is int and cached > 0 else 0,
            token_ids=tuple(ids) if is_known else (),
            notes=notes,
        )

    def _records(
        self, chunk: Mapping[str, Any], body: Mapping[str, Any], server_request: ServerRequest, place: int
    ) -> list[StepRecord]:
        """The steps of a chunk: what the model wanted, and what that proves of the grammar."""
        entries = chunk.get("completion_probabilities")
        if "n_probs" not in body or not isinstance(entries, list):
            return []
        steps = [step_of(entry, f"completion_probabilities[{number}]") for number, entry in enumerate(entries)]
        settings = {name: value for name, value in body.items() if name != "prompt"} | {
            "grammar": server_request.grammar or ""
        }
        reply = Response(request_id="", model=self.name, created=0, choices=(), settings=settings)
        proved = estimates(reply, steps, temperature=body["temperature"])
        return [of_reply(place + number, *pair) for number, pair in enumerate(zip(steps, proved, strict=True))]


def _limit_of(
    request: Request, turn: PreparedTurn, sent: SentConstraint
) -> tuple[Callable[[], ThoughtLimit] | None, tuple[str, ...]]:
    """What makes the limit of each text, None for no limit; and why it is not held."""
    reasoning, most = turn.reasoning, request.max_reasoning
    if most is None or reasoning is None:
        return None, ()
    if turn.in_channels:
        return None, (CHANNELS,)
    if sent.grammar is not None:
        return None, (FILTERED,)
    return lambda: ThoughtLimit(turn, reasoning, most), ()


def _after_thought(end: AnswerEnd, before: Sequence[int]) -> AnswerEnd:
    """The end of both requests. before: the tokens that the second one had in its prompt."""
    if not before:
        return end
    note = "the reasoning was closed at its limit, and the rest asked for in a second request"
    return replace(
        end,
        prompt_tokens=end.prompt_tokens - len(before),
        completion_tokens=end.completion_tokens + len(before),
        token_ids=(*before, *end.token_ids) if end.token_ids else (),
        notes=(*end.notes, note),
    )
