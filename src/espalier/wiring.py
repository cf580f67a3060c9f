"""The composition root: builds an App from Settings. No other module reads settings."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from espalier.constraints.compiler import Compiler, Folders
from espalier.engines.open import open_engine
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.engines.protocols import Engine
from espalier.errors import UnknownModel
from espalier.registry import forbid_plugins
from espalier.sampling.presets.catalogue import Presets
from espalier.settings import Settings, read_settings
from espalier.tokens.vocab import Vocab

COMPILERS_KEPT = 4  # vocabularies whose trie and compiled specs are kept by `compile`


class App:
    """What a process shares: settings, presets, the default engine, a compiler for each vocabulary."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folders = Folders(cache=settings.cache_dir, wordlists=settings.wordlist_dir)
        self.presets = Presets(settings.config_dir / "presets" if settings.config_dir else None)
        self._lock = threading.RLock()
        self._default: Engine | None = None
        self._compilers: OrderedDict[tuple[str, str], Compiler] = OrderedDict()

    def open(self, model: str | None = None, options: EngineOptions = DEFAULT) -> Engine:
        """A new engine for a model; without a name, for the configured or the demo model. An option that is not set is
        as in the settings, if the engine takes it. Raises UnknownModel and what the engine raises."""
        if model is not None and not model.strip():
            raise UnknownModel("the name of the model is empty", field="model")
        defaults = self.settings.options
        # A server has its own model, so the demo model is no default there.
        name = model or self.settings.model or "" if options.over(defaults).url else self.model_name(model)
        return open_engine(name, options=options, defaults=defaults, folders=self.folders)

    def model_name(self, model: str | None = None) -> str:
        """The given name, else the configured one, else the demo model's path."""
        return model or self.settings.model or str(demo_model())

    def default_engine(self) -> Engine:
        """The configured or demo model, loaded at the first call and kept."""
        with self._lock:
            if self._default is None:
                self._default = self.open()
            return self._default

    def compiler(self, vocab: Vocab) -> Compiler:
        """The compiler of a vocabulary; the last COMPILERS_KEPT are kept."""
        with self._lock:
            key = vocab.fingerprint, vocab.name  # reports say the name
            found = self._compilers.get(key)
            if found is None:
                found = Compiler(vocab, folders=self.folders)
                self._compilers[key] = found
                while len(self._compilers) > COMPILERS_KEPT:
                    self._compilers.popitem(last=False)
            self._compilers.move_to_end(key)
            return found


def demo_model() -> Path:
    """The folder of the demo model, in the wheel or in the clone. Raises UnknownModel."""
    package = Path(str(files("espalier")))
    for folder in (package / "_models" / "demo", package.parents[1] / "models" / "demo"):
        if (folder / "config.json").is_file():
            return folder
    raise UnknownModel("the demo model is missing", hint="run `make train-demo`, or name a model")


def build_app(settings: Settings | None = None, *, environ: Mapping[str, str] | None = None) -> App:
    """An App. Without settings they are read from environ, or from the environment of the process."""
    found = read_settings(environ) if settings is None else settings
    if not found.plugins:
        forbid_plugins()
    return App(found)
