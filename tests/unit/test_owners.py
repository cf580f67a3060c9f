"""What is kept for one owner is not found by another, wherever the texts of requests are worked on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.safety import compile as safety
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import JsonSchema
from espalier.owners import owned_cache, owner, working_for
from espalier.schema.lazy import leaves
from espalier.schema.patterns import languages
from espalier.tokens.vocab import Vocab

PACKAGES = ("schema", "constraints", "automata/lazy", "automata/joint", "automata/phrases")
SHARED = {
    "schema/lazy/leaves.py": "rules of JSON itself, and classes of characters",
    "schema/lazy/rules.py": "numbers of rules",
    "schema/lowering/objects.py": "brackets",
    "schema/lowering/notation.py": "names of Python",
    "schema/lowering/rulebook.py": "rules of JSON itself",
    "schema/lowering/tagged.py": "closing tags of formats",
    "schema/read/documents.py": "official metaschemas",
    "schema/normal/judge.py": "judges of official drafts",
    "schema/normal/validator.py": "validators of official drafts",
    "constraints/json_schema/judge.py": "judges of official drafts",
    "constraints/safety/parts.py": "built-in patterns",
    "constraints/safety/machine.py": "tables of the code",
    "constraints/safety/alone/tries.py": "the kernels; vocabularies",
    "constraints/safety/folding.py": "tables of Unicode",
    "constraints/safety/judge.py": "runs in the processes that judge",
    "constraints/judging.py": "runs in them too",
    "constraints/tools/grammar.py": "rules without texts of requests",
}
"""Modules whose caches all owners share, and what they hold."""


def test_what_was_made_for_an_owner_is_made_again_for_another() -> None:
    made: list[tuple[str, int]] = []

    @owned_cache(8)
    def doubled(number: int, *, more: int = 0) -> int:
        made.append((owner(), number))
        return 2 * number + more

    for name in ("anna", "ben", "anna", "ben"):
        with working_for(name):
            assert (doubled(3), doubled(3, more=1)) == (6, 7)
    assert made == [("anna", 3), ("anna", 3), ("ben", 3), ("ben", 3)]
    assert owner() == ""


def test_no_other_cache_holds_texts_of_requests() -> None:
    root = Path(leaves.__file__).parents[2]
    found = {
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if re.search(r"^@(?:lru_)?cache\b|[= ]lru_cache\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found - set(SHARED) == set()


def test_patterns_bounds_and_filters_of_one_owner_are_worked_out_again_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: dict[str, int] = {}

    def counted(module: object, name: str) -> None:
        real = getattr(module, name)

        def count(*given: object, **more: object) -> object:
            key = f"{owner()} {name}"
            counts[key] = counts.get(key, 0) + 1
            return real(*given, **more)

        monkeypatch.setattr(module, name, count)

    counted(leaves, "converted")
    counted(languages, "translate")
    counted(safety, "built_in_parts")
    compiler = Compiler(Vocab.bytes())
    properties = {"a": {"type": "string", "pattern": "^qwx[a-z]{2,9}z$"}, "b": {"type": "integer", "minimum": 77341}}
    schema = JsonSchema({"type": "object", "properties": properties, "required": ["a", "b"]})
    owners = ("first of this test", "second of this test")  # no other test has made anything for these
    for name in owners:
        with working_for(name):
            compiler.compile(schema).matcher().mask()
            compiler.compile(Safety(patterns=["qwxyz"]))
    for name in ("converted", "translate", "built_in_parts"):
        assert counts[f"{owners[0]} {name}"] == counts[f"{owners[1]} {name}"] > 0, name
