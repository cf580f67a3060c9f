r"""Tests whether a pattern of JSON Schema (ECMA-262 with the flag u) matches in a given text, with Python's `re`.

Where `re` might backtrack without end, an automaton of `languages.py` decides instead.
"""

from __future__ import annotations

import re
import warnings

from espalier.errors import RegexError, UnsupportedError
from espalier.grammar.ranges import Ranges, complement
from espalier.grammar.regex.classes import category
from espalier.owners import owned_cache
from espalier.schema.patterns.cost import is_quick
from espalier.schema.patterns.languages import read
from espalier.schema.patterns.references import REFERENCE
from espalier.schema.patterns.translate import members, translate

_NAMED_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?<(?=[A-Za-z_$])", re.DOTALL)

_ESCAPE = (
    r"(?:[\^$\\.*+?()\[\]{}|/dDwWsSfnrtv0-9]|c[A-Za-z]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|[pP]\{[^}]*\})"
)
_WRITTEN = re.compile(
    rf"(?:\\(?:{_ESCAPE}|[bB]|k<[A-Za-z_$][\w$]*>)|\[(?:[^\\\]]|\\(?:{_ESCAPE}|[b-]))*\]|\(\?(?:[:=!]|<[=!]|<[A-Za-z_$][\w$]*>)"
    r"|\((?!\?)|[)|.^$]|(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??(?![*+?{])|[^\\\[\](){}*+?|^$.])*",
    re.DOTALL,
)
"""The signs of ECMA-262 with the flag u. `re` reads more: `a++`, `(?P<n>a)`, `\\Z`."""


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern: what the format `regex` asks."""
    if not _WRITTEN.fullmatch(text):
        return False
    try:
        compiled(text)
    except RegexError:
        return False
    return True


@owned_cache(4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern translated for `re.search`. Raises RegexError where `re` cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a future Python may read `--` in a class differently
            return re.compile(_translate_pattern(pattern))
    except UnsupportedError as error:
        raise RegexError(error.message, pattern=pattern) from None
    except (re.error, OverflowError, RecursionError) as error:
        raise RegexError(f"this pattern cannot be read: {error}", pattern=pattern) from None


def found(pattern: str, text: str) -> bool:
    """Whether the pattern matches somewhere in the text. Raises RegexError; where `re` might backtrack without end,
    also UnsupportedError and LimitExceeded."""
    search = compiled(pattern)
    if is_quick(search.pattern, len(text)):
        return search.search(text) is not None
    language = read(pattern).dfa()
    return language is not None and language.accepts(text.encode(errors="surrogatepass"))


def _translate_pattern(pattern: str) -> str:
    def escape(text: str, in_class: bool) -> str | None:
        if text[:2] in (r"\p", r"\P") and len(text) > 2:
            return _class(_category(text[3:-1], pattern), text[1] == "P", in_class)
        if text in (r"\b", r"\B") and not in_class:  # in `re`, `\B` does not match in the empty text
            return r"(?a:\b)" if text == r"\b" else r"(?a:(?!\b))"
        if not in_class and (match := REFERENCE.fullmatch(text)):
            return _reference(match[1] or match[2], is_number=match[1] is not None)
        return None

    named = _NAMED_GROUP.sub(lambda match: "(?P<" if match[0] == "(?<" else match[0], pattern)
    return translate(named, escape)[0]


def _reference(group: str, *, is_number: bool) -> str:
    """A reference to a group that took no part in the match matches the empty text in ECMA-262, and nothing in `re`."""
    return f"(?({group})\\{group})" if is_number else f"(?({group})(?P={group}))"


def _category(name: str, pattern: str) -> Ranges:
    _, _, value = name.rpartition("=")
    ranges = category(value)
    if ranges is None:
        raise RegexError(f"the property {name!r} is not known", pattern=pattern)
    return ranges


def _class(ranges: Ranges, negated: bool, in_class: bool) -> str:
    body = members(complement(ranges) if negated else ranges)
    return body if in_class else f"[{body}]"
