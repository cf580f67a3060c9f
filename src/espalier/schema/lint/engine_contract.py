"""The contract of an engine that is not ours, from what it is known to drop and to refuse (`engine_limits.py`).

What nothing is known of counts as enforced: these contracts can be too good, never too bad. It runs no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from espalier.errors import UnknownName
from espalier.schema.contract import Contract, Entry, Verdict
from espalier.schema.lint.engine_limits import ENGINES
from espalier.schema.lint.hazards import Hazard

OURS = ("transformers", "llamacpp", "gbnf")
"""Their contracts are their own."""
Change = tuple[str, Verdict, str]
STRICT = "openai"
"""It refuses what others read in their own way."""


def engine_contract(base: Contract, hazards: Sequence[Hazard], engine: str) -> Contract:
    """What becomes of each keyword. base: our own contract, which knows the keywords that assert nothing.

    Raises UnknownName for an engine that is not in the table.
    """
    if engine in OURS or engine not in ENGINES:
        others = ", ".join(name for name in ENGINES if name not in OURS)
        raise UnknownName(f"nothing is known of what {engine!r} drops", hint=f"known: {others}", field="engine")
    asserted = {entry.pointer for entry in base.entries if entry.verdict != "annotation"}
    kept = tuple(
        Entry(pointer=entry.pointer, keyword=entry.keyword, verdict="enforced") if entry.pointer in asserted else entry
        for entry in base.entries
    )
    changes: list[Change] = []
    for hazard in hazards:
        if engine in hazard.engines and hazard.code in READINGS:
            changes += READINGS[hazard.code](hazard, engine, asserted)
    # What is within something that is dropped, or that nobody asks for, is not looked at.
    unseen = [f"{pointer}/" for pointer, verdict, _ in changes if verdict == "checked"]
    unseen += [f"{entry.pointer}/" for entry in base.entries if entry.verdict == "annotation" and entry.note]
    seen = [change for change in changes if not f"{change[0]}/".startswith(tuple(unseen)) or change[1] == "checked"]
    return Contract(kept).with_changes(seen)


def _dropped(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    if hazard.pointer in asserted:
        yield hazard.pointer, "checked", "dropped without a word"


def _refused(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer, "refused", "this engine has an error for it"


def _said(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer, "refused", hazard.message


def _format(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    if engine == STRICT:
        yield hazard.pointer, "refused", "a format that this engine does not know"
    elif hazard.pointer in asserted:
        yield hazard.pointer, "checked", "a format that this engine does not know: dropped without a word"


def _beside(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    """Keywords beside a `$ref`; in drafts where they say nothing they are annotations already."""
    node = hazard.pointer.rpartition("/")[0]
    for pointer in sorted(asserted):
        if pointer.rpartition("/")[0] == node and pointer != hazard.pointer:
            yield pointer, "checked", "dropped without a word: it stands beside a $ref"


def _lengths(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    for keyword in ("minLength", "maxLength"):
        if (at := f"{hazard.pointer}/{keyword}") in asserted:
            if engine == "llama-server":
                yield at, "checked", "dropped without a word beside a pattern or format"
            else:
                yield at, "refused", "refused beside a pattern or format"


def _names(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    at = f"{hazard.pointer}/properties"
    where = at if at in asserted else f"{hazard.pointer}/type"
    if engine == STRICT:
        yield where, "refused", "additionalProperties has to be false"
    else:
        yield where, "narrowed", "no other names: additionalProperties is not said"


def _undeclared(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer, "refused" if engine == STRICT else "checked", "names that are not declared are not demanded"


def _optional(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer.rpartition("/properties/")[0] + "/properties", "refused", hazard.message


def _pattern(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    """The table speaks of llama-server only."""
    if engine == "llama-server" and hazard.pointer in asserted:
        yield hazard.pointer, "checked", "the pattern is dropped without a word"


READINGS: Mapping[str, Callable[[Hazard, str, set[str]], Iterator[Change]]] = MappingProxyType(
    {
        "dropped-keyword": _dropped,
        "refused-keyword": _refused,
        "unknown-format": _format,
        "beside-reference": _beside,
        "boolean-schema": _said,
        "not-an-object": _said,
        "too-large": _said,
        "pattern-and-length": _lengths,
        "extra-names": _names,
        "undeclared-required": _undeclared,
        "optional-property": _optional,
        "pattern-class": _pattern,
        "pattern-property": _pattern,
        "pattern-boundary": _pattern,
        "pattern-look-around": _pattern,
        "pattern-back-reference": _pattern,
        "pattern-unanchored": _pattern,
    }
)
"""What a hazard means for the contract, by its code; hazards that are not here mean nothing for it."""
