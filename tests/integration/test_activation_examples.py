"""The examples of hidden states run from end to end on the demo model."""

from __future__ import annotations

import json
import runpy

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("lmdb", reason="lmdb is not installed")

pytestmark = pytest.mark.slow


def test_an_inference_file_is_rebuilt_from_captured_requests_and_judged(tmp_path, capsys):
    main = runpy.run_path("examples/example_reconstruct.py")["main"]
    rows = [json.loads(line) for line in main(["--folder", str(tmp_path / "out")]).read_text().splitlines()]
    assert [row["answer"] for row in rows] == ["Shakespeare", "Paris", "eight"]
    assert all(row["model"] == "demo" and row["input_length"] > 0 and "generation" in row for row in rows)
    said = capsys.readouterr().out
    assert "3 of 3 rows rebuilt from the layout espalier" in said


def test_a_probe_foresees_refusals_one_layer_before_the_last(tmp_path, capsys):
    areas = runpy.run_path("examples/probe.py")["main"](["--output", str(tmp_path / "probe.svg"), "--texts", "64"])
    assert areas[-2] > 0.8  # 0.5 is guessing
    assert "one layer before the last" in capsys.readouterr().out
    assert (tmp_path / "probe.svg").read_text().count("<rect") == 1 + len(areas)
