"""Opens a model by name: the table of engines, and how the name or the file's first bytes choose one.

It stands above all engines, those of other servers included, and imports one when it is opened. It knows no engine's
internals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from espalier.automata.masks.layout import MASKS
from espalier.constraints.compiler import NOWHERE, Folders
from espalier.engines.gguf.header import MAGIC
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.engines.protocols import DraftedEngine, Engine
from espalier.errors import CapabilityError, EspalierError, InputError
from espalier.kernels.group import start
from espalier.optional import check_extra, optional_imports
from espalier.registry import Registry
from espalier.sampling.fast.candidates import DRAWS, ROWS

if TYPE_CHECKING:
    from espalier.tokens.vocab import Vocab

# ruff: noqa: PLC0415  # an engine is imported when it is opened


class EngineModule(Protocol):
    """The module of one of our engines, as a type checker sees it."""

    @property
    def TAKES(self) -> tuple[str, ...]: ...  # noqa: N802  # a constant of the module

    def open_engine(self, model: str, *, options: EngineOptions, folders: Folders) -> Engine: ...


class EngineOpener(ABC):
    """Opens models with one of our engines."""

    #: The extra that installs the engine's library; None for an engine that needs none.
    extra: ClassVar[str | None] = None

    @abstractmethod
    def module(self) -> EngineModule:
        """The engine's module, which is imported here."""

    def load(self) -> EngineModule:
        """The engine's module. Raises MissingDependency."""
        with optional_imports(self.extra):
            return self.module()

    def __call__(self, model: str, *, options: EngineOptions, folders: Folders) -> Engine:
        """The engine for a model. Raises UnknownModel, InputError, CapabilityError, MissingDependency."""
        return self.load().open_engine(model, options=options, folders=folders)

    def check(self, model: str) -> None:
        """Check what can be seen of a model without loading it. Raises UnknownModel, InputError, MissingDependency."""
        if self.extra is not None:
            check_extra(self.extra)

    def takes(self) -> tuple[str, ...]:
        """The names of the options that the engine takes. Raises MissingDependency."""
        return self.load().TAKES


class TransformersOpener(EngineOpener):
    extra = "transformers"

    def module(self) -> EngineModule:
        from espalier.engines.huggingface import open as opening

        return opening

    def check(self, model: str) -> None:
        from espalier.engines.model_folder import local_folder

        local_folder(model)
        super().check(model)


class LlamaCppOpener(EngineOpener):
    extra = "llamacpp"

    def module(self) -> EngineModule:
        from espalier.engines.llamacpp import open as opening

        return opening

    def check(self, model: str) -> None:
        from espalier.engines.gguf.header import read_header

        read_header(Path(model).expanduser())
        super().check(model)


class FakeOpener(EngineOpener):
    def module(self) -> EngineModule:
        from espalier.engines import fake

        return fake


class LlamaServerOpener(EngineOpener):
    def module(self) -> EngineModule:
        from espalier.upstream.llama_server import open as opening

        return opening


class LlamaCliOpener(EngineOpener):
    def module(self) -> EngineModule:
        from espalier.upstream.llama_cli import open as opening

        return opening


class OpenAIOpener(EngineOpener):
    def module(self) -> EngineModule:
        from espalier.upstream.openai import open as opening

        return opening


def read_llamacpp_vocab(path: str) -> Vocab:
    with optional_imports("llamacpp"):
        from espalier.engines.llamacpp.open import read_vocab_of
    return read_vocab_of(path)


ENGINES: Registry[Callable[..., Engine]] = Registry(
    "engines",
    {
        "transformers": TransformersOpener(),
        "llamacpp": LlamaCppOpener(),
        "fake": FakeOpener(),
        "llama-server": LlamaServerOpener(),
        "llama-cli": LlamaCliOpener(),
        "openai": OpenAIOpener(),
    },
)
"""Engine names to functions `(model, *, options, folders) -> Engine`. A plug-in's module names the options that its
engine takes: `TAKES`."""

LOADED: Mapping[tuple[str, str], str] = {
    ("transformers", "PreTrainedModel"): "transformers",
    ("llama_cpp", "Llama"): "llamacpp",
}
"""Package and class of a model that is loaded already -> the engine that takes it as it is: `engine_of(model,
tokenizer, *, options, folders)` of its module, which takes the options `TAKES_LOADED`."""

STEPPING = "transformers", "llamacpp"
"""Engines whose tokens are drawn here, so that they need the kernels."""

VOCABS: Registry[Callable[[str], Vocab]] = Registry("vocabs", {"llamacpp": read_llamacpp_vocab})
"""Engines whose files hold a vocabulary that can be read without the weights: `(path) -> Vocab`."""


