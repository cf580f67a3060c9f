"""Checks that JSON has the types of a trace before a `Trace` is made of it, and names the first field that has not.

A file may hold anything: a text where sums expect a number, or a number where `bytes` would make as many bytes of it.
The fields are those of `records.py`, `steps.py` and `summary.py`; this module makes nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from espalier.errors import InputError
from espalier.files.reading import shortened

Check = Callable[[Any, str], None]
"""(value, where it stands). Raises _WrongField."""
LARGEST = 1e15
"""Numbers beyond it are not from a generation, and their sums would overflow."""
HINT = "Trace.save writes them"


class _WrongField(Exception):
    """The field, and what it should be."""


def check_trace(data: Any, source: str) -> None:
    """Raises InputError naming the source and the field."""
    try:
        _whole_trace(data)
    except _WrongField as error:
        raise InputError(f"{shortened(source)!r} is not a saved trace: {error}", hint=HINT, field="trace") from error


def _fail(where: str, what: str) -> _WrongField:
    return _WrongField(f"{where.lstrip('.') or 'the whole'} is not {what}")


def _text(value: Any, where: str) -> None:
    if type(value) is not str:
        raise _fail(where, "a text")


def _flag(value: Any, where: str) -> None:
    if type(value) is not bool:
        raise _fail(where, "true or false")


def _whole(value: Any, where: str) -> None:
    if type(value) is not int or not -LARGEST <= value <= LARGEST:
        raise _fail(where, "a whole number")


def _number(value: Any, where: str) -> None:
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise _fail(where, "a finite number")


def _octets(value: Any, where: str) -> None:
    if type(value) is not list or not all(type(byte) is int and 0 <= byte < 256 for byte in value):
        raise _fail(where, "a list of bytes")


def _anything(value: Any, where: str) -> None:
    """Whatever JSON has."""


def _spec(value: Any, where: str) -> None:
    """A constraint, as far as it is shown: each part that has a `kind` has a text there."""
    if type(value) is not dict:
        raise _fail(where, "an object")
    left: list[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            if "kind" in part and not isinstance(part["kind"], str):
                raise _fail(f"{where}.kind", "a text")
            left += part.values()
        elif isinstance(part, list):
            left += part


def _optional(check: Check) -> Check:
    def checked(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return checked


def _list(check: Check, length: int | None = None) -> Check:
    def checked(value: Any, where: str) -> None:
        if type(value) is not list or length not in (None, len(value)):
            raise _fail(where, "a list" if length is None else f"a list of {length}")
        for index, element in enumerate(value):
            check(element, f"{where}[{index}]")

    return checked


def _map(check: Check) -> Check:
    def checked(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _fail(where, "an object")
        for name, inner in value.items():
            check(inner, f"{where}.{name[:60]}")

    return checked


def _object(needed: Mapping[str, Check], other: Mapping[str, Check] | None = None, *, is_open: bool = False) -> Check:
    """needed, other: fields that must be there, and that may. is_open: whether there may be more."""
    known = {**needed, **(other or {})}

    def checked(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _fail(where, "an object")
        for name in needed:
            if name not in value:
                raise _WrongField(f"{where.lstrip('.') or 'it'} has no {name!r}")
        for name, inner in value.items():
            check = known.get(name)
            if check is not None:
                check(inner, f"{where}.{name}")
            elif not is_open:
                raise _WrongField(f"{where.lstrip('.') or 'it'} has a field {name[:60]!r}, which no trace has")

    return checked


_BLAME = _object(
    {"member": _text, "reason": _text},
    {
        "rule": _optional(_text), "offset": _optional(_whole), "position": _optional(_text),
        "expected": _optional(_text),
    },
)  # fmt: skip
_CANDIDATE = _object(
    {"id": _whole, "text": _text, "bytes": _octets, "prob": _number}, {"logit": _optional(_number), "allowed": _flag}
)
_TOKEN = _object({"id": _whole, "text": _text, "bytes": _octets, "logprob": _optional(_number), "is_special": _flag})
_STAGE = _list(_CANDIDATE)
_STEP = _object(
    {
        "step": _whole, "token": _TOKEN, "pre_masking": _STAGE, "post_grammar": _STAGE, "post_chain": _STAGE,
        "resampled": _CANDIDATE, "was_rejected": _flag, "rejected": _optional(_CANDIDATE), "was_forced": _flag,
        "allowed_count": _whole, "removed_mass": _number, "tax_nats": _number, "z_sampled": _optional(_number),
        "entropy_before": _number, "entropy_after": _number, "blame": _optional(_BLAME), "exactness": _text,
    },
    {
        "removed_by": _map(_number), "was_changed": _optional(_flag), "rule": _optional(_text),
        "bounds": _optional(_list(_number, 2)), "is_unknown": _flag, "note": _text,
    },
    is_open=True,
)  # fmt: skip
_REWIND = _object({"step": _whole, "tokens": _list(_whole), "text": _text, "blame": _optional(_BLAME)}, is_open=True)
_DRAFTED = _object({"step": _whole, "source": _text, "drafted": _whole, "accepted": _whole})
_VERDICT = _object({}, {"errors": _list(_anything)}, is_open=True)
_SETUP = _object(
    {},
    {"before": _text, "stream": _whole, "max_tokens": _optional(_whole), "filters": _list(_text)},
    is_open=True,
)
_OBJECT = _map(_anything)
_METADATA = _object(
    {"model": _text, "prompt": _text, "finish_reason": _text},
    {
        "asked": _text, "constraint": _optional(_spec),
        "soft": _list(_OBJECT), "sampling": _OBJECT, "strategy": _text, "verdict": _optional(_VERDICT),
        "decoding": _OBJECT, "closed_by_budget": _flag, "rewinds": _list(_REWIND),
        "drafts": _list(_DRAFTED), "score": _optional(_number),
        "weighing": _optional(_OBJECT), "level": _text, "prompt_ids": _list(_whole), "setup": _SETUP,
    },
)  # fmt: skip
_COSTS = _optional(_map(_object({"tokens": _number, "tax_nats": _number, "removed_mass": _number})))
_COUNTS = _optional(_map(_map(_whole)))
_SUMMARY = _object(
    {
        "total_steps": _whole, "rejected_steps": _whole, "forced_steps": _whole, "changed_steps": _whole,
        "total_tax_nats": _number, "mean_removed_mass": _number, "mean_entropy_before": _number,
        "mean_entropy_after": _number,
        "worst_tokens": _list(
            _object({"step": _whole, "text": _text, "tax_nats": _number, "path": _optional(_text)})
        ),
    },
    {
        "unknown_steps": _whole, "rejected_rate": _number, "forced_share": _number,
        "removed_by": _optional(_map(_number)), "by_path": _COSTS,
        "by_rule": _COSTS, "refused_favourites": _COUNTS, "taken_back": _COUNTS,
    },
)  # fmt: skip


_TRACE = _object({"metadata": _METADATA, "text": _text, "steps": _list(_STEP)}, is_open=True)


def _whole_trace(value: Any) -> None:
    _TRACE(value, "")
    if value["metadata"].get("level") == "summary":  # else the sums are those of the steps
        if "summary" not in value:
            raise _WrongField("it has no 'summary'")
        _SUMMARY(value["summary"], ".summary")
