"""Writes numbers as expressions, each with a note on the spellings that are left out.

    Number(integer=True, minimum=8, maximum=12)      [8-9] | "1" [0-2]

Whole numbers have no point, others are plain decimals; an exponent is allowed only without bounds other than 0. Digits
are limited: so every number ends, and a number beyond an exclusive bound is beyond it as a float too. It does not know
rules or the rest of a schema.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, gcd, lcm

import numpy as np

from espalier.automata.languages.algebra import both, language, without
from espalier.automata.languages.dfa import Dfa
from espalier.errors import LimitExceeded
from espalier.grammar.ast import EMPTY, NEVER, Literal, Node, Repeat, alt, seq
from espalier.schema.form import NumberForm
from espalier.schema.lowering.digits import decimals
from espalier.time_limit import check as check_time

DIGITS = 20
"""Digits before and after the point, unless a bound needs more."""
EXACT_DIGITS = 15
"""Decimal digits that a float preserves: different numbers of so many digits are different floats."""
MAX_PLACES = 400
"""Digits after the point, at most, that a bound may add; a float needs no more."""
MAX_WORDS = 20_000
"""Up to so many numbers are enumerated."""
MAX_RESIDUES = 4_000
"""States of an automaton that counts remainders."""
MAX_PRODUCT = 6_000
"""States of an automaton for numbers that are no multiples, about: digits before the point times remainders."""
USUAL_PLACES = 6
"""Digits after the point of such numbers, unless a bound or a factor has more."""
MAX_COUNTED = 1_000
"""Multiples of n without bounds have fewer than MAX_COUNTED / n digits."""
MAX_STATES = 15_000
"""States of an automaton for numbers; beyond that only the bounds are enforced."""

SCALARS = {
    "integer": '"0" | "-"? [1-9] [0-9]{0,19}',
    "number": '"-"? unsigned',
    "unsigned": '("0" | [1-9] [0-9]{0,19}) ("." [0-9]{1,20})? | [0-9] ("." [0-9]{1,20})? [eE] [+-]? exponent',
    "exponent": '[0-9]{1,2} | [12] [0-9]{2} | "30" [0-7]',
}
"""Rules for numbers without bounds. With one digit before the point, every exponent up to 307 is a finite float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSpelling:
    """A number's expression, and what it leaves out or allows too much."""

    #: An expression, the name of a rule in SCALARS, or an automaton over ASCII.
    node: Node | str | Dfa
    #: Which spellings are left out.
    note: str
    #: Keywords that are not enforced, each with the reason.
    gaps: tuple[tuple[str, str], ...] = ()
    #: Why no number is left, although some satisfy the schema.
    limit: str | None = None


PLAIN = (
    f"whole numbers are written without a point or an exponent, with at most {DIGITS} digits unless a bound has more"
)
DECIMAL = f"numbers have at most {DIGITS} digits before and after the point; the mantissa of an exponent has one before"
BOUNDED = (
    "numbers with bounds or exceptions are written without an exponent, with at most {} digits before the point unless "
    "a bound has more, and at most {} digits after the point"
)
POINTED = f"; with a point they have at most {EXACT_DIGITS} digits in all, or as many before it as a bound"


def spelled(case: NumberForm) -> NumberSpelling:
    """The expression for a number. A keyword that takes too large an automaton becomes a gap; nothing is raised."""
    step = _step(case)
    if not (case.not_multiples or case.excluded):
        if case.minimum is None and case.maximum is None and step in (None, 1):
            return (
                NumberSpelling(node="number", note=DECIMAL)
                if step is None
                else NumberSpelling(node="integer", note=PLAIN)
            )
        if step is None and case.maximum is None and case.minimum == 0 and not case.exclusive_minimum:
            return NumberSpelling(node="unsigned", note=DECIMAL)
    places = _places(case, step)
    usual = _bounded(case, step, places, DIGITS)
    if usual.node is not NEVER or usual.gaps:
        return usual
    if step is not None:
        return _bounded(case, step, places, _digits_needed(case, step)) if _is_open(case) else usual
    if not _is_open(case) and case.minimum == case.maximum:
        return usual
    while (most := _largest(case)) * 10 ** (places + 1) < 10**EXACT_DIGITS and places < MAX_PLACES:
        check_time()
        places += 1
        finer = _bounded(case, step, places, max(DIGITS, len(str(int(most)))))
        if finer.node is not NEVER:
            return finer
    return replace(usual, limit=f"its numbers need more than {EXACT_DIGITS} digits, which floats do not keep")


def _is_open(case: NumberForm) -> bool:
    """Whether there is no bound above, or none below."""
    return case.minimum is None or case.maximum is None


def _largest(case: NumberForm) -> Fraction:
    """The largest distance of a bound from 0."""
    return max(abs(bound) for bound in (case.minimum, case.maximum, Fraction(0)) if bound is not None)


