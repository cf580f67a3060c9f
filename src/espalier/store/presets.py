"""Stores presets: one row each, as JSON. It does not know what a preset means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Double, LargeBinary, Table, Text, delete, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.packing import pack, unpack
from espalier.store.tables import METADATA

PRESETS = Table(
    "logit_presets",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("created", Double, nullable=False),  # Unix seconds
    Column("updated", Double, nullable=False),
    Column("description", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),  # packing.py
)


class PresetRows(rows.StoreRows):
    """Presets by name, as JSON."""

    def preset_names(self) -> list[str]:
        with self.database.reading() as connection:
            return sorted(connection.execute(select(PRESETS.c.name)).scalars())

    def preset(self, name: str) -> Mapping[str, Any] | None:
        """The JSON of a preset, None if there is none of that name."""
        with self.database.reading() as connection:
            body = connection.execute(select(PRESETS.c.body).where(PRESETS.c.name == name)).scalar_one_or_none()
        return None if body is None else unpack(body, what=f"preset {name}")

    def save_preset(self, preset: Mapping[str, Any], *, replace: bool = False) -> None:
        """Store `Preset.to_json()`. Raises InputError if there is one of that name, unless it may be replaced."""
        name, now = rows.column_text(preset["name"]), self._clock()
        values = {
            "updated": now,
            "description": rows.column_text(preset.get("description", "")),
            "body": pack(preset, what="preset"),
        }
        statement = self.database.insert(PRESETS).values(name=name, created=now, **values)
        if replace:
            statement = statement.on_conflict_do_update(index_elements=["name"], set_=values)
        else:
            statement = statement.on_conflict_do_nothing()
        with self.database.writing() as connection:
            if connection.execute(statement).rowcount < 1:
                raise InputError(f"the store has a preset {name!r}", hint="--force replaces it", field="preset")

    def remove_preset(self, name: str) -> bool:
        """Whether there was one."""
        with self.database.writing() as connection:
            return connection.execute(delete(PRESETS).where(PRESETS.c.name == name)).rowcount > 0
