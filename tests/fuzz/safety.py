"""Safety filters against a search of the text with Python's `re`, and against the published patterns written a second
time (`safety_again.py`), both in both directions."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

from espalier.constraints.safety.catalogue import CATEGORIES, PATTERNS, SafetyPattern
from espalier.constraints.safety.judge import UnsearchablePattern, find
from espalier.constraints.safety.spec import Custom, Safety
from espalier.errors import EspalierError
from espalier.grammar.ast import Grammar, Rule
from espalier.grammar.regex.parse import parse_regex
from espalier.grammar.sample import SentenceSampler
from tests.fuzz.cases import Case, CaseFuzzer, both_ways
from tests.fuzz.patterns import HARD, Patterns
from tests.fuzz.safety_again import AGAIN, is_found
from tests.safety_rates.rates import table

PHRASES = ("krump", "gut punch", "d'oh", "a", "zorb", "va-va-voom", "ñandú", "日本", "x!", "ab ab", "ſt")
AROUND = ("", "", " ", "x", "-", "_", ".", "\n", "é", "(", '"', ";", "1", "@", "/", "ｒ", "  ", "=")
LONGEST = 240
MOST_PATTERNS = 3
"""More patterns together take seconds to compile."""


class SafetyFuzzer(CaseFuzzer):
    def draw(self, random: Random, counts: Counter[str]) -> Case | None:
        is_again = random.random() < 0.5
        categories = random.sample(list(CATEGORIES), random.randint(0, 3))
        chosen = [one for one in PATTERNS if one.category in categories]
        lists = {name: random.sample(PHRASES, random.randint(1, 3)) for name in categories if random.random() < 0.6}
        customs: list[str | Custom] = random.sample(
            ("rm -i", "a b", "ÑANDÚ", "ab", "<x>", "x\ny"), random.randint(0, 2)
        )
        if not is_again and random.random() < 0.4:
            customs.append(Custom(Patterns(random).pattern(), True))
        known = [one.name for one in chosen if one.name in AGAIN or not is_again]
        kept = random.sample(known, min(len(known), random.randint(1, MOST_PATTERNS)))
        try:
            spec = Safety(
                categories=categories,
                include=[one.name for one in chosen if one.is_option and one.name in kept],
                exclude=[one.name for one in chosen if one.name not in kept],
                patterns=customs,
                lists=lists,
            )
        except EspalierError as error:
            counts[f"not drawn: {error.code}"] += 1
            return None
        enabled = spec.built_in()
        near = [_near(random, spec, enabled) for _ in range(10)]
        phrases = [phrase for _, found in spec.lists for phrase in found]
        texts = [one.text for one in spec.patterns]

        def by_judge(text: str) -> bool | None:
            try:
                return not find(spec, text) if len(text) <= LONGEST else None
            except UnsearchablePattern:
                return None

        def by_again(text: str) -> bool | None:
            return not is_found(text, names=[one.name for one in enabled], phrases=phrases, texts=texts)

        counts["patterns written a second time" if is_again else "search with re"] += 1
        return Case(
            spec=spec,
            fault=both_ways(by_again, "the second writing") if is_again else both_ways(by_judge, "the search with re"),
            near=near,
            features=[*(one.name for one in enabled), *(["list"] if lists else []), *(["custom"] if customs else [])],
            liked=b" -;|.0123456789",
            longest=12,
            begins=tuple(text[: random.randint(0, len(text))].encode() for text in near),
            inserted=(*AROUND, *HARD[:-1], "0", "7", "-", "- "),
        )


def _near(random: Random, spec: Safety, enabled: tuple[SafetyPattern, ...]) -> str:
    """A text around something that the filter may catch."""
    draw = random.random()
    if draw < 0.4 and enabled:
        one = random.choice(enabled)
        inner = _number(random) if one.detector == "card" else _sampler(one).draw(random, max_size=40)
        if random.random() < 0.3:
            inner = random.choice((inner.upper(), inner.title(), inner.translate(WIDE)))
    elif draw < 0.6 and (spec.lists or spec.patterns):
        inner = random.choice([p for _, found in spec.lists for p in found] + [one.text for one in spec.patterns])
        inner = random.choice((inner, inner.upper(), inner.translate(WIDE)))
    elif draw < 0.7:
        inner = _number(random)
    else:
        texts = [row.text for name in spec.categories for row in table(name) if len(row.text) <= 60] or ["nothing"]
        inner = random.choice(texts)
    shown = f"{random.choice(AROUND)}{inner}{random.choice(AROUND)}"
    return _in_a_string(random, shown) if random.random() < 0.5 else shown


def _in_a_string(random: Random, text: str) -> str:
    """The text between quotation marks, with each character escaped in one of its spellings or left as it is, and now
    and then an escape that is broken or foreign."""
    quote = random.choice('"""\'')
    often = random.choice((0.0, 0.1, 0.6))
    shown = []
    for char in text:
        if char in (quote, "\\") or random.random() < often:
            shown.append(random.choice(_spellings(char)))
        else:
            shown.append(char)
        if random.random() < 0.02:
            shown.append(random.choice(ODD))
    before = random.choice(("", '{"c": ', "f(x=", "['", '", ', "say "))
    return f"{before}{quote}{''.join(shown)}{random.choice((quote, quote, quote + '}', ''))}"


def _spellings(char: str) -> list[str]:
    point = ord(char)
    found = ["".join(f"\\u{unit:04x}" for unit in _units(char)), "".join(f"\\u{unit:04X}" for unit in _units(char))]
    if point < 256:
        found.append(f"\\x{point:02x}")
    if char in SHORT:
        found.append(f"\\{SHORT[char]}")
    return found


def _units(char: str) -> list[int]:
    data = char.encode("utf-16-be")
    return [data[i] << 8 | data[i + 1] for i in range(0, len(data), 2)]


SHORT = {'"': '"', "'": "'", "\\": "\\", "/": "/", "\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f"}
ODD = (
    "\\",
    "\\u",
    "\\u00",
    "\\ud83d",
    "\\ude00",
    "\\x",
    "\\x7",
    "\\q",
    "\\ud83d\\ud83d\\ude00",
    '\\"',
    "\\'",
    "\\u0022",
)


WIDE = {i: i + 0xFEE0 for i in range(0x21, 0x7F)}


@cache
def _sampler(pattern: SafetyPattern) -> SentenceSampler:
    """Draws texts of a built-in pattern with its context."""
    node = parse_regex(f"(?:{pattern.before})(?:{pattern.itself})(?:{pattern.after})")
    return SentenceSampler(Grammar.of([Rule("root", node)]))


def _number(random: Random) -> str:
    """Digits as of a card or another number, with single and double separators."""
    digits = [random.randint(0, 9) for _ in range(random.choice((9, 12, 13, 14, 16, 16, 19, 20, 23)))]
    total = sum(
        divmod(2 * d, 10)[0] + divmod(2 * d, 10)[1] if i % 2 else d for i, d in enumerate(reversed(digits[:-1]), 1)
    )
    if random.random() < 0.6:
        digits[-1] = -total % 10
    separator = random.choice(("", "", " ", "-", "  "))
    groups = random.choice((3, 4, 5))
    shown = "".join(str(d) + (separator if i % groups == groups - 1 else "") for i, d in enumerate(digits))
    return shown.strip(" -") if random.random() < 0.7 else shown
