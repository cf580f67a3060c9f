"""One logged request of a foreign store, and what keeps one from being read. It knows no layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from espalier.json_record import Json, JsonRecord

MAX_TEXT = 16_000_000
"""Characters of a prompt or response."""
MAX_NODES = 100_000
"""Values within the messages of one request."""
OPTIONAL = ("messages", "trim_position")
"""Fields that an output row has only if the store's entry has them."""
EXACT = Json(most=2.0**53)
"""Numbers up to the largest that `entry_of` takes."""


class BadEntry(ValueError):
    """This value of the store is not a logged request; the text says why."""


@dataclass(frozen=True, slots=True)
class StoredRequest(JsonRecord):
    """What a store knows of one request.

    key: its name in the store. prompt: the exact text sent to the model. input_length: prompt tokens. timestamp: epoch
    seconds of logging, None where the layout has none. optional: `messages` and `trim_position`, as far as they are
    there. request, run: ids, None where the store has none. sample: the number among samples of one prompt.
    """

    key: str
    prompt: str
    response: str
    model: str
    input_length: Annotated[int, EXACT]
    timestamp: Annotated[float | None, EXACT]
    optional: Mapping[str, Any]
    request: str | None = None
    run: str | None = None
    sample: int | None = None


def entry_of(key: str, fields: Any, *, model: str = "") -> StoredRequest:
    """The entry that a store's dict describes, field names as HalluLens writes them. model: where the dict has none.
    Raises BadEntry for a dict that lacks the prompt, or has a field of another type."""
    if not isinstance(fields, Mapping):
        raise BadEntry("it is not a dict")
    optional = {name: _plain(fields[name], name) for name in OPTIONAL if name in fields}
    prompt = _text(fields, "prompt")
    if prompt is None:
        raise BadEntry("it has no prompt")
    length = _number(fields, "input_length")
    if length is None:
        length = _number(fields, "prompt_len")
    sample = _number(fields, "sample_index")
    return StoredRequest(
        key=key,
        prompt=prompt,
        response=_text(fields, "response") or "",
        model=_text(fields, "model") or model,
        input_length=0 if length is None else int(length),
        timestamp=_number(fields, "timestamp"),
        optional=optional,
        request=_text(fields, "request_id"),
        run=_text(fields, "run_id"),
        sample=None if sample is None else int(sample),
    )


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    field = fields.get(name)
    if field is None:
        return None
    if not isinstance(field, str):
        raise BadEntry(f"its {name} is not a text")
    if len(field) > MAX_TEXT:
        raise BadEntry(f"its {name} has {len(field):,} characters, and the limit is {MAX_TEXT:,}")
    try:
        field.encode()
    except UnicodeEncodeError as error:
        raise BadEntry(f"its {name} has half a surrogate pair at {error.start}") from None
    return field


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    field = fields.get(name)
    if field is None:
        return None
    if isinstance(field, bool) or not isinstance(field, int | float) or not abs(field) <= EXACT.most:
        raise BadEntry(f"its {name} is not a number")
    return field


def _plain(value: Any, name: str) -> Any:
    """The value, if JSON can hold it and it is small: a pickle can name one list twice, and so make a tree of any size
    out of a few bytes."""
    left, size, seen = [value], 0, 0
    while left:
        node = left.pop()
        seen += 1
        if isinstance(node, dict):
            if not all(isinstance(key, str) for key in node):
                raise BadEntry(f"its {name} has a key that is not a text")
            left += [*node, *node.values()]
        elif isinstance(node, list | tuple):
            left += node
        elif isinstance(node, str):
            size += len(_text({name: node}, name) or "")
        elif not (node is None or isinstance(node, bool)):
            _number({name: node}, name)
        if seen + len(left) > MAX_NODES or size > MAX_TEXT:
            raise BadEntry(f"its {name} is too large")
    return value
