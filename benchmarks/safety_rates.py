"""`python -m benchmarks "safety rates"`: what each category catches and lets pass, by the tables and in ordinary text.

`--misses` lists every text that came out wrong.
"""

from __future__ import annotations

import sys
from collections import Counter

from espalier.constraints.safety.catalogue import CATEGORIES
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.spec import Safety
from tests.safety_rates.collected import collected
from tests.safety_rates.rates import rates

UNIT = 1_000
"""Characters: false alarms in ordinary text are counted for each piece of this size, at a line's end."""


def main() -> None:
    tables()
    ordinary()


def tables() -> None:
    print(f"{'table':<18}{'to catch':>10}{'caught':>9}{'':>8}{'to pass':>10}{'banned':>9}")
    for category in CATEGORIES:
        found = rates(category)
        print(
            f"{category:<18}{found.to_catch:>10}{found.to_catch - len(found.missed):>9}{found.caught:>8.1%}"
            f"{found.to_pass:>10}{len(found.banned):>9}{found.false_alarms:>8.1%}",
            flush=True,
        )
        if "--misses" in sys.argv:
            for text in found.missed:
                print(f"    missed: {text!r}")
            for text, rule in found.banned:
                print(f"    banned: {text!r} by {rule}")


def ordinary() -> None:
    spec = Safety("maximum")
    print(f"\n{'ordinary text':<28}{'KB':>7}{'pieces':>8}{'with a match':>14}{'':>8}  patterns")
    for name, texts in collected():
        pieces = [piece for text in texts for piece in _pieces(text)]
        hits: Counter[str] = Counter()
        wrong = 0
        for piece in pieces:
            found = find(spec, piece)
            wrong += bool(found)
            hits.update({one.pattern for one in found})
            if "--misses" in sys.argv:
                for one in found:
                    print(f"    {one.pattern}: {piece[max(0, one.start - 30) : one.end + 30]!r}")
        size = sum(len(piece.encode()) for piece in pieces)
        share = wrong / len(pieces) if pieces else 0
        told = ", ".join(f"{pattern} {count}" for pattern, count in hits.most_common())
        print(f"{name:<28}{size / 1000:>7.0f}{len(pieces):>8}{wrong:>14}{share:>8.2%}  {told}", flush=True)


def _pieces(text: str) -> list[str]:
    """The text cut at ends of lines into pieces of about UNIT characters, the length of an answer."""
    found, piece = [], ""
    for line in text.splitlines(keepends=True):
        piece += line
        if len(piece) >= UNIT:
            found.append(piece)
            piece = ""
    return [*found, piece] if piece.strip() else found


if __name__ == "__main__":
    main()
