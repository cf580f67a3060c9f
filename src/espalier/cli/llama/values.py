"""Reads the values of llama.cpp's flags as its C++ reads them. Raises ValueError with llama.cpp's own words."""

from __future__ import annotations

import json
import re

from espalier.errors import EspalierError
from espalier.files.limits import READERS
from espalier.files.reading import read_text

WHOLE = re.compile(r"\s*([+-]?\d+)")
NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf(?:inity)?|nan))", re.IGNORECASE)
BIAS = re.compile(r"\s*(\d+)\s*([+-])(.+)", re.DOTALL)
INT32 = 2**31
SWITCH = {
    "on": "on",
    "enabled": "on",
    "true": "on",
    "1": "on",
    "off": "off",
    "disabled": "off",
    "false": "off",
    "0": "off",
    "auto": "auto",
    "-1": "auto",
}
LAYERS = {"auto": None, "all": -1}
ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[nrt'\"\\])")


def read_int(text: str) -> int:
    """As `std::stoi`: what follows the number is not read."""
    match = WHOLE.match(text)
    if match is None or not -INT32 <= int(match[1]) < INT32:
        raise ValueError("stoi")
    return int(match[1])


def read_float(text: str) -> float:
    """As `std::stof`."""
    match = NUMBER.match(text)
    if match is None:
        raise ValueError("stof")
    return float(match[1])


def read_temperature(text: str) -> float:
    """Below 0 is 0: greedy."""
    return max(0.0, read_float(text))


def read_seed(text: str) -> int:
    """As `std::stoul`, of which llama.cpp keeps 32 bits."""
    match = WHOLE.match(text)
    if match is None or abs(int(match[1])) >= 2**64:
        raise ValueError("stoul")
    return int(match[1]) % 2**32


def read_count(text: str) -> int | None:
    """A number of layers, tokens or threads; `auto` leaves it open."""
    return LAYERS[text] if text in LAYERS else read_int(text)


def read_switch(text: str) -> str:
    if text not in SWITCH:
        raise ValueError(f"error: unknown value for --flash-attn: '{text}'\n")
    return SWITCH[text]


def read_bias(text: str) -> tuple[int, float]:
    """`TOKEN_ID(+/-)BIAS`, such as `15043+1` or `2-inf`."""
    match = BIAS.fullmatch(text)
    try:
        if match is None:
            raise ValueError("no sign")
        bias = read_float(match[3])
    except ValueError:
        raise ValueError("invalid input format") from None
    return int(match[1]), -bias if match[2] == "-" else bias


def read_samplers(text: str) -> list[str]:
    return [name for name in text.split(";") if name]


def read_file(path: str) -> str:
    """A text file, whole."""
    try:
        return read_text(path, READERS["prompt"])
    except EspalierError as error:
        raise ValueError(f"error: failed to open file '{path}'\n") from error


def read_prompt_file(path: str) -> str:
    """A text file without its last newline."""
    return read_file(path).removesuffix("\n")


def read_schema(text: str) -> str:
    """The text of a JSON Schema, checked to be JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from error
    return text


def read_schema_file(path: str) -> str:
    return read_schema(read_file(path))


def unescape(text: str) -> str:
    r"""Read `\n`, `\r`, `\t`, `\'`, `\"`, `\\` and bytes such as `\x41` as llama.cpp does; other backslashes stay.
    Raises ValueError for bytes that are no UTF-8."""
    return ESCAPE.sub(_unescape, text.encode("utf-8", "surrogatepass")).decode("utf-8")


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return ESCAPED[code] if code in ESCAPED else bytes([int(code[1:], 16)])
