"""The use cases: compile, load, generate, stream. The CLI, and later the server, call these and nothing below.

It knows no engine's insides and reads no environment: it is given an App.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, overload

from espalier.constraints.base import Compiled
from espalier.constraints.schema_spec import contract_of
from espalier.constraints.soft import SoftSpec
from espalier.constraints.spec import JsonSchema, Spec
from espalier.decoding.step import TraceLevel
from espalier.engines.base import Capabilities, Engine, Event, Finished, Message, Request, Result
from espalier.errors import CapabilityError, InputError
from espalier.sampling.config import SamplingConfig
from espalier.schema.contract import Contract
from espalier.tokens.vocab import Vocab
from espalier.wiring import App, build_app

Prompt: TypeAlias = "str | Sequence[Message]"


class LoadedEngine:
    """A model ready to generate: what `espalier.load` gives. Use it in a `with`, or call `close`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def vocab(self) -> Vocab:
        return self._engine.vocab

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def engine(self) -> Engine:
        """The engine underneath, for those who build requests themselves."""
        return self._engine

    @overload
    def generate(self, prompt: str, /, **options: Any) -> Result: ...
    @overload
    def generate(self, prompt: Sequence[Message], /, **options: Any) -> Result: ...
    @overload
    def generate(self, prompt: Sequence[str], /, **options: Any) -> list[Result]: ...
    @overload
    def generate(self, prompt: Sequence[Sequence[Message]], /, **options: Any) -> list[Result]: ...

    def generate(self, prompt: Any, /, **options: Any) -> Result | list[Result]:
        """Generate for a text, a list of messages, or a list of either (one batch, results in order).

        constraint: a Spec. soft: a SoftSpec or several, biases beside it or alone. sampling: a SamplingConfig, or its
        fields by name (temperature=0, seed=1, max_tokens=64, stop=["\\n"], ...). system: a system message. raw: take a
        text as it is, without the chat template. trace: "full", "measures" or "off"; trace_top_k: candidates per
        stage. strategy: how the constraint is applied.

        Raises InputError and its kin for what is asked wrongly, before anything is generated; GenerationError after.
        """
        requests, single = self.requests(prompt, **options)
        done: dict[int, Result] = {}
        for event in self._engine.run(requests):
            if isinstance(event, Finished):
                done[event.index] = event.result
        results = [done[i] for i in range(len(requests))]
        return results[0] if single else results

    def stream(self, prompt: Any, /, **options: Any) -> Iterator[Event]:
        """The same, token by token: `TokenEvent`s and, per prompt, one `Finished` with the Result.

        The request is checked at once, not at the first event. Closing the iterator stops the generation.
        """
        requests, _ = self.requests(prompt, **options)
        return self._engine.run(requests)

    def requests(self, prompt: Any, /, **options: Any) -> tuple[list[Request], bool]:
        """The Requests that `generate` would run, and whether there is a single prompt."""
        prompts, single = split_prompts(prompt)
        made = [make_request(one, **options) for one in prompts]
        for request in made:
            check_capabilities(self._engine, request)
        return made, single

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> LoadedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<espalier.LoadedEngine {self.name!r}>"


def split_prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    """One prompt or several: a text, or a list whose first item has a role, is one."""
    if isinstance(prompt, str):
        return [prompt], True
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise InputError(f"a prompt is a text or messages, not {type(prompt).__name__}", field="prompt")
    if not prompt:
        raise InputError("there is no prompt", field="prompt")
    if isinstance(prompt[0], Mapping):
        return [prompt], True
    return list(prompt), False


def make_request(
    prompt: Prompt,
    *,
    constraint: Spec | None = None,
    soft: SoftSpec | Sequence[SoftSpec] | None = None,
    sampling: SamplingConfig | None = None,
    system: str | None = None,
    strategy: str = "mask",
    trace: TraceLevel = "full",
    trace_top_k: int = 10,
    raw: bool = False,
    **fields: Any,
) -> Request:
    """A Request from what people write. Raises InputError; unknown names are refused, with the names there are."""
    if sampling is not None and not isinstance(sampling, SamplingConfig):
        raise InputError(f"sampling is a SamplingConfig, not {type(sampling).__name__}", field="sampling")
    if sampling is not None and fields:
        raise InputError(f"give sampling= or its fields ({', '.join(fields)}), not both", field="sampling")
    config = sampling or SamplingConfig.from_json(fields)
    if constraint is not None and not isinstance(constraint, Spec):
        raise InputError(
            f"constraint must be a Spec, not {type(constraint).__name__}",
            hint="for example JsonSchema({...}), Regex(r'...'), Choice([...])",
            field="constraint",
        )
    if trace not in ("off", "measures", "full"):
        raise InputError(f"unknown trace level {trace!r}", hint="off, measures or full", field="trace")
    if isinstance(trace_top_k, bool) or not isinstance(trace_top_k, int) or trace_top_k < 0:
        raise InputError("trace_top_k must be a whole number, at least 0", field="trace_top_k")
    if not isinstance(prompt, str) and not (
        isinstance(prompt, Sequence) and all(isinstance(m, Mapping) for m in prompt)
    ):
        raise InputError("a prompt is a text or a list of messages", hint="ids are not taken", field="prompt")
    for given in (prompt, system):
        if isinstance(given, str):
            check_text(given)
    text: str | None = prompt if isinstance(prompt, str) else None
    messages: tuple[Message, ...] | None = None if isinstance(prompt, str) else tuple(prompt)
    if system is not None:
        if raw:
            raise InputError("a raw prompt has no system message", field="system")
        rest = messages if messages is not None else ({"role": "user", "content": text},)
        text, messages = None, ({"role": "system", "content": system}, *rest)
    return Request(
        prompt=text,
        messages=messages,
        constraint=constraint,
        soft=soft_specs(soft),
        sampling=config,
        strategy=strategy,
        trace=trace,
        trace_top_k=trace_top_k,
        raw=raw,
    )


