"""Stored vectors for other programs, and beside the steps of a trace."""

from __future__ import annotations

import hashlib
import json
import pickle

import numpy as np
import pytest

from espalier.activations.foreign.open import open_store
from espalier.activations.join import decisions, join
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.export import export, to_numpy, to_torch
from espalier.activations.store.record import CapturedVectors, RequestRecord
from espalier.errors import InputError
from espalier.trace.records import Candidate, StepRecord, Trace


def captured(*, positions=(1, 2, 3), dtype="float16", prompt="p", timestamp=5.0, **fields):
    record = RequestRecord(
        prompt=prompt,
        response="ab",
        model="demo",
        input_length=2,
        timestamp=timestamp,
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5),
        positions=positions,
        sites=("residual",),
        layers=(0, 2),
        hidden=4,
        dtype=dtype,
        **fields,
    )
    rng = np.random.default_rng(len(prompt))
    kind = np.float32 if dtype == "int8" else np.float16
    vectors = {("residual", layer): rng.normal(size=(len(positions), 4)).astype(kind) for layer in (0, 2)}
    return CapturedVectors(record, vectors)


@pytest.fixture
def store(tmp_path):
    with ActivationStore(tmp_path / "store", write=True) as made:
        for number in range(3):
            made.put(captured(prompt=f"prompt {number}", timestamp=5.0 + number, request_id=f"r{number}", run_id="run"))
        yield made


def all_vectors(store):
    return {key: store.captured(key).vectors for key in store.keys()}  # noqa: SIM118  # no dict


def test_an_npz_has_every_vector_and_needs_no_pickle(store, tmp_path):
    assert export(store, tmp_path / "out.npz", "npz") == 3
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        for key, vectors in all_vectors(store).items():
            for (site, layer), values in vectors.items():
                np.testing.assert_array_equal(found[f"{key}/{site}/{layer:03d}"], values)
            assert found[f"{key}/positions"].tolist() == [1, 2, 3]
        assert json.loads(found["records"].tobytes())[key]["run_id"] == "run"


