"""Automata of built-in patterns on disk: read as they were written, and never trusted to be what their name says."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from espalier.constraints.safety import kept as keeping
from espalier.constraints.safety import parts
from espalier.constraints.safety.catalogue import PATTERNS
from espalier.constraints.safety.compile import CompiledFilter, filter_of
from espalier.constraints.safety.spec import Safety
from espalier.files import kept as files
from espalier.files.kept import HEADER_BYTES, keep
from espalier.files.limits import FILTER

CARD = Safety(
    categories=["pii"],
    exclude=[one.name for one in PATTERNS if one.category == "pii" and not one.is_option and one.name != "card"],
)


@pytest.fixture(autouse=True)
def forgotten():
    parts.forget_parts()
    filter_of.cache_clear()
    yield
    parts.forget_parts()
    filter_of.cache_clear()


def made(spec: Safety, folder: Path | None) -> CompiledFilter:
    parts.forget_parts()
    filter_of.cache_clear()
    return filter_of(spec, folder)


def equal(one: CompiledFilter, other: CompiledFilter) -> bool:
    pairs = zip(one.tables, other.tables, strict=True)
    return one.rules == other.rules and all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def never(*_: object) -> None:
    pytest.fail("made again")


@pytest.mark.slow
def test_every_process_built_the_strict_filter_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = made(Safety("strict"), None)
    assert equal(made(Safety("strict"), tmp_path), wanted)
    monkeypatch.setattr(parts, "pattern_dfa", never)
    monkeypatch.setattr(parts, "card_automata", never)
    assert equal(made(Safety("strict"), tmp_path), wanted)
    with pytest.raises(pytest.fail.Exception):
        made(Safety("strict"), None)


@pytest.mark.parametrize("harm", ["cut", "flip", "extend", "empty"])
def test_a_damaged_file_is_made_again(tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(CARD, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    middle = len(whole) // 2
    harmed = {"cut": whole[:middle], "extend": whole + b"abcd", "empty": b""}
    path.write_bytes(harmed.get(harm, whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]))
    with caplog.at_level(logging.WARNING):
        assert equal(made(CARD, tmp_path), wanted)
    assert "damaged" in caplog.text
    assert path.read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("place", ["states", "a target", "a class", "a rule", "the first segment", "too many"])
def test_a_file_with_a_right_digest_and_wrong_numbers_is_made_again(tmp_path: Path, place: str) -> None:
    """The kernels check no bounds, so a number that is out of place would read foreign memory."""
    wanted = made(CARD, tmp_path)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    what = data[:HEADER_BYTES].decode().strip().removeprefix("espalier ").rsplit(", ", 1)[0]
    numbers = np.frombuffer(data[HEADER_BYTES:], dtype="<i4").copy()
    count = int(numbers[0])
    states, width, segments = numbers[1:4].tolist()
    begin = 1 + 3 * count
    at, value = {
        "states": (1, states + 1),
        "a target": (begin + 7, states),
        "a rule": (begin + states * width, 99),
        "the first segment": (begin + states * (width + 2), 5),
        "too many": (0, 2**30),
        "a class": (begin + states * (width + 2) + segments, width),
    }[place]
    numbers[at] = value
    keep(path, what, numbers.tobytes(), FILTER)
    assert equal(made(CARD, tmp_path), wanted)
    assert path.read_bytes() == data


def test_what_other_code_made_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(CARD, tmp_path)
    monkeypatch.setattr(files, "digest_of_code", lambda *_: "of tomorrow")
    made(CARD, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_a_warning_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        assert equal(made(CARD, blocked), made(CARD, None))
    assert "could not be kept" in caplog.text


def test_a_choice_of_patterns_of_a_request_s_own_is_not_kept(tmp_path: Path) -> None:
    made(Safety("minimal", exclude=["sudo"]), tmp_path)
    whole = {one.name for one in tmp_path.iterdir()}
    made(Safety("minimal", exclude=["chained_rm"]), tmp_path)
    made(Safety("minimal"), tmp_path)
    kept = [path for path in tmp_path.iterdir() if path.name not in whole]
    assert len(kept) < 5


def test_old_files_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(9):
        old = tmp_path / f"{place}{keeping.SUFFIX}"
        old.write_bytes(b"")
        os.utime(old, (place, place))
    other = tmp_path / "of another kind.trie"
    other.write_bytes(b"")
    os.utime(other, (0, 0))
    monkeypatch.setattr(keeping, "MOST_FILES", 4)
    made(CARD, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 5
    assert {other.name, "8.filter", "7.filter", "6.filter"} < names
