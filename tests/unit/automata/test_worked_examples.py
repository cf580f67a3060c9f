"""The worked examples in the docstrings of the hard modules are true."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path
from types import ModuleType

import pytest

from espalier.automata.joint import machine
from espalier.automata.lazy import network
from espalier.automata.masks import stacks


@pytest.mark.parametrize("module", [stacks, network, machine], ids=lambda module: module.__name__)
def test_the_example_of_a_module_is_true(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    (source,) = {*Path(str(module.__file__)).parent.glob(f"{name}.py")}  # a compiled module keeps no docstring
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    example = doctest.DocTestParser().get_doctest(text or "", {**vars(module)}, name, str(source), 0)
    failures, attempted = doctest.DocTestRunner().run(example)
    assert attempted >= 5
    assert not failures
