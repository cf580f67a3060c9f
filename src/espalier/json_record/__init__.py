"""`JsonRecord`: the base of dataclasses that are stored or sent as JSON. Their fields say how, once.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cost(JsonRecord):
        tokens: tuple[int, ...]
        tax: Annotated[float, Json("tax_nats")]
        note: Annotated[str, Json(omit=True)] = ""

        @property
        @in_json()
        def count(self) -> int:
            return len(self.tokens)

`Cost(tokens=(5,), tax=0.5).to_json()` is `{"tokens": [5], "tax_nats": 0.5, "count": 1}`. `Cost.from_json` reads it and
raises InputError for the first field of another type: "tokens[0] is not a whole number but 'a'".

A class is read for its types when the first object of it is written or read. This package knows no record.
"""

from espalier.json_record.declaration import FIRST, INTERNAL, NEEDED, OMITTED, Json, in_json
from espalier.json_record.reading import JsonRecord, Mismatch, mismatch, object_of, read_json, reader_of
from espalier.json_record.writing import write_json

__all__ = [
    "FIRST",
    "INTERNAL",
    "NEEDED",
    "OMITTED",
    "Json",
    "JsonRecord",
    "Mismatch",
    "in_json",
    "mismatch",
    "object_of",
    "read_json",
    "reader_of",
    "write_json",
]
