"""Objects and arrays: all subsets of properties, all short arrays, and random schemas, against their meaning."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import SchemaError, SpecError
from espalier.grammar.sample import SentenceSampler
from espalier.schema.form import (
    Array,
    Boolean,
    Case,
    Contains,
    ItemKind,
    Null,
    NumberForm,
    Object,
    Property,
    Rest,
    String,
    Values,
)
from espalier.schema.gbnf import to_gbnf
from espalier.schema.lowering.convert import convert
from tests.examples import examples
from tests.unit.schema.hand_shapes import Accepts, Hand, accepts, dumps, fits

FALSE = -1
ANY = (Null(), Boolean(), NumberForm(), String(), Array(items=9), Object(rest=(Rest(node=9),)))
LEAVES: dict[int, tuple[Case, ...]] = {
    1: (NumberForm(integer=True, minimum=Fraction(0), maximum=Fraction(3)),),
    2: (Values(values=("x", 2, None, True)),),
    3: (Boolean(), Null()),
    9: ANY,
}
SAMPLES: list[Any] = [0, 2, 3, 4, "x", "y", None, True, False, [], {}]
COMPACT = {"separators": (",", ":")}


def hand(*cases: Case, **more: tuple[Case, ...]) -> Hand:
    return Hand({0: cases, **LEAVES, **{int(name[1:]): case for name, case in more.items()}})


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [chosen for n in range(len(names) + 1) for chosen in combinations(names, n)]


# Objects


@pytest.mark.parametrize("required", subsets(("a", "b", "c", "d")))
@pytest.mark.parametrize("counts", [(0, None), (0, 2), (2, None), (1, 3), (3, 3)])
def test_every_subset_of_properties(required: tuple[str, ...], counts: tuple[int, int | None]) -> None:
    names = ("a", "b", "c", "d")
    properties = tuple(Property(name=name, node=1, required=name in required) for name in names)
    shapes = hand(Object(properties=properties, min_properties=counts[0], max_properties=counts[1]))
    if counts[1] is not None and len(required) > counts[1]:
        with pytest.raises(SchemaError, match="no document"):
            convert(shapes)
        return
    test = accepts(shapes)
    for chosen in subsets(names):
        value = dict.fromkeys(chosen, 1)
        wanted = fits(shapes, value)
        text = dumps(value)
        assert test(text) == test(dumps(value, **COMPACT)) == wanted, text
        assert not test(text.replace("{", "{,"))
        assert not test(text.replace("}", ",}"))
        assert not test(text + " ")
        if len(chosen) > 1:
            assert not test(dumps(dict.fromkeys(reversed(chosen), 1))), "the order is that of the schema"
            assert not test(text.replace(", ", " ", 1))
            assert not test(text.replace(",", ",,", 1))
        if chosen:
            assert not test(text.replace("1", "4", 1))
            assert not test(text.replace("}", f', "{chosen[-1]}": 1}}')), "a declared name comes once"


@pytest.mark.parametrize("counts", [(0, None), (1, None), (2, None), (0, 2), (2, 3), (3, None)])
@pytest.mark.parametrize("required", [(), ("b",)])
def test_undeclared_names(required: tuple[str, ...], counts: tuple[int, int | None]) -> None:
    properties = tuple(Property(name=name, node=1, required=name in required) for name in ("a", "b"))
    rest = (Rest(node=3, patterns=("^x",)), Rest(node=1, not_patterns=("^x", "z")))
    shapes = hand(Object(properties=properties, rest=rest, min_properties=counts[0], max_properties=counts[1]))
    test = accepts(shapes)
    names = ("a", "b", "xa", "c", "cz", "", "xz", '"')
    for chosen in subsets(names):
        for other in (True, 1):
            value = {name: other if name.startswith("x") else 1 for name in chosen}
            got, wanted = test(dumps(value)), fits(shapes, value)
            assert wanted or not got, value
            declared = len({"a", "b"} & set(chosen))
            counted = declared + (len(chosen) > declared)  # of the undeclared ones, one
            assert got == (wanted and counted >= counts[0]), value


def test_a_name_that_comes_twice_never_makes_up_the_number() -> None:
    shapes = hand(Object(properties=(Property(name="a", node=1),), rest=(Rest(node=1),), min_properties=2))
    found = convert(shapes)
    assert [note.keyword for note in found.notes if note.pointer == "" and "undeclared" in note.text] == [
        "minProperties"
    ]
    test = Accepts(found)
    assert test('{"a": 1, "b": 1}')
    assert not test('{"b": 1, "b": 1}')
    assert test('{"a": 1, "b": 1, "b": 2}')


def test_more_undeclared_names_than_one_are_a_gap() -> None:
    found = convert(hand(Object(rest=(Rest(node=1),), min_properties=2)))
    assert [gap.keyword for gap in found.gaps] == ["minProperties"]
    assert not Accepts(found)("{}")
    assert Accepts(found)('{"b": 1}')


def test_a_name_that_may_not_occur() -> None:
    properties = (Property(name="a", node=FALSE), Property(name="b", node=1))
    test = accepts(hand(Object(properties=properties, rest=(Rest(node=9),))))
    assert test('{"b": 1, "c": 1}')
    assert test("{}")
    assert not test('{"a": 1}')
    assert not test('{"c": 1, "a": 1}')


def test_a_required_name_that_cannot_be_makes_the_object_impossible() -> None:
    shapes = hand(Null(), Object(properties=(Property(name="a", node=FALSE, required=True),)))
    assert accepts(shapes)("null")
    assert not accepts(shapes)("{}")


def test_names_of_a_kind() -> None:
    shapes = hand(
        Object(properties=(Property(name="ab", node=1),), rest=(Rest(node=1, names=7),)),
        n7=(String(max_length=2, patterns=("^[a-z]",)), Values(values=("LONGER", 3))),
    )
    test = accepts(shapes)
    for name in ("a", "ab", "abc", "LONGER", "A", "", "z9"):
        assert test(dumps({name: 1})) == fits(shapes, {name: 1}), name


def test_a_name_cannot_be_spelled_past_its_declaration() -> None:
    test = accepts(hand(Object(properties=(Property(name="a/é", node=1),), rest=(Rest(node=9),))))
    assert test('{"a/é": 1}')
    assert not test('{"a/é": 9}')
    assert not test('{"\\u0061/é": 9}')
    assert not test('{"a\\/é": 9}')
    assert not test('{"a/\\u00e9": 9}')


def test_two_hundred_optional_properties_stay_small() -> None:
    properties = tuple(Property(name=f"p{i}", node=1) for i in range(200))
    found = convert(hand(Object(properties=properties, rest=(Rest(node=9),))))
    assert len(to_gbnf(hand(Object(properties=properties, rest=(Rest(node=9),))))) < 200_000
    test = Accepts(found)
    assert test('{"p3": 1, "p7": 2, "p199": 0, "other": {}}')
    assert not test('{"p7": 1, "p3": 2}')
    assert test("{}")


# Arrays


@pytest.mark.parametrize("prefix", [(), (2,), (1, 3), (1, FALSE)])
@pytest.mark.parametrize("items", [1, FALSE])
@pytest.mark.parametrize("counts", [(0, None), (1, None), (2, 3), (0, 1), (0, 0), (3, None)])
def test_short_arrays(prefix: tuple[int, ...], items: int, counts: tuple[int, int | None]) -> None:
    shapes = hand(Null(), Array(prefix=prefix, items=items, min_items=counts[0], max_items=counts[1]))
    test = accepts(shapes)
    for n in range(5):
        for value in product((1, "x", None, 5), repeat=n):
            assert test(dumps(list(value))) == fits(shapes, list(value)), value
    assert not test("[,]")
    assert not test("[1,]")
    assert not test("[ ]")


@pytest.mark.parametrize("counts", [(0, None), (2, None), (0, 3), (2, 4), (3, 3)])
@pytest.mark.parametrize("fits_", [(1, None), (2, None), (0, 1), (1, 2), (2, 2), (0, 0)])
def test_contains(counts: tuple[int, int | None], fits_: tuple[int, int | None]) -> None:
    wanted = Contains(match=5, other=6, least=fits_[0], most=fits_[1])
    shapes = hand(
        Array(items=7, min_items=counts[0], max_items=counts[1], contains=(wanted,), kinds=(kinds(5, 6),)),
        n5=(Values(values=(1, 2)),),
        n6=(Values(values=(0, 3)),),
        n7=(Values(values=(0, 1, 2, 3)),),
    )
    test = accepts(shapes)
    for n in range(6):
        for value in product((0, 1, 2), repeat=n):
            assert test(dumps(list(value))) == fits(shapes, list(value)), value


def test_contains_where_the_others_cannot_be_said() -> None:
    shapes = hand(Array(items=9, contains=(Contains(match=1, other=None, least=2),), kinds=(kinds(1, 9),)))
    test = accepts(shapes)
    for value in ([1, "a", 2], [1, 1], [1], ["a"], [], [{}, [], 0, 3]):
        assert test(dumps(value)) == fits(shapes, value), value


def kinds(match: int, other: int) -> tuple[ItemKind, ...]:
    return (ItemKind(matches=1, node=match), ItemKind(matches=0, node=other))


def test_contains_whose_items_are_not_told_apart_are_a_gap() -> None:
    both = (Contains(match=1, other=None), Contains(match=3, other=None))
    found = convert(hand(Array(items=9, contains=both)))
    assert [gap.keyword for gap in found.gaps] == ["contains"]


@pytest.mark.parametrize("counts", [(0, None), (2, None), (1, 2), (4, None)])
def test_unique_items_of_a_few_values(counts: tuple[int, int | None]) -> None:
    shapes = hand(Array(prefix=(3,), items=2, unique=True, min_items=counts[0], max_items=counts[1]))
    test = accepts(shapes)
    for n in range(5):
        for value in product(("x", 2, None, True, False), repeat=n):
            assert test(dumps(list(value))) == fits(shapes, list(value)), value


def test_unique_permutations_and_equal_numbers() -> None:
    shapes = hand(Array(items=7, unique=True, min_items=3), n7=(Values(values=(1, "a", [1])), Values(values=(1.0,))))
    test = accepts(shapes)
    assert all(test(dumps(list(order))) for order in permutations((1, "a", [1])))
    assert not test('[1, 1, "a"]')


@pytest.mark.parametrize("items", [1, 9])
def test_unique_items_without_end_are_a_gap(items: int) -> None:
    found = convert(hand(Array(items=items, unique=True)))
    assert [gap.keyword for gap in found.gaps] == ["uniqueItems"]
    assert convert(hand(Array(items=items, unique=True, max_items=1))).gaps == ()


@pytest.mark.slow
def test_long_arrays() -> None:
    test = accepts(hand(Array(items=1, min_items=1500, max_items=5000)))
    for n in (0, 1499, 1500, 3000, 4999, 5000, 5001):
        assert test(dumps([1] * n, **COMPACT)) == (1500 <= n <= 5000), n


# Random schemas


def scalars() -> st.SearchStrategy[Case]:
    return st.sampled_from([*LEAVES[1], *LEAVES[2], *LEAVES[3], Values(values=([1, "x"], {"a": None, "b": [0]}))])


@st.composite
def graphs(draw: st.DrawFn) -> Hand:
    """Nodes 0 to 4, which may mention one another."""
    nodes = st.sampled_from([0, 1, 2, 3, 4, 5, FALSE])
    counts = st.tuples(st.integers(0, 2), st.none() | st.integers(1, 3))

    def array() -> Case:
        low, high = draw(counts)
        prefix = draw(st.lists(nodes, max_size=2))
        return Array(prefix=tuple(prefix), items=draw(nodes), min_items=low, max_items=high)

    def record() -> Case:
        low, high = draw(counts)
        names = draw(st.lists(st.sampled_from("abc"), unique=True))
        properties = []
        for name in names:
            node = draw(nodes)
            properties.append(Property(name=name, node=node, required=node != FALSE and draw(st.booleans())))
        rest = draw(st.sampled_from([(), (Rest(node=1),), (Rest(node=2, patterns=("^d",)),)]))
        free = not rest or low <= 1
        return Object(properties=tuple(properties), rest=rest, min_properties=low if free else 0, max_properties=high)

    made: dict[int, tuple[Case, ...]] = {}
    for node in range(6):
        cases: list[Case] = [draw(scalars())] if node != 0 or draw(st.booleans()) else []
        cases += [array() if draw(st.booleans()) else record() for _ in range(draw(st.integers(0, 2)))]
        made[node] = tuple(cases)
    return Hand(made)


documents = st.recursive(
    st.sampled_from([0, 2, 3, 4, "x", None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(graphs(), st.lists(documents, max_size=15))
def test_random_schemas(shapes: Hand, values: list[Any]) -> None:
    try:
        test = accepts(shapes)
    except SchemaError:
        assert not any(fits(shapes, value) for value in values)
        return
    for value in [*values, *SAMPLES, [1, "x"], {"a": None, "b": [0]}]:
        ordered = json.dumps(value, sort_keys=True)
        if test(ordered):
            assert fits(shapes, value), value
        if test(dumps(value)):
            assert fits(shapes, value), value


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_what_a_random_schema_writes_fits(shapes: Hand, random: Any) -> None:
    try:
        found = convert(shapes)
    except SchemaError:
        return
    sampler = SentenceSampler(found.grammar)
    for _ in range(5):
        text = sampler.draw(random)
        assert fits(shapes, json.loads(text)), text


# Whitespace

NESTED = hand(
    Object(properties=(Property(name="a", node=1, required=True), Property(name="b", node=7)), rest=(Rest(node=9),)),
    n7=(Array(items=0, max_items=3), Values(values=({"k": [1, {}], "l": []},))),
)
VALUE = {"a": 1, "b": [{"a": 2}, {"a": 3, "b": {"k": [1, {}], "l": []}, "z": [[], {"q": [None]}]}]}


@pytest.mark.parametrize("indent", [0, 1, 2, 4])
def test_indented_is_what_json_dumps_writes(indent: int) -> None:
    test = accepts(NESTED, whitespace="indented", indent=indent)
    text = dumps(VALUE, indent=indent)
    assert test(text)
    assert not test(dumps(VALUE))
    assert not test(dumps(VALUE, indent=indent + 1))
    assert not test(text.replace(": ", ":"))


def test_compact_and_natural() -> None:
    compact, natural = accepts(NESTED, whitespace="compact"), accepts(NESTED)
    tight, loose = dumps(VALUE, **COMPACT), dumps(VALUE)
    assert (compact(tight), compact(loose), natural(tight), natural(loose)) == (True, False, True, True)
    assert not natural(loose.replace(", ", ",  "))
    assert not natural("{ " + loose[1:])


def test_flexible_is_bounded() -> None:
    test = accepts(NESTED, whitespace="flexible")
    for text in (dumps(VALUE), dumps(VALUE, indent=4), dumps(VALUE, separators=(" ,\n", "\t: "))):
        assert test(text)
    assert test('{"a":1' + " " * 40 + "}")
    assert not test('{"a":1' + " " * 41 + "}")
    assert not test(" " + dumps(VALUE))


def test_separators_of_ones_own() -> None:
    test = accepts(NESTED, separators=(r", {1,2}", ":"))
    assert test(dumps(VALUE, separators=(",  ", ":")))
    assert not test(dumps(VALUE, **COMPACT))


@pytest.mark.parametrize("separators", [(";", ":"), (",", ": *"), (",", "x?:"), (", ?", ""), ("(", ":"), (",|1", ":")])
def test_separators_that_are_none(separators: tuple[str, str]) -> None:
    with pytest.raises(SpecError, match="separators"):
        convert(NESTED, separators=separators)


def test_recursion_with_an_indent_ends_after_twelve_levels() -> None:
    shapes = Hand({0: (Null(), Array(items=0, max_items=1))})
    found = convert(shapes, whitespace="indented")
    assert "whitespace" in [note.keyword for note in found.notes]
    value: Any = None
    for depth in range(16):
        assert Accepts(found)(dumps(value, indent=2)) == (depth <= 13)
        value = [value]


def test_a_thousand_levels_do_not_recurse() -> None:
    nodes: dict[int, tuple[Case, ...]] = {n: (Array(items=n + 1, min_items=1),) for n in range(1500)}
    shapes = Hand({**nodes, 1500: (Null(),)})
    for whitespace in ("compact", "indented"):
        found = convert(shapes, whitespace=whitespace)
        assert len(found.grammar.rules) > 1500
    value: Any = 1
    for _ in range(3000):
        value = [value]
    assert accepts(Hand({0: (Values(values=(value,)),)}))("[" * 3000 + "1" + "]" * 3000)


# Names


def test_names_lead_back_to_pointers() -> None:
    pointers = {0: "", 1: "/properties/user name", 2: "/properties/user~1name", 3: "/$defs/日本", 9: "/items"}
    properties = tuple(Property(name=name, node=node) for name, node in (("a", 1), ("b", 2), ("c", 3), ("d", 9)))
    shapes = Hand({**LEAVES, 0: (Object(properties=properties),)}, pointers)
    found = convert(shapes)
    assert {found.pointers[name] for name in ("root", "user-name", "user-name-2", "value", "items")} == set(
        pointers.values()
    )
    assert all(name in found.grammar.rules for name in found.pointers)
    text = to_gbnf(shapes)
    assert "# /properties/user name\nuser-name ::=" in text
    assert "# /$defs/日本\n" in text
