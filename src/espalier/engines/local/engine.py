"""The engine over any StepModel: renders, encodes, compiles, drives, judges. Shared by all in-process engines.

It knows no framework: the model is a port, the tokenizer a function.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Protocol

from espalier.chat.prompt.template import ChatTemplate
from espalier.constraints.bad_words import with_bad_words
from espalier.constraints.compiler import COMPILERS, NOWHERE, Compiler, Folders
from espalier.constraints.join_safety import filters_in
from espalier.constraints.rewinding import Rewinding, check_only_masks, rewinding_parts
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import portable
from espalier.decoding.drive import drive
from espalier.decoding.native import NativeSampler, check_native, native_plan
from espalier.decoding.plan import STRATEGIES, Job, MakePlan, Outcome, Strategy, Taken
from espalier.decoding.ports import StepModel
from espalier.decoding.rewinding.strategy import rewind_plan
from espalier.decoding.room import Room
from espalier.decoding.step import Watch
from espalier.decoding.token_limit import check_budget, closable, with_budget
from espalier.engines.base import Capabilities, Event, Request
from espalier.engines.local.prepared import Prepared, watched
from espalier.engines.local.turns import PreparedTurn, TurnMaker
from espalier.errors import CapabilityError, InputError, PromptTooLong, UnsupportedError
from espalier.sampling.chain import Chain
from espalier.sampling.config import MAX_N, SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import LogitFilter, distinct
from espalier.sampling.fit import Fitted, check_ends, fit
from espalier.time_limit import is_limited
from espalier.tokens.vocab import Vocab


class Encode(Protocol):
    """Prompt text to ids. add_special: add what the tokenizer adds by default (BOS); markers in the text are read."""

    def __call__(self, text: str, *, add_special: bool) -> list[int]: ...


class MakeNative(Protocol):
    """The engine's own sampler for one sequence. grammar: GBNF whose start is `root`. Raises CapabilityError."""

    def __call__(self, config: SamplingConfig, fitted: Fitted, *, seed: int, grammar: str | None) -> NativeSampler: ...


class Server(Protocol):
    """What has the model of an engine to itself, and drives the engine's own runs too."""

    def drive(self, runs: Sequence[Prepared]) -> Generator[tuple[int, Taken | Outcome], None, None]:
        """As `decoding.drive`: (number of the run, what happened). Closing it stops all of them."""
        ...

    def close(self) -> None:
        """Stop everything and leave the engine. Idempotent."""
        ...


