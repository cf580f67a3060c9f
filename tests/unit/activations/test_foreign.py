"""Stores of others: every layout is read, nothing is created, no pickle runs code, damage is named."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lmdb")

from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.activations.foreign.entry import BadEntry, StoredRequest
from espalier.activations.foreign.open import LAYOUTS, open_store
from espalier.activations.foreign.pickles import Inert, load_inert, load_plain
from espalier.activations.foreign.store import DamagedEntry
from espalier.errors import InputError
from tests.examples import examples
from tests.foreign_stores import WRITERS, logged, sha, write_capture, write_json, write_lmdb, write_pair, write_zarr

TWO = [
    logged("What is red?", "A colour."),
    logged("Wer? 😀", "Ich, \u2028 é", messages=[{"role": "user", "content": "a"}]),
]


def entries(path: Path) -> list[StoredRequest]:
    found = [*open_store(path).found()]
    assert not [one for one in found if isinstance(one, DamagedEntry)]
    return sorted((one for one in found if isinstance(one, StoredRequest)), key=lambda one: one.prompt)


def damaged(path: Path) -> list[DamagedEntry]:
    return [one for one in open_store(path).found() if isinstance(one, DamagedEntry)]


def tree(path: Path) -> dict[str, bytes]:
    """Every file but lock files, whose reader slots a reader writes."""
    return {str(p): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file() and p.name != "lock.mdb"}


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_gives_the_same_entries_and_is_left_as_it_was(layout: str, tmp_path: Path) -> None:
    path = WRITERS[layout](tmp_path / f"store.{layout}", TWO)
    before = tree(tmp_path), sorted(tmp_path.rglob("*"))
    found = entries(path)
    assert (tree(tmp_path), sorted(tmp_path.rglob("*"))) == before
    assert open_store(path).layout in LAYOUTS
    assert [one.prompt for one in found] == sorted(one["prompt"] for one in TWO)
    by_prompt = {one.prompt: one for one in found}
    for one in TWO:
        entry = by_prompt[one["prompt"]]
        assert entry.response == one["response"]
        assert entry.input_length == 15
        assert entry.key == sha(entry.prompt)
        assert entry.model == "meta-llama/Llama-3.1-8B"
        if layout not in ("zarr", "memmap"):  # these have no time
            assert entry.timestamp == one["timestamp"]
        if layout != "memmap":
            assert entry.optional == {k: one[k] for k in ("messages", "trim_position") if k in one}


def test_a_read_only_store_without_its_lock_file_is_read(tmp_path: Path) -> None:
    path = write_pair(tmp_path / "a.lmdb", TWO)
    beside = tmp_path / "a.lmdb_metadata"
    (beside / "lock.mdb").unlink()
    beside.chmod(0o555)
    try:
        assert len(entries(path)) == 2
        assert os.listdir(beside) == ["data.mdb"]
    finally:
        beside.chmod(0o755)


def test_the_metadata_environment_can_be_named_itself(tmp_path: Path) -> None:
    write_pair(tmp_path / "a.lmdb", TWO)
    assert len(entries(tmp_path / "a.lmdb_metadata")) == 2


def test_a_path_without_a_store_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing at this path"):
        open_store(tmp_path / "none.lmdb")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no layout of a store is known") as caught:
        open_store(tmp_path / "empty")
    assert caught.value.hint is not None
    assert "index.jsonl" in caught.value.hint
    assert sorted(tmp_path.iterdir()) == [tmp_path / "empty"]


class Evil:
    """Calls a function when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


