"""Word list flags: `--vocab-lang` and so on, and the hard or soft constraint that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from espalier.constraints.soft.spec import SoftWordlist
from espalier.constraints.words.spec import Wordlist
from espalier.errors import InputError
from espalier.lexicon.files import read_words

ALLOWED = ("digits", "quotes", "hyphens", "colons")


@dataclass(frozen=True, slots=True, kw_only=True)
class WordFlags:
    """The `--vocab-...` flags: lang and n_words together, or words, a file, with either."""

    lang: Annotated[
        str | None, typer.Option("--vocab-lang", help="Allow only the words of this language's list.", metavar="LANG")
    ] = None
    n_words: Annotated[
        int | None, typer.Option("--vocab-n-words", help="The first N words of the list.", metavar="N")
    ] = None
    words: Annotated[str | None, typer.Option("--vocab-words", help="A word list of your own.", metavar="FILE")] = None
    extra: Annotated[
        list[str] | None, typer.Option("--vocab-extra", help="One more word; repeat it.", metavar="WORD")
    ] = None
    names: Annotated[
        list[str] | None, typer.Option("--vocab-name", help="A name, written exactly so; repeat it.", metavar="NAME")
    ] = None
    allow: Annotated[
        list[str] | None, typer.Option("--vocab-allow", help=f"{', '.join(ALLOWED)}; repeat it.", metavar="WHAT")
    ] = None
    capitals: Annotated[
        str | None, typer.Option("--vocab-capitals", help="never, sentence (the default), anywhere.", metavar="WHERE")
    ] = None
    mode: Annotated[
        str, typer.Option("--vocab-mode", help="hard, or soft: rarer words get a penalty.", metavar="MODE")
    ] = "hard"
    tier2_multiplier: Annotated[
        float | None, typer.Option("--vocab-tier2-multiplier", help="Soft: tier 2 ends at rank K·N.", metavar="K")
    ] = None
    tier2_penalty: Annotated[
        float | None, typer.Option("--vocab-tier2-penalty", help="Soft: penalty of words of tier 2.", metavar="X")
    ] = None
    tier3_penalty: Annotated[
        float | None, typer.Option("--vocab-tier3-penalty", help="Soft: penalty of all other words.", metavar="X")
    ] = None

    def wordlist(self) -> Wordlist | None:
        """The word list, or None without one. Raises InputError for a flag that needs another, and SpecError."""
        if self.words is None:
            if self.lang is None and self.n_words is None:
                self._refuse_details()
                return None
            if self.lang is None:
                raise InputError("--vocab-n-words needs --vocab-lang, or --vocab-words FILE", field="vocab_lang")
            if self.n_words is None:
                raise InputError(
                    "--vocab-lang needs --vocab-n-words",
                    hint="how many of its words, such as 3000",
                    field="vocab_n_words",
                )
        unknown = [name for name in self.allow or () if name not in ALLOWED]
        if unknown:
            raise InputError(
                f"--vocab-allow {unknown[0]}", hint=f"one of: {', '.join(ALLOWED)}; repeat it", field="vocab_allow"
            )
        return Wordlist(
            None if self.words is None else read_words(Path(self.words).expanduser()),
            lang=self.lang,
            top=self.n_words,
            extra=tuple(self.extra or ()),
            names=tuple(self.names or ()),
            capitals=self.capitals or "sentence",  # type: ignore[arg-type]  # checked by Wordlist itself
            **dict.fromkeys(self.allow or (), True),  # type: ignore[arg-type]  # all of ALLOWED are flags
        )

    def _refuse_details(self) -> None:
        given = [
            self.extra,
            self.names,
            self.allow,
            self.capitals,
            self.tier2_multiplier,
            self.tier2_penalty,
            self.tier3_penalty,
            self.mode != "hard",
        ]
        if any(value not in (None, [], False) for value in given):
            raise InputError(
                "the --vocab flags need a word list", hint="--vocab-lang es --vocab-n-words 3000", field="vocab"
            )

    def soft(self, wordlist: Wordlist) -> SoftWordlist | None:
        """The soft constraint of `--vocab-mode soft`, else None. Raises InputError, SpecError."""
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
