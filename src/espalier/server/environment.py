"""Merges the origins of settings: flags win over the environment, the environment over a `.env` file.

It handles names and texts; `settings.py` knows what they mean. Names of the word-list server are the exception: they
are translated to ours here, or refused. `ENV_FILE` names the file; without it `.env` in the working directory is read,
if it exists. `espalier serve` passes its flags on as environment, so that its worker processes read the same.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from espalier.errors import InputError
from espalier.files.limits import SETTINGS
from espalier.files.reading import read_text

Origin = Literal["flag", "environment", ".env", "default"]
DEVICES = re.compile(r"cpu|mps|cuda(:\d+)?")
WORDLIST_SERVER_NAMES = ("TORCH_DTYPE", "DTYPE", "WORDLIST_DIR", "DEVICE_MAP", "ENABLE_THINKING")
"""The word-list server's names of core settings."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"}
LIBRARIES = re.compile(r"HF_|HUGGING_FACE_|TRANSFORMERS_|TOKENIZERS_|CUDA_|OMP_|MKL_|OTEL_|PROMETHEUS_|NUMBA_|NO_PROXY")
"""Variables that libraries read themselves; from a `.env` file they are set for the process."""

WITHOUT_EFFECT = {
    "ATTN_IMPLEMENTATION": "attention is chosen by the engine",
    "STATIC_KV_CACHE": "the engine keeps its own cache",
    "TOKENIZER_PADDING_SIDE": "nothing is padded",
    "PAD_TO_MULTIPLE_OF": "nothing is padded",
    "GENERATION_MAX_CONCURRENCY": "requests share the model's steps; CONCURRENT_PER_KEY limits them",
    "TRUST_REMOTE_CODE": "code that comes with a model is never run",
    "BATCH_PORT": "scripts/run_batch.sh alone reads it",
}
"""Settings of the word-list server that have no effect here, and the reason."""

