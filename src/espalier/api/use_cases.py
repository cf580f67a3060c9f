"""The use cases: load, generate, compile, contract. The CLI and the server call these and nothing below.

They know no engine's internals and read no environment: an App is given to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Unpack, overload

from espalier.api.explaining import Explanation
from espalier.api.explaining import explain as explained
from espalier.api.loaded import LoadedEngine
from espalier.api.options import GenerateOptions, Instance, OnePrompt, Prompts, with_options
from espalier.constraints import to_peers
from espalier.constraints.base import Compiled
from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.joining.named import Constraint, read_constraint
from espalier.constraints.joining.presets import merged
from espalier.constraints.joining.rule import unenforced, with_bad_words
from espalier.constraints.json_schema.check import grammar_contract
from espalier.constraints.json_schema.compile import contract_of
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema, Spec
from espalier.engine_table import choose_for
from espalier.engines.base import Result
from espalier.engines.options import EngineOptions, LoraLike, read_lora
from espalier.errors import CapabilityError, InputError, LimitExceeded, UnsupportedError
from espalier.harness.compare.remedies import SEEDS
from espalier.sampling.presets import spec as preset_values
from espalier.sampling.presets.spec import Preset
from espalier.schema.contract import Contract
from espalier.schema.gbnf import printed
from espalier.tokens.vocab import Vocab
from espalier.wiring import App, build_app


@cache
def default_app() -> App:
    """The App that module-level functions share, made from the environment on first use."""
    return build_app()


def load(
    model: str | os.PathLike[str] | Any | None = None,
    tokenizer: Any = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    draft_model: str | os.PathLike[str] | None = None,
    context: int | None = None,
    sequences: int | None = None,
    kv_size: int | None = None,
    kv_unified: bool | None = None,
    batch_size: int | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
    kv_type: str | None = None,
    flash_attention: str | None = None,
    lora: LoraLike | Sequence[LoraLike] | None = None,
    engine: str | None = None,
    url: str | None = None,
    key_file: str | None = None,
    timeout: float | None = None,
    repair: int | None = None,
    schema_as: str | None = None,
    binary: str | os.PathLike[str] | None = None,
    tool_format: str | None = None,
    app: App | None = None,
) -> LoadedEngine:
    """Load a model by path or name: a GGUF file, the address of a llama-server, a folder or hub name of Hugging Face;
    by default the configured or the demo model. Or a model that is loaded already: one of transformers with its
    tokenizer, or a `llama_cpp.Llama`, which stay yours. Arguments left None come from the environment
    (`ESPALIER_CONTEXT` and so on), then from the engine's defaults.

    device: `cpu`, `cuda`, `cuda:1`, `mps`. dtype: the weights' type: `float32`, `bfloat16`, `float16`, `auto`.
    draft_model: a smaller model with the same vocabulary, in this process too, which drafts under `strategy="draft"`.
    tool_format: how calls are written, if the chat template does not show it.

    For a GGUF file. context: positions of one sequence. sequences: how many at once. kv_size: tokens that all of them
    hold together. kv_unified: whether they share one KV cache or have one each; by default each has its own where
    memory allows. batch_size: tokens of one decode. gpu_layers: layers on the GPU, -1 for all. threads: for the forward
    pass. kv_type: `f16`, `f32`, `q8_0`, ... flash_attention: `auto`, `on`, `off`. lora: a path, a (path, scale) pair,
    or a list of them. docs/llamacpp.md lists their defaults.

    For servers and programs of others (docs/upstream.md). engine: `llama-server`, `openai` or `llama-cli`. url: the
    server's address. key_file: the file with its key. timeout: seconds that a server may be silent, or a program may
    run. repair: how often `openai` asks again for a text that breaks its constraint. schema_as: what `llama-server` is
    sent for a schema, `gbnf` (ours) or its own `json_schema`. binary: the path of llama-completion.

    Raises UnknownModel, MissingDependency, CapabilityError, and InputError, also for an option that the model's engine
    does not take.
    """
    app = app or default_app()
    options = EngineOptions(
        device=device,
        dtype=dtype,
        draft_model=None if draft_model is None else os.fspath(draft_model),
        tool_format=tool_format,
        context=context,
        sequences=sequences,
        kv_size=kv_size,
        kv_unified=kv_unified,
        batch_size=batch_size,
        gpu_layers=gpu_layers,
        threads=threads,
        kv_type=kv_type,
        flash_attention=flash_attention,
        lora=read_lora(lora),
        engine=engine,
        url=url,
        key_file=key_file,
        timeout=timeout,
        repair=repair,
        schema_as=schema_as,
        binary=None if binary is None else os.fspath(binary),
    )
    if model is not None and not isinstance(model, str | os.PathLike):
        return LoadedEngine(app.wrap(model, tokenizer, options), app.presets, log=app.log, kind=choose_for(model))
    if tokenizer is not None:
        raise InputError(
            "a tokenizer goes with a model that is loaded already",
            hint="leave it out: a model by name has its own",
            field="tokenizer",
        )
    name = None if model is None else os.fspath(model)
    return LoadedEngine(app.open(name, options), app.presets, log=app.log, kind=app.engine_kind(name, options))


@overload
def generate(  # type: ignore[overload-overlap]  # a text is no list of prompts
    prompt: OnePrompt, /, constraint: type[Instance], **options: Unpack[GenerateOptions]
) -> Result[Instance]: ...
@overload
def generate(  # type: ignore[overload-overlap]
    prompt: OnePrompt, /, constraint: Constraint = None, **options: Unpack[GenerateOptions]
) -> Result: ...
@overload
def generate(
    prompt: Prompts, /, constraint: type[Instance], **options: Unpack[GenerateOptions]
) -> list[Result[Instance]]: ...
@overload
def generate(prompt: Prompts, /, constraint: Constraint = None, **options: Unpack[GenerateOptions]) -> list[Result]: ...


@with_options
def generate(prompt: Any, /, constraint: Any = None, **options: Unpack[GenerateOptions]) -> Result | list[Result]:
    """`LoadedEngine.generate` on the default engine, which is loaded on the first call and kept."""
    app = default_app()
    engine = LoadedEngine(app.default_engine(), app.presets, log=app.log, kind=app.engine_kind())
    result: Result | list[Result] = engine.generate(prompt, constraint, **options)
    return result


def explain(
    prompt: Any,
    /,
    constraint: Constraint = None,
    *,
    engine: LoadedEngine | None = None,
    try_remedies: bool = False,
    seeds: int = SEEDS,
    **options: Any,
) -> Explanation:
    """Generate once, and explain what the constraint cost, where, why, and what to do about it.

    engine: what `espalier.load` returned; by default the one of `espalier.generate`. constraint, options: the arguments
    of `espalier.generate`. try_remedies: run each remedy that is named on so many seeds, paired
    with the run as asked; `trials` then has the differences of tax (nats), validity (share), tokens and time (seconds)
    with their 95 % intervals, and `recommended` the one that helps. Raises as `generate` does.
    """
    if engine is None:
        app = default_app()
        engine = LoadedEngine(app.default_engine(), app.presets, log=app.log, kind=app.engine_kind())
    return explained(prompt, constraint=constraint, engine=engine, try_remedies=try_remedies, seeds=seeds, **options)


def compile(constraint: Constraint, *, vocab: Vocab | None = None, app: App | None = None) -> Compiled:  # noqa: A001  # as re.compile
    """Compile a constraint, as `espalier.generate` takes it, for a vocabulary (default: bytes). Raises SpecError and
    its subclasses, UnsupportedError."""
    return (app or default_app()).compiler(vocab or Vocab.bytes()).compile(read_constraint(constraint))


def contract(schema: Any, *, vocab: Vocab | None = None, app: App | None = None, **options: Any) -> Contract:
    """What happens to every keyword of a schema: enforced, narrowed, checked or refused, by its JSON pointer.

    schema: a JsonSchema, or what its constructor takes, with its `options`. Nothing is refused here: see
    `Contract.check`. Raises SchemaError, LimitExceeded, and UnsupportedError for an unknown draft, document or format.
    """
    if isinstance(schema, JsonSchema) and options:
        raise InputError(f"give {', '.join(options)} to JsonSchema itself", field="schema")
    spec = schema if isinstance(schema, JsonSchema) else JsonSchema(schema, **options)
    return contract_of(spec, (app or default_app()).compiler(vocab or Vocab.bytes()))


def schema_to_gbnf(schema: Any, **options: Any) -> str:
    """A schema as GBNF for llama.cpp, whose texts are the schema's documents; comments name the rules' JSON pointers.

    schema: a JsonSchema, or what `contract` takes, with its `options`. Raises SchemaError, LimitExceeded, and
    UnsupportedError for a keyword that the grammar cannot enforce: `espalier grammar convert` shows all of them.
    """
    if isinstance(schema, JsonSchema) and options:
        raise InputError(f"give {', '.join(options)} to JsonSchema itself", field="schema")
    spec = schema if isinstance(schema, JsonSchema) else schema_spec(schema, **options)
    lowered = LoweredSchema(spec)
    grammar_contract(lowered).check()
    return printed(lowered.converted)


def to_llguidance(constraint: Constraint | Compiled, *, app: App | None = None) -> str:
    """A constraint as Lark text for llguidance 1.9, whose texts and masks are then the constraint's. A Compiled gives
    its spec. Raises CapabilityError, naming the kind and the reason, for what has no grammar; InputError and its
    subclasses for a spec that is wrong in itself."""
    return to_peers.to_llguidance(_spec_of(constraint), (app or default_app()).compiler(Vocab.bytes()))


def to_xgrammar(constraint: Constraint | Compiled, *, app: App | None = None) -> str:
    """A constraint as EBNF text for xgrammar 0.2, with the start rule `root`. Takes and raises as `to_llguidance`."""
    return to_peers.to_xgrammar(_spec_of(constraint), (app or default_app()).compiler(Vocab.bytes()))


def _spec_of(constraint: Constraint | Compiled) -> Spec:
    if isinstance(constraint, Compiled):
        if constraint.spelled:
            marker = next(iter(constraint.spelled.values())).decode("utf-8", "replace")
            raise CapabilityError(
                f"{constraint.spec.kind} takes the special token {marker} as text here, which no grammar of another "
                "engine says",
                field="constraint",
            )
        return constraint.spec
    return read_constraint(constraint)


def get_preset(name: str, *, app: App | None = None) -> Preset:
    """The preset of that name: built-in, registered, or from a file of the user's. Raises UnknownName, InputError."""
    return (app or default_app()).presets.get(name)


