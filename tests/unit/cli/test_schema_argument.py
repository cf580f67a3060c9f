"""What `--schema` may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.schema import read_schema_argument, read_spec
from espalier.errors import InputError, SchemaError


def read(text: str) -> object:
    return read_schema_argument(text, read_text)


def test_json_itself() -> None:
    assert read(' {"type": "string"} ') == {"type": "string"}
    assert read("true") is True


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "name").write_text('{"type": "null"}')
    monkeypatch.chdir(tmp_path)
    assert read(str(tmp_path / "name")) == {"type": "null"}
    assert read("name") == {"type": "null"}  # a file comes before the shorthand


def test_stdin() -> None:
    assert read_schema_argument("-", lambda path, what: '{"type": "null"}') == {"type": "null"}


def test_shorthand() -> None:
    schema = read("name, age int")
    assert isinstance(schema, dict)
    assert list(schema["properties"]) == ["name", "age"]


@pytest.mark.parametrize("text", ["missing.json", "folder/missing", "./x"])
def test_a_path_to_nothing_is_no_shorthand(text: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"type": ', "line 1, column 9"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("name,, age wrong", "'wrong' is not a type"),
        ("x" * 5000 + "!", "is not expected"),
        ("a\0b", "is not expected"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        read(text)


def test_the_spec_of_an_argument() -> None:
    assert read_spec("b int, a int").order is None
    assert read_spec("b int, a int", order="required_first").order == "required-first"
    assert read_spec("b int, a int", order="any").order == "any"
    assert read_spec("b int, a int", order="a, b", format="assert", allow="checked").to_json() == {
        "kind": "json_schema",
        "schema": read("b int, a int"),
        "whitespace": "natural",
        "order": ["a", "b"],
        "format": "assert",
        "allow": "checked",
    }
    with pytest.raises(InputError, match="'anything' is no property"):
        read_spec("a int", order="anything")
