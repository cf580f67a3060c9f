"""Damaged LMDB files: cut, with flipped bytes, with zeroed pages. What is left is read, each loss is listed, and none
ends the process. The oracle is `lmdb` itself on the whole file."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lmdb", reason="lmdb is not installed")

import lmdb

from espalier.activations.foreign.open import open_store
from espalier.activations.foreign.salvage import Salvage, salvage, salvage_pair
from espalier.activations.lmdb_file import BadPage, PageFile, shortfall
from espalier.activations.reconstruct.run import reconstruct
from espalier.activations.store.base import ActivationStore
from espalier.cli.main import main_code
from espalier.errors import InputError
from tests.examples import examples
from tests.foreign_stores import logged, sha, write_lmdb, write_pair
from tests.unit.activations.test_store import sample

PAGE = 4096
ROWS = {f"{number:05d}": f"value {number} ".encode() * (1 + number % 40) for number in range(2000)}
"""Small values, and some that stand on overflow pages."""
ROWS |= {f"{number:05d}": bytes([65 + number % 26]) * (3000 + number) for number in range(0, 2000, 97)}


def rows_of(folder: Path) -> dict[str, bytes]:
    with lmdb.open(str(folder), readonly=True, lock=False) as base, base.begin() as reading:
        return {key.decode(errors="backslashreplace"): bytes(value) for key, value in reading.cursor()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file that was written in several transactions, so that it has old pages too."""
    folder = tmp_path_factory.mktemp("whole") / "a"
    names = [*ROWS]
    for begin in range(0, len(names), 250):
        write_lmdb(folder, {name: ROWS[name] for name in names[begin : begin + 250]})
    write_lmdb(folder, {names[7]: b"older"})
    write_lmdb(folder, {names[7]: ROWS[names[7]]})
    return (folder / "data.mdb").read_bytes()


def salvaged(data: bytes, folder: Path) -> tuple[Salvage, dict[str, bytes]]:
    source = folder / "damaged"
    source.mkdir(exist_ok=True)
    (source / "data.mdb").write_bytes(data)
    target = folder / "copy"
    found = salvage(source, target)
    return found, rows_of(target)


def check(found: Salvage, rows: dict[str, bytes]) -> None:
    """What was read is right, and what is not there is covered by a loss."""
    assert len(rows) == found.rows
    if len(rows) < len(ROWS):
        assert found.losses


def test_a_whole_file_is_copied_and_nothing_is_lost(whole: bytes, tmp_path: Path) -> None:
    found, rows = salvaged(whole, tmp_path)
    assert rows == ROWS
    assert (found.rows, found.expected, found.strays, found.losses) == (len(ROWS), len(ROWS), 0, [])


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_a_cut_file_gives_the_rows_of_the_pages_that_are_there(share: float, whole: bytes, tmp_path: Path) -> None:
    found, rows = salvaged(whole[: int(len(whole) * share)], tmp_path)
    check(found, rows)
    assert rows
    assert all(value in (ROWS[key], b"older") for key, value in rows.items())
    assert any("behind the end of the file" in loss.reason for loss in found.losses)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 24, 100, PAGE - 1, PAGE, PAGE + 100, 2 * PAGE, 2 * PAGE + 1])
def test_a_file_without_its_trees_is_told_and_ends_no_process(size: int, whole: bytes, tmp_path: Path) -> None:
    found, rows = salvaged(whole[:size], tmp_path)
    assert not rows
    assert found.losses


def leaves(data: bytes, folder: Path) -> list[int]:
    """The leaves of the newest tree, found by the rows that are lost without each."""
    path = folder / "look.mdb"
    path.write_bytes(data)
    numbers = []
    with PageFile(path) as file:
        stack = [file.metas[0].main.root]
        while stack:
            page = file.page(stack.pop())
            if page.is_leaf:
                numbers.append(page.number)
            else:
                stack += [page.child(place)[1] for place in range(len(page))]
    return sorted(numbers)


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
def test_a_leaf_that_is_overwritten_loses_its_rows_alone(fill: bytes, whole: bytes, tmp_path: Path) -> None:
    number = leaves(whole, tmp_path)[3]
    data = whole[: number * PAGE] + fill * PAGE + whole[(number + 1) * PAGE :]
    found, rows = salvaged(data, tmp_path)
    check(found, rows)
    (loss,) = found.losses
    assert loss.page == number
    assert "are lost" in loss.keys
    assert "empty" in loss.reason if fill == b"\0" else "header" in loss.reason
    assert len(ROWS) - len(rows) < PAGE // 16
    assert all(value in (ROWS[key], b"older") for key, value in rows.items())


