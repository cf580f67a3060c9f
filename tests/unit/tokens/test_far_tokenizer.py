"""Long texts of a server are encoded in a worker process: the same ids, and an end when the limit is used up."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="the extra [transformers] is not installed")

from espalier.confined.pool import is_supported
from espalier.errors import Cancelled
from espalier.time_limit import OutOfTime, time_limit
from espalier.tokens import far_tokenizer
from espalier.tokens.far_tokenizer import LONG, FarTokenizer
from tokenizers import Tokenizer

pytestmark = pytest.mark.skipif(not is_supported(), reason="this system cannot limit a process")
SPEC = (Path(__file__).resolve().parents[3] / "models" / "demo" / "tokenizer.json").read_text(encoding="utf-8")
TEXTS = ["word " * 20, "<|im_start|>user\n<s></s>", "é\u0301👩‍👩‍👧‍👦 \t\n", "1" * 50, ""]


@pytest.fixture(scope="module")
def far() -> FarTokenizer:
    return FarTokenizer(SPEC, spells_specials=True)


@pytest.mark.parametrize("spells_specials", [True, False])
@pytest.mark.parametrize("special", [True, False])
def test_the_ids_are_those_of_the_tokenizer_itself(spells_specials: bool, special: bool) -> None:
    near = Tokenizer.from_str(SPEC)
    near.encode_special_tokens = not spells_specials
    found = FarTokenizer(SPEC, spells_specials=spells_specials)
    for text in TEXTS:
        assert found.encode(text, special=special) == near.encode(text, add_special_tokens=special).ids


def test_only_long_texts_of_limited_work_go_there(far: FarTokenizer) -> None:
    long = "a" * (LONG + 1)
    assert not far.takes(long)
    with time_limit(1):
        assert far.takes(long)
        assert not far.takes(long[1:])


@pytest.mark.slow
def test_a_text_that_takes_longer_than_the_limit_is_ended(far: FarTokenizer) -> None:
    far.encode("a")  # its process has read the tokenizer
    began = time.monotonic()
    with time_limit(0.05), pytest.raises(OutOfTime, match="encoding the text takes longer"):
        far.encode("1" * 3_000_000)  # five seconds or more
    assert time.monotonic() - began < 60
    assert far.encode("a b") == far.encode("a b")


def test_who_leaves_ends_it(far: FarTokenizer) -> None:
    began = time.monotonic()
    with pytest.raises(Cancelled), time_limit(None, cancelled=lambda: time.monotonic() - began > 0.2):
        far.encode("1" * 3_000_000)


def test_its_processes_and_its_file_end_with_it() -> None:
    made = FarTokenizer(SPEC, spells_specials=True)
    made.encode("a")
    processes, file = made._start_processes()
    assert os.fstat(file).st_nlink == 0  # it has no name that anybody could find or delete
    del made
    assert processes._is_closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_the_demo_model_encodes_long_prompts_there(demo_engine, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    engine = getattr(demo_engine, "engine", demo_engine)
    seen: list[int] = []
    whole = FarTokenizer.encode

    def encode(self: FarTokenizer, text: str, *, special: bool = False) -> list[int]:
        seen.append(len(text))
        return whole(self, text, special=special)

    monkeypatch.setattr(far_tokenizer, "LONG", 100)
    monkeypatch.setattr(FarTokenizer, "encode", encode)
    for text in ("<s>a tale of two cities, " * 50, "</s>1 2 3" * 50):
        for add_special in (True, False):
            near = engine.encode(text, add_special=add_special)
            assert not seen
            with time_limit(20):
                assert engine.encode(text, add_special=add_special) == near
            assert seen
            seen.clear()
        near = engine.vocab.encoder(text)
        with time_limit(20):
            assert engine.vocab.encoder(text) == near
        assert seen
        seen.clear()
