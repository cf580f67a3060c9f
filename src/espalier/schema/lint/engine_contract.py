"""The contract of another engine, from the keywords that it is known to drop or refuse (`engine_limits.py`).

Keywords without an entry in that table count as enforced, so such a contract may be too good, never too bad. No engine
is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from espalier.errors import UnknownName
from espalier.schema.contract import Contract, ContractEntry, KeywordVerdict
from espalier.schema.lint.engine_limits import ENGINES
from espalier.schema.lint.hazards import Hazard

OURS = ("transformers", "llamacpp", "gbnf")
"""Our engines: they write their own contracts."""
Change = tuple[str, KeywordVerdict, str]
STRICT = "openai"
"""The engine that refuses where others drop or narrow."""


def engine_contract(base: Contract, hazards: Sequence[Hazard], engine: str) -> Contract:
    """The verdicts of another engine. base: our own contract, which tells the keywords that assert nothing.

    Raises UnknownName for an engine that is not in the table.
    """
    if engine in OURS or engine not in ENGINES:
        others = ", ".join(name for name in ENGINES if name not in OURS)
        raise UnknownName(f"there is no table of what {engine!r} drops", hint=f"known: {others}", field="engine")
    asserted = {entry.pointer for entry in base.entries if entry.verdict != "annotation"}
    entries = tuple(
        ContractEntry(pointer=entry.pointer, keyword=entry.keyword, verdict="enforced")
        if entry.pointer in asserted
        else entry
        for entry in base.entries
    )
    changes: list[Change] = []
    for hazard in hazards:
        if engine in hazard.engines and hazard.code in READINGS:
            changes += READINGS[hazard.code](hazard, engine, asserted)
    # Keywords inside a dropped keyword, or inside one that is not reached, do not matter.
    unseen = [f"{pointer}/" for pointer, verdict, _ in changes if verdict == "checked"]
    unseen += [f"{entry.pointer}/" for entry in base.entries if entry.verdict == "annotation" and entry.note]
    seen = [change for change in changes if not f"{change[0]}/".startswith(tuple(unseen)) or change[1] == "checked"]
    return Contract(entries).with_changes(seen)


def _list_dropped(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    if hazard.pointer in asserted:
        yield hazard.pointer, "checked", "silently dropped"


def _list_refused(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer, "refused", "this engine refuses it"


def _at_pointer(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer, "refused", hazard.message


def _format(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    if engine == STRICT:
        yield hazard.pointer, "refused", "a format that this engine does not know"
    elif hazard.pointer in asserted:
        yield hazard.pointer, "checked", "a format that this engine does not know: silently dropped"


def _beside(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    """Keywords beside a `$ref`. In drafts where they assert nothing they are annotations already."""
    node = hazard.pointer.rpartition("/")[0]
    for pointer in sorted(asserted):
        if pointer.rpartition("/")[0] == node and pointer != hazard.pointer:
            yield pointer, "checked", "silently dropped: it stands beside a $ref"


def _lengths(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    for keyword in ("minLength", "maxLength"):
        if (at := f"{hazard.pointer}/{keyword}") in asserted:
            if engine == "llama-server":
                yield at, "checked", "silently dropped beside a pattern or format"
            else:
                yield at, "refused", "refused beside a pattern or format"


def _names(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    at = f"{hazard.pointer}/properties"
    where = at if at in asserted else f"{hazard.pointer}/type"
    if engine == STRICT:
        yield where, "refused", "additionalProperties must be false"
    else:
        yield where, "narrowed", "no other names are allowed, as additionalProperties is not stated"


def _list_undeclared(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield (
        hazard.pointer,
        "refused" if engine == STRICT else "checked",
        "required names that are not declared are not enforced",
    )


def _optional(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    yield hazard.pointer.rpartition("/properties/")[0] + "/properties", "refused", hazard.message


def _pattern(hazard: Hazard, engine: str, asserted: set[str]) -> Iterator[Change]:
    """Only llama-server is known to drop patterns."""
    if engine == "llama-server" and hazard.pointer in asserted:
        yield hazard.pointer, "checked", "the pattern is silently dropped"


READINGS: Mapping[str, Callable[[Hazard, str, set[str]], Iterator[Change]]] = MappingProxyType(
    {
        "dropped-keyword": _list_dropped,
        "refused-keyword": _list_refused,
        "unknown-format": _format,
        "beside-reference": _beside,
        "boolean-schema": _at_pointer,
        "not-an-object": _at_pointer,
        "too-large": _at_pointer,
        "pattern-and-length": _lengths,
        "extra-names": _names,
        "undeclared-required": _list_undeclared,
        "optional-property": _optional,
        "pattern-class": _pattern,
        "pattern-property": _pattern,
        "pattern-boundary": _pattern,
        "pattern-look-around": _pattern,
        "pattern-back-reference": _pattern,
        "pattern-unanchored": _pattern,
    }
)
"""What a hazard changes in the contract, by its code; other hazards change nothing."""