def test_safetensors_have_every_vector(store, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    export(store, tmp_path / "out.safetensors", "safetensors")
    found = safetensors.load_file(tmp_path / "out.safetensors")
    for key, vectors in all_vectors(store).items():
        for (site, layer), values in vectors.items():
            np.testing.assert_array_equal(found[f"{key}/{site}/{layer:03d}"], values)


def test_a_zarr_has_every_vector_as_version_2_describes_it(store, tmp_path):
    """Read by the specification: an array is JSON beside its chunks, and a chunk is bytes in C order."""
    long = captured(positions=tuple(range(2500)), prompt="long")
    store.put(long)
    export(store, tmp_path / "out.zarr", "zarr")
    assert json.loads((tmp_path / "out.zarr/.zgroup").read_text()) == {"zarr_format": 2}
    for key, vectors in all_vectors(store).items():
        assert json.loads((tmp_path / "out.zarr" / key / ".zattrs").read_text())["model"] == "demo"
        for (site, layer), values in vectors.items():
            folder = tmp_path / "out.zarr" / key / site / f"{layer:03d}"
            head = json.loads((folder / ".zarray").read_text())
            rows, width = head["chunks"]
            parts = [
                np.frombuffer((folder / f"{n}.0").read_bytes(), dtype=head["dtype"]).reshape(rows, width)
                for n in range(-(-head["shape"][0] // rows))
            ]
            np.testing.assert_array_equal(np.concatenate(parts)[: head["shape"][0]], values)


def test_a_parquet_index_has_a_row_for_each_request(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    export(store, tmp_path / "out.parquet", "parquet")
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["key"] for row in rows] == [*all_vectors(store)]
    assert {row["request_id"] for row in rows} == {"r0", "r1", "r2"}
    assert rows[0]["layers"] == [0, 2]
    assert rows[0]["tokens"] == 3


def test_iterators_give_the_arrays_of_one_layer_and_pass_over_what_has_none(store):
    store.put(CapturedVectors(RequestRecord(prompt="", response="", model="", input_length=0, timestamp=9.0), {}))
    found = [*to_numpy(store, "residual", 2)]
    assert [one.shape for _, one in found] == [(3, 4)] * 3
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for (record, values), (other, tensor) in zip(found, to_torch(store, "residual", 2), strict=True):
        assert record == other
        assert torch.equal(tensor, torch.from_numpy(values.copy()))


@pytest.mark.parametrize(("form", "field"), [("xml", "form"), ("npz", "output")])
def test_an_export_names_what_is_wrong_and_overwrites_nothing(store, tmp_path, form, field):
    (tmp_path / "there").write_text("mine")
    with pytest.raises(InputError) as caught:
        export(store, tmp_path / "there", form)
    assert caught.value.field == field
    assert (tmp_path / "there").read_text() == "mine"


def made_step(step, token):
    candidate = Candidate(id=token, text=str(token), bytes=b"x", prob=1.0)
    return StepRecord(
        step=step,
        token_id=token,
        text=str(token),
        bytes=b"x",
        logprob=0.0,
        pre_masking=(candidate,),
        post_grammar=(),
        post_chain=(),
        resampled=candidate,
        allowed_count=1,
        removed_mass=0.0,
        tax_nats=0.0,
        z_sampled=None,
        entropy_before=0.0,
        entropy_after=0.0,
    )


def trace_of(tokens, prompt=(1, 2)):
    steps = tuple(made_step(place, token) for place, token in enumerate(tokens))
    return Trace(steps=steps, text="ab", finish_reason="stop", prompt_ids=prompt)


def test_a_token_is_joined_to_the_vector_that_it_was_drawn_from():
    one = captured()
    joined = [*join(one.record, trace_of((3, 4, 5)))]
    assert [(j.token_id, j.own, j.source) for j in joined] == [(3, 1, 0), (4, 2, 1), (5, None, 2)]
    assert [j.step.token_id for j in joined] == [3, 4, 5]
    values, steps = decisions(one, trace_of((3, 4, 5)), site="residual", layer=2)
    np.testing.assert_array_equal(values, one.vectors["residual", 2])
    assert len(steps) == 3


def test_tokens_whose_vector_was_not_captured_say_so():
    record = captured(positions=(3,)).record
    assert [(j.own, j.source) for j in join(record, None)] == [(None, None), (0, None), (None, 0)]


@pytest.mark.parametrize(
    "trace", [trace_of((3, 4, 6)), trace_of((3, 4)), trace_of((3, 4, 5), prompt=(9, 9)), trace_of(())]
)
def test_a_trace_of_another_run_is_refused(trace):
    with pytest.raises(InputError) as caught:
        list(join(captured().record, trace))
    assert caught.value.field == "trace"


def test_reconstruct_reads_our_own_store(store, tmp_path):
    store.close()
    found = open_store(tmp_path / "store")
    assert found.layout == "espalier"
    entries = [*found.found()]
    assert [one.prompt for one in entries] == ["prompt 0", "prompt 1", "prompt 2"]
    assert {one.run for one in entries} == {"run"}
    assert entries[0].response == "ab"
    assert "trim_position" not in entries[0].optional


def test_a_legacy_store_is_read_by_pickle_as_the_original_does_and_by_our_own_reader(store, tmp_path):
    store.put(captured(prompt="prompt 0", timestamp=9.0, request_id="again"))
    export(store, tmp_path / "old.lmdb", "legacy")
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed")
    digest = hashlib.sha256(b"prompt 0").hexdigest()
    with lmdb.open(str(tmp_path / "old.lmdb_metadata"), readonly=True) as base, base.begin() as reading:
        found = pickle.loads(reading.get(digest.encode()))
        assert reading.stat()["entries"] == 4  # repeated samples do not replace one another
    assert (found["prompt"], found["response"], found["input_length"]) == ("prompt 0", "ab", 2)
    assert found["logging_config"] == {"target_layers": "all", "sequence_mode": "all"}
    assert found["trim_position"] is None
    with lmdb.open(str(tmp_path / "old.lmdb"), readonly=True) as base, base.begin() as reading:
        entry = pickle.loads(reading.get(digest.encode()))
    assert entry["metadata"] == {"compression": "none"}
    layers = entry["data"]["all_layers_activations"]
    assert [None if one is None else one.shape for one in layers] == [(1, 3, 4), None, (1, 3, 4)]
    expected = next(one for key, one in all_vectors(store).items() if key.startswith(digest))
    np.testing.assert_array_equal(layers[2][0], expected["residual", 2])
    opened = open_store(tmp_path / "old.lmdb")
    assert opened.layout == "lmdb"
    entries = [*opened.found()]
    assert sorted(one.prompt for one in entries) == ["prompt 0", "prompt 0", "prompt 1", "prompt 2"]
    assert {one.request for one in entries} == {"r0", "r1", "r2", "again"}


def test_an_lmdb_environment_of_others_is_not_taken_for_ours(tmp_path):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed")
    lmdb.open(str(tmp_path / "other")).close()
    (tmp_path / "other" / "open.lock").touch()
    assert open_store(tmp_path / "other").layout == "lmdb-single"
