"""Readers of tokenizers: the bytes of a token are what decoding adds, and what cannot be known is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import MissingDependency, VocabError
from espalier.tokens.raw import CHAT_ENDS, RawVocab, find_eos
from espalier.tokens.readers import read_tokenizer
from espalier.tokens.vocab import Vocab
from tests.tokenizers import (
    byte_level_spec,
    byte_level_tokenizer,
    sentencepiece_model,
    sentencepiece_processor,
    spm_byte_fallback_tokenizer,
    tekken_tokenizer,
    tokenizer_from,
)

PARTS = ["  ", "    ", "\n\n", "<think>", "<|im_end|>", "</s>", "<unk>", "<end_of_turn>", "<0x41>", "[INST]", "Ġ", "é"]
# `▁` is a space to SentencePiece: it cannot be kept.
TEXTS = st.lists(st.text(max_size=8) | st.sampled_from(PARTS), max_size=8).map("".join)
TEXTS_WITHOUT_SPACE_MARK = TEXTS.map(lambda text: text.replace("▁", "_"))


@cache
def hf_fast() -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=spm_byte_fallback_tokenizer(), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.fixture(scope="session")
def hf_slow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Hugging Face tokenizer that runs on a SentencePiece model, with one added text token."""
    backend = pytest.importorskip("transformers.tokenization_utils_sentencepiece").SentencePieceBackend
    path = tmp_path_factory.mktemp("slow") / "tokenizer.model"
    path.write_bytes(sentencepiece_model())
    tokenizer = backend(vocab_file=str(path), unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    tokenizer.add_tokens(["<tool>"])
    return tokenizer


class SpecialToken(str):
    """An added token as Hugging Face has them: its text, and whether it is special."""

    special = True


ALL: list[Callable[[], Any]] = [
    byte_level_tokenizer,
    spm_byte_fallback_tokenizer,
    sentencepiece_processor,
    hf_fast,
    tekken_tokenizer,
]


@cache
def raw(make: Callable[[], Any]) -> RawVocab:
    return read_tokenizer(make())


def spelled(vocab: RawVocab, text: str) -> bytes:
    assert vocab.encoder is not None
    return b"".join(vocab.tokens[i] for i in vocab.encoder(text))


# What a token adds to a text


@settings(deadline=None)  # the first call trains or loads
@given(TEXTS)
@pytest.mark.parametrize("make", [byte_level_tokenizer, tekken_tokenizer])
def test_byte_level_tokens_spell_exactly_the_text(make: Callable[[], Any], text: str) -> None:
    assert spelled(raw(make), text) == text.encode()


@settings(deadline=None)  # the first call trains or loads
@given(TEXTS_WITHOUT_SPACE_MARK)
@pytest.mark.parametrize("make", [spm_byte_fallback_tokenizer, sentencepiece_processor, hf_fast])
def test_sentencepiece_tokens_spell_exactly_the_text_without_a_space_in_front(
    make: Callable[[], Any], text: str
) -> None:
    assert spelled(raw(make), text) == text.encode()


@settings(deadline=None)  # the first call trains or loads
@given(text=TEXTS_WITHOUT_SPACE_MARK)
def test_a_tokenizer_on_a_sentencepiece_model_spells_exactly_the_text(hf_slow: Any, text: str) -> None:
    assert spelled(read_tokenizer(hf_slow), text) == text.encode()


@settings(deadline=None)  # the first call trains or loads
@given(st.data())
def test_bytes_are_what_the_byte_level_decoder_adds(data: st.DataObject) -> None:
    vocab = raw(byte_level_tokenizer)
    ids = data.draw(st.lists(st.integers(3, len(vocab.tokens) - 1), max_size=12))
    text = b"".join(vocab.tokens[i] for i in ids).decode("utf-8", "replace")
    assert byte_level_tokenizer().decode(ids) == text


@settings(deadline=None)  # the first call trains or loads
@given(TEXTS_WITHOUT_SPACE_MARK)
@pytest.mark.parametrize("make", [spm_byte_fallback_tokenizer, sentencepiece_processor])
def test_bytes_are_what_a_sentencepiece_decoder_adds_but_for_the_dummy_space(
    make: Callable[[], Any], text: str
) -> None:
    vocab = raw(make)
    assert vocab.encoder is not None
    first = vocab.tokens.index(b"a")  # behind a token that is no space, nothing is stripped
    assert make().decode([first, *vocab.encoder(text)]) == "a" + text


@pytest.mark.parametrize("make", ALL)
def test_no_space_is_put_in_front_of_a_text_that_continues_another(make: Callable[[], Any]) -> None:
    assert spelled(raw(make), "the") == b"the"
    assert spelled(raw(make), " the") == b" the"


def test_an_added_text_token_is_its_text_even_where_it_looks_like_the_byte_alphabet() -> None:
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_str(byte_level_tokenizer().to_str())
    tokenizer.add_tokens([AddedToken("ñú", special=False), AddedToken("é", special=False)])
    vocab = read_tokenizer(tokenizer)
    assert vocab.tokens[tokenizer.token_to_id("ñú")] == "ñú".encode()
    # "é" was a piece of the model before, the one for byte E9, and stays it.
    assert vocab.tokens[tokenizer.token_to_id("é")] == b"\xe9"
    assert spelled(vocab, "ñú é <think>") == "ñú é <think>".encode()


def test_an_added_token_that_strips_its_neighbours_does_not_lose_their_spaces() -> None:
    spec = byte_level_spec()
    spec["added_tokens"] = [entry | {"lstrip": True, "rstrip": True} for entry in spec["added_tokens"]]
    assert spelled(read_tokenizer(tokenizer_from(spec)), "a  <think>  b") == b"a  <think>  b"


def test_ids_without_a_token_have_no_bytes() -> None:
    spec = byte_level_spec()
    spec["model"]["vocab"]["z" * 9] = 600
    vocab = read_tokenizer(tokenizer_from(spec))
    assert (len(vocab.tokens), vocab.tokens[500], vocab.tokens[600]) == (601, b"", b"z" * 9)


# Specials


@pytest.mark.parametrize("make", ALL)
def test_text_that_looks_like_a_special_is_never_encoded_as_one(make: Callable[[], Any]) -> None:
    vocab = raw(make)
    assert vocab.encoder is not None
    for text in vocab.special_texts.values():
        ids = vocab.encoder(f"say {text} twice {text}{text}")
        assert not set(ids) & vocab.special_texts.keys(), text


@pytest.mark.parametrize("make", ALL)
def test_special_tokens_have_no_bytes(make: Callable[[], Any]) -> None:
    vocab = raw(make)
    assert vocab.special_texts
    assert not any(vocab.tokens[i] for i in vocab.special_texts)
    assert set(vocab.eos_ids) <= vocab.special_texts.keys()


def test_unknown_and_control_pieces_of_a_sentencepiece_model_are_never_text() -> None:
    vocab = raw(sentencepiece_processor)
    texts = vocab.special_texts.values()
    assert {"<unk>", "<s>", "</s>", "<pause>"} <= set(texts)


def test_the_unknown_token_of_a_bare_tokenizer_is_never_text() -> None:
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.Unigram([("<?>", 0.0), ("a", -1.0), ("▁", -1.0)], unk_id=0))
    tokenizer.decoder = decoders.Metaspace()
    vocab = read_tokenizer(tokenizer)
    assert vocab.special_texts == {0: "<?>"}
    assert vocab.tokens == [b"", b"a", b" "]


