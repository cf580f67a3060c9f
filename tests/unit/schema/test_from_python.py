"""Schemas of Python classes: their text, their agreement with the class, and refusals that name the path."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import jsonschema
import pytest

from espalier.errors import SchemaError
from espalier.schema.python.instances import BuildError, build
from espalier.schema.python.schemas import schema_of

annotated_types = pytest.importorskip("annotated_types")
T = TypeVar("T")
Name = NewType("Name", str)


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Address:
    street: str
    zip: Annotated[str, annotated_types.MinLen(5), annotated_types.MaxLen(5)] | None = None


@dataclass
class User:
    """A person.

    More about it.
    """

    name: Annotated[str, "As on the passport."]
    age: Annotated[int, annotated_types.Ge(0), annotated_types.Lt(150)]
    home: Address
    work: Address | None = None
    friends: list[User] = field(default_factory=list)
    colour: Colour = Colour.RED
    score: float = field(default=0.5, metadata={"description": "From 0 to 1."})
    hidden: int = field(default=0, init=False)


class Movie(TypedDict, total=False):
    title: str
    year: NotRequired[int]


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Box(Generic[T]):
    item: T
    others: list[T]


@dataclass
class Tree:
    value: int
    children: list[Tree]


def book(room: Annotated[int, annotated_types.Gt(0)], guest: str, nights: int = 1, *rest: str, **more: int) -> None:
    """Book a room.

    Args:
        room: Its number.
        guest (str): Who comes,
            and nobody else.
        nights: How long.

    Returns:
        nothing: at all
    """


def valid(schema: dict[str, Any], value: Any) -> bool:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_a_dataclass() -> None:
    schema = schema_of(User)
    assert schema["$ref"] == "#/$defs/User"
    user = schema["$defs"]["User"]
    assert user["description"] == "A person."
    assert list(user["properties"]) == ["name", "age", "home", "work", "friends", "colour", "score"]
    assert user["required"] == ["name", "age", "home"]
    assert user["additionalProperties"] is False
    assert user["properties"]["name"] == {"type": "string", "description": "As on the passport."}
    assert user["properties"]["age"] == {"type": "integer", "minimum": 0, "exclusiveMaximum": 150}
    assert user["properties"]["home"] == {"$ref": "#/$defs/Address"}
    assert user["properties"]["work"] == {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}], "default": None}
    assert user["properties"]["score"] == {"type": "number", "description": "From 0 to 1.", "default": 0.5}
    assert user["properties"]["colour"] == {
        "type": "string",
        "enum": ["red", "blue"],
        "description": "What it looks like.",
        "default": "red",
    }
    assert schema["$defs"]["Address"]["properties"]["zip"]["anyOf"][0] == {
        "type": "string",
        "minLength": 5,
        "maxLength": 5,
    }


def test_an_instance_of_a_dataclass() -> None:
    value = {
        "name": "Ada",
        "age": 36,
        "home": {"street": "S"},
        "friends": [{"name": "Bo", "age": 3, "home": {"street": "T", "zip": "12345"}}],
        "colour": "blue",
    }
    assert valid(schema_of(User), value)
    user = build(User, value)
    assert user.colour is Colour.BLUE
    assert user.friends == [User(name="Bo", age=3, home=Address("T", "12345"))]


@pytest.mark.parametrize(
    ("tp", "schema", "value", "made"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 1.0, 1),
        (float, {"type": "number"}, 1, 1.0),
        (bool, {"type": "boolean"}, True, True),
        (None, {"type": "null"}, None, None),
        (Any, {}, [1], [1]),
        (Name, {"type": "string"}, "a", "a"),
        (dt.date, {"type": "string", "format": "date"}, "2026-11-21", dt.date(2026, 11, 21)),
        (dt.time, {"type": "string", "format": "time"}, "08:30:00+00:00", dt.time(8, 30, tzinfo=dt.UTC)),
        (
            dt.datetime,
            {"type": "string", "format": "date-time"},
            "2026-11-21T08:30:00Z",
            dt.datetime(2026, 11, 21, 8, 30, tzinfo=dt.UTC),
        ),
        (uuid.UUID, {"type": "string", "format": "uuid"}, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
        (Decimal, {"type": "number"}, 0.1, Decimal("0.1")),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        (list, {"type": "array"}, [1, "a"], [1, "a"]),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2], (1, 2)),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
            [1, "a"],
            (1, "a"),
        ),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a"], {"a"}),
        (frozenset[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a"], frozenset("a")),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
        (dict, {"type": "object"}, {"a": 1}, {"a": 1}),
        (
            Mapping[Literal["a", "b"], int],
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "propertyNames": {"type": "string", "enum": ["a", "b"]},
            },
            {"a": 1},
            {"a": 1},
        ),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}, 1, 1),
        (Literal["a"], {"type": "string", "const": "a"}, "a", "a"),
        (Literal[Colour.RED], {"type": "string", "const": "red"}, "red", Colour.RED),
        (Colour, {"type": "string", "enum": ["red", "blue"], "description": "What it looks like."}, "red", Colour.RED),
        (Level, {"type": "integer", "enum": [1, 2]}, 2, Level.HIGH),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a"),
        (Annotated[list[int], annotated_types.Len(1, 3)], {"items": {"type": "integer"}}, [1], [1]),
        (Annotated[float, annotated_types.Interval(gt=0, le=1)], {"exclusiveMinimum": 0, "maximum": 1}, 1, 1.0),
        (Annotated[int, annotated_types.MultipleOf(5)], {"multipleOf": 5}, 10, 10),
        (bytes, {"type": "string", "contentEncoding": "base64"}, "aGk=", b"hi"),
    ],
)
def test_types(tp: Any, schema: dict[str, Any], value: Any, made: Any) -> None:
    found = schema_of(tp)
    assert {k: v for k, v in found.items() if k in schema} == schema
    assert valid(found, value)
    assert build(tp, value) == made
    assert type(build(tp, value)) is type(made)


def test_sizes_of_an_array() -> None:
    found = schema_of(Annotated[list[int], annotated_types.Len(1, 3)])
    assert found == {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}


def test_a_typed_dict() -> None:
    class Full(Movie):
        id: int

    assert schema_of(Movie)["required"] == []
    assert schema_of(Full)["required"] == ["id"]
    assert schema_of(Full)["additionalProperties"] is False
    assert build(Full, {"id": 1, "title": "x"}) == {"id": 1, "title": "x"}


def test_a_named_tuple_is_an_object_of_its_names() -> None:
    assert schema_of(Point)["properties"] == {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}
    assert build(Point, {"x": 3}) == Point(3, 0)


def test_a_generic_dataclass() -> None:
    schema = schema_of(Box[int])
    assert schema["properties"]["others"] == {"type": "array", "items": {"type": "integer"}}
    assert build(Box[int], {"item": 1, "others": [2]}) == Box(1, [2])
    nested = schema_of(list[Box[str] | Box[int]])
    assert nested["$defs"].keys() == {"Box_str", "Box_int"}


def test_recursion() -> None:
    value = {"value": 1, "children": [{"value": 2, "children": []}]}
    assert valid(schema_of(Tree), value)
    assert not valid(schema_of(Tree), {"value": 1, "children": [{"value": 2}]})
    assert build(Tree, value) == Tree(1, [Tree(2, [])])


def test_two_classes_of_one_name() -> None:
    def another() -> type:
        @dataclass
        class Address:
            planet: str

        return Address

    both = dataclasses.make_dataclass("Both", [("a", Address), ("b", another())])
    assert schema_of(both)["$defs"].keys() == {"Address", "Address2"}


def test_a_function() -> None:
    schema = schema_of(book)
    assert schema == {
        "type": "object",
        "description": "Book a room.",
        "properties": {
            "room": {"type": "integer", "exclusiveMinimum": 0, "description": "Its number."},
            "guest": {"type": "string", "description": "Who comes, and nobody else."},
            "nights": {"type": "integer", "description": "How long.", "default": 1},
        },
        "required": ["room", "guest"],
        "additionalProperties": False,
    }
    assert build(book, {"room": 1, "guest": "Ada"}) == {"room": 1, "guest": "Ada"}


def test_a_method_has_no_self() -> None:
    class Hotel:
        def book(self, room: int) -> None: ...

    assert list(schema_of(Hotel().book)["properties"]) == ["room"]
    assert list(schema_of(Hotel.book)["properties"]) == ["room"]


def test_what_typing_extensions_adds() -> None:
    extra = pytest.importorskip("typing_extensions")
    movie = extra.TypedDict("movie", {"title": str, "year": extra.ReadOnly[extra.NotRequired[int]]})
    assert schema_of(movie)["required"] == ["title"]
    assert schema_of(movie)["properties"]["year"] == {"type": "integer"}
    assert build(movie, {"title": "x"}) == {"title": "x"}
    numbers = extra.TypeAliasType("numbers", list[int])
    assert schema_of(dict[str, numbers])["$defs"] == {"numbers": {"type": "array", "items": {"type": "integer"}}}
    assert build(numbers, [1]) == [1]


@dataclass
class Bad:
    x: complex


@dataclass
class Holder:
    friends: list[Bad]


@pytest.mark.parametrize(
    ("tp", "said"),
    [
        (Bad, r"Bad\.x: complex has no JSON Schema"),
        (Holder, r"Holder\.friends\[\]\.x: complex"),
        (list[Bad], r"list\[\]\.x: complex"),
        (len, "positional-only"),
        (type, "type has no JSON Schema"),
        (list[complex], r"list\[\]: complex|list\[complex\]\[\]: complex"),
        (dict[int, str], "the keys of an object are strings, not int"),
        (Literal[b"x"], "is not a JSON value"),
        (Annotated[str, annotated_types.Ge(3)], "is for numbers"),
        (Annotated[dt.date, annotated_types.Ge(dt.date(2026, 1, 1))], "is for numbers"),
        (Annotated[int, annotated_types.MinLen(3)], "is for strings, arrays and mappings"),
        (Annotated[int, annotated_types.Predicate(bool)], "Python code"),
    ],
)
def test_what_has_no_schema_is_refused_by_its_path(tp: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        schema_of(tp)


def test_a_path_goes_through_containers() -> None:
    @dataclass
    class Inner:
        friends: list[dict[str, tuple[complex, int]]]

    with pytest.raises(SchemaError, match=r"Inner\.friends\[\]\{\}\[0\]: complex"):
        schema_of(Inner)


def test_a_name_that_leads_nowhere() -> None:
    @dataclass
    class Lost:
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(SchemaError, match="Nowhere"):
        schema_of(Lost)


@pytest.mark.parametrize(
    ("tp", "value", "pointer"),
    [
        (User, [], ""),
        (User, {"name": "a", "age": 1}, ""),
        (User, {"name": "a", "age": "1", "home": {"street": "s"}}, "/age"),
        (User, {"name": "a", "age": True, "home": {"street": "s"}}, "/age"),
        (User, {"name": "a", "age": 1, "home": {"street": "s", "planet": "x"}}, "/home/planet"),
        (User, {"name": "a", "age": 1, "home": {"street": "s"}, "colour": "green"}, "/colour"),
        (list[Tree], [{"value": 1, "children": [{"value": "x", "children": []}]}], "/0/children/0/value"),
        (tuple[int, int], [1], ""),
        (dict[str, int], {"a/b": "x"}, "/a~1b"),
        (dt.date, "2026-13-01", ""),
        (bytes, "?", ""),
        (Literal[1], True, ""),
        (int | list[int], ["x"], "/0"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_pointer(tp: Any, value: Any, pointer: str) -> None:
    with pytest.raises(BuildError) as caught:
        build(tp, value)
    assert caught.value.pointer == pointer


def test_a_class_that_refuses_its_fields() -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("odd")

    with pytest.raises(BuildError, match="odd"):
        build(Even, {"n": 1})


class TestPydantic:
    """pydantic describes and builds its own models, alone and within something else."""

    pydantic = pytest.importorskip("pydantic")

    class Pet(pydantic.BaseModel):
        name: str
        age: int = pytest.importorskip("pydantic").Field(ge=0, description="In years.")

    def test_a_model(self) -> None:
        assert schema_of(self.Pet) == self.Pet.model_json_schema()
        assert build(self.Pet, {"name": "Rex", "age": 3}) == self.Pet(name="Rex", age=3)

    def test_within_a_dataclass(self) -> None:
        home = dataclasses.make_dataclass("Home", [("pets", list[self.Pet]), ("best", self.Pet)])
        schema = schema_of(home)
        assert schema["properties"]["pets"]["items"] == schema["properties"]["best"] == {"$ref": "#/$defs/Pet"}
        assert valid(schema, {"pets": [], "best": {"name": "Rex", "age": 3}})
        assert not valid(schema, {"pets": [], "best": {"name": "Rex", "age": -3}})

    def test_a_model_that_comes_with_another_is_defined_once(self) -> None:
        owner = self.pydantic.create_model("Owner", pet=(self.Pet, ...))
        both = dataclasses.make_dataclass("Both", [("owner", owner), ("pet", self.Pet)])
        assert schema_of(both)["$defs"].keys() == {"Owner", "Pet"}

    def test_what_it_refuses_has_a_pointer(self) -> None:
        with pytest.raises(BuildError) as caught:
            build(list[self.Pet], [{"name": "Rex", "age": -1}])
        assert caught.value.pointer == "/0/age"

    def test_what_it_cannot_describe(self) -> None:
        model = self.pydantic.create_model("Odd", f=(type(book), ...), __config__={"arbitrary_types_allowed": True})
        with pytest.raises(SchemaError, match="Odd"):
            schema_of(model)

    def test_a_field_within_annotated(self) -> None:
        kind = Annotated[int, self.pydantic.Field(ge=1, le=5, description="How many.")]
        assert schema_of(kind) == {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many."}