def test_without_the_root_every_leaf_is_found_in_the_file(whole: bytes, tmp_path: Path) -> None:
    with_root = tmp_path / "look"
    with_root.write_bytes(whole)
    with PageFile(with_root) as file:
        root = file.metas[0].main.root
    data = whole[: root * PAGE] + bytes(PAGE) + whole[(root + 1) * PAGE :]
    found, rows = salvaged(data, tmp_path)
    assert rows == ROWS
    assert found.strays == len(ROWS)
    assert [loss.keys for loss in found.losses] == ["all keys are lost"]


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_without_meta_pages_the_rows_are_found_all_the_same(
    lost: tuple[int, ...], whole: bytes, tmp_path: Path
) -> None:
    data = bytearray(whole)
    for page in lost:
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    found, rows = salvaged(bytes(data), tmp_path)
    assert set(rows) == set(ROWS)
    assert sum(rows[key] != ROWS[key] for key in ROWS) <= 1  # the one that was written twice
    assert "meta page" in found.losses[0].reason


def test_an_overflow_page_that_is_lost_loses_its_row(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "look"
    path.write_bytes(whole)
    key = "00097"
    first = whole.index(ROWS[key]) // PAGE
    data = whole[: first * PAGE] + bytes(PAGE) + whole[(first + 1) * PAGE :]
    found, rows = salvaged(data, tmp_path)
    assert set(ROWS) - set(rows) == {key}
    (loss,) = found.losses
    assert loss.reason == f"the row '{key}': page {first}, on which its value begins, is damaged"


@pytest.mark.parametrize("seed", range(examples(40)))
def test_flipped_bytes_anywhere_raise_nothing_and_lose_no_row_silently(seed: int, whole: bytes, tmp_path: Path) -> None:
    """Most of the rows stay. A byte of a key or a value can change unseen: LMDB has no checksums."""
    random_ = random.Random(seed)
    data = bytearray(whole)
    for _ in range(random_.choice((1, 4, 64))):
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    found, rows = salvaged(bytes(data), tmp_path)
    assert len(rows) > len(ROWS) // 2
    same = sum(rows.get(key) == value for key, value in ROWS.items())
    assert same >= len(ROWS) // 2
    check(found, rows)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_zeroed_pages_anywhere_raise_nothing(seed: int, whole: bytes, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    data = bytearray(whole)
    for _ in range(random_.choice((1, 3, 10))):
        page = random_.randrange(len(data) // PAGE)
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    found, rows = salvaged(bytes(data), tmp_path)
    check(found, rows)


def test_garbage_is_no_environment_and_raises_nothing(tmp_path: Path) -> None:
    found, rows = salvaged(random.Random(1).randbytes(20 * PAGE), tmp_path)
    assert not rows
    assert "no meta page" in found.losses[0].reason


def test_the_size_is_checked_before_a_file_is_mapped(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data.mdb"
    for size in range(0, len(whole), len(whole) // 23):
        path.write_bytes(whole[:size])
        said = shortfall(path)
        assert (said == "") == (0 < size < 24), size  # fewer bytes are no file of LMDB's, and it refuses them unmapped
    path.write_bytes(whole)
    assert shortfall(path) == ""


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.7, 0.99])
def test_a_store_of_ours_that_was_cut_is_an_error_and_no_sigbus(share: float, tmp_path: Path) -> None:
    """In a process of its own: it would be the process that ends."""
    folder = own_store(tmp_path)
    data = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data[: int(len(data) * share)])
    code = (
        "import sys; from espalier.cli.main import main_code;"
        f"sys.exit(main_code(['activations', 'verify', {str(folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "it is cut" in done.stderr or "cannot open the store" in done.stderr


def own_store(folder: Path, count: int = 60) -> Path:
    with ActivationStore(folder / "own", write=True) as store:
        for number in range(count):
            store.put(sample(number), f"key{number:04d}")
    return folder / "own"


def test_a_store_of_ours_is_salvaged_with_its_look_up_tables(tmp_path: Path) -> None:
    folder = own_store(tmp_path)
    data = bytearray((folder / "data.mdb").read_bytes())
    with PageFile(folder / "data.mdb") as file:
        main = file.page(file.metas[0].main.root)
        names = {main.node(place).key: main.node(place).data for place in range(len(main))}
    root = int.from_bytes(names[b"by_time"][-8:], "little")  # a table that can be written anew
    data[root * PAGE : (root + 1) * PAGE] = bytes(PAGE)
    (folder / "data.mdb").write_bytes(data)
    found = salvage(folder, tmp_path / "copy")
    assert [loss.page for loss in found.losses] == [root]
    with ActivationStore(tmp_path / "copy") as store:
        assert sorted(store.keys()) == [f"key{number:04d}" for number in range(60)]
    assert main_code(["activations", "verify", str(tmp_path / "copy")]) == 0


def logs(count: int = 400) -> list[dict[str, Any]]:
    return [logged(f"question {number}", f"answer {number}") for number in range(count)]


def test_reconstruct_reads_what_is_left_and_lists_each_loss(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_pair(tmp_path / "a.lmdb", logs())
    qa = tmp_path / "qa.jsonl"
    qa.write_text("".join(json.dumps({"prompt": f"question {number}", "answer": "x"}) + "\n" for number in range(400)))
    data = tmp_path / "a.lmdb_metadata" / "data.mdb"
    raw = data.read_bytes()
    data.write_bytes(raw[: int(len(raw) * 0.7)])
    with pytest.raises(InputError, match=r"it is cut.+--salvage"):
        reconstruct(qa, path, tmp_path / "out.jsonl")
    report = reconstruct(qa, path, tmp_path / "out.jsonl", salvage=True)
    assert 0 < report.written < 400
    assert report.losses
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert all(one["generation"] == one["prompt"].replace("question", "answer") for one in written)
    out = str(tmp_path / "again.jsonl")
    paths = ["--qa_output_path", str(qa), "--lmdb_path", str(path), "--output_path", out]
    assert main_code(["reconstruct", *paths, "--salvage", "--report", str(tmp_path / "report.json")]) == 0
    said = capfd.readouterr().err
    assert f"salvaged: {report.salvaged}; losses: {len(report.losses)}" in said
    assert all(loss in said for loss in report.losses)
    assert json.loads((tmp_path / "report.json").read_text())["losses"] == list(report.losses)
    assert {one.name for one in tmp_path.iterdir()} == {
        "a.lmdb",
        "a.lmdb_metadata",
        "qa.jsonl",
        "out.jsonl",
        "again.jsonl",
        "report.json",
    }


def test_the_command_copies_both_environments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_pair(tmp_path / "a.lmdb", logs(50))
    target = tmp_path / "b.lmdb"
    assert main_code(["activations", "salvage", str(path), str(target), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {Path(name).name: one["rows"] for name, one in found.items()} == {"b.lmdb": 1, "b.lmdb_metadata": 50}
    assert len([*open_store(target).found()]) == 50
    assert rows_of(tmp_path / "b.lmdb_metadata")[sha(logs(1)[0]["prompt"])] == pickle.dumps(dict(logs(1)[0]))


def test_what_is_no_store_and_a_target_that_is_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no LMDB environment"):
        salvage_pair(tmp_path / "none", tmp_path / "b")
    path = write_pair(tmp_path / "a.lmdb", logs(2))
    with pytest.raises(InputError, match="is there already"):
        salvage(path, tmp_path)


def test_a_page_says_what_is_wrong_with_it(whole: bytes, tmp_path: Path) -> None:
    number = leaves(whole, tmp_path)[0]
    faults = {0: "its header says that it is page", 10: "no page of a tree", 12: "rows end at byte"}
    for at, said in faults.items():
        data = bytearray(whole)
        data[number * PAGE + at] ^= 0x41
        path = tmp_path / "x"
        path.write_bytes(data)
        with PageFile(path) as file, pytest.raises(BadPage, match=said):
            file.page(number)
