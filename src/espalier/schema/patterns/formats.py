r"""The formats of JSON Schema as regular expressions for the whole string.

Each expression matches only what the specification of the format allows. Some match less than it allows; `NARROWER`
says what is missing. This module does not know which formats a schema asserts.
"""

from __future__ import annotations

_LONG = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = r"02-(?:0[1-9]|1[0-9]|2[0-8])"
# Divisible by 4 and not by 100, or by 400. Year 0000 is excluded, as Python has none.
_LEAP = r"(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DATE = rf"(?:{_YEAR}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP}-02-29)"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_TIME = rf"{_CLOCK}{_ZONE}"
_N = "[0-9]{1,9}"
_DAYS = rf"(?:{_N}Y(?:{_N}M(?:{_N}D)?)?|{_N}M(?:{_N}D)?|{_N}D)"
_HOURS = rf"T(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
# Ten labels of 24 characters at most: a name stays below the 253 characters allowed. No `--` at the third character:
# such labels are reserved (RFC 5891, 4.2.3.1).
_ALNUM, _LDH = "[A-Za-z0-9]", "[A-Za-z0-9-]"
_LABEL = rf"{_ALNUM}(?:{_ALNUM}|{_LDH}{{1,2}}{_ALNUM}|{_LDH}(?:{_ALNUM}{_LDH}|-{_ALNUM}){_LDH}{{0,19}}{_ALNUM})?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,9}}"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_HEX = "[0-9A-Fa-f]"
_H16 = rf"{_HEX}{{1,4}}"


def _ipv6() -> str:
    """RFC 4291's text forms: eight groups; `::` for at least one of them; the last two as an IPv4 address."""
    last = rf"(?:{_H16}:{_H16}|{_IPV4})"
    forms = [rf"(?:{_H16}:){{6}}{last}"]
    for before in range(8):  # groups in front of `::`
        front = rf"{_H16}(?::{_H16}){{{before - 1}}}" if before else ""
        room = 7 - before  # groups that may follow
        tails = [rf"(?:{_H16}:){{0,{room - 2}}}{last}"] if room >= 2 else []
        tails += [_H16] if room else []
        forms.append(rf"{front}::(?:{'|'.join([*tails, ''])})")
    return "|".join(forms)


_PERCENT = rf"%{_HEX}{{2}}"
_PCHAR = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_PERCENT})"
_PATH = rf"(?:/{_PCHAR}*)*"
_QUERY = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_NAME = r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*"
_PORT = "(?:[0-9]{1,4}|[1-5][0-9]{4}|6(?:[0-4][0-9]{3}|5(?:[0-4][0-9]{2}|5(?:[0-2][0-9]|3[0-5]))))"
_AUTHORITY = rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_PERCENT})*@)?{_NAME}(?::{_PORT})?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]{{0,15}}:(?://{_AUTHORITY}{_PATH}|/?(?:{_PCHAR}+{_PATH})?){_QUERY}"
_FIRST = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_PERCENT})+"
_RELATIVE = rf"(?://{_AUTHORITY}{_PATH}|/(?:{_PCHAR}+{_PATH})?|{_FIRST}{_PATH}|)"
_VARIABLE = r"\{[A-Za-z0-9_]+(?:,[A-Za-z0-9_]+)*\}"
_POINTER = r"(?s:(?:/(?:[^~/]|~[01])*)*)"

FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_N}W|{_DAYS}(?:{_HOURS})?|{_HOURS})",
    "email": rf"[A-Za-z0-9](?:[A-Za-z0-9_+-]|\.[A-Za-z0-9_+-]){{0,31}}@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uuid": rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "uri": _URI,
    "uri-reference": rf"{_URI}|{_RELATIVE}{_QUERY}",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9][0-9]{{0,9}})(?:#|{_POINTER})",
    "iri": _URI,
    "iri-reference": rf"{_URI}|{_RELATIVE}{_QUERY}",
    "idn-email": rf"[A-Za-z0-9](?:[A-Za-z0-9_+-]|\.[A-Za-z0-9_+-]){{0,31}}@{_HOST}",
    "idn-hostname": _HOST,
    "uri-template": rf"(?:[A-Za-z0-9._~:/?#@!$&()*+,;=\[\]-]|{_PERCENT}|{_VARIABLE})*",
    "regex": r"[A-Za-z0-9 _@,;:/=-]*",
}

_PLAIN = "a host is a plain name or an IPv4 address, a port at most 65535, a scheme has at most 16 characters"
NARROWER: dict[str, str] = {
    "date": "no year 0000",
    "time": "no leap seconds, at most nine digits of a second, `Z` as a capital",
    "date-time": "no year 0000, no leap seconds, at most nine digits of a second, `T` and `Z` as capitals",
    "duration": "at most nine digits a number",
    "email": "a plain local part of at most 32 characters and the dots between them, and a host as of `hostname`",
    "hostname": "at most ten labels of at most 24 characters, no `--` at the third character",
    "uri": _PLAIN,
    "uri-reference": _PLAIN,
    "relative-json-pointer": "no index after the number, which has at most ten digits",
    "iri": "as `uri`: no letters beyond ASCII",
    "iri-reference": "as `uri-reference`: no letters beyond ASCII",
    "idn-email": "as `email`: no letters beyond ASCII",
    "idn-hostname": "as `hostname`: no letters beyond ASCII",
    "uri-template": "plain variables only, without operators; no letters beyond ASCII",
    "regex": "literal text only: letters, digits and a few marks",
}
"""By format: what the specification allows and the expression does not."""
