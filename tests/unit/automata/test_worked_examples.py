"""The worked examples in the docstrings of the hard modules are true."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from espalier.automata.joint import machine
from espalier.automata.lazy import network
from espalier.automata.masks import stacks


@pytest.mark.parametrize("module", [stacks, network, machine], ids=lambda module: module.__name__)
def test_the_example_of_a_module_is_true(module: ModuleType) -> None:
    failures, attempted = doctest.testmod(module)
    assert attempted >= 5
    assert not failures
