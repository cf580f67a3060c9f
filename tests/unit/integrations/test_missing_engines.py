"""An adapter whose engine is not installed says so, with the line that installs it."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from espalier.errors import MissingDependency
from tests.engine_doubles import HAS_SGLANG, HAS_VLLM, SGLANG, VLLM

pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize(
    ("engine", "adapter", "module"),
    [
        pytest.param("vllm", "vllm.processor", VLLM, marks=pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")),
        pytest.param(
            "sglang", "sglang.backend", SGLANG, marks=pytest.mark.skipif(HAS_SGLANG, reason="SGLang is installed")
        ),
    ],
)
def test_an_engine_that_is_not_installed_is_named(
    engine: str, adapter: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module, f"espalier.integrations.{engine}", f"espalier.integrations.{adapter}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingDependency, match=f"{engine} is not installed") as raised:
        import_module(f"espalier.integrations.{adapter}")
    assert raised.value.hint == f"pip install {engine}"