def test_the_word_none_is_text_where_the_tokenizer_has_no_unknown_token() -> None:
    spec = byte_level_spec()
    spec["model"]["vocab"]["None"] = 600
    vocab = read_tokenizer(tokenizer_from(spec))
    assert (vocab.tokens[600], 600 in vocab.special_texts) == (b"None", False)


def test_a_chat_end_that_was_not_marked_special_is_not_left_as_text() -> None:
    spec = byte_level_spec()
    spec["added_tokens"] = [entry | {"special": False} for entry in spec["added_tokens"]]
    vocab = read_tokenizer(tokenizer_from(spec))
    assert vocab.encoder is not None
    assert vocab.eos_ids == [2]
    assert vocab.tokens[2] == b""
    assert 2 not in vocab.encoder("a <|im_end|> in a string")


def test_a_special_that_only_the_hugging_face_object_knows_is_special() -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer(), additional_special_tokens=["<hush>"])
    assert "<hush>" in read_tokenizer(tokenizer).special_texts.values()


# The caller's object


def test_reading_leaves_the_callers_tokenizer_as_it_was() -> None:
    tokenizer = tokenizer_from(byte_level_spec())
    before = (tokenizer.to_str(), tokenizer.encode_special_tokens)
    spelled(read_tokenizer(tokenizer), "x <|im_end|>")
    assert (tokenizer.to_str(), tokenizer.encode_special_tokens) == before
    assert tokenizer.encode("<|im_end|>").ids == [2]


def test_truncation_and_padding_of_the_callers_tokenizer_do_not_reach_the_encoder() -> None:
    tokenizer = tokenizer_from(byte_level_spec())
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    text = "a text of more than two tokens"
    assert spelled(read_tokenizer(tokenizer), text) == text.encode()