def _digits_needed(case: NumberForm, step: Fraction) -> int:
    """Digits before the point within which multiples of `step` are found beyond every bound and excluded number."""
    largest = max(_largest(case), step, *map(abs, case.excluded)) if case.excluded else max(_largest(case), step)
    return len(str(int(largest))) + 2


def _bounded(case: NumberForm, step: Fraction | None, places: int, digits: int) -> NumberSpelling:
    """As `spelled`, with so many digits after the point, and before it where there is no bound, unless one needs
    more."""
    gaps: list[tuple[str, str]] = []
    divided = _divided(case, step, gaps)
    is_pointed = places > 0 and (step is not None or bool(case.not_multiples))
    largest = max((len(multiples) for multiples, wanted in divided if not wanted), default=1)
    length = digits if digits > DIGITS else min(digits, max(EXACT_DIGITS - USUAL_PLACES, MAX_PRODUCT // largest))
    low, high = _range(case, places, length, step)
    note = PLAIN if places == 0 else BOUNDED.format(length, places) + (POINTED if is_pointed else "")
    if step not in (None, 1) and None in (case.minimum, case.maximum):
        note += f"; multiples of {step} have at most {len(str(max(high, -low) // 10**places))} digits before the point"
    if low > high:
        return NumberSpelling(node=NEVER, note=note)
    unit = 10**places
    scaled = 1 if step is None else int(step * unit)
    within = decimals(low, high, places)
    if is_pointed:  # a remainder is exact only in digits that a float preserves; whole numbers are no floats
        shares = [(after, max(1, EXACT_DIGITS - after) if after else digits) for after in range(places + 1)]
        within = alt(*(decimals(*_range(case, after, min(length, before), step), after) for after, before in shares))
    if scaled == 1 and not (case.not_multiples or case.excluded):
        return NumberSpelling(node=within, note=note)
    if (high - low) // scaled < MAX_WORDS and places <= EXACT_DIGITS:
        return NumberSpelling(node=_listed(case, low, high, scaled, places), note=note)
    numbers = language(within)
    try:
        for multiples, wanted in divided:
            numbers = both(numbers, multiples) if wanted else without(numbers, multiples)
        for start in range(0, len(case.excluded), 500):
            words = alt(*(_spellings(value) for value in case.excluded[start : start + 500] if _is_finite(value)))
            numbers = without(numbers, language(words)) if words != NEVER else numbers
    except LimitExceeded as error:
        gaps.append(("not", f"too many numbers are excluded: {error}"))
    if numbers is None:
        return NumberSpelling(node=NEVER, note=note, gaps=tuple(gaps))
    numbers = numbers.minimised()
    if len(numbers) > MAX_STATES:
        reason = f"multiples and excluded numbers need more than {MAX_STATES} states"
        return NumberSpelling(node=within, note=note, gaps=(("multipleOf", reason),))
    return NumberSpelling(node=numbers, note=note, gaps=tuple(gaps))


def _divided(case: NumberForm, step: Fraction | None, gaps: list[tuple[str, str]]) -> list[tuple[Dfa, bool]]:
    """The multiples that a number must be among (True), or must not be (False). One that is too large is a gap."""
    automata: list[tuple[Dfa, bool]] = []
    wanted = () if step in (None, 1) else (step,)
    for keyword, factors, wants in (("multipleOf", wanted, True), ("not", case.not_multiples, False)):
        for factor in factors:
            try:
                automata.append((_multiples_of(factor), wants))
            except LimitExceeded as error:
                gaps.append((keyword, f"multiples of {factor} need too large an automaton: {error}"))
    return automata


def _step(case: NumberForm) -> Fraction | None:
    """The number of which every finite decimal that satisfies `multiples` and `integer` is a multiple."""
    factors = [abs(factor) for factor in case.multiples if factor] + ([Fraction(1)] if case.integer else [])
    if not factors:
        return None
    step = Fraction(lcm(*(f.numerator for f in factors)), gcd(*(f.denominator for f in factors)))
    return _in_decimals(step)


def _in_decimals(step: Fraction) -> Fraction:
    """The least multiple of `step` that is a finite decimal: 1 for 1/3."""
    rest = step.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            check_time()
            rest //= prime
    return step * rest


def _is_finite(value: Fraction) -> bool:
    return _in_decimals(value) == value if value else True


def places_of(value: Fraction) -> int:
    """Digits after the point that write a number exactly; 0 if no number of digits does."""
    if not _is_finite(value):
        return 0
    places = 0
    while (value * 10**places).denominator != 1:
        check_time()
        places += 1
    return places


def _places(case: NumberForm, step: Fraction | None) -> int:
    """Digits after the point that are written at most."""
    if step is not None:
        return places_of(step)
    bounds = [bound for bound in (case.minimum, case.maximum) if bound is not None]
    strict = list(case.excluded)
    strict += [case.minimum] if case.minimum is not None and case.exclusive_minimum else []
    strict += [case.maximum] if case.maximum is not None and case.exclusive_maximum else []
    strict += list(case.not_multiples)
    usual = DIGITS
    if any(strict):  # close to 0, floats preserve every digit
        usual = max(1, EXACT_DIGITS - max(len(str(abs(int(value)))) for value in strict))
    if case.not_multiples:
        usual = min(usual, USUAL_PLACES)
    finer = [places_of(factor) + 1 for factor in case.not_multiples]
    return min(MAX_PLACES, max([usual, *finer, *(places_of(value) for value in [*bounds, *strict])]))


def _range(case: NumberForm, places: int, length: int, step: Fraction | None) -> tuple[int, int]:
    """The bounds, in units of the last digit after the point; `length` digits before it where there is no bound."""
    unit = 10**places
    low = high = None
    if case.minimum is not None:
        low = floor(case.minimum * unit) + 1 if case.exclusive_minimum else ceil(case.minimum * unit)
    if case.maximum is not None:
        high = ceil(case.maximum * unit) - 1 if case.exclusive_maximum else floor(case.maximum * unit)
    if step is not None and step * unit > 1:
        modulus = int(step * unit)  # an automaton has about as many states as this times the length
        length = min(length, max(len(str(modulus)) + 2, MAX_COUNTED // modulus))
    for bound in (low, high):
        if bound is not None and len(str(abs(bound) // unit)) > length:
            length = len(str(abs(bound) // unit)) + 1
    most = 10**length * unit - 1
    return -most if low is None else low, most if high is None else high


def _listed(case: NumberForm, low: int, high: int, scaled: int, places: int) -> Node | Dfa:
    """All numbers, enumerated."""
    unit = 10**places
    excluded = set(case.excluded)
    words: list[str] = []
    for count in range(-(-low // scaled), high // scaled + 1):
        value = Fraction(count * scaled, unit)
        if value not in excluded and not any(factor and not value % factor for factor in case.not_multiples):
            words += _written(count * scaled, places)
    return Dfa.of_words(words).minimised() if words else NEVER


def _written(number: int, places: int) -> list[str]:
    """The spellings of `number` / 10**places: with and without trailing zeros."""
    sign, (before, after) = "-" if number < 0 else "", divmod(abs(number), 10**places)
    fraction = str(after).zfill(places) if places else ""
    bare = len(fraction.rstrip("0"))
    pointed = [f"{sign}{before}.{fraction[:n]}" for n in range(max(1, bare), places + 1)]
    return pointed if bare else [f"{sign}{before}", *pointed]


def _spellings(value: Fraction) -> Node:
    """A number in plain decimals, with any trailing zeros."""
    places = places_of(value)
    text = _written(int(value * 10**places), places)[0]
    zeros = Repeat(Literal("0"))
    after = zeros if "." in text else Repeat(seq(Literal("."), zeros), 0, 1)
    return seq(EMPTY if value else Repeat(Literal("-"), 0, 1), Literal(text), after)


def _multiples_of(factor: Fraction) -> Dfa:
    """Plain decimals that are multiples of a factor. Sign, leading zeros and a lone point are not checked here."""
    step = _in_decimals(abs(factor))
    places = places_of(step)
    modulus = int(step * 10**places)
    if modulus * (places + 2) > MAX_RESIDUES:
        raise LimitExceeded(f"more than {MAX_RESIDUES} remainders")
    classes = np.full(256, 12, dtype=np.uint8)
    for letter, char in enumerate("0123456789-."):
        classes[ord(char)] = letter
    residues = np.arange(modulus)
    after = (residues[:, None] * 10 + np.arange(10)) % modulus  # (m, 10)
    whole, parts = 1, [1 + modulus * (j + 1) for j in range(places + 1)]  # first state of each block of residues
    table = np.full((1 + modulus * (places + 2), 13), -1, dtype=np.int32)  # (S, 13)
    accepting = np.zeros(len(table), dtype=np.bool_)
    table[0, :10], table[0, 10] = whole + after[0], 0
    table[whole : whole + modulus, :10] = whole + after
    table[whole : whole + modulus, 11] = parts[0] + residues
    accepting[whole : whole + modulus] = residues * pow(10, places, modulus) % modulus == 0
    for j, first in enumerate(parts):
        accepting[first : first + modulus] = residues * pow(10, places - j, modulus) % modulus == 0
        if j < places:
            table[first : first + modulus, :10] = parts[j + 1] + after
        else:
            table[first : first + modulus, 0] = first + residues
    return Dfa(classes=classes, table=table, accepting=accepting).minimised()
