"""`JsonRecord`: the base class. What a field's type says is in `reading.py` and `writing.py`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from espalier.json_record.reading import read_json
from espalier.json_record.writing import write_json


class JsonRecord:
    """Base of a dataclass that is written and read by its fields."""

    __slots__ = ()
    #: Whether fields that are not declared are passed over when the JSON is read.
    is_open: ClassVar[bool] = False

    #: `record.to_json()`: as `from_json` reads it.
    to_json = write_json

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """From parsed JSON. Raises InputError naming the field, what it should be and what was there."""
        return read_json(cls, data)
