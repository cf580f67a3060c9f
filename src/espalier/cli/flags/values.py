"""Values that the shell completes: the models and the presets of this machine. It opens no model and asks no hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from espalier.wiring import build_app

FAKE = "fake"


def complete_model(incomplete: str) -> list[str]:
    """Folders with a model, GGUF files and folders on the way to them, models in the hub's cache, and `fake`."""
    names = [*_paths(incomplete), *_cached(), FAKE]
    return sorted(name for name in names if name.startswith(incomplete))


def _paths(incomplete: str) -> Iterator[str]:
    head, slash, _ = incomplete.rpartition("/")
    folder = Path(f"{head}{slash}" or ".").expanduser()
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        name = f"{head}{slash}{entry.name}"
        if entry.suffix.lower() == ".gguf" and entry.is_file():
            yield name
        elif entry.is_dir() and not entry.name.startswith("."):
            yield name if (entry / "config.json").is_file() else f"{name}/"


def _cached() -> Iterator[str]:
    """The names of the models in the Hugging Face hub's cache."""
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    folder = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    for entry in folder.glob("models--*"):
        yield entry.name.removeprefix("models--").replace("--", "/")


def complete_preset(incomplete: str) -> list[str]:
    """The presets that come with Espalier, and those of the user's folder and store."""
    return sorted(name for name in build_app().presets.names() if name.startswith(incomplete))


COMPLETES: dict[str, Callable[[str], list[str]]] = {"preset": complete_preset}
"""Options of requests, by name, whose values are completed."""
