"""Texts to try on a compiled schema: what it accepts itself, found by random walks; values written in every spelling
that JSON has; and both with something changed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np

from espalier.constraints.base import Compiled
from espalier.tokens.mask import unpack

LIKED = np.zeros(256)
for _byte in b'"\\/u{}[],:0n':
    LIKED[_byte] = 4.0
SPACES = ("", "", "", " ", "\n", "\t ")
INSERTED = ('\\"', "\\\\", "\\/", "/", "\\u0000", "\\u001f", "\\u007f", "\x7f", "é", "\\u00e9", "😀", "\\ud83d\\ude00",
            "\u2028", "\\n", "\\u0061", "\\u0022", "\\u005C", '"', "\\", "x")  # fmt: skip


def walk(compiled: Compiled, random: Random, *, longest: int = 60) -> str | None:
    """A text that the matcher accepts, drawn byte by byte; None where the walk has no end. Bytes that JSON treats
    specially are preferred. The vocabulary is of bytes, EOS last."""
    matcher = compiled.matcher()
    eos = compiled.vocab.eos_ids[0]
    taken = bytearray()
    for _ in range(longest):
        allowed = np.flatnonzero(unpack(matcher.mask(), compiled.vocab.width))
        if matcher.is_accepting and (len(allowed) == 1 or random.random() < 0.3):
            return taken.decode("utf-8")
        bytes_ = allowed[allowed < 256]
        weights = 1.0 + LIKED[bytes_]
        # Ranges of letters must not drown what stands for itself.
        weights /= 1.0 + 9.0 * ((bytes_ > 0x60) & (bytes_ < 0x7B)) + 9.0 * (bytes_ >= 0x80)
        token = int(random.choices(bytes_.tolist(), weights.tolist())[0])
        matcher.advance(token)
        taken.append(token)
    for token in matcher.shortest_completion():
        if token == eos:
            return taken.decode("utf-8")
        taken += compiled.vocab.bytes_of(token)
    return None


def spelled(value: Any, random: Random) -> str:
    """The value as JSON, with whitespace, escapes, orders of keys and forms of numbers drawn at random."""
    space = random.choice(SPACES)
    if isinstance(value, dict):
        names = list(value)
        if random.random() < 0.5:
            random.shuffle(names)
        inner = f",{space}".join(f"{_text(name, random)}:{space}{spelled(value[name], random)}" for name in names)
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{f',{space}'.join(spelled(one, random) for one in value)}]"
    if isinstance(value, str):
        return _text(value, random)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return _number(value, random)


def _text(value: str, random: Random) -> str:
    how = random.random()
    if how < 0.5:
        return json.dumps(value, ensure_ascii=False)
    if how < 0.7:
        return json.dumps(value)
    return '"' + "".join(_char(char, random) for char in value) + '"'


def _char(char: str, random: Random) -> str:
    if char == "/" and random.random() < 0.5:
        return "\\/"
    if random.random() < 0.4:
        units = char.encode("utf-16-be", "surrogatepass")
        codes = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
        return "".join(f"\\u{code.upper() if random.random() < 0.5 else code}" for code in codes)
    return json.dumps(char, ensure_ascii=False)[1:-1]


def _number(value: float, random: Random) -> str:
    plain = json.dumps(value)
    forms = [plain]
    if isinstance(value, int):
        forms += [f"{value}.0", f"{value}e0", f"{value}E+0"]
        if value and value % 100 == 0:
            forms.append(f"{value // 100}e2")
        if value == 0:
            forms += ["-0", "0.00", "-0.0"]
    return random.choice(forms) if random.random() < 0.3 else plain


def changed(text: str, random: Random) -> str:
    """The text with something inserted, left out, doubled or exchanged."""
    at = random.randint(0, len(text))
    how = random.random()
    if how < 0.5:
        return text[:at] + random.choice(INSERTED) + text[at:]
    if how < 0.7:
        return text[:at] + text[at + 1 :]
    if how < 0.85:
        end = min(len(text), at + random.randint(1, 6))
        return text[:end] + text[at:end] + text[end:]
    return text[:at] + random.choice(INSERTED) + text[at + 1 :]
