"""The token trie: it holds exactly the vocabulary's tokens, spells bytes with the fewest, and survives its cache."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import VocabError
from espalier.tokens import trie as tries
from espalier.tokens.trie import TokenTrie, build_trie, load_trie
from espalier.tokens.vocab import Vocab
from tests.tokenizers import byte_level_vocab, spm_vocab, tekken_vocab

ARRAYS = ("byte", "depth", "skip", "token", "next_same")
# Few byte values, so that tokens share prefixes, repeat, and include the empty one.
TOKENS = st.lists(st.binary(max_size=5).map(lambda b: bytes(x % 3 + 97 for x in b)), max_size=30)


def walk(trie: TokenTrie) -> dict[int, bytes]:
    """Id to bytes, by the walk that the docstring of TokenTrie states."""
    found: dict[int, bytes] = {}
    path = [b""] * (trie.max_depth + 1)
    for node in range(len(trie)):
        depth = int(trie.depth[node])
        path[depth] = path[depth - 1] + bytes([trie.byte[node]])
        for token in trie.ids_at(node):
            assert token not in found
            found[token] = path[depth]
    return found


def equal(one: TokenTrie, other: TokenTrie) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)


def small() -> Vocab:
    return Vocab.from_tokens([b"a", b"ab", b"a", b"b", b"", b"abc", b"a"], eos_ids=[4])


def cache_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@settings(deadline=None)
@given(TOKENS)
def test_walking_the_trie_meets_every_token_once_and_nothing_else(tokens: list[bytes]) -> None:
    trie = build_trie(tokens)
    assert walk(trie) == {i: t for i, t in enumerate(tokens) if t}
    prefixes = {t[:end] for t in tokens for end in range(1, len(t) + 1)}
    assert len(trie) == len(prefixes)
    assert trie.max_depth == max(map(len, tokens), default=0)


@settings(deadline=None)
@given(TOKENS)
def test_skipping_a_node_leaves_out_its_subtree_and_no_more(tokens: list[bytes]) -> None:
    trie = build_trie(tokens)
    for node in range(len(trie)):
        deeper = [int(d) > int(trie.depth[node]) for d in trie.depth[node + 1 :]]
        below = len(list(takewhile(bool, deeper)))
        assert int(trie.skip[node]) == node + 1 + below


@pytest.mark.parametrize("make", [byte_level_vocab, spm_vocab, tekken_vocab, Vocab.bytes])
def test_a_real_vocabulary_comes_back_from_its_trie(make: Callable[[], Vocab]) -> None:
    vocab = make()
    assert walk(build_trie(vocab.tokens)) == {i: t for i, t in enumerate(vocab.tokens) if t}


def test_ids_with_the_same_bytes_are_all_there() -> None:
    trie = build_trie(small().tokens)
    assert trie.ids_at(0) == (0, 2, 6)
    assert trie.next_same.tolist() == [2, -1, 6, -1, -1, -1, -1]
    assert trie.prefixes(b"abx") == (0, 2, 6, 1)


def test_special_and_padding_ids_are_not_in_the_trie() -> None:
    vocab = Vocab.from_tokens([b"a", b"<s>"], eos_ids=[1], width=40)
    assert list(walk(build_trie(vocab.tokens))) == [0]


@settings(deadline=None)
@given(TOKENS, st.binary(max_size=8).map(lambda b: bytes(x % 4 + 97 for x in b)), st.integers(0, 9))
def test_prefixes_are_the_tokens_that_start_at_a_position(tokens: list[bytes], data: bytes, start: int) -> None:
    found = build_trie(tokens).prefixes(data, start)
    wanted = [i for i, t in enumerate(tokens) if t and data[start:].startswith(t)]
    assert list(found) == sorted(wanted, key=lambda i: (len(tokens[i]), i))


def fewest(tokens: list[bytes], data: bytes) -> int | None:
    best: list[int | None] = [0] + [None] * len(data)
    for end in range(1, len(data) + 1):
        before = [best[end - len(t)] for t in tokens if t and data[:end].endswith(t)]
        best[end] = min((n + 1 for n in before if n is not None), default=None)
    return best[-1]


@settings(deadline=None)
@given(TOKENS, st.binary(max_size=10).map(lambda b: bytes(x % 3 + 97 for x in b)))
def test_segment_spells_the_bytes_with_the_fewest_tokens(tokens: list[bytes], data: bytes) -> None:
    spelled = build_trie(tokens).segment(data)
    wanted = fewest(tokens, data)
    assert (None if spelled is None else len(spelled)) == wanted
    if spelled is not None:
        assert b"".join(tokens[i] for i in spelled) == data


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_can_be_spelled_where_every_byte_has_a_token(data: bytes) -> None:
    vocab = byte_level_vocab()
    spelled = build_trie(vocab.tokens).segment(data)
    assert spelled is not None
    assert vocab.decode(spelled) == data


def test_equally_short_spellings_have_one_answer() -> None:
    trie = build_trie([b"a", b"aa", b"aa", b"aaa"])
    assert trie.segment(b"aaaa") == (3, 0)  # not (1, 1) nor (0, 3): the longest first
    assert trie.segment(b"aa") == (1,)  # the lower of two ids with the same bytes


def test_bytes_without_a_token_cannot_be_spelled() -> None:
    trie = build_trie([b"a", b"b"])
    assert trie.segment(b"ac") is None
    assert trie.segment(b"") == ()
    assert build_trie([]).segment(b"a") is None


def test_a_vocabulary_without_bytes_makes_an_empty_trie() -> None:
    trie = build_trie([b"", b""])
    assert (len(trie), trie.max_depth, trie.prefixes(b"a")) == (0, 0, ())


def test_a_token_too_long_for_its_depth_is_refused_not_wrapped() -> None:
    with pytest.raises(VocabError, match="too long"):
        build_trie([b"a" * 70_000])


def test_a_trie_in_use_cannot_be_changed() -> None:
    trie = build_trie([b"a"])
    with pytest.raises(ValueError, match="read-only"):
        trie.token[0] = 5


def test_a_kernel_meets_the_same_arrays_whether_built_or_loaded(tmp_path: Path) -> None:
    def kinds(trie: TokenTrie) -> list[object]:
        arrays = [getattr(trie, name) for name in ARRAYS]
        return [(a.dtype, a.ndim, a.flags.aligned, a.flags.c_contiguous, a.flags.writeable) for a in arrays]

    built = load_trie(byte_level_vocab(), tmp_path)
    loaded = load_trie(byte_level_vocab(), tmp_path)
    assert kinds(built) == kinds(loaded)
    assert all(getattr(loaded, name).flags.aligned for name in ARRAYS)


def test_a_second_start_reads_the_cache_instead_of_building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_trie(small(), tmp_path / "new" / "folder")
    monkeypatch.setattr(tries, "build_trie", lambda tokens: pytest.fail("built again"))
    assert equal(load_trie(small(), tmp_path / "new" / "folder"), first)


def test_without_a_cache_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert equal(load_trie(small(), None), build_trie(small().tokens))
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)
@given(st.data())
def test_a_damaged_cache_file_is_built_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("tries")
    built = load_trie(small(), folder)
    path = cache_file(folder)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.sampled_from(["cut", "flip", "extend"]))
    harmed = {
        "cut": whole[:at],
        "flip": whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :],
        "extend": whole + bytes(at + 1),
    }
    path.write_bytes(harmed[damage])
    assert equal(load_trie(small(), folder), built)
    assert path.read_bytes() == whole


def test_a_foreign_file_in_the_place_of_the_cache_is_replaced(tmp_path: Path) -> None:
    other = Vocab.from_tokens([b"x", b"xy", b"z", b"", b"", b"q", b"r"], eos_ids=[4])  # as many ids and nodes
    load_trie(small(), tmp_path / "mine")
    load_trie(other, tmp_path / "other")
    path = cache_file(tmp_path / "mine")
    mine = path.read_bytes()
    path.write_bytes(cache_file(tmp_path / "other").read_bytes())
    assert equal(load_trie(small(), tmp_path / "mine"), build_trie(small().tokens))
    assert path.read_bytes() == mine


def test_a_file_of_an_older_layout_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "LAYOUT", tries.LAYOUT - 1)
    load_trie(small(), tmp_path)
    old = cache_file(tmp_path).read_bytes()
    monkeypatch.undo()
    assert equal(load_trie(small(), tmp_path), build_trie(small().tokens))
    assert cache_file(tmp_path).read_bytes() != old


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        assert equal(load_trie(small(), blocked), build_trie(small().tokens))
    assert "could not be kept" in caplog.text


def test_a_write_that_fails_halfway_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert equal(load_trie(small(), tmp_path), build_trie(small().tokens))
    assert list(tmp_path.iterdir()) == []


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    vocab = byte_level_vocab()
    wanted = build_trie(vocab.tokens)
    found: list[bool] = []
    gate = threading.Barrier(8)

    def work() -> None:
        gate.wait()
        found.append(equal(load_trie(vocab, tmp_path), wanted))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    assert cache_file(tmp_path).suffix == ".trie"
    assert equal(load_trie(vocab, tmp_path), wanted)
