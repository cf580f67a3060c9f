"""Word lists against one regular expression of the whole language, written from docs/constraints.md, in both
directions. It shares no code with the automaton or with the checker that gives verdicts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from espalier.constraints.spec import Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import SpecError
from espalier.lexicon.languages import LANGUAGES, OTHER, Language
from tests.fuzz.cases import Case, CaseFuzzer, both_ways

LETTERS = ("abc", "aeß", "你好", "دم", "aiİı", "नम", "ijk", "éàu", "lda")
SWITCHES = ("digits", "quotes", "hyphens", "colons")
LONGEST = 40


class WordFuzzer(CaseFuzzer):
    def draw(self, random: Random, counts: Counter[str]) -> Case | None:
        lang = random.choice([None, "en", "fr", "it", "tr", "nl", "zh", "es", *LANGUAGES])
        letters = random.choice(LETTERS) + "'"

        def word(chars: str, longest: int = 4) -> str:
            return "".join(random.choice(chars) for _ in range(random.randint(1, longest)))

        options: dict[str, Any] = {name: random.random() < 0.4 for name in SWITCHES}
        listed = [word(letters) for _ in range(random.randint(1, 6))]
        options |= {
            "lang": lang,
            "extra": [word(letters) for _ in range(random.randint(0, 2))],
            "names": [word(letters.upper() + letters, 3) for _ in range(random.randint(0, 2))],
            "capitals": random.choice(("never", "sentence", "sentence", "anywhere")),
            "separators": random.choice(("", "", "()", "/'")),
            "max_run": random.randint(1, 4),
        }
        if random.random() < 0.2:
            options["top"] = random.randint(1, len(set(listed)))
        try:
            spec = Wordlist(listed, **options)
        except SpecError as error:
            counts[f"not drawn: {error.code}"] += 1
            return None
        judge = re.compile(expression(spec))
        words = [*(spec.words or ()), *spec.extra, *spec.names]
        marks = [*separators(spec), "’", "'", "1", "23", ".", "-", " ", " ", ":", "\n"]
        pieces = [*words, *words, *(w[:1].upper() + w[1:] for w in words), *marks]
        near = ["".join(random.choices(pieces, k=random.randint(1, 6))) for _ in range(12)]
        return Case(
            spec=spec,
            fault=both_ways(
                lambda text: bool(judge.fullmatch(text)) if len(text) <= LONGEST else None, "the expression"
            ),
            near=near,
            features=[str(lang), f"capitals {spec.capitals}", *(name for name in SWITCHES if options[name])],
            longest=16,
            inserted=pieces,
        )


def expression(spec: Spec) -> str:
    """One regular expression for the texts of a word list: runs of separators between units, which are words with
    what attaches to them, or numbers."""
    assert isinstance(spec, Wordlist)
    rules = LANGUAGES.get(spec.lang or "", OTHER)
    listed = dict.fromkeys((*(spec.words or ())[: spec.top], *spec.extra))
    elided = {w for w in listed if rules.elisions and w[-1] == "'" and w != "'"}
    clitics = {w for w in listed if rules.clitics and w[0] == "'" and w != "'"} - elided
    plain = set(listed) - elided - clitics
    fixed = {form for form in rules.capitals if form.lower().replace("’", "'") in plain}
    always = _any_of(plain | fixed | set(spec.names))
    capital = _any_of(form for word in plain for form in _capitals(word, rules))
    before, capital_before = _any_of(elided), _any_of(form for word in elided for form in _capitals(word, rules))
    if spec.capitals == "anywhere":
        always, before = f"(?:{always}|{capital})", f"(?:{before}|{capital_before})"
    one = f"(?:{before})*(?:{always})"
    first = f"(?:{one}|(?:{capital_before}){one}|{capital})" if spec.capitals == "sentence" else one
    tail = f"(?:{_any_of(clitics)}" + (f"|[-‐]{one})*" if spec.hyphens else ")*")
    digit = f"[{re.escape('0123456789' + rules.digits)}]"
    number = f"|{digit}{{1,12}}(?:[.,:]{digit}{{1,12}}){{0,4}}" if spec.digits else ""
    unit, opening = f"(?:{one}{tail}{number})", f"(?:{first}{tail}{number})"
    run = f"[{re.escape(separators(spec))}]"
    ends = f"[{re.escape(rules.ends)}\\n\\r" + (re.escape('"“„«‹「『《') if spec.quotes else "") + "]"
    end = f"(?={ends})(?:{run})"  # an end is a separator too
    most = spec.max_run
    with_end = "|".join(f"{run}{{{i}}}{end}{run}{{0,{most - 1 - i}}}" for i in range(most))
    gap = f"(?:{run}{{1,{most}}}{unit}|(?:{with_end}){opening})"
    more = gap if rules.spaced else f"(?:{gap}|{unit})"
    return f"{run}{{0,{most}}}{opening}{more}*{run}{{0,{most}}}"


def separators(spec: Wordlist) -> str:
    rules = LANGUAGES.get(spec.lang or "", OTHER)
    found = " \n\t\r" + rules.punctuation + spec.separators
    found += '"“”„«»‹›' + rules.quotes if spec.quotes else ""
    found += ":;" + rules.colons if spec.colons else ""
    return found + ("–—-" if spec.hyphens else "")


def _any_of(words: Iterable[str]) -> str:
    """One of the words, each apostrophe in both spellings; nothing at all if there are none."""
    spelled = (re.escape(word.replace("’", "'")).replace("'", "['’]") for word in sorted(words))
    return f"(?:{'|'.join(spelled) or '(?!)'})"


def _capitals(word: str, rules: Language) -> list[str]:
    for pair in rules.digraphs:
        if word.startswith(pair):
            return [pair.upper() + word[len(pair) :], pair[0].upper() + word[1:]]
    first = "İ" if rules.turkic and word[0] == "i" else unicodedata.normalize("NFC", word[0].title())
    return [first + word[1:]] if first != word[0] else []
