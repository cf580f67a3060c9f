"""Random patterns over all kinds of classes, escapes, anchors and quantifiers, in the syntax that ECMA-262 and Python's
`re` share."""

from __future__ import annotations

from random import Random

HARD = ('"', "\\", "/", "\x00", "\x07", "\x1f", "\x7f", "\n", "\t", "é", "ß", "😀", "\u2028", "\ud7ff")
"""Characters that JSON escapes, may escape, or spells in several ways."""
EASY = ("a", "b", "z", "A", "Z", "0", "9", "_", "-", " ", ".", ":", "@")
RANGES = ("a-z", "A-Z", "0-9", "\\u0000-\\u001f", "\\x00-\\x1f", " -~", "!-/", "#-\\[", "\\]-~", "a-f", "é-ü")
SETS = ("\\d", "\\w", "\\s", "\\D", "\\W", "\\S")
ESCAPED = (
    "\\n",
    "\\t",
    "\\r",
    "\\f",
    "\\v",
    "\\\\",
    "\\/",
    '\\"',
    "\\.",
    "\\u0022",
    "\\u005c",
    "\\x22",
    "\\x5C",
    "\\u00e9",
)
SPECIAL = frozenset("\\^$.|?*+()[]{}/")


class Patterns:
    """Draws patterns. depth: how deep groups stand in one another."""

    def __init__(self, random: Random, *, depth: int = 2) -> None:
        self.random = random
        self.depth = depth

    def pattern(self) -> str:
        body = self._alternatives(0)
        start, end = self.random.choice((("^", "$"), ("^", "$"), ("^", "$"), ("^", ""), ("", "$"), ("", "")))
        return f"{start}(?:{body}){end}" if "|" in body and (start or end) else f"{start}{body}{end}"

    def _alternatives(self, depth: int) -> str:
        count = 1 if self.random.random() < 0.75 else 2
        return "|".join(self._sequence(depth) for _ in range(count))

    def _sequence(self, depth: int) -> str:
        return "".join(self._atom(depth) + self._quantifier() for _ in range(self.random.randint(1, 3)))

    def _quantifier(self) -> str:
        return self.random.choice(("", "", "", "*", "+", "?", "{2}", "{0,3}", "{1,4}", "{2,}"))

    def _atom(self, depth: int) -> str:
        draw = self.random.random()
        if draw < 0.45:
            return self._class()
        if draw < 0.55 and depth < self.depth:
            kind = self.random.choice(("(?:", "("))
            return f"{kind}{self._alternatives(depth + 1)})"
        if draw < 0.65:
            return self.random.choice((*SETS, "."))
        if draw < 0.75:
            return self.random.choice(ESCAPED)
        return self._literal(self.random.choice(HARD + EASY))

    def _literal(self, char: str) -> str:
        if char in SPECIAL:
            return f"\\{char}"
        if ord(char) < 0x20 or char in ("\u2028", "\x7f"):
            return f"\\u{ord(char):04x}"
        return char

    def _class(self) -> str:
        members = []
        for _ in range(self.random.randint(1, 4)):
            draw = self.random.random()
            if draw < 0.35:
                members.append(self.random.choice(RANGES))
            elif draw < 0.5:
                members.append(self.random.choice(SETS))
            elif draw < 0.65:
                members.append(self.random.choice(ESCAPED))
            else:
                char = self.random.choice(HARD + EASY)
                members.append(f"\\{char}" if char in "\\]^-[/" else self._literal(char).removeprefix("\\.") or ".")
        return f"[{'^' if self.random.random() < 0.4 else ''}{''.join(members)}]"
