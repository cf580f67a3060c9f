"""The engine over any StepModel: renders, encodes, compiles, drives the run, judges the output. All in-process engines
share it.

It knows no framework: the model is a port, the tokenizer a function.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain

from espalier.chat.prompt.template import ChatTemplate
from espalier.computed import computed
from espalier.constraints.compiler import NOWHERE, Compiler, Folders
from espalier.constraints.joining.rule import with_bad_words
from espalier.constraints.kinds import KINDS
from espalier.decoding.ports import StepModel, WatchedModel
from espalier.engines.base import Capabilities, Event, Request
from espalier.engines.capabilities import check_capabilities
from espalier.engines.embedding import HiddenReader
from espalier.engines.local.model_turns import ModelTurns
from espalier.engines.local.ports import EncodePrompt, MakeNative
from espalier.engines.local.prepared_run import PreparedRun
from espalier.engines.local.run_maker import DRAFTS, SAME, RunMaker
from espalier.engines.local.step_engine import RunDriver
from espalier.engines.local.turns import PreparedTurn, TurnMaker
from espalier.engines.protocols import Engine
from espalier.engines.scheduling.drive import drive
from espalier.engines.scheduling.room import Room, run_sequences
from espalier.errors import CapabilityError, InputError, PromptTooLong
from espalier.tokens.vocab import Vocab, first_difference
from espalier.wording import RAW, OptionText

SHRINKING = 4
"""How many times shorter a tokenizer's normalizer may make a text."""


