"""A loaded model with `generate`, `stream` and `serve`: what `espalier.load` returns, over any engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack, overload

from espalier.api.logged import logged
from espalier.api.options import GenerateOptions, Instance, OnePrompt, Prompts, with_options
from espalier.api.requests import make_request, outputs_of, split_prompts
from espalier.constraints.joining.named import Constraint
from espalier.engines.base import Capabilities, Event, FinishEvent, Request, Result
from espalier.engines.capabilities import check_capabilities
from espalier.engines.protocols import Engine, ServingEngine
from espalier.errors import CapabilityError
from espalier.sampling.presets.catalogue import Presets
from espalier.store.writer import LogWriter
from espalier.tokens.vocab import Vocab


class LoadedEngine:
    """A model ready to generate: what `espalier.load` returns. Use it in a `with`, or call `close`."""

    def __init__(
        self, engine: Engine, presets: Presets | None = None, *, log: LogWriter | None = None, kind: str | None = None
    ) -> None:
        """log: gets every generation. kind: the engine's name in its rows."""
        self._engine = engine
        self._presets = presets
        self._log = log
        self._kind = kind

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def presets(self) -> Presets | None:
        """Where names of presets are looked up; None for the built-in ones."""
        return self._presets

    @property
    def kind(self) -> str | None:
        """The engine's name, such as `transformers`; None where it was not opened by name."""
        return self._kind

    @property
    def vocab(self) -> Vocab:
        """Raises CapabilityError if the engine does not know the model's vocabulary."""
        if self._engine.vocab is None:
            raise CapabilityError(f"{self.name} runs elsewhere: its vocabulary is not known here", field="model")
        return self._engine.vocab

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def engine(self) -> Engine:
        """The engine underneath, for code that builds requests itself."""
        return self._engine

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is no list of prompts
        self, prompt: OnePrompt, /, constraint: type[Instance], **options: Unpack[GenerateOptions]
    ) -> Result[Instance]: ...
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompt: OnePrompt, /, constraint: Constraint = None, **options: Unpack[GenerateOptions]
    ) -> Result: ...
    @overload
    def generate(
        self, prompt: Prompts, /, constraint: type[Instance], **options: Unpack[GenerateOptions]
    ) -> list[Result[Instance]]: ...
    @overload
    def generate(
        self, prompt: Prompts, /, constraint: Constraint = None, **options: Unpack[GenerateOptions]
    ) -> list[Result]: ...

    @with_options
    def generate(
        self, prompt: Any, /, constraint: Any = None, **options: Unpack[GenerateOptions]
    ) -> Result | list[Result]:
        """Generate for a text, a list of messages, or a list of either (one batch, results in order).

        constraint: a Python type (a class, `list[User]`, `Literal["a", "b"]`, a dataclass, a TypedDict, an Enum, a
        pydantic model), whose instance `parsed` then is; a schema as a dict; or a Spec. regex, choice, json_schema,
        grammar: the same by name, as in request bodies: an expression, texts to choose from, a schema, GBNF or Lark.
        All that are given hold together. safety: a filter. soft: a SoftSpec or several. filters: your own LogitFilters.
        sampling: a SamplingConfig, or its fields by name (temperature=0, seed=1, max_tokens=64, stop=["\\n"], ...), or
        both: a field beside it replaces the one in it. With n > 1 every prompt gives n results, in one list: same seed,
        random streams 0 to n-1. system: a system message. raw: take a text as it is, without the chat template. trace:
        "off", "summary" (sums only), "steps" or "full" (every distribution); trace_top_k: candidates per stage.
        strategy: how the constraint is applied, with the fields of `Decoding` by name (particles=4, on_budget="close"),
        or decoding, a Decoding. sampler: "espalier", or "native" for llama.cpp's own sampler chain and random
        generator, which draw the tokens that llama-server draws. recorders: get every step as it happens; request_id:
        the request's name there.

        preset: a Preset or the name of one, applied as a whole; other arguments override its fields.

        activations: an Activations, or True: the result's `activations` then has the run's hidden states.

        tools: what the model may call: OpenAI's, Anthropic's or MCP's descriptions, Python functions, or names with
        their schemas. tool_choice: "auto", "required", "none", a tool's name, or OpenAI's objects. parallel_tool_calls,
        max_calls: whether a turn may call several times, and how often at most. tool_format: a name of a wire format.
        reasoning: "auto", a name such as "think", or a pair of markers: the model may reason first; max_reasoning: for
        at most that many tokens. schema_in_prompt: puts the constraint's schema into the prompt. closed: its objects
        take no names beyond their `properties`, as with `JsonSchema(closed=True)`.

        Raises InputError and its subclasses for wrong arguments, before anything is generated; GenerationError after.
        """
        requests, single = self.requests(prompt, constraint=constraint, **options)
        done: dict[int, Result] = {}
        for event in self.run(requests):
            if isinstance(event, FinishEvent):
                done[event.index] = event.result
        results = [done[i] for i in range(len(requests))]
        return results[0] if single else results

    @with_options
    def stream(
        self, prompt: OnePrompt | Prompts, /, constraint: Constraint = None, **options: Unpack[GenerateOptions]
    ) -> Iterator[Event]:
        """Like `generate`, token by token: `TokenEvent`s and, per prompt, one `FinishEvent` with the Result.

        The request is checked at once, not at the first event. Closing the iterator stops the generation.
        """
        requests, _ = self.requests(prompt, constraint=constraint, **options)
        return self.run(requests)

    def run(self, requests: Sequence[Request], *, route: str = "python") -> Iterator[Event]:
        """The events of requests that were made before. Where generations are logged, each of them is. route: what
        asked, for the log."""
        return logged(self._engine, requests, self._log, kind=self._kind, route=route)

    def requests(self, prompt: Any, /, **options: Any) -> tuple[list[Request], bool]:
        """The Requests that `generate` would run, and whether there is only one."""
        prompts, single = split_prompts(prompt)
        made = [
            request
            for prompt in prompts
            for request in outputs_of(make_request(prompt, presets=self._presets, **options))
        ]
        for request in made:
            check_capabilities(self._engine, request)
        return made, single and len(made) == 1

    def serve(self, **options: Any) -> ServingEngine:
        """Serve this model to many callers: requests join and leave between steps. Until the returned service is
        closed, `generate` and `stream` go through it too. options: a `Scheduler`'s (prefill_chunk, queue_size, lanes,
        prefix_tokens); an engine that runs elsewhere takes `queue_size` only. Raises InputError."""
        from espalier.engines.serving.serve import serve_engine  # noqa: PLC0415  # slow to import, seldom needed

        return serve_engine(self._engine, **options)

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> LoadedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<espalier.LoadedEngine {self.name!r}>"
