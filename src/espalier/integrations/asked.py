"""Reads what a request asks of us in an engine of others: one object under the name `espalier`.

    {"json_schema": {...}, "safety": "minimal", "preset": "json", "bad_words": ["foo"], "report": true, "id": "mail-7"}

All constraints that are named hold together, as everywhere (`joined.py`). It knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from espalier.constraints.joining.named import READERS
from espalier.constraints.spec import Spec
from espalier.errors import InputError
from espalier.integrations.joined import joined
from espalier.wiring import App

KEY = "espalier"
CONSTRAINTS = (*READERS, "preset", "bad_words")
FIELDS = (*CONSTRAINTS, "report", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConstraint:
    """What one request asks for. notes: what of it does not hold. report: whether the tax of each step is told. id: the
    caller's name for the request, "" without one."""

    spec: Spec
    notes: tuple[str, ...] = ()
    report: bool = False
    id: str = ""


def read_asked(extra: Mapping[str, Any] | None, app: App) -> EngineConstraint | None:
    """What stands under `espalier`, an object or its JSON text; None if nothing does. Raises InputError and its
    subclasses, naming the field, CapabilityError, UnknownName."""
    given = (extra or {}).get(KEY)
    if given is None:
        return None
    data = _object(given)
    for name in data:
        if name not in FIELDS:
            raise InputError(f"{KEY} has no field {name!r}", hint=f"fields: {', '.join(FIELDS)}", field=f"{KEY}.{name}")
    report, own_id, words = data.get("report", False), data.get("id", ""), data.get("bad_words", [])
    if not isinstance(report, bool):
        raise InputError("report is true or false", field=f"{KEY}.report")
    if not isinstance(own_id, str):
        raise InputError("id is a text", field=f"{KEY}.id")
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise InputError("bad_words is a list of texts", field=f"{KEY}.bad_words")
    preset = data.get("preset")
    joint = joined(
        **{name: data.get(name) for name in READERS},
        preset=None if preset is None else app.presets.get(preset),
        bad_words=words,
        who="a logits processor",
        elsewhere="the engine's own logit_bias",
    )
    return EngineConstraint(spec=joint.spec, notes=joint.notes, report=report, id=own_id)


def _object(given: Any) -> Mapping[str, Any]:
    if isinstance(given, str):  # servers pass plain values on, not objects
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{KEY} is not JSON: {error}", field=KEY) from error
    if not isinstance(given, Mapping):
        raise InputError(f"{KEY} is an object, or its JSON text, not {type(given).__name__}", field=KEY)
    return given