ON = frozenset({"1", "true", "yes", "on", "t", "y"})
OFF = frozenset({"0", "false", "no", "off", "f", "n"})
OLD_NAMES = {"SEED_COMPAT": "WORDLIST_SERVER_COMPAT"}
"""Former names of settings of ours, which still work, with a warning."""
STORE_TRACES = "STORE_TRACES"
"""A former setting, which said whether traces are kept, and TRACE_LEVEL what is in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """values: every variable, from its strongest origin. origins: the origin of each. notes: messages for the user at
    start. file: the `.env` file that was read."""

    values: Mapping[str, str]
    origins: Mapping[str, Origin]
    notes: tuple[str, ...] = ()
    file: Path | None = None


def read_environment(
    environ: Mapping[str, str] | None = None, *, env_file: str | None = None, flags: Mapping[str, str] | None = None
) -> Environment:
    """Merge flags, environment and `.env` file. Raises InputError for a named file that cannot be read, and for a
    setting of the word-list server that cannot be honoured."""
    env = dict(os.environ if environ is None else environ)
    path = _find(env_file or env.get("ENV_FILE") or None)
    layers: tuple[tuple[Origin, Mapping[str, str]], ...] = (
        (".env", {} if path is None else _read(path)),
        ("environment", env),
        ("flag", flags or {}),
    )
    values: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    for origin, given in layers:
        ours = _in_our_names(given)
        for name in ours:
            for other in _RIVALS.get(name, ()):  # the same setting by another name, from a weaker origin
                values.pop(other, None)
        values |= ours
        origins |= dict.fromkeys(ours, origin)
    _refuse(values)
    off = {name for name in ("TRUST_REMOTE_CODE",) if values.get(name, "").lower() not in ON}
    notes = [
        f"{name} has no effect: {why}" for name, why in WITHOUT_EFFECT.items() if values.get(name) and name not in off
    ]
    if old := values.get(STORE_TRACES):
        level = values.get("TRACE_LEVEL")
        notes.append(f"{STORE_TRACES}={old} is now TRACE_LEVEL={level}; the old name still works in this release")
    notes += [
        f"{old} is now called {new}; the old name still works in this release"
        for old, new in OLD_NAMES.items()
        if values.get(old)
    ]
    return Environment(values=values, origins=origins, notes=tuple(notes), file=path)


def export_for_libraries(environment: Environment) -> None:
    """Set the variables that libraries read (HF_TOKEN, CUDA_VISIBLE_DEVICES, ...) from `.env` for the process. Call it
    before those libraries are imported."""
    for name, value in environment.values.items():
        if environment.origins[name] == ".env" and LIBRARIES.match(name) and value:
            os.environ.setdefault(name, value)


def unread_names(environment: Environment, known: Collection[str]) -> list[str]:
    """Names in `.env` that nothing reads, often misspelt settings. `ESPALIER_…` names are checked elsewhere."""
    read = {*known, *WORDLIST_SERVER_NAMES, *OLD_NAMES, *WITHOUT_EFFECT, STORE_TRACES}
    return sorted(
        name
        for name, origin in environment.origins.items()
        if origin == ".env" and name not in read and not LIBRARIES.match(name) and not name.startswith("ESPALIER_")
    )


_SAME = (("MODEL_NAME", "ESPALIER_MODEL"), ("WORKERS", "UVICORN_WORKERS"), ("STORE_TRACES", "TRACE_LEVEL"))
_RIVALS = {name: tuple(o for o in names if o != name) for names in _SAME for name in names}


def _find(named: str | None) -> Path | None:
    if named is not None:
        path = Path(named).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {named}", field="ENV_FILE")
        return path
    return path if (path := Path(".env")).is_file() else None


def _read(path: Path) -> dict[str, str]:
    return _parse(read_text(path, SETTINGS))


def _parse(text: str) -> dict[str, str]:
    """Variables of a `.env` text, with quotes, `export` and comments as python-dotenv reads them; `${...}` is not
    expanded. Raises InputError for a malformed line, without its text, which may hold a key."""
    from dotenv.parser import parse_stream  # noqa: PLC0415  # the extra [server]: the command line knows our flags without

    variables: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            raise InputError(
                f"line {binding.original.line} of the settings file cannot be read", hint="NAME=value", field="ENV_FILE"
            )
        if binding.key is not None:
            variables[binding.key] = binding.value or ""
    return variables


def _in_our_names(given: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the word-list server's names of core settings, and old names of our own, translated, unless
    ours are set too."""
    values = {name: value.strip() for name, value in given.items()}
    dtype = (values.get("TORCH_DTYPE") or values.get("DTYPE") or "").lower()
    device = values.get("DEVICE_MAP", "").lower()
    thinks = values.get("ENABLE_THINKING", "").lower()
    renamed = {
        "ESPALIER_DTYPE": DTYPES.get(dtype, dtype),
        "ESPALIER_WORDLIST_DIR": values.get("WORDLIST_DIR", ""),
        "ESPALIER_DEVICE": device if DEVICES.fullmatch(device) else "",
        "ESPALIER_REASONING": thinks and ("auto" if thinks in ON else "none"),
    }
    ours = {new: values[old] for old, new in OLD_NAMES.items() if old in values}
    if values.get(STORE_TRACES):
        values["TRACE_LEVEL"] = _trace_level(values[STORE_TRACES].lower(), values.get("TRACE_LEVEL", ""))
    return ours | values | {name: value for name, value in renamed.items() if value and not values.get(name)}


def _trace_level(stored: str, level: str) -> str:
    """TRACE_LEVEL for a value of STORE_TRACES beside it. Raises InputError for a value that STORE_TRACES did not
    take."""
    if stored == "always":
        return level if level in ("summary", "steps", "full") else "summary"
    try:
        return {"never": "off", "asked": "asked"}[stored]
    except KeyError:
        hint = "TRACE_LEVEL=off, asked, summary, steps or full"
        raise InputError(f"{STORE_TRACES}={stored} is no value of it", hint=hint, field=STORE_TRACES) from None


def _refuse(values: Mapping[str, str]) -> None:
    """Raises InputError for a setting of the word-list server that this server cannot honour."""
    thinks = values.get("ENABLE_THINKING", "").lower()
    if thinks and thinks not in (*ON, *OFF):
        message = f"ENABLE_THINKING={thinks} is neither on nor off"
        raise InputError(message, hint="true or false", field="ENABLE_THINKING")
    device = values.get("DEVICE_MAP", "").lower()
    if device not in ("", "auto") and not DEVICES.fullmatch(device):
        raise InputError(
            f"DEVICE_MAP={device}: a model is not split over devices here",
            hint="set ESPALIER_DEVICE to cpu, cuda, cuda:1 or mps",
            field="DEVICE_MAP",
        )
