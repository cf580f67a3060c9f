"""What is made for the cache folder is made by one of those that want it at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from espalier.constraints.safety import kept as filters
from espalier.errors import LimitExceeded
from espalier.files import kept
from espalier.files.kept import made_by_one
from espalier.tokens import trie
from espalier.tokens.vocab import Vocab

pytest.importorskip("fcntl", reason="no locks of files here")
PATIENCE = 60


class Waiters:
    """Counts those that have found the lock taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: int) -> None:
        self._threads: set[int] = set()
        self._all = threading.Event()

        def look() -> None:
            self._threads.add(threading.get_ident())
            if len(self._threads) >= wanted:
                self._all.set()

        monkeypatch.setattr(kept, "check", look)

    def wait(self) -> None:
        assert self._all.wait(PATIENCE)


def all_at_once(count: int, what: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(count) as pool:
        return [one.result(PATIENCE) for one in [pool.submit(what) for _ in range(count)]]


def test_replicas_that_started_together_each_built_the_trie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiters, build, built = Waiters(monkeypatch, 3), trie.build_trie, []

    def slow(tokens: tuple[bytes, ...]) -> trie.TokenTrie:
        built.append(1)
        waiters.wait()
        return build(tokens)

    monkeypatch.setattr(trie, "build_trie", slow)
    vocab = Vocab.bytes()
    found = all_at_once(4, lambda: trie.load_trie(vocab, tmp_path))
    assert built == [1]
    assert {one.byte.tobytes() for one in found} == {build(vocab.tokens).byte.tobytes()}  # type: ignore[attr-defined]
    assert [one.suffix for one in tmp_path.iterdir()] == [".trie"]


def test_replicas_that_started_together_each_built_the_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiters, made = Waiters(monkeypatch, 3), []
    monkeypatch.setattr(filters, "_unpack", lambda body, rules: [bytes(body)])
    monkeypatch.setattr(filters, "_pack", b"".join)

    def make() -> list[object]:
        made.append(1)
        waiters.wait()
        return [b"automaton"]

    found = all_at_once(4, lambda: filters.kept_or_made(tmp_path, [], make))  # type: ignore[arg-type]
    assert made == [1]
    assert found == [[b"automaton"]] * 4
    assert [one.suffix for one in tmp_path.iterdir()] == [filters.SUFFIX]


def test_a_maker_that_fails_leaves_the_work_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), made_by_one(tmp_path / "x"):
        raise ZeroDivisionError
    with made_by_one(tmp_path / "x") as was_made:
        assert not was_made
    assert list(tmp_path.iterdir()) == []


def test_a_maker_that_was_stopped_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept, "WAIT_SECONDS", 0.0)
    with made_by_one(tmp_path / "x"), made_by_one(tmp_path / "x"):
        assert (tmp_path / "x.lock").exists()
    assert "is not waited for" in caplog.text
    assert [one.levelno for one in caplog.records] == [logging.WARNING]


def test_who_waits_for_a_maker_keeps_the_limit_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def over() -> None:
        raise LimitExceeded("the time is up")

    monkeypatch.setattr(kept, "check", over)
    with made_by_one(tmp_path / "x"):
        with pytest.raises(LimitExceeded), made_by_one(tmp_path / "x"):
            pytest.fail("nobody waited")
        assert (tmp_path / "x.lock").exists()


def test_without_a_folder_that_can_be_written_each_makes_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with made_by_one(tmp_path / "file" / "x") as one, made_by_one(tmp_path / "file" / "x") as other:
        assert (one, other) == (False, False)
