"""All presets of a process by name: the built-in ones, those a program registers, and the user's files.

Whether a preset can be enforced is checked when it is applied, not here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from espalier.errors import InputError, OutputError, UnknownName
from espalier.nearest import nearest_or_all
from espalier.sampling.config import DEFAULT_ORDER, SamplingConfig
from espalier.sampling.presets.files import SUFFIX, read_preset, write_preset
from espalier.sampling.presets.spec import Preset, PresetFilter, check_name


def _config(**set_here: Any) -> Mapping[str, Any]:
    """A complete config: fields that are not given are off, and there is no seed."""
    off = {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "typical_p": 0.0,
        "repetition_penalty": 1.0,
        "repetition_window": 0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "sampler_order": DEFAULT_ORDER,
        "mirostat": 0,
        "max_tokens": 2048,
        "stop": (),
    }
    return MappingProxyType(off | set_here)


DETERMINISTIC = _config(top_k=1)
STRUCTURED_OUTPUT = _config(
    temperature=0.1, top_k=40, top_p=0.9, min_p=0.05, sampler_order=("top_k", "top_p", "temperature")
)
CODE_GENERATION = _config(
    temperature=0.2, top_k=50, top_p=0.9, min_p=0.05, repetition_penalty=1.1, repetition_window=64, max_tokens=4096
)
CREATIVE = _config(
    temperature=0.8, top_k=100, top_p=0.95, min_p=0.02, repetition_penalty=1.15, repetition_window=128, max_tokens=4096
)
CHAT = _config(
    temperature=0.7, top_k=40, top_p=0.95, min_p=0.05, repetition_penalty=1.1, repetition_window=64, max_tokens=1024
)

CONFIGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "deterministic": DETERMINISTIC,
        "structured_output": STRUCTURED_OUTPUT,
        "code_generation": CODE_GENERATION,
        "creative": CREATIVE,
        "chat": CHAT,
    }
)
"""PedroCLI's named configs, without their seed of 0: `SamplingConfig(**CONFIGS["chat"])`."""

CLIENT_STRUCTURED: Mapping[str, Any] = MappingProxyType({"temperature": 0.1, "top_k": 20, "top_p": 0.8, "min_p": 0.1})
CLIENT_TOOL_CALLS: Mapping[str, Any] = MappingProxyType({"temperature": 0.0, "top_k": 1})
"""What PedroCLI's one-shot client sets for structured output, and for calls of tools."""

DeterministicConfig, StructuredOutputConfig, CodeGenerationConfig, CreativeConfig, ChatConfig = (
    SamplingConfig(**values) for values in CONFIGS.values()
)
"""The same as values, under PedroCLI's names: `generate(..., sampling=DeterministicConfig)`."""

BUILTIN: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="tool_call",
                description="One call of any tool, as JSON",
                config=DETERMINISTIC,
                grammar="@tool_call",
                filters=(PresetFilter(type="tool_call"),),
            ),
            Preset(
                name="json_strict",
                description="A JSON object",
                config=STRUCTURED_OUTPUT,
                grammar="@json_object",
                filters=(PresetFilter(type="json_object"),),
            ),
            Preset(
                name="json_loose",
                description="A JSON object or array, with more variety",
                config={**STRUCTURED_OUTPUT, "temperature": 0.3},
                grammar="@json_container",
            ),
            Preset(
                name="safe_chat",
                description="Conversation, filtered",
                config=CHAT,
                filters=(PresetFilter(type="safety", options={"categories": ["profanity", "violence"]}),),
                safety_preset="standard",
            ),
            Preset(
                name="code_generation",
                description="Code, filtered",
                config=CODE_GENERATION,
                filters=(PresetFilter(type="safety", options={"categories": ["code_injection"]}),),
                safety_preset="minimal",
            ),
            Preset(name="creative", description="Free writing", config=CREATIVE),
            Preset(name="deterministic", description="Always the most probable token", config=DETERMINISTIC),
        )
    }
)
"""PedroCLI's seven presets."""


STORE = "store"
"""The source of a preset that is in the store."""


class Shelf(Protocol):
    """Presets that are kept elsewhere than in files, as JSON. All methods raise what reaching them raises."""

    def names(self) -> list[str]: ...

    def get(self, name: str) -> Mapping[str, Any] | None:
        """None if there is none of that name."""
        ...

    def save(self, preset: Mapping[str, Any], *, replace: bool) -> str:
        """Returns where it is kept. Raises InputError if there is one of that name, unless it may be replaced."""
        ...

    def remove(self, name: str) -> str | None:
        """Returns where it was, None if there was none."""
        ...