class LocalEngine:
    """An Engine in this process. Runs of several threads share the model, a round at a time."""

    def __init__(
        self,
        *,
        name: str,
        model: StepModel,
        vocab: Vocab,
        encode: Encode,
        template: ChatTemplate | None = None,
        folders: Folders = NOWHERE,
        tool_template: ChatTemplate | None = None,
        tool_format: str | None = None,
        native: MakeNative | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """tool_template: for requests with tools, where the model has one of its own. tool_format: how calls are
        written where the template does not tell. native: makes the engine's own sampler, where it has one. clock:
        seconds, for the time that compiling takes."""
        self._name = name
        self._model: StepModel | None = model
        self._vocab = vocab
        self._encode = encode
        # One and the same for all requests: what is remembered of it is found again (`decoding/jump/canonical.py`).
        self._continuation = vocab.encoder or partial(encode, add_special=False)
        self._template = template
        self._compiler = Compiler(vocab, folders=folders)
        self._turns = TurnMaker(name=name, template=template, vocab=vocab, tool_format=tool_format)
        self._tool_turns = TurnMaker(
            name=name, template=tool_template or template, vocab=vocab, tool_format=tool_format
        )
        self._native = native
        self._room = Room(model)
        self._clock = clock
        self._round = threading.Lock()
        self._direct = 0  # runs that have begun and drive the model themselves
        self._server: Server | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def vocab(self) -> Vocab:
        return self._vocab

    @property
    def model(self) -> StepModel:
        """The StepModel, for those who drive it themselves. Raises InputError once closed."""
        if self._model is None:
            raise InputError("this engine is closed", hint="load the model again")
        return self._model

    @property
    def compiler(self) -> Compiler:
        return self._compiler

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            logits=True,
            constraints=frozenset(COMPILERS.names()),
            chat_template=self._template is not None,
            truncate=self.model.can_truncate,
            fork=True,
            max_context=self.model.max_positions,
            native_sampler=self._native is not None,
        )

    def prompt_text(self, request: Request) -> str:
        """The text the model is given: rendered messages, or the prompt."""
        return self._turn(request).text

    def prompt_ids(self, request: Request) -> list[int]:
        """The tokens the model is given. Raises InputError and its kin."""
        return self._ids(request, self.prompt_text(request))

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """As the tokenizer splits a text; markers in it are read. add_special: with the BOS that it adds by default."""
        return self._encode(text, add_special=add_special)

    @property
    def template(self) -> ChatTemplate | None:
        return self._template

    def _ids(self, request: Request, text: str) -> list[int]:
        if request.prompt_ids is not None:
            if not request.raw:
                raise InputError("a prompt of token ids is raw", hint="raw=True", field="raw")
            for token in request.prompt_ids:
                if not 0 <= token < self._vocab.width or not self._vocab.real_ids[token]:
                    raise InputError(f"there is no token {token}", field="prompt_ids")
            return list(request.prompt_ids)
        # A rendered template spells its own BOS; a plain prompt gets what the tokenizer adds by default.
        plain = request.messages is None and (self._template is None or request.raw)
        return self._encode(text, add_special=plain)

    def _turn(self, request: Request) -> PreparedTurn:
        return (self._tool_turns if request.tools else self._turns).prepare(request)

    def run(self, requests: Sequence[Request]) -> Iterator[Event]:
        runs = [self.prepare(request) for request in requests]  # every request is checked before any work is done
        return self._events(runs)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._model = None

    def serve_with(self, server: Server | None) -> None:
        """From now on `server` alone uses the model, and `run` goes through it; None: no longer. Raises InputError
        where there is a server already, or a run that has begun."""
        with self._round:
            if server is not None and self._server is not None:
                raise InputError("this engine is being served already", hint="close the one that serves it first")
            if server is not None and self._direct:
                raise InputError(
                    "this engine cannot be served while it generates", hint="finish or close what is being streamed"
                )
            self._server = server

    def prepare(self, request: Request) -> Prepared:
        """Check, render, encode and compile: all that can go wrong before the model is needed. From any thread.
        Raises InputError and its kin."""
        model, config = self.model, request.sampling
        if (request.constraint is not None or request.tools or config.bad_words) and config.ignore_eos:
            raise InputError(
                "ignore_eos cannot be combined with a constraint",
                hint="a complete text must be allowed to end",
                field="ignore_eos",
            )
        for token in config.stop_ids:
            if token >= self._vocab.width:
                raise InputError(f"stop id {token} is outside 0..{self._vocab.width - 1}", field="stop_ids")
        strategy: Strategy = STRATEGIES.load(request.strategy)
        make_plan: MakePlan = strategy.make_plan
        make_native = self._checked_native(request)
        self._check_strategy(strategy, request)
        turn = self._turn(request)
        turn = replace(turn, spec=with_bad_words(turn.spec, config.bad_words))
        going_back = rewinding_parts(turn.spec)
        if going_back:
            self._check_rewinding(going_back[0], request)
        prompt = self._ids(request, turn.text)
        if not prompt:
            raise InputError("the prompt is empty", hint="this model needs at least one token", field="prompt")
        if len(prompt) >= model.max_positions:
            raise PromptTooLong(
                f"the prompt has {len(prompt)} tokens; the context holds {model.max_positions}",
                hint=f"shorten it to at most {model.max_positions - 1}",
                field="prompt",
            )
        fitted = fit(config, self._vocab, self._continuation)
        check_budget(
            request.decoding.on_budget,
            has_constraint=turn.spec is not None,
            is_native=make_native is not None,
            bans=[name for name, _ in fitted.bans],
        )
        closes = request.decoding.on_budget == "close"
        # The last token taken needs no place in the cache, hence the one more.
        max_tokens = min(config.max_tokens, model.max_positions - len(prompt) + 1)
        sequences = strategy.sequences(request.decoding)
        if sequences > 1:  # all of them shall be able to grow so far: a cache that is full in the middle is an error
            max_tokens = max(1, min(max_tokens, (model.capacity - len(prompt)) // sequences + 1))
        compiler = self._compiler if make_native is None and not closes else self._compiler.by_grammar
        began = self._clock()
        with closable(closes):
            compiled = None if turn.spec is None else compiler.compile(turn.spec)
        matcher = compiled.matcher(before=turn.before) if compiled else None
        if going_back:
            if not isinstance(matcher, Rewinding):
                raise UnsupportedError(
                    f"{going_back[0].kind} cannot take text back as a part of {turn.spec.kind if turn.spec else ''}",
                    hint="it can alone and as a member of AllOf; mask there instead",
                    field="constraint",
                )
            make_plan = rewind_plan
        if compiled is not None and matcher is not None and closes:
            with closable(closes):
                matcher = with_budget(matcher, max_tokens, self._vocab, name=compiled.spec.kind)
        if matcher is not None and make_native is None and is_limited():
            matcher.mask()  # what takes too long already here ends here, where nobody waits for it
        compile_seconds = self._clock() - began
        # One less than all of 32 bits: llama.cpp takes the last for none.
        seed = secrets.randbelow(2**32 - MAX_N) if config.seed is None else config.seed
        if compiled is not None:
            check_ends(fitted, self._vocab)
        job = Job(
            vocab=self._vocab,
            prompt=tuple(prompt),
            matcher=matcher,
            chain=Chain(config, self._filters(request), fitted=fitted),
            stream=RandomStream(seed, request.stream),
            max_tokens=max_tokens,
            watch=Watch(watched(request), request.trace_top_k, counts=bool(filters_in(turn.spec))),
            spelled=compiled.spelled if compiled else {},
            clock=self._clock,
            options=request.decoding,
            encode=self._continuation,
        )
        if make_native is not None:
            grammar = None if turn.spec is None else portable(turn.spec, compiler, before=turn.before)
            sampler = make_native(config, fitted, seed=seed + request.stream, grammar=grammar)
            make_plan = partial(native_plan, sampler=sampler)
        return Prepared(
            self._name, request, turn, seed, job, make_plan, self._compiler.words, compile_seconds,
            sequences=sequences,
        )  # fmt: skip

    def _check_strategy(self, strategy: Strategy, request: Request) -> None:
        """Raises CapabilityError, SamplingError and InputError, naming the field, before anything is compiled."""
        strategy.check(request.decoding, request.sampling)
        most = self.model.max_sequences
        if (asked := strategy.sequences(request.decoding)) > most:
            raise CapabilityError(
                f"{request.strategy} wants {asked} sequences at once; {self._name} holds {most}",
                hint="ask for fewer, or load the model with more (sequences=)",
                field="num_beams" if request.strategy == "beam" else "particles",
            )
        if strategy.truncates and not self.model.can_truncate:
            raise CapabilityError(
                f"{self._name} cannot take tokens back, which {request.strategy} needs",
                hint="its cache is recurrent or has a sliding window; use mask",
                field="strategy",
            )

    def _check_rewinding(self, part: Spec, request: Request) -> None:
        """Whether a constraint can take text back here. part: which asks for it. Raises CapabilityError."""
        if request.sampler != "espalier":
            check_only_masks(part, "the engine's own sampler", field="sampler")
        if request.strategy != "mask":
            check_only_masks(part, request.strategy, field="strategy")
        if not self.model.can_truncate:
            raise CapabilityError(
                f"{self._name} cannot take tokens back, which {part.kind} needs here",
                hint="its cache is recurrent or has a sliding window; use a constraint that only masks",
                field="constraint",
            )

    def _checked_native(self, request: Request) -> MakeNative | None:
        """What makes the sampler that was asked for. Raises CapabilityError, SamplingError naming the field."""
        if request.sampler == "espalier":
            return None
        if self._native is None:
            raise CapabilityError(
                f"{self._name} has no sampler of its own",
                hint="only the llama.cpp engine has one",
                field="sampler",
            )
        check_native(
            request.sampling,
            strategy=request.strategy,
            soft=len(request.soft),
            filters=len(request.filters),
            stream=request.stream,
        )
        return self._native

    def _filters(self, request: Request) -> list[LogitFilter]:
        """The request's own, as copies: a filter follows one sequence."""
        own = [one.fork() for one in request.filters]
        return distinct([*(soft.filter(self._compiler) for soft in request.soft), *own])

    def _events(self, runs: list[Prepared]) -> Iterator[Event]:
        with self._round:
            server, model = self._server, self.model
            if server:
                driver = server.drive(runs)
            else:
                sizes, many = [r.size for r in runs], [r.sequences for r in runs]
                driver = drive(model, [r.plan() for r in runs], sizes, self._room, many)
            self._direct += server is None
        # Held for one round, not for the whole run: streams of several threads take turns on the model. A server's
        # thread has the model to itself, and waiting for it must not make others wait.
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
            with turn:
                driver.close()
                self._direct -= server is None
            with ExitStack() as stack:  # each of them, also where another fails
                for run in runs:
                    stack.callback(run.close)