def test_a_pre_tokenizer_that_adds_a_space_does_not_add_one() -> None:
    spec = byte_level_spec()
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [spec["pre_tokenizer"] | {"add_prefix_space": True}]}
    assert spelled(read_tokenizer(tokenizer_from(spec)), "the") == b"the"


def test_a_name_does_not_give_away_a_folder_of_this_machine() -> None:
    tokenizer = SimpleNamespace(backend_tokenizer=byte_level_tokenizer(), name_or_path="/home/someone/models/tiny")
    assert read_tokenizer(tokenizer).name == "tiny"
    tokenizer.name_or_path = "maker/tiny"
    assert read_tokenizer(tokenizer).name == "maker/tiny"


# EOS


@pytest.mark.parametrize(
    ("named", "markers", "wanted"),
    [
        ([7], ["a", "<|im_end|>"], [7, 1]),  # a base model's EOS first, then its chat end
        ([1], ["a", "<|im_end|>"], [1]),  # once
        ([7], ["</s>", "<eos>", "<|endoftext|>"], [7]),  # a named EOS is believed alone
        ([], ["<|endoftext|>", "<|im_end|>"], [1]),  # padding of a chat model
        ([], ["<|endoftext|>", "<|fim|>"], [0]),  # a bare GPT-2
        ([], ["</s>", "<end_of_turn>"], [1, 0]),
        ([], ["<|end|>", "<|user|>"], [0]),  # Phi
        ([], ["<|end|>", "<|return|>", "<|call|>"], [1, 2]),  # Harmony: <|end|> ends a message only
        ([], ["a", "b"], []),
    ],
)
def test_the_text_ends_where_the_tokenizer_or_the_chat_format_says(
    named: list[int], markers: list[str], wanted: list[int]
) -> None:
    assert find_eos(named, {text: i for i, text in enumerate(markers)}) == wanted


def test_padding_between_documents_is_no_chat_end() -> None:
    assert "<|endoftext|>" not in CHAT_ENDS


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"eos_token_id": 0}, [0, 2]),
        ({"eos_token_id": [2, 0]}, [2, 0]),
        ({"eos_token_id": None}, [2]),
        ({"eos_token_id": 0, "generation_config": SimpleNamespace(eos_token_id=[1, 0])}, [0, 1, 2]),
        ({"generation_config": SimpleNamespace(eos_token_id=0)}, [0, 2]),
    ],
)
def test_every_eos_that_the_object_names_ends_a_text(fields: dict[str, Any], wanted: list[int]) -> None:
    vocab = read_tokenizer(SimpleNamespace(backend_tokenizer=byte_level_tokenizer(), **fields))
    assert vocab.eos_ids == wanted


def test_a_tokenizer_without_any_eos_asks_for_one() -> None:
    tokenizer = tokenizer_from(byte_level_spec(added_tokens=[]))
    with pytest.raises(VocabError, match=r"eos_ids=\[\.\.\.\]"):
        Vocab.from_tokenizer(tokenizer)
    assert Vocab.from_tokenizer(tokenizer, eos_ids=[0]).eos_ids == (0,)


# Files and other libraries' wrappers


def test_something_that_is_no_tokenizer_is_refused_with_what_may_be_passed() -> None:
    with pytest.raises(VocabError, match="int is not a tokenizer") as caught:
        read_tokenizer(5)
    assert "SentencePieceProcessor" in str(caught.value.hint)


def test_a_folder_gives_the_eos_of_its_configs(tmp_path: Path) -> None:
    byte_level_tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer(tmp_path).eos_ids == [2]
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}')
    assert read_tokenizer(str(tmp_path)).eos_ids == [0, 2]
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    vocab = read_tokenizer(tmp_path)
    assert vocab.eos_ids == [2, 1, 0]
    assert vocab.name == tmp_path.name


def test_an_eos_that_the_sentencepiece_model_does_not_have_is_not_its_unknown_token(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model())
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|none such|>"}')
    assert read_tokenizer(tmp_path).eos_ids == [2, 4]
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<pause>"}')
    assert read_tokenizer(tmp_path).eos_ids == [3, 4]


def test_files_read_like_the_objects_they_make(tmp_path: Path) -> None:
    spm_byte_fallback_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model())
    for name, make in (("tokenizer.json", spm_byte_fallback_tokenizer), ("tokenizer.model", sentencepiece_processor)):
        found, wanted = read_tokenizer(tmp_path / name), raw(make)
        assert (found.tokens, found.special_texts, found.eos_ids) == (
            wanted.tokens,
            wanted.special_texts,
            wanted.eos_ids,
        )
        assert found.name == name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"config": {}, "vocab": []}', "not a tokenizer.json"),
        (b"{", "not a tokenizer.json"),
        (b"\x0agarbage", "neither a tokenizer.json nor a SentencePiece model"),
        (b"", "neither a tokenizer.json nor a SentencePiece model"),
    ],
)
def test_a_damaged_tokenizer_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.file"
    path.write_bytes(content)
    with pytest.raises(VocabError, match=message) as caught:
        read_tokenizer(path)
    assert "tokenizer.file" in caught.value.message


