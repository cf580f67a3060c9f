"""`espalier activations` and `espalier generate --activations` on the demo model."""

from __future__ import annotations

import json

import pytest

from espalier.activations.store.base import ActivationStore
from espalier.cli.main import main_code
from espalier.wiring import demo_model

pytest.importorskip("lmdb", reason="lmdb is not installed")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of two requests, made by the command line."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    path = tmp_path_factory.mktemp("activations") / "store"
    code = main_code(
        [
            "activations",
            "capture",
            "--store",
            str(path),
            "--json-object",
            "--seed",
            "1",
            "--max-tokens",
            "9",
            "--layers",
            "0,-1",
            "--run-id",
            "r1",
            "--compression",
            "zstd",
            "Write a person.",
            "Berlin",
        ]
    )
    assert code == 0
    return path


def keys(path):
    with ActivationStore(path) as opened:
        return [*opened.keys()]


def test_captured_requests_are_stored_whole_with_ids(store):
    with ActivationStore(store) as opened:
        for key in opened.keys():  # noqa: SIM118  # no dict
            one = opened.captured(key)
            record = one.record
            assert record.layers == (0, 3)
            assert (record.run_id, record.compression, record.hidden) == ("r1", "zstd", 160)
            assert record.trace_id
            assert record.positions == tuple(range(record.input_length + len(record.response_ids) - 1))
            assert (record.target_layers, record.sequence_mode) == ("[0, -1]", "all")


def test_list_and_verify_and_show(store, capsys):
    assert main_code(["activations", "list", str(store), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["key"] for one in listed] == keys(store)
    assert main_code(["activations", "verify", str(store)]) == 0
    assert "0 faults" in capsys.readouterr().err
    assert main_code(["activations", "show", str(store), listed[0]["key"], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["tokens"][0]["wanted"]["text"]
    assert all(len(one["vector"]) == 160 for one in shown["tokens"])
    assert main_code(["activations", "show", str(store), listed[0]["key"][:60]]) == 0
    captured = capsys.readouterr()
    assert "norm of its vector" in captured.out
    assert len(captured.out.splitlines()) == 1 + len(shown["tokens"])


def test_a_request_that_is_not_there_and_a_layer_that_was_not_captured(store, capsys):
    assert main_code(["activations", "show", str(store), "nothing"]) == 2
    assert "no request is called nothing" in capsys.readouterr().err
    assert main_code(["activations", "show", str(store), keys(store)[0], "--layer", "2"]) == 2
    assert "layers [0, 3]" in capsys.readouterr().err


def test_export_takes_its_form_from_the_name(store, tmp_path, capsys):
    assert main_code(["activations", "export", str(store), str(tmp_path / "out.npz"), "--request", keys(store)[0]]) == 0
    assert "1 requests" in capsys.readouterr().err
    assert main_code(["activations", "export", str(store), str(tmp_path / "out.xyz")]) == 2


def test_generate_stores_hidden_states_and_prune_removes_them_with_their_traces(tmp_path, capsys):
    path = tmp_path / "mine"
    asked = [
        "generate",
        "--activations",
        str(path),
        "--trace-level",
        "steps",
        "--positions",
        "last",
        "--seed",
        "1",
        "--max-tokens",
        "4",
        "Hi",
    ]
    assert main_code(asked) == 0
    assert f"hidden states: {path}, request {keys(path)[0]}" in capsys.readouterr().err.replace("\n", "")
    assert len([*(path / "traces").iterdir()]) == 1
    key = keys(path)[0]
    with ActivationStore(path) as opened:
        assert len(opened.record(key).positions) == 1
    assert main_code(["activations", "prune", str(path), "--max-requests", "0"]) == 0
    assert keys(path) == []
    assert [*(path / "traces").iterdir()] == []
    assert main_code(["activations", "compact", str(path)]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--layers", "all", "Hi"], "--layers needs --activations"),
        (["generate", "--activations", "x", "--layers", "most", "Hi"], "layers: 'most'"),
        (["activations", "list", "nowhere"], "no store of activations"),
        (["activations", "prune", "nowhere", "--max-requests", "1"], "no store of activations"),
        (["activations", "prune", "nowhere"], "nothing says what to remove"),
        (["activations", "capture", "--store", "x", "-m", str(demo_model() / "demo.gguf"), "Hi"], "hidden states"),
    ],
)
def test_what_cannot_be_is_refused_and_makes_no_store(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main_code(arguments) in (1, 2)
    assert said in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
