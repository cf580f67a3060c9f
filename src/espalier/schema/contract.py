"""The contract of a schema: one verdict for every keyword, by its JSON pointer.

    /properties/a/pattern  narrowed  "only what both ECMA-262 and Python's re match"

The expansion says which keywords are in the normal form and which were left out; each backend then lowers the verdicts
of keywords that it narrows or cannot enforce. This module knows none of their reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from espalier.errors import UnsupportedError
from espalier.json_record import JsonRecord
from espalier.schema.pointers import split
from espalier.wording import OptionText, Setting

KeywordVerdict: TypeAlias = Literal["enforced", "narrowed", "checked", "refused", "annotation"]

CHECKED = Setting("allow", "checked", {"cli": "--allow-checked"})
VERDICTS: tuple[KeywordVerdict, ...] = ("annotation", "enforced", "narrowed", "checked", "refused")
"""From the best to the worst.

enforced: every possible output satisfies the keyword, and every value that satisfies it is possible.
narrowed: every possible output satisfies it, but some values or spellings that satisfy it are not possible.
checked: not enforced; the finished text is judged. refused: neither. annotation: it asserts nothing.
"""
_RANK = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
SHOWN = 5
"""Pointers that a message names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractEntry(JsonRecord):
    """pointer: to the keyword in the user's schema; in another document, after that document's address."""

    pointer: str
    keyword: str
    verdict: KeywordVerdict
    note: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """The entries of all keywords, in the order of the text."""

    entries: tuple[ContractEntry, ...] = ()

    @property
    def worst(self) -> KeywordVerdict:
        """The worst verdict; `enforced` where nothing is asserted."""
        return max((entry.verdict for entry in self.entries), key=_RANK.__getitem__, default="enforced")

    def by_verdict(self, *verdicts: KeywordVerdict) -> tuple[ContractEntry, ...]:
        return tuple(entry for entry in self.entries if entry.verdict in verdicts)

    def to_json(self) -> list[dict[str, str]]:
        return [entry.to_json() for entry in self.entries]

    @classmethod
    def from_json(cls, data: Iterable[dict[str, Any]]) -> Contract:
        return cls(tuple(ContractEntry(**entry) for entry in data))

    def narrow(self, pointer: str, note: str) -> Contract:
        """The contract with this keyword narrowed. A worse verdict stays, with the note added."""
        return self.lower(pointer, "narrowed", note)

    def leave(self, pointer: str, note: str) -> Contract:
        """The contract with this keyword left out, so that it can only be checked."""
        return self.lower(pointer, "checked", note)

    def refuse(self, pointer: str, note: str) -> Contract:
        """The contract with this keyword refused: it can be neither enforced nor checked."""
        return self.lower(pointer, "refused", note)

    def lower(self, pointer: str, verdict: KeywordVerdict, note: str) -> Contract:
        """The contract with one verdict lowered; a pointer without an entry gets one, at the end."""
        return self.with_changes([(pointer, verdict, note)])

    def with_changes(self, changes: Iterable[tuple[str, KeywordVerdict, str]]) -> Contract:
        """The contract with several verdicts lowered, each `(pointer, verdict, note)`."""
        # Entries of no keyword, such as that of the order, share the pointer to the whole schema.
        entries = {entry.pointer or entry.keyword: entry for entry in self.entries}
        for pointer, verdict, note in changes:
            old = entries.get(pointer)
            if old is None:
                keyword = (split(pointer) or [""])[-1]
                old = ContractEntry(pointer=pointer, keyword=keyword, verdict=verdict)
            worse = max(old.verdict, verdict, key=_RANK.__getitem__)
            notes = [part for part in (old.note, note) if part]
            shown = old.note if note in old.note.split("; ") else "; ".join(notes)
            entries[pointer] = ContractEntry(pointer=pointer, keyword=old.keyword, verdict=worse, note=shown)
        return Contract(tuple(entries.values()))

    def check(self, allow: Collection[KeywordVerdict] | KeywordVerdict = ()) -> None:
        """Raises UnsupportedError, naming the pointers, if a keyword is refused, or if one is only checked and `allow`
        does not contain "checked"."""
        allowed = {allow} if isinstance(allow, str) else set(allow)
        refused = self.by_verdict("refused")
        left = refused or (() if "checked" in allowed else self.by_verdict("checked"))
        if not left:
            return
        named = ", ".join(entry.pointer or "the whole schema" for entry in left[:SHOWN])
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        reasons = next((entry.note for entry in left if entry.note), "")
        raise UnsupportedError(
            f"the schema uses keywords that cannot be enforced: {named}{more}{': ' if reasons else ''}{reasons}",
            hint="remove it" if refused else OptionText("remove it, or have it checked afterwards (", CHECKED, ")"),
            field="schema",
        )