def test_a_damaged_config_beside_the_tokenizer_is_named(tmp_path: Path) -> None:
    byte_level_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(VocabError, match=r"generation_config\.json is not JSON"):
        read_tokenizer(tmp_path)


def test_a_missing_file_or_a_hub_name_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(VocabError, match="no tokenizer file maker/model"):
        read_tokenizer("maker/model")
    with pytest.raises(VocabError, match=r"no tokenizer\.json or tokenizer\.model in"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("library", "content", "hint"),
    [
        ("tokenizers", b"{}", r"pip install .*\[transformers\]"),
        ("sentencepiece", b"\x0a", r"pip install .*\[transformers\]"),
    ],
)
def test_a_missing_library_is_named_with_the_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, content: bytes, hint: str
) -> None:
    path = tmp_path / "tokenizer"
    path.write_bytes(content)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependency, match=hint):
        read_tokenizer(path)


def test_reading_an_object_imports_no_library() -> None:
    code = (
        "import sys, espalier.tokens.vocab, espalier.tokens.trie\n"
        "print({'tokenizers', 'transformers', 'sentencepiece', 'torch', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_tokenizer_whose_ids_differ_from_its_sentencepiece_model_keeps_its_own_ids() -> None:
    class Shifted:
        """As XLM-R and mBART: every piece of the model one id higher, a token of its own in front."""

        sp_model = sentencepiece_processor()
        added_tokens_decoder = {0: SpecialToken("<mask>")}  # noqa: RUF012
        all_special_ids = (0, 3)
        unk_token_id = 1
        eos_token_id = 3

        def __len__(self) -> int:
            return int(self.sp_model.get_piece_size()) + 1

        def convert_ids_to_tokens(self, token: int) -> str:
            return str(self.sp_model.id_to_piece(token - 1))

    vocab = read_tokenizer(Shifted())
    plain = raw(sentencepiece_processor)
    assert vocab.tokens[1:] == plain.tokens
    assert vocab.special_texts[0] == "<mask>"
    assert spelled(vocab, "Ein Spalier 🌳") == "Ein Spalier 🌳".encode()


def test_a_tokenizer_with_pieces_that_its_model_does_not_have_is_refused(hf_slow: Any) -> None:
    class Broken:
        sp_model, all_special_ids = hf_slow.sp_model, ()
        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012

        def __len__(self) -> int:
            return 1

        def convert_ids_to_tokens(self, token: int) -> str:
            return "madeupword"

    with pytest.raises(VocabError, match="not a piece of the tokenizer's SentencePiece model"):
        read_tokenizer(Broken())


def test_an_added_text_token_of_a_sentencepiece_backed_tokenizer_is_its_text(hf_slow: Any) -> None:
    vocab = read_tokenizer(hf_slow)
    assert vocab.tokens[-1] == b"<tool>"
    assert vocab.eos_ids == [2, 4]  # </s>, and the <end_of_turn> of its model


def test_tekken_has_its_thousand_specials_in_front() -> None:
    vocab = raw(tekken_tokenizer)
    assert len(vocab.tokens) == 131_072
    assert list(vocab.special_texts) == list(range(1000))
    assert vocab.eos_ids == [2]
    assert vocab.tokens[1000:1256] == [bytes([b]) for b in range(256)]


def test_mistrals_wrappers_are_opened() -> None:
    tekken = tekken_tokenizer()
    wrapped = SimpleNamespace(tokenizer=SimpleNamespace(instruct_tokenizer=SimpleNamespace(tokenizer=tekken)))
    assert read_tokenizer(wrapped).tokens == raw(tekken_tokenizer).tokens
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("mistral_common.tokens.tokenizers.sentencepiece")
    path = Path(sys.modules["mistral_common"].__file__ or "").parent / "data/mistral_instruct_tokenizer_240323.model.v3"
    if not path.is_file():
        pytest.skip(f"mistral-common is here without {path.name}")
    inner = module.SentencePieceTokenizer(path)
    vocab = read_tokenizer(inner)
    assert (len(vocab.tokens), vocab.eos_ids) == (32_768, [2])
    assert read_tokenizer(SimpleNamespace(instruct_tokenizer=SimpleNamespace(tokenizer=inner))).tokens == vocab.tokens
    assert read_tokenizer(path).tokens == vocab.tokens
