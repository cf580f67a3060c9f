"""Every preset as JSON, with the reason why one cannot be used. `constraints/joining/presets.py` finds it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier.constraints.joining.presets import preset_parts
from espalier.errors import EspalierError
from espalier.sampling.presets.catalogue import STORE, Presets


def preset_rows(presets: Presets) -> list[dict[str, Any]]:
    """A row for each preset, each file that one of ours hides, and what a file hides in the store. A preset that is
    broken, or cannot be enforced, has the reason in `problem`."""
    rows = [_row(presets, name) for name in presets.names()]
    rows += [_hidden_row(name, path) for name, path in presets.hidden().items()]
    return [*rows, *(_doubled_row(name, path) for name, path in presets.doubled().items())]


def _row(presets: Presets, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "source": "file", "description": "", "problem": None}
    try:
        row["source"] = presets.source(name)
        preset = presets.get(name)
        row |= preset.to_json()
        preset_parts(preset)
    except EspalierError as error:
        row["problem"] = error.message
    except Exception as error:  # noqa: BLE001  # one file, whatever is wrong with it, must not hide the others
        row["problem"] = f"{type(error).__name__}: {error}"
    return row


def _hidden_row(name: str, path: Path) -> dict[str, Any]:
    problem = f"{path} has the name of one that comes with Espalier"
    return {"name": name, "source": str(path), "description": "", "problem": problem}


def _doubled_row(name: str, path: Path) -> dict[str, Any]:
    problem = f"hidden by {path}; remove one of the two"
    return {"name": name, "source": STORE, "description": "", "problem": problem}
