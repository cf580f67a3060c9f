"""The store of activations: what goes in comes out, whole or not at all, and what is damaged is named."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lmdb")

import lmdb
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from espalier.activations.store import layout
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.care import compact, prune, verify
from espalier.activations.store.dtypes import DTYPES, from_bytes, to_bytes
from espalier.activations.store.layout import DamagedChunk
from espalier.activations.store.record import CapturedVectors, RequestRecord
from espalier.activations.store.writer import QueuedWriter
from espalier.errors import InputError, LimitExceeded, OutputError, Unavailable
from tests.examples import examples
from tests.forks import FORKS


def sample(
    number: int = 0, *, count: int = 3, hidden: int = 4, layers: tuple[int, ...] = (0, 2), **more: Any
) -> CapturedVectors:
    chance = np.random.default_rng(number)
    record = RequestRecord(
        prompt=f"prompt {number % 5} é",
        response="r",
        model="m",
        input_length=2,
        timestamp=float(number),
        prompt_ids=(1, 2),
        response_ids=(3,),
        positions=tuple(range(count)),
        sites=("residual",),
        layers=layers,
        hidden=hidden,
        messages=({"role": "user", "content": "x"},),
        request_id=f"r{number}",
        **more,
    )
    vectors = {("residual", one): chance.standard_normal((count, hidden)).astype(np.float32) for one in layers}
    return CapturedVectors(record, vectors if count else {})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compression", layout.CODECS)
def test_what_is_stored_comes_back_to_the_precision_of_its_dtype(dtype: str, compression: str, tmp_path: Path) -> None:
    if compression == "zstd":
        pytest.importorskip("zstandard")
    given_ = sample(3, dtype=dtype, compression=compression)
    with ActivationStore(tmp_path / "s", write=True) as store:
        key = store.put(given_)
        found = store.captured(key)
        assert found.record == given_.record
        for name, vectors in given_.vectors.items():
            close = {"float32": 0, "float16": 1e-3, "bfloat16": 1e-2, "int8": np.abs(vectors).max() / 127}[dtype]
            np.testing.assert_allclose(found.vectors[name], vectors, rtol=close, atol=close)
        assert [*verify(store)] == []


FLOATS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(width=32))


@settings(max_examples=examples(300), deadline=None)
@given(FLOATS)
def test_bfloat16_rounds_as_torch_does(values: np.ndarray[Any, Any]) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    found = from_bytes(to_bytes(values, "bfloat16"), "bfloat16", values.shape)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=examples(200), deadline=None)
@example(np.full((1, 1), np.finfo(np.float32).max), "int8")
@given(FLOATS, st.sampled_from([*DTYPES]))
def test_values_that_a_dtype_cannot_hold_are_refused_not_changed(values: np.ndarray[Any, Any], dtype: str) -> None:
    try:
        found = from_bytes(to_bytes(values, dtype), dtype, values.shape)  # type: ignore[arg-type]
    except ValueError:
        assert dtype in ("float16", "int8")
        largest = 65504 if dtype == "float16" else np.finfo(np.float32).max
        assert not np.isfinite(values).all() or np.abs(values).max() > largest
    else:
        assert np.isfinite(found[np.isfinite(values)]).all() or dtype == "bfloat16"
        assert found.shape == values.shape


def test_samples_of_one_prompt_never_collide_and_are_found_by_prompt_and_request(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        keys = [store.put(sample(0)) for _ in range(5)]
        other = store.put(sample(1))
        assert len({*keys}) == 5
        assert {*store.keys(prompt="prompt 0 é")} == {*keys}
        assert [*store.keys(request_id="r1")] == [other]
        assert [*store.keys()][-1] == other
        assert store.size().requests == 6


def test_a_long_request_id_and_an_odd_one_are_found(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        for odd in ("x" * 5000, "a\0b", ""):
            given_ = sample(0)
            record = RequestRecord.from_json(given_.record.to_json() | {"request_id": odd})
            key = store.put(CapturedVectors(record, given_.vectors))
            assert [*store.keys(request_id=odd)] == [key]
        assert [*verify(store)] == []


def test_a_key_that_is_there_is_replaced_whole(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        store.put(sample(1), "k")
        store.put(sample(2, layers=(1,)), "k")
        assert store.size().requests == 1
        assert [*store.captured("k").vectors] == [("residual", 1)]
        assert [*store.keys(request_id="r1")] == []
        assert [*verify(store)] == []
        assert store.remove("k")
        assert not store.remove("k")
        assert [*store.keys()] == [*store.raw_chunks()] == []


def test_a_request_without_vectors_is_kept(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        key = store.put(sample(1, count=0))
        assert not store.record(key).has_activations
        assert store.captured(key).vectors == {}
        with pytest.raises(InputError, match="has no vectors of residual 7"):
            store.vectors(key, "residual", 7)
        with pytest.raises(InputError, match="has no request other"):
            store.record("other")


def test_vectors_that_the_record_does_not_name_are_refused() -> None:
    given_ = sample(1)
    with pytest.raises(ValueError, match="and the record names"):
        CapturedVectors(given_.record, {("residual", 0): given_.vectors["residual", 0]})
    with pytest.raises(ValueError, match="has the shape"):
        CapturedVectors(given_.record, dict.fromkeys(given_.vectors, np.zeros((1, 4), np.float32)))


def test_a_store_is_opened_for_reading_without_making_anything(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no store of activations"):
        ActivationStore(tmp_path / "none")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x", "utf-8")
    with pytest.raises(InputError, match="holds other files"):
        ActivationStore(tmp_path / "other", write=True)
    with lmdb.open(str(tmp_path / "foreign")) as base, base.begin(write=True) as writing:
        writing.put(b"a", b"b")
    with pytest.raises(InputError, match="no store of activations"):
        ActivationStore(tmp_path / "foreign")
    with ActivationStore(tmp_path / "s", write=True) as store:
        key = store.put(sample(1))
    before = sorted(os.listdir(tmp_path / "s"))
    with ActivationStore(tmp_path / "s") as store:
        assert store.record(key).request_id == "r1"
        with pytest.raises(OutputError):
            store.put(sample(2))
    assert sorted(os.listdir(tmp_path / "s")) == before


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(layout, "VERSION", 7)
        ActivationStore(tmp_path / "s", write=True).close()
    with pytest.raises(InputError, match="has version 7, and this program reads 1"):
        ActivationStore(tmp_path / "s")


def test_a_quota_refuses_what_is_too_much_and_pruning_makes_room(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True, max_bytes=400_000) as store:
        kept = 0
        with pytest.raises(LimitExceeded, match="more than 400,000 bytes"):  # noqa: PT012
            for number in range(100):
                store.put(sample(number, count=50, hidden=64))
                kept += 1
        assert store.size().requests == kept > 5
        removed = prune(store, max_requests=kept // 2)
        assert store.size().requests == kept - removed == kept // 2
        assert store.record(next(store.keys())).timestamp == removed
        store.put(sample(999, count=50, hidden=64))
        assert prune(store, before=float(removed + 1)) == 1
        assert [*verify(store)] == []


def test_compacting_gives_freed_pages_back_and_loses_nothing(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        keys = [store.put(sample(number, count=50, hidden=64)) for number in range(40)]
        for key in keys[:30]:
            store.remove(key)
        with pytest.raises(InputError, match="open for writing elsewhere"):
            run_python(
                "from espalier.activations.store.care import compact; import sys; compact(sys.argv[1])", tmp_path / "s"
            )
    before, after = compact(tmp_path / "s")
    assert after < before / 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s"]
    with ActivationStore(tmp_path / "s", write=True) as store:
        assert [*store.keys()] == keys[30:]
        assert [*verify(store)] == []


def run_python(code: str, *arguments: object) -> str:
    """Runs in a process of its own. Raises InputError with its last line where it fails."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InputError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        keys = [store.put(sample(number)) for number in range(6)]
    with lmdb.open(str(tmp_path / "s"), max_dbs=8, map_size=1 << 30) as base:
        chunks, requests, times = (base.open_db(name) for name in (b"chunks", b"requests", b"by_time"))
        with base.begin(write=True) as writing:
            name = layout.chunk_key(keys[0], "residual", 0)
            chunk = bytearray(writing.get(name, db=chunks))
            chunk[-1] ^= 1
            writing.put(name, bytes(chunk), db=chunks)
            writing.delete(layout.chunk_key(keys[1], "residual", 2), db=chunks)
            writing.put(b"x\0residual\0000", b"y", db=chunks)
            writing.put(keys[2].encode(), b"{", db=requests)
            writing.put(layout.chunk_key(keys[3], "residual", 0), b"ESPA", db=chunks)
            writing.put(layout.time_key(9, "nobody"), b"", db=times)
    with ActivationStore(tmp_path / "s") as store:
        said = {(fault.key.split(" ")[0], fault.reason) for fault in verify(store)}
        assert (keys[0], "its checksum is another") in said
        assert (keys[1], "these vectors are not there") in said
        assert ("x", "these vectors belong to no request") in said
        assert any(key == keys[2] and "is damaged" in reason for key, reason in said)
        assert (keys[3], "it ends within its head") in said
        assert ("by_time", "the index lacks 0 keys and has 2 too many") in said
        with pytest.raises(DamagedChunk):
            store.captured(keys[1])


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_bytes_of_any_kind_are_vectors_or_a_damaged_chunk(data: bytes, place: int, patch: bytes) -> None:
    whole = layout.pack(np.ones((2, 3), np.float32), "float16", "none")
    place %= len(whole)
    for one in (data, whole[:place] + patch + whole[place + len(patch) :]):
        try:
            assert layout.unpack(one).ndim == 2
        except DamagedChunk as error:
            assert len(str(error)) < 200  # noqa: PT017  # either is right


