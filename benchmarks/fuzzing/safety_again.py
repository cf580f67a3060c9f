"""Some published patterns of the safety filter, phrases and custom texts, written a second time from docs/safety.md:
plain loops over the text, without the catalogue, its expressions, or the automaton."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache

DIGITS = frozenset(string.digits)
UPPER = DIGITS | frozenset(string.ascii_uppercase)
ALNUM = UPPER | frozenset(string.ascii_lowercase)
LOWER = DIGITS | frozenset(string.ascii_lowercase)


def is_found(text: str, *, names: Sequence[str], phrases: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether a pattern of `AGAIN`, a phrase as whole words, or a custom text occurs in the text."""
    plain = same(text)
    return (
        any(AGAIN[name](text, plain) for name in names)
        or any(_as_words(plain, same(phrase)) for phrase in phrases)
        or any(same(one) in plain for one in texts)
    )


def same(text: str) -> str:
    """The text without case and width, character by character; a character whose fold is longer stays."""
    return "".join(map(_plain, text))


@cache
def _plain(char: str) -> str:
    fold = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", char).casefold())
    return fold if len(fold) == 1 else char


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _as_words(text: str, phrase: str) -> bool:
    for at in _places(text, phrase):
        end = at + len(phrase)
        glued_before = _is_word(phrase[0]) and at > 0 and _is_word(text[at - 1])
        glued_after = _is_word(phrase[-1]) and end < len(text) and _is_word(text[end])
        if not glued_before and not glued_after:
            return True
    return False


def _keys(prefixes: Sequence[str], chars: frozenset[str], count: int) -> Callable[[str, str], bool]:
    """A prefix at the start of a word, not after a hyphen, and so many characters of a set."""

    def found(text: str, plain: str) -> bool:
        for prefix in prefixes:
            for at in _places(text, prefix):
                rest = text[at + len(prefix) : at + len(prefix) + count]
                starts = at == 0 or not (_is_word(text[at - 1]) or text[at - 1] == "-")
                if starts and len(rest) == count and chars.issuperset(rest):
                    return True
        return False

    return found


def _sk_key(text: str, plain: str) -> bool:
    kinds = [f"sk-{kind}-" for kind in ("proj", "svcacct", "admin", "ant", "or", "lf")]
    return _keys(["sk-"], ALNUM, 20)(text, plain) or _keys(kinds, ALNUM, 6)(text, plain)


def _github(text: str, plain: str) -> bool:
    prefixes = [f"gh{kind}_" for kind in "pousr"]
    return _keys(prefixes, ALNUM, 20)(text, plain) or _keys(["github_pat_"], ALNUM, 16)(text, plain)


def _ssn(text: str, plain: str) -> bool:
    for at in range(len(text) - 10):
        area, group, serial = text[at : at + 3], text[at + 4 : at + 6], text[at + 7 : at + 11]
        gap, gap_again = text[at + 3], text[at + 6]
        if not DIGITS.issuperset(area + group + serial) or gap not in "- " or gap != gap_again:
            continue
        if area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000":
            continue
        before = text[at - 1] if at else ""
        if before == " ":
            is_alone = at == 1 or text[at - 2] not in DIGITS
        else:
            is_alone = not before or not (_is_word(before) or before in ".@-")
        if is_alone:
            return True
    return False


def _card(text: str, plain: str) -> bool:
    digits: list[int] = []
    is_other, after_separator = False, False  # in a word or number that is no card; a separator in the run
    for char in text:
        if char in DIGITS:
            if is_other:
                continue
            digits.append(int(char))
            after_separator = False
            if len(digits) > 19:
                digits, is_other = [], True
            elif len(digits) >= 13 and _luhn(digits):
                return True
        elif char in " -" and digits and not after_separator:
            after_separator = True
        else:
            digits, after_separator = [], False
            is_other = _is_word(char) or char in ".@-"
    return False


def _luhn(digits: Sequence[int]) -> bool:
    doubled = [int(one) for digit in digits[-2::-2] for one in str(2 * digit)]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _email(text: str, plain: str) -> bool:
    for at in _places(plain, "@"):
        if at == 0 or plain[at - 1] not in LOWER | set("_%+-"):
            continue
        end = at + 1
        while end < len(plain) and plain[end] in LOWER | set(".-"):
            end += 1
        labels = plain[at + 1 : end].split(".")
        for place, label in enumerate(labels):
            if not label:
                break
            if place and len(label) > 1 and set(label[:2]) <= set(string.ascii_lowercase):
                return True
    return False


def _private_key(text: str, plain: str) -> bool:
    kinds = ("", "rsa ", "dsa ", "ec ", "openssh ", "encrypted ", "pgp ")
    return any(f"-----begin {kind}private key" in plain for kind in kinds)


def _chained_rm(text: str, plain: str) -> bool:
    for at in _places(plain, "rm"):
        after = plain[at + 2 :]
        target = after.lstrip(" \t")
        before = plain[:at].rstrip(" \t")
        if before.endswith((";", "|", "&&")) and target != after and target[:1] in tuple("-/~*$"):
            return True
    return False


def _fork_bomb(text: str, plain: str) -> bool:
    for at in _places(plain, ":"):
        rest = plain[at + 1 :]
        for mark, gap in (("(", " \t"), (")", " \t"), ("{", " \t"), (":", " \t\n"), ("|", " \t"), (":", " \t")):
            rest = rest.lstrip(gap)
            if not rest.startswith(mark):
                break
            rest = rest[1:]
        else:
            return True
    return False


AGAIN: dict[str, Callable[[str, str], bool]] = {
    "aws_key_id": _keys(["AKIA", "ASIA", "AGPA", "AROA", "AIDA"], UPPER, 16),
    "card": _card,
    "chained_rm": _chained_rm,
    "email": _email,
    "fork_bomb": _fork_bomb,
    "github_token": _github,
    "gitlab_token": _keys(["glpat-"], ALNUM, 6),
    "google_key": _keys(["AIzaSy"], ALNUM, 6),
    "huggingface_token": _keys(["hf_"], ALNUM, 20),
    "npm_token": _keys(["npm_"], ALNUM, 20),
    "private_key": _private_key,
    "sendgrid_key": _keys(["SG."], ALNUM, 8),
    "sk_key": _sk_key,
    "slack_token": _keys([f"xox{kind}-" for kind in "abeprs"], ALNUM | {"-"}, 6),
    "ssn": _ssn,
    "stripe_key": _keys([f"{who}_{mode}_" for who in ("sk", "rk", "pk") for mode in ("live", "test")], ALNUM, 16),
}
"""Whether a pattern occurs in a text, by name. Called with the text and the text without case and width."""
