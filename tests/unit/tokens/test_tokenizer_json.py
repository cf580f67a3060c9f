"""A damaged or hostile `tokenizer.json` is one line of error, before anything large is made."""

from __future__ import annotations

import base64
import copy
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from espalier.errors import TooLarge, VocabError
from espalier.tokens import trial
from espalier.tokens.tokenizer_json import check_tokenizer
from espalier.tokens.trial import try_expressions
from espalier.tokens.vocab import Vocab
from tests.tokenizers import byte_level_spec

pytest.importorskip("tokenizers")


def written(folder: Path, spec: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def changed(*path: Any, to: Any) -> dict[str, Any]:
    spec = copy.deepcopy(byte_level_spec())
    inner: Any = spec
    for one in path[:-1]:
        inner = inner[one]
    inner[path[-1]] = to
    return spec


DOUBLING = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 27}
ANYWHERE = {"type": "Replace", "pattern": {"Regex": "b*"}, "content": "a" * 200}
BYTES_AGAIN = {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 30}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (changed("model", "vocab", to=None), "its model has no vocabulary"),
        (changed("model", "vocab", to={}), "its vocabulary is empty"),
        (changed("model", "vocab", "a", to=-1), "the id of model.vocab\\['a'\\] is -1, and ids are below 1,048,576"),
        (changed("model", "vocab", "a", to=2**31), "is 2,147,483,648, and ids are below"),
        (changed("model", "vocab", "a", to=10**400), "a very large number"),
        (changed("model", "vocab", "a", to=1.5), "no whole number"),
        (changed("model", "vocab", to=[["a", "b"]]), "is no number"),
        (changed("model", "vocab", to=[["a"]]), "is no piece with its score"),
        (changed("model", to=None), "it has no model"),
        (changed("model", "merges", to=["a"]), "model.merges\\[0\\] is no pair"),
        (changed("model", "merges", to=[["zz", "qq"]]), "no tokenizer that can be read"),
        (changed("model", "merges", to="ab"), "are no list"),
        (changed("added_tokens", to=[{"id": 2**31, "content": "x"}]), "the id of added_tokens"),
        (changed("added_tokens", to=[{"id": 3}]), "has no content"),
        (changed("normalizer", to=DOUBLING), "may make a text 256 times as long"),
        (changed("normalizer", to=ANYWHERE), "may make a text 201 times as long"),
        (changed("pre_tokenizer", to=BYTES_AGAIN), "pre_tokenizer may make a text 256 times as long"),
        (changed("normalizer", to={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 70}), "more than 64 steps"),
        (changed("normalizer", to={"type": "Precompiled", "precompiled_charsmap": "!"}), "no base64"),
        (
            changed(
                "normalizer",
                to={
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(bytes(4) + b"a" * 1000 + b"\0").decode(),
                },
            ),
            "1,000 times as long",
        ),
        (changed("decoder", to={"type": "Nothing"}), "no tokenizer that can be read"),
    ],
)
def test_a_damaged_tokenizer_is_refused_with_the_place(tmp_path: Path, spec: Any, said: str) -> None:
    path = written(tmp_path, spec)
    tracemalloc.start()
    try:
        with pytest.raises(VocabError, match=said):
            Vocab.from_tokenizer(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 << 20  # 128 MiB to read any file into; an id of 2^31 took 50 s and all memory


def test_a_file_that_is_nested_too_deeply_or_huge_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"a":' * 500 + "1" + "}" * 500, encoding="utf-8")
    with pytest.raises(TooLarge, match="nested too deeply"):
        Vocab.from_tokenizer(path)
    with path.open("r+b") as file:
        file.truncate(1 << 34)
    with pytest.raises(TooLarge, match="larger than 128 MiB"):
        Vocab.from_tokenizer(path)


@pytest.mark.parametrize(
    "stated", ['{"eos_token_id": "x"}', '{"eos_token_id": [[1]]}', '{"eos_token_id": -5}', "[", "9" * 5000]
)
def test_settings_beside_a_tokenizer_may_be_damaged_too(tmp_path: Path, stated: str) -> None:
    written(tmp_path, byte_level_spec())
    (tmp_path / "generation_config.json").write_text(stated, encoding="utf-8")
    with pytest.raises(VocabError, match=r"generation_config\.json"):
        Vocab.from_tokenizer(tmp_path)


def test_an_expression_that_is_quick_is_taken() -> None:
    llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    llama += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": llama}, "behavior": "Isolated", "invert": False}
    spec = byte_level_spec(pre_tokenizer={"type": "Sequence", "pretokenizers": [split]})
    check_tokenizer(spec)
    try_expressions(spec)


@pytest.mark.slow
def test_an_expression_without_end_is_ended_where_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "CPU_SECONDS", 1)
    split = {"type": "Split", "pattern": {"Regex": r"(a+)+$"}, "behavior": "Isolated", "invert": False}
    with pytest.raises(VocabError, match=r"expressions (take longer than 1 s|fail)"):
        try_expressions(byte_level_spec(pre_tokenizer=split))
