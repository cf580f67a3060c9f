"""The use cases: load, generate, compile, contract. The CLI, and later the server, call these and nothing below.

They know no engine's insides and read no environment: they are given an App.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from espalier.api.loaded import LoadedEngine
from espalier.constraints.base import Compiled
from espalier.constraints.schema_spec import contract_of
from espalier.constraints.spec import JsonSchema, Spec
from espalier.errors import InputError
from espalier.sampling import preset as preset_values
from espalier.sampling.preset import Preset
from espalier.schema.contract import Contract
from espalier.tokens.vocab import Vocab
from espalier.wiring import App, build_app


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
    app = app or default_app()
    return LoadedEngine(app.open(model, device=device, dtype=dtype), app.presets)


def generate(prompt: Any, /, **options: Any) -> Any:
    """`LoadedEngine.generate` on the default engine, which is loaded at the first call and kept."""
    return LoadedEngine(default_app().default_engine(), default_app().presets).generate(prompt, **options)


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


def get_preset(name: str, *, app: App | None = None) -> Preset:
    """The preset of that name: built-in, registered, or a file of the user's. Raises UnknownName, InputError."""
    return (app or default_app()).presets.get(name)


class PresetBuilder(preset_values.PresetBuilder):
    """A preset step by step: `PresetBuilder("mine").temperature(0.2).grammar("@json_object").build_and_register()`."""

    def build_and_register(self, app: App | None = None) -> Preset:
        """For this process: `preset="mine"` then names it. Raises InputError and SamplingError naming the field."""
        made = self.build()
        (app or default_app()).presets.register(made)
        return made