HOSTILE = {
    "reduce": lambda target: pickle.dumps({"prompt": Evil(target)}),
    "reduce of protocol 0": lambda target: pickle.dumps({"prompt": Evil(target)}, protocol=0),
    "global": lambda target: b"cos\nsystem\n(S'mkdir " + str(target).encode() + b"'\ntR.",
    "inst": lambda target: b"(S'mkdir " + str(target).encode() + b"'\nios\nsystem\n.",
    "obj": lambda target: b"(cos\nsystem\nS'mkdir " + str(target).encode() + b"'\no.",
    "extension": lambda _: b"\x82\x01.",
    "persistent": lambda _: b"Px\n.",
    "dotted name": lambda _: b"\x80\x04\x8c\x08builtins\x8c\x0dexec.__call__\x93.",
    "put of 2**31": lambda _: b"\x80\x02}r\xff\xff\xff\x7f.",
    "bytes of 2**62": lambda _: b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".",
    "text of 2**62": lambda _: b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b".",
    "bytearray of 2**40": lambda _: b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "a long number": lambda _: b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b".",
    "nothing": lambda _: b"",
    "cut": lambda _: pickle.dumps({"prompt": "x" * 99})[:-5],
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("load", [load_plain, load_inert])
def test_a_hostile_pickle_runs_nothing_and_takes_no_memory(
    kind: str, load: Callable[[bytes], Any], tmp_path: Path
) -> None:
    target = tmp_path / "made"
    data = HOSTILE[kind](target)
    try:
        found = load(data)
    except BadEntry as error:
        assert len(str(error)) < 300  # noqa: PT017  # a value of stand-ins is right too
    else:
        assert load is load_inert
        assert found is Inert or isinstance(found, Inert) or isinstance(found["prompt"], Inert)
    assert not target.exists()


def test_hostile_entries_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    target = tmp_path / "made"
    doubling: list[Any] = []
    for _ in range(60):
        doubling = [doubling, doubling]
    bad = {f"bad {number}": make(target) for number, make in enumerate(HOSTILE.values())}
    bad |= {
        "doubling": pickle.dumps(TWO[0] | {"messages": doubling}),
        "list": pickle.dumps([1]),
        "no prompt": pickle.dumps({"response": "x"}),
        "other types": pickle.dumps(TWO[0] | {"response": 7}),
        "infinite": pickle.dumps(TWO[0] | {"timestamp": float("inf")}),
        "half a pair": pickle.dumps(TWO[0] | {"response": "\ud800"}),
    }
    write_lmdb(tmp_path / "a_metadata", bad | {"good": pickle.dumps(TWO[0])})
    found = [*open_store(tmp_path / "a").found()]
    assert [one.key for one in found if isinstance(one, StoredRequest)] == ["good"]
    assert {one.key for one in found if isinstance(one, DamagedEntry)} == set(bad)
    assert not target.exists()


@settings(max_examples=examples(200), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(0, 5),
)
def test_plain_pickles_of_every_protocol_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    named = {op.name for op, _, _ in pickletools.genops(data)} & {"GLOBAL", "STACK_GLOBAL", "REDUCE"}
    if named:  # protocols 0 to 2 write bytes as a call of a codec
        with pytest.raises(BadEntry):
            load_plain(data)
    else:
        assert load_plain(data) == pickle.loads(data)  # made above


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2**16), st.binary(min_size=1, max_size=4))
def test_bytes_of_any_kind_are_a_value_or_a_named_fault(data: bytes, place: int, patch: bytes) -> None:
    valid = pickle.dumps(TWO[1])
    place %= len(valid)
    for given_ in (data, valid[:place] + patch + valid[place + len(patch) :]):
        for load in (load_plain, load_inert):
            with contextlib.suppress(BadEntry):
                load(given_)


