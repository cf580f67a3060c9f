"""The composition root: builds an App from KernelSettings. No other module reads settings."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier.constraints.compiler import Compiler, Folders
from espalier.engine_table import check_model, choose, open_engine, wrap_model
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.engines.protocols import Engine
from espalier.errors import InputError, UnknownModel
from espalier.registry import forbid_plugins
from espalier.sampling.presets.catalogue import Presets
from espalier.settings import KernelSettings, log_level, log_switch, read_settings
from espalier.store.preset_shelf import PresetShelf
from espalier.store.writer import LogWriter
from espalier.tokens.vocab import Vocab

if TYPE_CHECKING:
    from espalier.store.open import Store

log = logging.getLogger(__name__)
COMPILERS_KEPT = 4  # vocabularies whose trie and compiled specs are kept by `compile`


class App:
    """What a process shares: settings, presets, the default engine, a compiler for each vocabulary."""

    def __init__(self, settings: KernelSettings, *, database_url: Callable[[], str | None] | None = None) -> None:
        """database_url: says where logs and presets are stored; it gives None for a SQLite file in the user's data
        folder. Without it no presets are looked for in a store."""
        self.settings = settings
        self._database_url = database_url
        self.folders = Folders(cache=settings.cache_dir, wordlists=settings.wordlist_dir)
        folder = settings.config_dir / "presets" if settings.config_dir else None
        self.presets = Presets(folder, None if database_url is None else PresetShelf(database_url))
        self._lock = threading.RLock()
        self._default: Engine | None = None
        self._compilers: OrderedDict[tuple[str, str], Compiler] = OrderedDict()
        self._log: LogWriter | None = None
        self._is_log_known = False

    @property
    def log(self) -> LogWriter | None:
        """Logs generations, where that is on when it is first asked for; None where it is off, or where the file that
        switches it cannot be read, which is told."""
        with self._lock:
            if not self._is_log_known:
                self._is_log_known = True
                try:
                    kept = self.log_level()
                except InputError as error:
                    log.warning("nothing is logged: %s", error)
                    kept = "off"
                if kept != "off":
                    self._log = LogWriter(self._open_store, with_content=kept == "content")
            return self._log

    def log_level(self) -> str:
        """How much is logged of generations: `off`, `figures` or `content`. Raises InputError for a switch file that
        says something else."""
        return log_level(self.settings)

    @property
    def log_switch(self) -> Path | None:
        """The file that `espalier logs on` writes; None without a folder of the user's."""
        return log_switch(self.settings)

    def _open_store(self) -> Store:
        """Raises what `open_store` raises, and MissingDependency without the extra `server`."""
        from espalier.store.open import open_store  # noqa: PLC0415  # slow to import, and an extra

        return open_store(None if self._database_url is None else self._database_url())

    def open(self, model: str | None = None, options: EngineOptions = DEFAULT) -> Engine:
        """A new engine for a model; without a name, for the configured or the demo model. An option that is not set is
        as in the settings, if the engine takes it. Raises UnknownModel and what the engine raises."""
        defaults = self.settings.options
        return open_engine(self._opened_name(model, options), options=options, defaults=defaults, folders=self.folders)

    def check_model(self, model: str | None = None, options: EngineOptions = DEFAULT) -> None:
        """Check what can be seen, without loading it, of the model that `open` would open. Raises as `check_model` of
        `engine_table`."""
        check_model(self._opened_name(model, options), options.over(self.settings.options))

    def _opened_name(self, model: str | None, options: EngineOptions) -> str:
        if model is not None and not model.strip():
            raise UnknownModel("the name of the model is empty", field="model")
        # A server has its own model, so the demo model is no default there.
        return model or self.settings.model or "" if options.over(self.settings.options).url else self.model_name(model)

    def wrap(self, model: Any, tokenizer: Any, options: EngineOptions = DEFAULT) -> Engine:
        """The engine over a model that is loaded already; see `wrap_model`."""
        return wrap_model(model, tokenizer, options=options, defaults=self.settings.options, folders=self.folders)

    def engine_kind(self, model: str | None = None, options: EngineOptions = DEFAULT) -> str:
        """The name of the engine that `open` takes for a model."""
        asked = options.over(self.settings.options)
        return asked.engine or choose(self.model_name(model), asked.url)

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
            compiler = self._compilers.get(key)
            if compiler is None:
                compiler = Compiler(vocab, folders=self.folders)
                self._compilers[key] = compiler
                while len(self._compilers) > COMPILERS_KEPT:
                    self._compilers.popitem(last=False)
            self._compilers.move_to_end(key)
            return compiler


def demo_model() -> Path:
    """The folder of the demo model, in the wheel or in the clone. Raises UnknownModel."""
    package = Path(str(files("espalier")))
    for folder in (package / "_models" / "demo", package.parents[1] / "models" / "demo"):
        if (folder / "config.json").is_file():
            return folder
    raise UnknownModel("the demo model is missing", hint="run `make train-demo`, or name a model")


def build_app(
    settings: KernelSettings | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    database_url: Callable[[], str | None] | None = None,
) -> App:
    """An App. Without settings they are read from environ, or from the environment of the process. database_url: as in
    App; without it DATABASE_URL."""
    variables = os.environ if environ is None else environ
    url = database_url or (lambda: variables.get("DATABASE_URL", "").strip() or None)
    read = read_settings(environ) if settings is None else settings
    if not read.plugins:
        forbid_plugins()
    return App(read, database_url=url)
