"""`espalier.safety` of a body."""

import pytest

from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import JsonObject
from espalier.errors import InputError
from espalier.server.asking.constraint import join_safety


def test_a_filter_stands_beside_the_constraint():
    assert join_safety(None, None, max_bytes=9) is None
    assert join_safety(JsonObject(), "minimal", max_bytes=999) == AllOf(JsonObject(), Safety("minimal"))
    fields = {"categories": ["pii"], "include": ["email"], "mode": "rewind"}
    assert join_safety(None, fields, max_bytes=999) == Safety(**fields)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("nope", "espalier.safety.preset"),
        ({"lists": {"hate": "x"}, "categories": ["hate"]}, "espalier.safety.lists"),
        ({"categories": ["hate"]}, "espalier.safety"),
        ({"patterns": ["x" * 2000]}, "espalier.safety"),
        ([], "espalier.safety"),
    ],
)
def test_an_error_names_the_field_of_the_body(asked, field):
    with pytest.raises(InputError) as caught:
        join_safety(None, asked, max_bytes=999)
    assert caught.value.field == field
    with pytest.raises(InputError) as caught:
        join_safety(None, asked, max_bytes=999, own="safety")
    assert caught.value.field == field.removeprefix("espalier.")