def test_a_bomb_is_not_unpacked() -> None:
    zstd = pytest.importorskip("zstandard")
    head = json.dumps({"dtype": "float16", "shape": [1, 4], "codec": "zstd", "checksum": 0}).encode()
    bomb = zstd.ZstdCompressor().compress(bytes(1 << 26))
    with pytest.raises(DamagedChunk):
        layout.unpack(b"ESPA" + len(head).to_bytes(4, "little") + head + bomb)


@pytest.mark.parametrize(("shape", "stated"), [([1, 1 << 40], None), ([1, 1 << 40], 1 << 41), ([1, 4], 1 << 50)])
def test_a_chunk_of_a_few_bytes_that_says_it_holds_terabytes_took_the_memory_for_them(
    shape: list[int], stated: int | None
) -> None:
    zstd = pytest.importorskip("zstandard")
    body = bytearray(zstd.ZstdCompressor(write_content_size=stated is not None).compress(bytes(70_000)))
    if stated is not None:  # a frame with the longest field of its size: four bytes of a mark, one of flags, eight
        body[4:9] = bytes([0b1110_0000]) + stated.to_bytes(8, "little")
    head = json.dumps({"dtype": "float16", "shape": shape, "codec": "zstd", "checksum": 0}).encode()
    with pytest.raises(DamagedChunk):
        layout.unpack(b"ESPA" + len(head).to_bytes(4, "little") + head + bytes(body))


