"""Numbers: every value near random bounds, against arithmetic."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random

import pytest

from espalier.automata.languages.algebra import language
from espalier.schema.form import NumberForm
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.digits import decimals, whole
from tests.unit.schema.hand_shapes import Accepts, Hand, accepts, fits_number, one

NONE = Hand({})
INTEGERS = range(-200, 1200)
DECIMALS = [
    f"{sign}{before}{after}"
    for sign in ("", "-")
    for before in (*range(13), 99, 100, 101)
    for after in ("", *(f".{n}" for n in range(10)), *(f".{n:02d}" for n in range(100)))
]


def bounds(random: Random, low: int, high: int, unit: int = 1) -> dict[str, object]:
    a, b = sorted((random.randint(low, high), random.randint(low, high)))
    found: dict[str, object] = {}
    if random.random() < 0.8:
        found |= {"minimum": Fraction(a, unit), "exclusive_minimum": random.random() < 0.3}
    if random.random() < 0.8:
        found |= {"maximum": Fraction(b, unit), "exclusive_maximum": random.random() < 0.3}
    return found


def is_empty(case: NumberForm) -> bool:
    return not any(fits_number(NONE, case, Fraction(n, 100)) for n in range(-200_00, 1200_00))


@pytest.mark.parametrize("seed", range(60))
def test_whole_numbers_between_random_bounds(seed: int) -> None:
    random = Random(seed)
    extra: dict[str, object] = {}
    if seed % 3 == 1:
        extra = {"multiples": (Fraction(random.choice([2, 3, 7, 10, 25])),)}
    if seed % 3 == 2:
        extra = {
            "excluded": tuple(Fraction(random.randint(-200, 1200)) for _ in range(5)),
            "not_multiples": (Fraction(4),),
        }
    case = NumberForm(integer=True, **bounds(random, -150, 1100), **extra)
    if is_empty(case):
        return
    test = accepts(one(case))
    for n in INTEGERS:
        assert test(str(n)) == fits_number(NONE, case, n), (case, n)
    for text in ("-0", "00", "01", "+1", "1.", "", "-", "1e2", "0x1"):
        assert not test(text)


@pytest.mark.parametrize("seed", range(60))
def test_decimals_between_random_bounds(seed: int) -> None:
    random = Random(1000 + seed)
    extra: dict[str, object] = {}
    if seed % 4 == 1:
        extra = {"multiples": (Fraction(random.choice(["0.01", "0.05", "0.3", "0.5", "1.5", "2"])),)}
    if seed % 4 == 2:
        extra = {"excluded": tuple(Fraction(random.randint(0, 120), 10) for _ in range(5))}
    if seed % 4 == 3:
        extra = {"not_multiples": (Fraction(random.choice(["1", "0.5", "0.1"])),)}
    case = NumberForm(**bounds(random, -200, 1050, random.choice([1, 10, 100])), **extra)
    if is_empty(case):
        return
    test = accepts(one(case))
    whole_only = any(factor.denominator == 1 for factor in case.multiples)
    for text in DECIMALS:
        value = Fraction(text)
        got = test(text)
        if got:
            assert fits_number(NONE, case, value), (case, text)
        elif fits_number(NONE, case, value) and not text.startswith("-0"):
            # Left out: more digits than a multiple has, and a point where all are whole.
            assert (whole_only and "." in text) or case.multiples, (case, text)
            if "." not in text or (case.multiples and text == f"{float(text)}" and not text.endswith(".0")):
                raise AssertionError((case, text))


@pytest.mark.parametrize("size", [19, 25, 60])
def test_bounds_of_any_size(size: int) -> None:
    low, high = 10**size + 7, 3 * 10 ** (size + 2) + 123
    test = accepts(one(NumberForm(integer=True, minimum=Fraction(low), maximum=Fraction(high))))
    for n in (low - 1, low, low + 1, 10 ** (size + 1), high - 1, high, high + 1, 10 ** (size + 3), -low):
        assert test(str(n)) == (low <= n <= high)
    open_end = accepts(one(NumberForm(integer=True, minimum=Fraction(low))))
    assert open_end(str(low))
    assert open_end(str(low + 10**size))
    assert not open_end(str(low - 1))


def test_tiny_bounds() -> None:
    test = accepts(one(NumberForm(minimum=Fraction("1e-25"), maximum=Fraction("3e-25"))))
    assert test("0." + "0" * 24 + "2")
    assert not test("0." + "0" * 24 + "4")
    assert not test("0.0")


@pytest.mark.parametrize(
    "text", ["0", "-0", "1.5", "-12.25", "1e5", "1.5E-7", "0.1e+1", "1" * 20, "9e307", "123456789.5"]
)
def test_numbers_without_bounds(text: str) -> None:
    assert accepts(one(NumberForm()))(text)


@pytest.mark.parametrize(
    "text", ["1" * 21, "9e308", "01", ".5", "5.", "+1", "1e", "12e3", "Infinity", "NaN", "1" + "." + "0" * 21]
)
def test_numbers_that_are_never_written(text: str) -> None:
    assert not accepts(one(NumberForm()))(text)


def test_no_accepted_number_is_infinite() -> None:
    test = accepts(one(NumberForm()))
    for text in ("9.99999e307", "1e307", "9" * 20):
        assert test(text)
        assert abs(json.loads(text)) < float("inf")


def test_an_exclusive_bound_holds_for_floats_too() -> None:
    test = accepts(one(NumberForm(minimum=Fraction("0.1"), exclusive_minimum=True)))
    for digits in range(1, 20):
        text = "0.1" + "0" * digits + "1"
        if test(text):
            assert float(text) > 0.1
    assert test("0.1001")
    assert not test("0.10")
    assert not test("0.1")


@pytest.mark.slow
@pytest.mark.parametrize("factor", [7, 97, 250, 1024])
def test_multiples_without_bounds(factor: int) -> None:
    test = accepts(one(NumberForm(integer=True, multiples=(Fraction(factor),))))
    for n in (*range(-30, 3000), 99 * factor, 100 * factor + 1, -12 * factor):
        assert test(str(n)) == (n % factor == 0), n


def test_a_factor_that_is_too_large_is_a_gap() -> None:
    found = convert(one(NumberForm(integer=True, multiples=(Fraction(99991),), minimum=Fraction(10**15))))
    assert [gap.keyword for gap in found.gaps] == ["multipleOf"]
    assert Accepts(found)(str(10**15))
    assert not Accepts(found)(str(10**15 - 1))


def test_multiples_of_a_large_factor_have_few_digits_which_a_note_says() -> None:
    found = convert(one(NumberForm(integer=True, multiples=(Fraction(99991),))))
    test = Accepts(found)
    assert not found.gaps
    assert "at most 7 digits" in found.notes[0].text
    assert test("99991")
    assert test("-199982")
    assert not test("99992")
    assert test("9999100")


def test_several_factors() -> None:
    test = accepts(one(NumberForm(multiples=(Fraction("0.4"), Fraction("0.6")))))
    for text, wanted in {
        "1.2": True,
        "2.4": True,
        "-1.2": True,
        "0.4": False,
        "0.6": False,
        "12": True,
        "0": True,
    }.items():
        assert test(text) == wanted, text


def test_a_third_is_a_multiple_where_decimals_can_write_it() -> None:
    test = accepts(one(NumberForm(multiples=(Fraction(1, 3),), minimum=Fraction(0), maximum=Fraction(5))))
    assert [n for n in range(6) if test(str(n))] == [0, 1, 2, 3, 4, 5]
    assert not test("0.3")


@pytest.mark.slow
def test_range_builders_agree_with_counting() -> None:
    random = Random(5)
    for _ in range(60):
        a = random.randint(-200, 1200)
        b = random.randint(a, 1200)
        dfa = language(whole(a, b))
        assert dfa is not None
        assert [n for n in INTEGERS if dfa.accepts(str(n).encode())] == [n for n in INTEGERS if a <= n <= b]
        places = random.choice([1, 2])
        dfa = language(decimals(a, b, places))
        for text in DECIMALS:
            value = Fraction(text)
            plain = len(text.partition(".")[2]) <= places and not (value == 0 and text[0] == "-")
            wanted = plain and a <= value * 10**places <= b
            assert (dfa is not None and dfa.accepts(text.encode())) == wanted, (a, b, places, text)