def try_preset(preset: Preset, *, app: App | None = None) -> tuple[str, ...]:
    """Compile what a preset holds a text to, over bytes, and find a text that it allows. Returns notes on what it does
    not enforce. Raises InputError and its subclasses, UnsupportedError and LimitExceeded, naming the preset, for one
    that could not be used."""
    constraint, sampling, notes = merged(preset)
    try:
        whole = with_bad_words(constraint, sampling.bad_words)
        if whole is not None:
            compile(whole, app=app).matcher().mask()
    except (InputError, UnsupportedError, LimitExceeded) as error:
        kind = type(error) if isinstance(error, UnsupportedError | LimitExceeded) else InputError
        raise kind(
            f"the preset {preset.name!r} cannot be used: {error.message}", hint=error.hint, field="preset"
        ) from error
    return (*notes, *unenforced(whole))


class PresetBuilder(preset_values.BasePresetBuilder):
    """A preset step by step: `PresetBuilder("mine").temperature(0.2).grammar("@json_object").build_and_register()`."""

    def build_and_register(self, app: App | None = None) -> Preset:
        """Register it in this process: `preset="mine"` then names it. It is tried first, as `try_preset` does. Raises
        InputError and SamplingError, naming the field, and what `try_preset` raises; nothing is registered then."""
        made = self.build()
        try_preset(made, app=app)
        (app or default_app()).presets.register(made)
        return made