class Presets:
    """All presets of a process, by name. No other preset may have a built-in one's name. Safe across threads.

    folder: where the user's files are, read at each request; None for no files. shelf: presets in the store. A
    registered preset takes precedence over a file of the same name, and a file over the store.
    """

    def __init__(self, folder: Path | None = None, shelf: Shelf | None = None) -> None:
        self.folder = folder
        self.shelf = shelf
        self._registered: dict[str, Preset] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Built-in presets in their order, then the others by name."""
        with self._lock:
            own = {*self._registered, *self._files()}
        own |= set(self.stored())
        return [*BUILTIN, *sorted(own - set(BUILTIN))]

    def get(self, name: str) -> Preset:
        """Raises UnknownName, listing the names; InputError for a broken file. A file cannot replace a built-in
        preset."""
        path = self._path(name)
        if name in BUILTIN:
            return BUILTIN[name]
        with self._lock:
            if name in self._registered:
                return self._registered[name]
        if path is not None:
            return read_preset(path)
        stored = None if self.shelf is None else self.shelf.get(name)
        if stored is None:
            raise UnknownName(
                f"there is no preset {name!r}", hint=nearest_or_all(name, self.names(), before="there are: ")
            )
        return Preset.from_json(stored)

    def source(self, name: str) -> str:
        """Where a preset comes from: `built-in`, `registered`, `store`, or the path of its file. Raises UnknownName."""
        if name in BUILTIN:
            return "built-in"
        if name in self._registered:
            return "registered"
        path = self._path(name)
        if path is None and name not in self.stored():
            raise UnknownName(
                f"there is no preset {name!r}", hint=nearest_or_all(name, self.names(), before="there are: ")
            )
        return STORE if path is None else str(path)

    def register(self, preset: Preset) -> None:
        """Register a preset for this process, replacing an earlier one of the same name. Raises InputError for a
        built-in name."""
        if not isinstance(preset, Preset):
            raise InputError(f"a preset is a Preset, not {type(preset).__name__}", field="preset")
        _not_builtin(preset.name)
        with self._lock:
            self._registered[preset.name] = preset

    def save(self, preset: Preset, *, replace: bool = False) -> Path:
        """Write a preset to the user's folder. Raises InputError for a built-in name, or if the file exists;
        OutputError."""
        _not_builtin(preset.name)
        if preset.name in self.stored():
            raise InputError(
                f"the store has a preset {preset.name!r}, which a file would hide",
                hint=f"choose another name, or espalier presets remove {preset.name}",
                field="name",
            )
        path = self._need_folder() / f"{preset.name}{SUFFIX}"
        write_preset(preset, path, replace=replace)
        return path

    def store(self, preset: Preset, *, replace: bool = False) -> str:
        """Keep a preset in the store, and return where that is. Raises InputError for a built-in name, one that a file
        has, or one that the store has; and what writing to the store raises."""
        _not_builtin(preset.name)
        path = self._path(preset.name)
        if path is not None:
            raise InputError(
                f"the file {path} would hide the preset {preset.name!r}",
                hint="choose another name, or remove the file",
                field="name",
            )
        if self.shelf is None:
            raise OutputError("there is no store for presets here", field="store")
        return self.shelf.save(preset.to_json(), replace=replace)

    def stored(self) -> list[str]:
        """The names of the presets in the store."""
        return [] if self.shelf is None else self.shelf.names()

    def remove(self, name: str) -> Path | str:
        """Delete a file from the user's folder, by name and never by path, even if the name is invalid as a preset's;
        without a file, the preset in the store. Returns where it was. Raises UnknownName, InputError for a built-in
        preset, OutputError."""
        path = (
            self._files().get(name) if isinstance(name, str) else None
        )  # the file's name may be invalid as a preset's
        if path is None:
            check_name(name)
            _not_builtin(name, "cannot be removed")
            if self.shelf is not None and (where := self.shelf.remove(name)) is not None:
                return f"{name} from {where}"
            own = sorted({*self.files(), *self.stored()})
            raise UnknownName(f"there is no preset of your own {name!r}", hint=f"there are: {', '.join(own)}")
        try:
            path.unlink()
        except OSError as error:
            raise OutputError(f"cannot remove {path}: {error.strerror or error}") from error
        return path

    def files(self) -> list[str]:
        """The names of the user's files."""
        return sorted(self._files())

    def hidden(self) -> dict[str, Path]:
        """The user's files that have a built-in preset's name and cannot be used."""
        return {name: path for name, path in sorted(self._files().items()) if name in BUILTIN}

    def doubled(self) -> dict[str, Path]:
        """Names that a file and the store have, each with the file, which counts."""
        stored = set(self.stored())
        return {name: path for name, path in sorted(self._files().items()) if name in stored}

    def _files(self) -> dict[str, Path]:
        """Name -> path, as the folder lists them."""
        try:
            return {path.stem: path for path in self.folder.glob(f"*{SUFFIX}")} if self.folder else {}
        except OSError as error:
            raise InputError(f"cannot read {self.folder}: {error.strerror or error}", field="preset") from error

    def _path(self, name: str) -> Path | None:
        """The file of a name, if there is one. Raises InputError for an invalid name, which might be a path."""
        check_name(name)
        path = None if self.folder is None else self.folder / f"{name}{SUFFIX}"
        return path if path is not None and path.is_file() else None

    def _need_folder(self) -> Path:
        if self.folder is None:
            raise OutputError("there is no folder for presets", hint="set ESPALIER_CONFIG_DIR")
        return self.folder


def _not_builtin(name: str, problem: str = "cannot be replaced") -> None:
    if name in BUILTIN:
        raise InputError(
            f"the preset {name!r} comes with Espalier and {problem}", hint="choose another name", field="name"
        )
