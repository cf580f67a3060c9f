"""docs/compared.md is what `scripts/compare_llama_server.py` finds: our answers beside llama-server's own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import espalier
from espalier.wiring import demo_model
from scripts.compare_llama_server import REQUESTS, page
from tests.llama_tools import llama_server_program
from tests.server_app import make_app, served, settings

PAGE = Path(__file__).parents[3] / "docs" / "compared.md"
MODEL = demo_model() / "demo.gguf"


def test_the_page_has_every_request() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ")[:2] for line in lines if line.startswith("| ") and "`" in line]
    assert rows == [[f"| {name}", f"`{path}`"] for name, path, _ in REQUESTS]


@pytest.mark.slow
def test_the_page_is_what_both_servers_answer(tmp_path: Path) -> None:
    """A page that differs is left beside the test's other files, to be compared and copied."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    with llama_server_program(MODEL, "--slots") as theirs, espalier.load(str(MODEL), kv_type="f16") as engine:
        config = settings(model_alias="demo", embedding_pooling="mean")
        with served(make_app(engine=engine, config=config)) as ours:
            text = page(theirs, ours)
    (tmp_path / PAGE.name).write_text(text, encoding="utf-8")
    assert text.splitlines() == PAGE.read_text(encoding="utf-8").splitlines(), f"{tmp_path / PAGE.name} is new"