def open_engine(
    model: str,
    *,
    engine: str | None = None,
    options: EngineOptions = DEFAULT,
    defaults: EngineOptions = DEFAULT,
    folders: Folders = NOWHERE,
) -> Engine:
    """Load a model: `fake`, a GGUF file for llama.cpp, the address of a server, which is asked whether it is a
    llama-server, a folder or hub name for transformers; `options.engine` names another engine.

    defaults: values for options that are not set; those that the engine does not take are left out. Raises
    UnknownModel, CapabilityError, MissingDependency, InputError for an option that the engine does not take, and
    naming `draft_model` what its model raises.
    """
    name = engine or options.engine or defaults.engine or _found(model, options.over(defaults))
    if name in STEPPING:
        start([MASKS, ROWS], later=[DRAWS])  # while libraries are imported and the model is read
    make = ENGINES.load(name)
    option_names = taken_by(name)
    options.check_only(name, option_names)
    merged = options.over(defaults.only(option_names))
    return _with_draft(make(model, options=merged, folders=folders), merged, folders)


def _found(model: str, options: EngineOptions) -> str:
    """The name of the engine for a model that nobody has named one for. Asks the server, if it is one."""
    name = choose(model, options.url)
    if name != "llama-server":
        return name
    from espalier.upstream.detect import detect_engine

    return detect_engine(model, options)


def choose_for(model: object) -> str:
    """The name of the engine for a model that is loaded already. Raises InputError."""
    for base in type(model).__mro__:
        name = LOADED.get((base.__module__.partition(".")[0], base.__name__))
        if name is not None:
            return name
    raise InputError(
        f"a model is a name, a path, a model of transformers or a llama_cpp.Llama, not {type(model).__name__}",
        hint="espalier.load('PATH'), or espalier.load(model, tokenizer)",
        field="model",
    )


def wrap_model(
    model: Any,
    tokenizer: Any,
    *,
    options: EngineOptions = DEFAULT,
    defaults: EngineOptions = DEFAULT,
    folders: Folders = NOWHERE,
) -> Engine:
    """The engine over a model that is loaded already, with its tokenizer where it has none itself. defaults: as in
    `open_engine`. Raises InputError for another object, and what the engine raises."""
    name = choose_for(model)
    start([MASKS, ROWS], later=[DRAWS])
    opener = ENGINES.load(name)
    assert isinstance(opener, EngineOpener)
    module: Any = opener.load()
    options.check_only("loaded model's", module.TAKES_LOADED)
    merged = options.over(defaults.only(module.TAKES_LOADED))
    return _with_draft(module.engine_of(model, tokenizer, options=merged, folders=folders), merged, folders)


def _with_draft(opened: Engine, options: EngineOptions, folders: Folders) -> Engine:
    """The engine with the smaller model that drafts for it, if there is one."""
    if options.draft_model is not None:
        try:
            _draft_with(opened, options.draft_model, options, folders)
        except BaseException:
            opened.close()
            raise
    return opened


def _draft_with(opened: Engine, model: str, options: EngineOptions, folders: Folders) -> None:
    """Open the smaller model that drafts for an engine, which keeps it. Raises as `open_engine`, naming
    `draft_model`."""
    if not isinstance(opened, DraftedEngine):
        raise CapabilityError(f"no smaller model can draft for {opened.name}", field="draft_model")
    # Adapters, the size of the cache and the format of calls belong to the larger model alone.
    own = replace(options, draft_model=None, lora=(), kv_size=None, tool_format=None, engine=None, url=None)
    name = choose(model)
    try:
        smaller = open_engine(model, engine=name, options=own.only(taken_by(name)), folders=folders)
        try:
            opened.draft_with(smaller)
        except BaseException:
            smaller.close()
            raise
    except EspalierError as error:
        error.field = "draft_model"
        raise


def check_model(model: str, options: EngineOptions) -> None:
    """Check what can be seen of a model without loading it: the extra of its engine, and that its file or folder is
    there. Raises UnknownModel, UnknownName, BrokenPlugin, InputError, MissingDependency."""
    opener = ENGINES.load(options.engine or choose(model, options.url))
    if isinstance(opener, EngineOpener):
        opener.check(model)


def taken_by(engine: str) -> tuple[str, ...]:
    """The names of the options that an engine takes. Raises UnknownName, BrokenPlugin."""
    opener = ENGINES.load(engine)
    if isinstance(opener, EngineOpener):
        return opener.takes()
    return tuple(getattr(import_module(ENGINES.plugin_module(engine)), "TAKES", ()))


def choose(model: str, url: str | None = None) -> str:
    """The name of the engine for a model, as far as it can be told without asking a server. url: the address of one,
    if it was given."""
    if url is not None or model.startswith(("http://", "https://")):
        return "llama-server"
    if model == "fake":
        return "fake"
    return "llamacpp" if is_gguf(model) else "transformers"


def is_gguf(model: str) -> bool:
    """Whether the name is a GGUF file's: by its suffix, or by the first bytes of an existing file."""
    path = Path(model).expanduser()
    if path.suffix.lower() == ".gguf":
        return not path.is_dir()
    try:
        if not path.is_file():  # a pipe would wait for its writer
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def read_gguf_vocab(path: str) -> Vocab:
    """The vocabulary of a GGUF file; no weights are loaded. Raises as `open_engine` does."""
    return VOCABS.load("llamacpp")(path)
