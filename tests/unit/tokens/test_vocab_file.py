"""Plain vocabulary files: lines, an array, an object; and what such a file leaves open."""

import json

import pytest

import espalier
from espalier.errors import VocabError
from espalier.tokens.vocab import Vocab

TOKENS = ["<s>", "</s>", "a", "b", " the", "é", "{", "}", "<|tool|>"]


def written(tmp_path, name, data):
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("vocab.txt", "\n".join(TOKENS)),
        ("vocab.txt", "\ufeff" + "\r\n".join(TOKENS) + "\r\n"),
        ("vocab.json", TOKENS),
        ("vocab.json", {text: i for i, text in enumerate(TOKENS)}),
    ],
)
def test_each_form_is_the_same_vocabulary(tmp_path, name, data):
    found = Vocab.from_file(written(tmp_path, name, data))
    assert found.tokens == (b"", b"", b"a", b"b", b" the", "é".encode(), b"{", b"}", b"")
    assert found.eos_ids == (1,)
    assert found.special_texts == {0: "<s>", 1: "</s>", 8: "<|tool|>"}
    matcher = espalier.compile(espalier.Regex("a*"), vocab=found).matcher()
    assert [token for token in range(found.width) if matcher.allows(token)] == [1, 2]


def test_gaps_of_an_object_are_padding_and_an_empty_line_too(tmp_path):
    found = Vocab.from_file(written(tmp_path, "v.json", {"a": 0, "</s>": 3}), width=6)
    assert (found.width, found.padding_count) == (6, 4)
    assert Vocab.from_file(written(tmp_path, "v.txt", "a\n\n</s>\n")).tokens == (b"a", b"", b"")


def test_other_storages_are_decoded_and_never_guessed(tmp_path):
    path = written(tmp_path, "v.json", ["<|endoftext|>", "Ġthe", "Ċ", "Ã©"])
    with pytest.raises(VocabError, match="writes spaces as Ġ") as caught:
        Vocab.from_file(path)
    assert 'storage="byte_level"' in caught.value.hint
    assert Vocab.from_file(path, storage="byte_level").tokens == (b"", b" the", b"\n", "é".encode())
    path = written(tmp_path, "s.txt", "</s>\n▁the\n<0x0A>\né")
    assert Vocab.from_file(path, storage="sentencepiece").tokens == (b"", b" the", b"\n", "é".encode())
    with pytest.raises(VocabError, match="token 1 is not byte_level"):
        Vocab.from_file(written(tmp_path, "b.txt", "</s>\n日"), storage="byte_level")


@pytest.mark.parametrize(
    ("name", "data", "options", "words"),
    [
        ("v.txt", "a\nb", {}, "at least one EOS"),
        ("v.txt", "", {}, "has no tokens"),
        ("v.json", "{", {}, "is not JSON"),
        ("v.json", ["a", 1], {}, "neither an array"),
        ("v.json", {"a": -1}, {}, "neither an array"),
        ("v.json", {"a": 1, "b": 1}, {}, "one id to two tokens"),
        ("v.json", {"a": 10**9}, {}, "more than"),
        ("v.txt", "a\n</s>", {"storage": "words"}, "unknown storage"),
        ("v.txt", "a\n</s>", {"width": 1}, "outside"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, name, data, options, words):
    with pytest.raises(VocabError, match=words):
        Vocab.from_file(written(tmp_path, name, data), **options)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(VocabError, match="cannot read"):
        Vocab.from_file(tmp_path / "none.txt")
    (tmp_path / "v.txt").write_bytes(b"a\xff")
    with pytest.raises(VocabError, match="not UTF-8 at byte 1"):
        Vocab.from_file(tmp_path / "v.txt")
