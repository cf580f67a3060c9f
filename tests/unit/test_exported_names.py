"""The names that `import espalier` offers: sorted, all there, and what `dir()` shows."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

import espalier
from espalier import exports


def test_all_is_sorted_and_has_no_double() -> None:
    assert list(espalier.__all__) == sorted(set(espalier.__all__))


def test_the_documented_names_are_there() -> None:
    values = {"Choice", "Gbnf", "JsonObject", "JsonSchema", "Regex", "SamplingConfig", "Vocab"}
    assert values | {"compile", "generate", "load"} <= set(espalier.__all__)


@pytest.mark.parametrize("name", espalier.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(espalier, name) is not None


def test_dir_shows_the_same_names() -> None:
    # A submodule becomes an attribute when somebody imports it, so submodules may or may not be in dir().
    shown = {name for name in dir(espalier) if not name.startswith("_")}
    submodules = {name for name in shown if isinstance(getattr(espalier, name), ModuleType)}
    assert shown - submodules == {name for name in espalier.__all__ if not name.startswith("_")}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(espalier, "no_such_name")  # noqa: B009  # a plain access would not pass the type checker


def test_type_checkers_are_told_the_same_names() -> None:
    block = next(one for one in ast.parse(Path(exports.__file__).read_text()).body if isinstance(one, ast.If))
    told = {name.asname: one.module for one in block.body if isinstance(one, ast.ImportFrom) for name in one.names}
    assert told == exports.EXPORTS