def test_a_queued_writer_stores_everything_and_counts(tmp_path: Path) -> None:
    done: list[str] = []
    with ActivationStore(tmp_path / "s", write=True) as store:
        with QueuedWriter(store, max_bytes=200, done=lambda key, _: done.append(key)) as writer:

            def put_ten(first: int) -> None:
                for number in range(first, first + 10):
                    writer.put(sample(number))

            threads = [threading.Thread(target=put_ten, args=(first,)) for first in (0, 10, 20, 30)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            writer.flush()
            assert (writer.counts.written, writer.counts.dropped, writer.counts.waiting) == (40, 0, 0)
        assert store.size().requests == len({*done}) == 40
        with pytest.raises(Unavailable):
            writer.put(sample(1))


def test_a_full_queue_drops_with_a_count_where_that_is_asked_for(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        is_stopped = threading.Event()
        writer = QueuedWriter(store, max_bytes=1, when_full="drop", done=lambda _, __: is_stopped.wait() and None)
        taken = [writer.put(sample(number)) for number in range(20)]
        is_stopped.set()
        writer.close()
        assert writer.counts.dropped == taken.count(False) >= 17
        assert writer.counts.written == store.size().requests == taken.count(True)
        with pytest.raises(InputError, match="when_full"):
            QueuedWriter(store, when_full="x")


def test_a_request_that_cannot_be_stored_is_counted_and_the_next_is_stored(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store, QueuedWriter(store) as writer:
        given_ = sample(1)
        writer.put(CapturedVectors(given_.record, {name: one * 1e30 for name, one in given_.vectors.items()}))
        writer.put(sample(2))
        writer.flush()
        assert (writer.counts.failed, writer.counts.written) == (1, 1)
        assert "float16 ends at 65,504" in str(writer.counts.error)


def test_others_read_while_one_writes(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "s", write=True) as store:
        keys = [store.put(sample(number)) for number in range(3)]
        code = (
            "import sys; from espalier.activations.store.base import ActivationStore\n"
            "with ActivationStore(sys.argv[1]) as s: print(*s.keys())"
        )
        assert run_python(code, tmp_path / "s").split() == keys


def write_until_killed(said: Connection, folder: Path, following: int) -> None:
    with ActivationStore(folder, write=True) as store:
        for number in range(following, 10**9):
            store.put(sample(number, count=20, hidden=256), f"k{number:09d}")
            said.send_bytes(b"%d" % number)


@pytest.mark.slow
def test_fifty_kills_leave_every_committed_request_whole_and_none_half(tmp_path: Path) -> None:
    chance = np.random.default_rng(8)
    following = 0
    for _ in range(50):
        here, there = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=write_until_killed, args=(there, tmp_path / "s", following), daemon=True)
        process.start()
        there.close()
        said = following - 1
        for _ in range(int(chance.integers(1, 30))):
            said = int(here.recv_bytes())
        process.kill()
        process.join()
        with here, contextlib.suppress(EOFError):  # what it said before it died
            while True:
                said = int(here.recv_bytes())
        with ActivationStore(tmp_path / "s", write=True) as store:
            keys = [*store.keys()]
            assert [*verify(store)] == []
            assert len(keys) in (said + 1, said + 2)  # the last may be stored and not said
            following = len(keys)
    with ActivationStore(tmp_path / "s") as store:
        for number in chance.integers(0, following, 20):
            found = store.captured(f"k{number:09d}")
            expected = sample(int(number), count=20, hidden=256)
            np.testing.assert_array_equal(
                found.vectors["residual", 2], expected.vectors["residual", 2].astype(np.float16)
            )
