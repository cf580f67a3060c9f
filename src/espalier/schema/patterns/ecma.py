r"""Tests whether a pattern of JSON Schema (ECMA-262 with the flag u) matches in a given text, with Python's `re`.

`\d` and `\w` are ASCII, as in ECMA-262; `\s` and `$` keep their meaning in `re`, as in Python's validators. Where `re`
might backtrack without end, an automaton of `languages.py` decides instead.
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

_TOKEN = re.compile(
    r"\\(?:u\{(?P<brace>[0-9A-Fa-f]+)\}|u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|(?P<sign>[pP])\{(?P<property>[^}]*)\}|c(?P<control>[A-Za-z])|(?P<plain>[dDwW/-])|.)|\(\?<(?=[A-Za-z_$])|[\[\]]",
    re.DOTALL,
)
_PLAIN = {"d": "0-9", "w": "A-Za-z0-9_"}


@owned_cache(4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern translated for `re.search`. Raises RegexError where `re` cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a future Python may read `--` in a class differently
            return re.compile(_translated(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise RegexError(f"this pattern cannot be read: {error}", pattern=pattern) from None


def found(pattern: str, text: str) -> bool:
    """Whether the pattern matches somewhere in the text. Raises RegexError; where `re` might backtrack without end,
    also UnsupportedError and LimitExceeded."""
    search = compiled(pattern)
    if is_quick(search.pattern, len(text)):
        return search.search(text) is not None
    return _found_by_automaton(pattern, text)


def _found_by_automaton(pattern: str, text: str) -> bool:
    """In time linear in the text. Raises UnsupportedError where the dialects differ on it."""
    read_as = read(pattern)
    narrow, wide = (read_as.dfa(wide=one) for one in (False, True))
    data = text.encode(errors="surrogatepass")
    if narrow is not None and narrow.accepts(data):
        return True
    if wide is None or not wide.accepts(data):
        return False
    raise UnsupportedError(
        f"whether {text[:60]!r} has the pattern {pattern[:200]!r} cannot be told in a bounded time", field="pattern"
    )


def _translated(pattern: str) -> str:
    if "\\" not in pattern and "(?<" not in pattern and "[" not in pattern:
        return pattern
    out: list[str] = []
    at, inside = 0, False
    for token in _TOKEN.finditer(pattern):
        out.append(pattern[at : token.start()])
        at = token.end()
        text = token[0]
        if text in ("[", "]"):
            out.append("\\[" if text == "[" and inside else text)
            inside = text == "["
        elif text == "(?<":
            out.append("(?<" if inside else "(?P<")
        elif token["brace"]:
            out.append(_char(int(token["brace"], 16), pattern))
        elif token["high"]:
            high, low = int(token["high"], 16), int(token["low"], 16)
            out.append(_char(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), pattern))
        elif token["sign"]:
            out.append(_class(_category(token["property"], pattern), token["sign"] == "P", inside))
        elif token["control"]:
            out.append(f"\\x{ord(token['control']) % 32:02x}")
        elif token["plain"]:
            out.append(_shorthand(token["plain"], inside))
        else:
            out.append(text)
    out.append(pattern[at:])
    return "".join(out)


def _char(code: int, pattern: str) -> str:
    if code > 0x10FFFF:
        raise RegexError("there is no such character", pattern=pattern)
    return f"\\U{code:08x}"


def _shorthand(letter: str, inside: bool) -> str:
    if letter in "/-":
        return letter if letter == "/" else "\\-"
    ranges = _PLAIN[letter.lower()]
    if letter.islower():
        return ranges if inside else f"[{ranges}]"
    if not inside:
        return f"[^{ranges}]"
    codes = ((48, 57),) if letter == "D" else ((48, 57), (65, 90), (95, 95), (97, 122))
    return _class(codes, True, inside)


def _category(name: str, pattern: str) -> Ranges:
    _, _, value = name.rpartition("=")
    ranges = category(value)
    if ranges is None:
        raise RegexError(f"the property {name!r} is not known", pattern=pattern)
    return ranges


def _class(ranges: Ranges, negated: bool, inside: bool) -> str:
    if negated:
        ranges = complement(ranges)
    body = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return body if inside else f"[{body}]"