class LocalEngine:
    """A StepEngine. Runs of several threads share the model, taking turns after every forward pass."""

    def __init__(
        self,
        *,
        name: str,
        model: StepModel,
        vocab: Vocab,
        encode: EncodePrompt,
        template: ChatTemplate | None = None,
        folders: Folders = NOWHERE,
        tool_template: ChatTemplate | None = None,
        tool_format: str | None = None,
        native: MakeNative | None = None,
        sibling: StepModel | None = None,
        hidden: HiddenReader | None = None,
        generates: bool = True,
        kv_unified: bool | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """tool_template: for requests with tools, if the model has a template of its own for them. tool_format: how
        calls are written if the template does not show it. native: makes the engine's own sampler, if it has one.
        sibling: a smaller model with the same vocabulary, for drafts; this engine alone drives it.
        hidden: reads hidden states, for embeddings. generates: false for a model that was trained for embeddings alone.
        kv_unified: as in Capabilities. clock: seconds, to time compiling."""
        self._name = name
        self._model: StepModel | None = model
        self._vocab = vocab
        self._encode = encode
        # One object for all requests: `decoding/canonical.py` caches results by it.
        self._continuation = vocab.encoder or partial(encode, add_special=False)
        self._template = template
        self._compiler = Compiler(vocab, folders=folders)
        self._turns = TurnMaker(name=name, template=template, vocab=vocab, tool_format=tool_format)
        self._tool_turns = TurnMaker(
            name=name, template=tool_template or template, vocab=vocab, tool_format=tool_format
        )
        self._runs = RunMaker(
            name=name, compiler=self._compiler, encode=self._continuation, native=native, sibling=sibling, clock=clock
        )
        self._has_native = native is not None
        self._hidden = hidden
        self._generates = generates
        self._kv_unified = kv_unified
        self._room = Room(model)
        self._round = ModelTurns()
        self._direct = 0  # runs that have begun and drive the model without a RunDriver
        self._server: RunDriver | None = None
        self._smaller: LocalEngine | None = None  # drafts
        self._kinds = frozenset(KINDS.names())
        self._sites = model.watched_sites if isinstance(model, WatchedModel) else ()

    @property
    def name(self) -> str:
        return self._name

    @property
    def vocab(self) -> Vocab:
        return self._vocab

    @property
    def model(self) -> StepModel:
        """The StepModel, for callers that drive it themselves. Raises InputError once closed."""
        if self._model is None:
            raise InputError("this engine is closed", hint="load the model again")
        return self._model

    @property
    def compiler(self) -> Compiler:
        return self._compiler

    @property
    def runs(self) -> RunMaker:
        """Prepares this model's runs, for callers that have no Request to render."""
        return self._runs

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            logits=True,
            constraints=self._kinds,
            chat_template=self._template is not None,
            truncate=self.model.can_truncate,
            fork=True,
            max_context=self.model.max_positions,
            max_sequences=run_sequences(self.model),
            native_sampler=self._has_native,
            activations=self._sites,
            draft_model=self._runs.has_sibling,
            kv_unified=self._kv_unified,
        )

    @property
    def hidden(self) -> HiddenReader | None:
        """Reads hidden states, for embeddings; None if this model gives none."""
        return self._hidden

    def prompt_text(self, request: Request) -> str:
        """The text that the model is given: rendered messages, or the prompt."""
        return self._turn(request).text

    def prompt_ids(self, request: Request) -> list[int]:
        """The token ids that the model is given. Raises InputError and its subclasses."""
        return self._ids(request, self.prompt_text(request))

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text; special tokens spelled in it become their ids. add_special: with the BOS that the
        tokenizer adds by default."""
        return self._encode(text, add_special=add_special)

    @property
    def template(self) -> ChatTemplate | None:
        return self._template

    def _ids(self, request: Request, text: str) -> list[int]:
        if request.prompt_ids is not None:
            if not request.raw:
                raise InputError("a prompt of token ids must be raw", hint=OptionText(RAW), field="raw")
            for token in request.prompt_ids:
                if not 0 <= token < self._vocab.width or not self._vocab.real_ids[token]:
                    raise InputError(f"there is no token {token}", field="prompt_ids")
            return list(request.prompt_ids)
        self._check_length(text)
        # A rendered template spells its own BOS; a plain prompt gets what the tokenizer adds by default.
        plain = request.messages is None and (self._template is None or request.raw)
        return self._encode(text, add_special=plain)

    def _check_length(self, text: str) -> None:
        """Raises PromptTooLong for a text that cannot fit however its bytes are made into tokens: encoding a text of
        megabytes takes seconds and cannot be ended."""
        most = self.model.max_positions * self._longest_token * SHRINKING
        if len(text) > most:
            raise PromptTooLong.over(self.model.max_positions, characters=len(text))

    @computed
    def _longest_token(self) -> int:
        """Bytes of the longest token, special ones included."""
        special = (len(text.encode()) for text in self._vocab.special_texts.values())
        return max(chain(map(len, self._vocab.tokens), special), default=1)

    def _turn(self, request: Request) -> PreparedTurn:
        return (self._tool_turns if request.tools else self._turns).prepare(request)

    def run(self, requests: Sequence[Request]) -> Iterator[Event]:
        runs = [self.prepare(request) for request in requests]  # check every request before running any
        return self._events(runs)

    def draft_with(self, smaller: Engine) -> None:
        """See `DraftedEngine`."""
        if not isinstance(smaller, LocalEngine):
            raise CapabilityError(f"{smaller.name} gives no logits here, so it cannot draft", hint=SAME)
        token = first_difference(self._vocab, smaller.vocab)
        if token is not None:
            mine, other = (
                repr(vocab.text_of(token)) if token < vocab.width else "none" for vocab in (self._vocab, smaller.vocab)
            )
            raise InputError(
                f"{smaller.name} has another vocabulary than {self._name}: token {token} is {other}, not {mine}",
                hint=SAME,
            )
        self._runs.draft_with(smaller.model)
        self._smaller = smaller

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._model = self._hidden = None
        self._runs.draft_with(None)
        if self._smaller is not None:
            self._smaller.close()

    def serve_with(self, driver: RunDriver | None) -> None:
        """Give the model to `driver` alone: `run` goes through it from now on. None ends that. Raises InputError if
        there is a driver already, or a run has begun."""
        with self._round:
            if driver is not None and self._server is not None:
                raise InputError("this engine is being served already", hint="close the one that serves it first")
            if driver is not None and self._direct:
                raise InputError(
                    "this engine cannot be served while it generates", hint="finish or close what is being streamed"
                )
            self._server = driver

    def prepare(self, request: Request) -> PreparedRun:
        """Check, render, encode and compile: everything that can fail before the model is needed. From any thread.
        Raises InputError and its subclasses."""
        model = self.model
        if not self._generates:
            raise CapabilityError(
                f"{self._name} is a model for embeddings: it cannot generate",
                hint="load a model that was trained to write text",
                field="model",
            )
        check_capabilities(self, request)
        self._runs.check(request)
        whole = with_bad_words(request.constraint, request.sampling.bad_words)
        turn = self._turn(replace(request, constraint=whole))
        return self._runs.make(request, turn, self._ids(request, turn.text), model)

    def _events(self, runs: list[PreparedRun]) -> Iterator[Event]:
        with self._round:
            server, model = self._server, self.model
            if server:
                driver = server.drive(runs)
            else:
                sizes, many = [r.size for r in runs], [r.sequences for r in runs]
                drafts = any(run.request.strategy == DRAFTS for run in runs)
                driver = drive(
                    model,
                    [r.plan() for r in runs],
                    sizes,
                    self._room,
                    many,
                    [r.watch for r in runs],
                    self._runs.kit if drafts else None,
                )
            self._direct += server is None
        # The lock is held for one step, not for the whole run, so that streams of several threads take turns on the
        # model. A RunDriver has the model to itself: waiting for it must not make others wait.
        turn = self._round if server is None else nullcontext()
        try:
            while True:
                with turn:
                    following = next(driver, None)
                if following is None:
                    return
                index, happened = following
                yield runs[index].event(happened, index)
        finally:

            def close() -> None:
                with ExitStack() as stack:  # close every run, even if closing one fails
                    for run in runs:
                        stack.callback(run.close)
                    self._direct -= server is None
                    driver.close()

            if server is None:
                self._round.end(close)
            else:
                close()
