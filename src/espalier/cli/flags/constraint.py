"""The constraint that a set of flags asks for: several are joined, a marker delays them, soft ones stand beside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.schema import read_spec as read_schema
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.soft.spec import SoftJson, SoftSpec, SoftWordlist
from espalier.constraints.spec import Choice, Gbnf, JsonObject, Regex, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import InputError, SpecError
from espalier.grammar.builtin import GRAMMARS
from espalier.lexicon.files import read_words

ALLOWED = ("digits", "quotes", "hyphens", "colons")


@dataclass(frozen=True, slots=True, kw_only=True)
class WordFlags:
    """The `--vocab-...` flags. lang and n_words are given together, or words, a file, with either."""

    lang: str | None = None
    n_words: int | None = None
    words: str | None = None
    extra: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    capitals: str | None = None
    mode: str = "hard"
    tier2_multiplier: float | None = None
    tier2_penalty: float | None = None
    tier3_penalty: float | None = None

    def wordlist(self) -> Wordlist | None:
        """Raises InputError for flags that want others, SpecError for values."""
        if self.words is None:
            if self.lang is None and self.n_words is None:
                self._refuse_details()
                return None
            if self.lang is None:
                raise InputError("--vocab-n-words wants --vocab-lang, or --vocab-words FILE", field="vocab_lang")
            if self.n_words is None:
                raise InputError(
                    "--vocab-lang wants --vocab-n-words",
                    hint="how many of its words, such as 3000",
                    field="vocab_n_words",
                )
        unknown = [name for name in self.allow if name not in ALLOWED]
        if unknown:
            raise InputError(
                f"--vocab-allow {unknown[0]}", hint=f"one of: {', '.join(ALLOWED)}; repeat it", field="vocab_allow"
            )
        return Wordlist(
            None if self.words is None else read_words(Path(self.words).expanduser()),
            lang=self.lang,
            top=self.n_words,
            extra=self.extra,
            names=self.names,
            capitals=self.capitals or "sentence",  # type: ignore[arg-type]  # checked by Wordlist itself
            **dict.fromkeys(self.allow, True),  # type: ignore[arg-type]  # all of ALLOWED are flags
        )

    def _refuse_details(self) -> None:
        given = [self.extra, self.names, self.allow, self.capitals, self.tier2_multiplier, self.tier2_penalty,
                 self.tier3_penalty, self.mode != "hard"]  # fmt: skip
        if any(value not in (None, (), False) for value in given):
            raise InputError(
                "the --vocab flags need a word list", hint="--vocab-lang es --vocab-n-words 3000", field="vocab"
            )

    def soft(self, wordlist: Wordlist) -> SoftWordlist | None:
        """The soft form, where that is asked for. Raises InputError, SpecError."""
        tiers = {
            "tier2_max_rank_multiplier": self.tier2_multiplier,
            "tier2_penalty": self.tier2_penalty,
            "tier3_penalty": self.tier3_penalty,
        }
        given = {name: value for name, value in tiers.items() if value is not None}
        if self.mode == "soft":
            return SoftWordlist(wordlist, **given)
        if self.mode != "hard":
            raise InputError(f"--vocab-mode {self.mode}", hint="hard or soft", field="vocab_mode")
        if given:
            raise InputError("penalties are for --vocab-mode soft", field=next(iter(given)))
        return None


def read_constraint(
    *,
    schema: str | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    choice: list[str] | None = None,
    json_object: bool = False,
    whitespace: str | None = None,
    schema_format: str | None = None,
    schema_order: str | None = None,
    allow_checked: bool = False,
    constraint: str | None = None,
    ban: list[str] | None = None,
    words: Wordlist | None = None,
    after: str | None = None,
    max_before: int | None = None,
) -> Spec | None:
    """What the flags ask for; several hold together. Raises InputError, SpecError and its kin."""
    if whitespace is not None and schema is None and not json_object:
        raise InputError("--whitespace is for --schema and --json-object", field="whitespace")
    details = {"--schema-format": schema_format, "--schema-order": schema_order, "--allow-checked": allow_checked}
    given = [flag for flag, value in details.items() if value not in (None, False)]
    if given and schema is None:
        raise InputError(f"{given[0]} wants --schema", field="schema")
    style: Any = whitespace or "natural"  # checked by the specs themselves
    found: list[Spec] = []
    if schema is not None:
        found.append(
            read_schema(
                schema,
                whitespace=style,
                format=schema_format or "annotate",
                order=schema_order or "schema",
                allow="checked" if allow_checked else None,
            )
        )
    if regex is not None:
        found.append(Regex(regex))
    if grammar is not None:
        found.append(Gbnf(read_grammar(grammar)))
    if choice:
        found.append(Choice(tuple(choice)))
    if json_object:
        found.append(JsonObject(whitespace=style))
    if constraint is not None:
        found.append(read_spec(constraint))
    if words is not None:
        found.append(words)
    if ban:
        found.append(Ban(tuple(ban)))
    whole = None if not found else found[0] if len(found) == 1 else AllOf(*found)
    if after is None:
        if max_before is not None:
            raise InputError("--max-before wants --after", field="max_before")
        return whole
    if whole is None:
        raise InputError("--after wants a constraint", hint='such as --json-object --after "</think>"', field="after")
    return After(after, whole, max_before=max_before)


def read_soft(*, soft_json: bool, words: SoftWordlist | None) -> tuple[SoftSpec, ...]:
    """The soft constraints that the flags ask for."""
    return (*([SoftJson()] if soft_json else []), *([words] if words else []))


def read_spec(path: str) -> Spec:
    """Any constraint, from a JSON file such as `{"kind": "regex", "pattern": "[ab]+"}`. Raises SpecError."""
    try:
        data = json.loads(read_text(path, "constraint"))
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{path} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}", field="constraint"
        ) from error
    except RecursionError as error:
        raise SpecError(f"{path} is nested too deeply", field="constraint") from error
    return Spec.from_json(data)


def read_grammar(path: str) -> str:
    """The text of a grammar: a file, `-`, or `@name` for a built-in one. Raises InputError, UnknownName."""
    return str(GRAMMARS.load(path[1:])) if path.startswith("@") else read_text(path, "grammar")