def soft_specs(soft: Any) -> tuple[SoftSpec, ...]:
    """None, one SoftSpec or several, as a tuple. Raises InputError for anything else."""
    if soft is None:
        return ()
    several = tuple(soft) if isinstance(soft, Sequence) and not isinstance(soft, str | bytes) else (soft,)
    for one in several:
        if not isinstance(one, SoftSpec):
            raise InputError(
                f"soft must be a SoftSpec or a list of them, not {type(one).__name__}",
                hint="for example SoftJson(), SoftWordlist(Wordlist(...))",
                field="soft",
            )
    return several


def check_text(text: str) -> None:
    """Half a character (a lone surrogate, as from an argument that is not UTF-8) is no text. Raises InputError."""
    place = next((i for i, c in enumerate(text) if 0xD800 <= ord(c) < 0xE000), None)
    if place is not None:
        raise InputError(
            f"the prompt is not valid Unicode at character {place}", hint="write it in UTF-8", field="prompt"
        )


def check_capabilities(engine: Engine, request: Request) -> None:
    """Refuse, before anything runs, what the engine cannot do."""
    can = engine.capabilities
    if request.constraint is not None and request.constraint.kind not in can.constraints:
        raise CapabilityError(
            f"{engine.name} cannot enforce {request.constraint.kind}",
            hint=f"it can: {', '.join(sorted(can.constraints)) or 'none'}",
            field="constraint",
        )
    if request.soft and not can.logits:
        raise CapabilityError(
            f"{engine.name} gives no logits, so soft constraints cannot be applied",
            hint="leave `soft` out, or use an engine that runs the model itself",
            field="soft",
        )


@cache
def default_app() -> App:
    """The App that module-level functions share, made from the environment when first needed."""
    return build_app()


def load(
    model: str | None = None, *, device: str | None = None, dtype: str | None = None, app: App | None = None
) -> LoadedEngine:
    """Load a model by path or name; without one, the configured or the demo model.

    device: `cpu`, `cuda`, `cuda:1`, `mps`. dtype: `float32`, `bfloat16`, `float16`, `auto`.
    Raises UnknownModel, MissingDependency, InputError.
    """
    return LoadedEngine((app or default_app()).open(model, device=device, dtype=dtype))


def generate(prompt: Any, /, **options: Any) -> Any:
    """`LoadedEngine.generate` on the default engine, which is loaded at the first call and kept."""
    return LoadedEngine(default_app().default_engine()).generate(prompt, **options)


def compile(spec: Spec, *, vocab: Vocab | None = None, app: App | None = None) -> Compiled:  # noqa: A001  # as re.compile
    """Make a constraint ready for a vocabulary (default: bytes). Raises SpecError and its kin, UnsupportedError."""
    return (app or default_app()).compiler(vocab or Vocab.bytes()).compile(spec)


def contract(schema: Any, *, vocab: Vocab | None = None, app: App | None = None, **options: Any) -> Contract:
    """What will become of every keyword of a schema: enforced, narrowed, checked or refused, by its JSON pointer.

    schema: a JsonSchema, or what one takes, with its `options`. Nothing is refused here: see `Contract.check`.
    Raises SchemaError, LimitExceeded, and UnsupportedError for a draft, document or format that cannot be had.
    """
    if isinstance(schema, JsonSchema) and options:
        raise InputError(f"give {', '.join(options)} to JsonSchema itself", field="schema")
    spec = schema if isinstance(schema, JsonSchema) else JsonSchema(schema, **options)
    return contract_of(spec, (app or default_app()).compiler(vocab or Vocab.bytes()))