def test_tensors_of_the_oldest_logs_are_passed_over(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    value = logged("a", "b") | {"activations": torch.zeros(2, 3), "all_layers_activations": [torch.ones(1, 2), None]}
    write_lmdb(tmp_path / "old.lmdb", {"k": pickle.dumps(value), "w": pickle.dumps({"data": value, "metadata": {}})})
    assert [one.response for one in entries(tmp_path / "old.lmdb")] == ["b", "b"]


def test_a_store_that_was_cut_is_refused_and_ends_no_process(tmp_path: Path) -> None:
    many = [logged(str(number), "x" * 500) for number in range(300)]
    path = write_pair(tmp_path / "a", many)
    data = tmp_path / "a_metadata" / "data.mdb"
    whole = data.read_bytes()
    for size in (0, 100, 4096, 8192, len(whole) // 2, len(whole) - 4096):
        data.write_bytes(whole[:size])
        with pytest.raises(InputError, match="cannot read the store"):
            [*open_store(path).found()]


@pytest.mark.slow
def test_a_store_with_damaged_pages_is_refused_or_read_and_ends_no_process(tmp_path: Path) -> None:
    many = [logged(str(number), "x" * 500) for number in range(300)]
    path = write_pair(tmp_path / "a", many)
    data = tmp_path / "a_metadata" / "data.mdb"
    whole = data.read_bytes()
    for page in range(2, 12):
        for fill in (b"\xff", b"\0", b"\x7f"):
            data.write_bytes(whole[: page * 4096] + fill * 4096 + whole[(page + 1) * 4096 :])
            try:
                found = [*open_store(path).found()]
            except InputError as error:
                assert "cannot read the store" in str(error)  # noqa: PT017  # either is right
            else:
                assert len({one.key for one in found}) == len(found) <= len(many)


@pytest.mark.slow
def test_many_entries_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [logged(str(number), "é" * 3000) for number in range(4500)]
    path = tmp_path / "a"
    write_lmdb(tmp_path / "a_metadata", {sha(one["prompt"]): pickle.dumps(one) for one in many}, map_size=1 << 28)
    found = entries(path)
    assert [one.prompt for one in found] == sorted(one["prompt"] for one in many)


def test_the_last_line_of_a_key_replaces_the_earlier_and_a_cut_line_is_damage(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "a.zarr", TWO)
    index = path / "meta" / "index.jsonl"
    first = json.loads(index.read_text("utf-8").splitlines()[0])
    with index.open("a", encoding="utf-8") as file:
        file.write(json.dumps(first | {"response": "newer"}) + "\n\n" + '{"key": "cut", "pro')
    found = [*open_store(path).found()]
    assert [one.response for one in found if isinstance(one, StoredRequest) and one.key == first["key"]][-1] == "newer"
    assert [one.key for one in found if isinstance(one, DamagedEntry)] == ["index.jsonl, line 5"]


def test_a_sidecar_is_not_looked_for_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text(json.dumps(logged("secret", "secret")), "utf-8")
    path = write_json(tmp_path / "a", TWO)
    with (path / "metadata.jsonl").open("a") as file:
        file.write(
            json.dumps({"key": "../../secret", "prompt": "p"}) + "\n" + json.dumps({"key": "gone", "prompt": "p"})
        )
    found = [*open_store(path).found()]
    assert "secret" not in {one.response for one in found if isinstance(one, StoredRequest)}
    assert [(one.key, one.reason) for one in found if isinstance(one, DamagedEntry)] == [
        ("gone", "its file gone.json is not there")
    ]


def test_a_generation_that_was_not_committed_is_passed_over(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a", TWO)
    lines = (path / "generation.jsonl").read_text("utf-8").splitlines()
    crashed = json.dumps(json.loads(lines[1]) | {"sample_index": 7, "generation": "of a crash"})
    (path / "generation.jsonl").write_text("\n".join([lines[0], crashed, lines[1]]) + "\n", "utf-8")
    assert {one.response for one in entries(path)} == {one["response"] for one in TWO}
    (path / "generation.jsonl").write_text(lines[0] + "\n", "utf-8")
    assert [one.reason for one in damaged(path)] == ["generation.jsonl has no line for it"]


def test_a_writer_at_work_is_not_disturbed(tmp_path: Path) -> None:
    import lmdb

    path = write_pair(tmp_path / "a", TWO)
    with lmdb.open(str(tmp_path / "a_metadata"), map_size=1 << 26) as base, base.begin(write=True) as writing:
        writing.put(b"new", pickle.dumps(logged("new", "not committed")))
        assert len(entries(path)) == 2


def test_an_entry_comes_back_from_its_json() -> None:
    found = StoredRequest("k", "p", "r", "m", 3, None, {"trim_position": None}, request="q", sample=2)
    assert StoredRequest.from_json(json.load(io.StringIO(json.dumps(found.to_json())))) == found
