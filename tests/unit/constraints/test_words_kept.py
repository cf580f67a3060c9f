"""Automata of a language's long lists lie in the cache folder: another process reads what the first has compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.automata.languages.dfa import Dfa
from espalier.constraints.compiler import Compiler, Folders
from espalier.constraints.words import compile as compiling
from espalier.constraints.words import kept as keeping
from espalier.constraints.words.compile import wordlist_language
from espalier.constraints.words.spec import Wordlist
from espalier.files import kept as files
from espalier.tokens.vocab import Vocab
from tests.examples import examples

SPEC = Wordlist(lang="en", top=1_000)


def language(folder: Path | None, spec: Wordlist = SPEC) -> Dfa:
    return wordlist_language(spec, Compiler(Vocab.bytes(), folders=Folders(cache=folder)))


def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Dfa:
        raise ZeroDivisionError("it was compiled")

    monkeypatch.setattr(compiling, "word_loop", never)


def same(one: Dfa, other: Dfa) -> bool:
    arrays = ((one.classes, other.classes), (one.table, other.table), (one.accepting, other.accepting))
    return one.start == other.start and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


def test_each_replica_compiled_the_list_that_another_had_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is a process of its own."""
    code = (
        "import sys; from pathlib import Path; from tests.unit.constraints.test_words_kept import language;"
        "language(Path(sys.argv[1]))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=env)
    assert [one.suffix for one in tmp_path.iterdir()] == [keeping.SUFFIX]
    made = language(None)
    no_compiling(monkeypatch)
    assert same(language(tmp_path), made)
    with pytest.raises(ZeroDivisionError):
        language(tmp_path, Wordlist(lang="en", top=1_001))


def test_words_of_a_request_and_short_lists_leave_nothing(tmp_path: Path) -> None:
    words = [f"a{'b' * (number % 50)}{number}" for number in range(2_000)]
    for spec in (
        Wordlist(words=words, lang="en"),
        Wordlist(lang="en", top=1_000, extra=["zzyx"]),
        Wordlist(lang="en", top=1_000, names=["Zzyx"]),
        Wordlist(lang="en", top=999),
    ):
        language(tmp_path, spec)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_other_code_or_of_nothing_that_is_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = language(tmp_path)
    monkeypatch.setattr(files, "digest_of_code", lambda *_: "other")
    assert same(language(tmp_path), made)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(keeping, "_pack", lambda dfa: b"12345678")
    for path in tmp_path.iterdir():
        path.unlink()
    for _ in range(2):
        assert same(language(tmp_path), made)
    assert "is not one; it is made again" in caplog.text


@given(
    st.sampled_from(["ab", "a", "abc"]),
    st.integers(0, 400),
    st.integers(-3, 300),
    st.sampled_from([(0, 4), (1, 4), (4, 2)]),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_body_is_read_as_it_was_written_or_not_at_all(
    words: str, place: int, number: int, cut: tuple[int, int]
) -> None:
    dfa = Dfa.of_words([words, words[::-1]])
    body = keeping._pack(dfa)
    found = keeping._unpack(memoryview(body))
    assert found is not None
    assert same(found, dfa)
    assert keeping._unpack(memoryview(body)[cut[0] : len(body) - cut[1]]) is None
    numbers = np.frombuffer(body, dtype="<i4").copy()
    numbers[place % len(numbers)] = number
    other = keeping._unpack(memoryview(numbers.tobytes()))
    if other is not None:
        assert other.table.min() >= -1
        assert other.table.max() < len(other)
        assert other.classes.max() < other.table.shape[1]
        assert 0 <= other.start < len(other)
