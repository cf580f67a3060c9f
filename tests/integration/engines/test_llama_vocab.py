"""What llama.cpp says of a vocabulary: bytes, specials, ends; and how it splits text, prompts and continuations."""

import weakref
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import CapabilityError, InputError, LimitExceeded, VocabError
from espalier.time_limit import OutOfTime, time_limit
from espalier.tokens.vocab import Vocab
from espalier.wiring import demo_model
from tests import gguf_models as made
from tests.examples import examples
from tests.tokenizers import sentencepiece_processor

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from espalier.engines.llamacpp import tokenize as llama_tokenize
from espalier.engines.llamacpp.library import library
from espalier.engines.llamacpp.open import read_vocab_of
from espalier.engines.llamacpp.tokenize import make_encode
from espalier.engines.llamacpp.vocab import read_vocab
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import DEFAULT

DEMO = demo_model() / "demo.gguf"
TEXTS = [
    "",
    " ",
    "  ",
    "hello world",
    " leading",
    "trailing  ",
    "\n\n\tx\r\n",
    "¡Hola! año 東京 😀 naïve e\u0301",
    "\0",
    "\0\0a\0",
    "</s>x<s> <unk>",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<0x0A>",
    '{"name": "Ada", "tags": ["a b", "c\\n"]}',
    "it's we'll I'd 1234567890",
    "ab" * 300,
    "\x01 \x7f",
    "\u2028\ufeff",
]


def opened(path):
    """(vocabulary, encode) of a file of which the vocabulary alone is loaded."""
    file = LlamaFile(path, DEFAULT, vocab_only=True)
    keeper = lambda: file  # noqa: E731
    return read_vocab(library(), file.vocab, name=path.name, keeper=keeper), make_encode(
        library(), file.vocab, keeper=keeper
    )


@cache
def from_words(words):
    with TemporaryDirectory() as folder:
        return opened(made.write_vocab_only(Path(folder) / "made.gguf", words))


def with_own(words, *texts):
    """The vocabulary with user-defined tokens."""
    scores = words.scores + (0.0,) * len(texts) if words.scores else ()
    kinds = words.kinds + (made.USER_DEFINED,) * len(texts)
    return replace(words, tokens=words.tokens + texts, kinds=kinds, scores=scores)


def without_bytes(words):
    kept = [i for i, kind in enumerate(words.kinds) if kind != made.BYTE]
    fields = {name: tuple(getattr(words, name)[i] for i in kept) for name in ("tokens", "kinds", "scores")}
    return replace(words, **fields)


@cache
def rwkv_words():
    escaped = [f"\\x{b:02x}" for b in range(256)]
    return made.Words(
        model="rwkv",
        pre="rwkv",
        tokens=("<s>", *escaped, "hello", " wor", "\\n\\n", "ñ"),
        kinds=(made.CONTROL,) + (made.NORMAL,) * 260,
        bos=0,
        eos=0,
    )


@cache
def plamo_words():
    specials = ("<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>")
    own = ("hello", " wor", "\n\n", "é")
    return made.Words(
        model="plamo2",
        pre="default",
        tokens=(*specials, *(f"<0x{b:02X}>" for b in range(256)), *own),
        kinds=(made.UNKNOWN, *(made.CONTROL,) * 3, *(made.BYTE,) * 256, *(made.NORMAL,) * 4),
        scores=(0.0,) * 4 + (-10.0,) * 256 + (-1.0,) * 4,
        bos=1,
        eos=2,
        unk=0,
    )


KINDS = {
    "bpe": lambda: made.bpe_words(padded_to=400),
    "bpe with tokens of its own": lambda: with_own(made.bpe_words(), "<think>", "  \n"),
    "spm": lambda: made.spm_words(padded_to=480),
    "spm with tokens of its own": lambda: with_own(made.spm_words(), "<think>", "<think>x", "a  b"),
    "rwkv": rwkv_words,
    "plamo": plamo_words,
}


def demo_tokenizer():
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(demo_model())


def test_the_demo_models_gguf_has_the_vocabulary_of_its_tokenizer():
    vocab = read_vocab_of(str(DEMO))
    assert vocab == Vocab.from_tokenizer(demo_tokenizer(), eos_ids=vocab.eos_ids)
    assert vocab.eos_ids == (2, 0)
    assert vocab.name == "demo.gguf"


def test_a_sentencepiece_file_has_the_bytes_that_the_sentencepiece_reader_reads(tmp_path):
    processor = sentencepiece_processor()
    ids = range(processor.get_piece_size())
    own = {i for i in ids if processor.id_to_piece(i) == "<extra>"} | {
        i
        for i in ids
        if processor.GetScore(i) == 0.0
        and not processor.is_control(i)
        and not processor.is_unknown(i)
        and not processor.is_byte(i)
    }

    def kind(i):
        named = [
            (processor.is_unknown, made.UNKNOWN),
            (processor.is_control, made.CONTROL),
            (processor.is_byte, made.BYTE),
            (processor.is_unused, made.UNUSED),
        ]
        return next((k for is_kind, k in named if is_kind(i)), made.USER_DEFINED if i in own else made.NORMAL)

    # Converters write a user-defined piece as the text it is.
    spelled = [processor.id_to_piece(i).replace("▁", " ") if i in own else processor.id_to_piece(i) for i in ids]
    words = made.Words(
        model="llama",
        pre="default",
        tokens=tuple(spelled),
        kinds=tuple(map(kind, ids)),
        scores=tuple(processor.GetScore(i) for i in ids),
        bos=processor.bos_id(),
        eos=processor.eos_id(),
        unk=0,
        add_space_prefix=True,
    )
    vocab, _ = opened(made.write_vocab_only(tmp_path / "spm.gguf", words))
    expected = Vocab.from_tokenizer(processor)
    assert vocab.tokens == expected.tokens
    assert dict(vocab.special_texts) == dict(expected.special_texts)
    assert vocab.eos_ids == expected.eos_ids


def test_padding_has_no_spelling_and_other_unused_tokens_have():
    words = made.bpe_words()
    words = replace(words, tokens=(*words.tokens, "<reserved_1>"), kinds=(*words.kinds, made.UNUSED))
    vocab, _ = from_words(words.padded(words.width + 10))
    assert vocab.padding_count == 10
    assert not vocab.real_ids[-10:].any()
    assert vocab.special_texts[words.width - 1] == "<reserved_1>"


def test_all_that_end_a_text_do_so_eos_first_then_the_others_in_order():
    vocab, _ = from_words(made.bpe_words())
    assert [vocab.special_texts[i] for i in vocab.eos_ids] == ["<|im_end|>", "<|endoftext|>"]
    more = made.bpe_words(specials=("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "</s>", "<|start|>"), eos="</s>")
    vocab, _ = from_words(replace(more, eot=1))
    assert [vocab.special_texts[i] for i in vocab.eos_ids] == ["</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>"]


def test_an_end_whose_type_says_text_is_a_special_all_the_same():
    words = made.bpe_words()
    letter = words.tokens.index("a")
    vocab, _ = from_words(replace(words, eos=letter))
    assert vocab.eos_ids[0] == letter
    assert vocab.bytes_of(letter) == b""
    assert vocab.special_texts[letter] == "a"


@pytest.mark.parametrize("kind", KINDS)
def test_a_continuation_spells_its_text(kind):
    vocab, _ = from_words(KINDS[kind]())
    for text in TEXTS:
        ids = vocab.encoder(text)
        assert vocab.decode(ids) == text.encode(), text
        assert not vocab.special_ids.intersection(ids), text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(60))
@given(text=st.lists(st.sampled_from(TEXTS) | st.text(max_size=12) | st.sampled_from(["<think>", "a  b"])).map("".join))
def test_any_continuation_spells_its_text(kind, text):
    vocab, _ = from_words(KINDS[kind]())
    if "▁" not in text or not kind.startswith("spm"):  # which SentencePiece itself cannot keep
        assert vocab.decode(vocab.encoder(text)) == text.encode()


def test_tokens_of_their_own_are_found_in_text_and_put_no_space_behind_them():
    vocab, _ = from_words(KINDS["spm with tokens of its own"]())
    ids = {vocab.tokens.index(t): t for t in (b"<think>", b"<think>x", b"a  b")}
    found = [ids[i] for i in vocab.encoder("go <think>xy<think> a  b") if i in ids]
    assert found == [b"<think>x", b"<think>", b"a  b"]


def test_a_continuation_on_the_demo_model_is_the_tokenizers():
    vocab = read_vocab_of(str(DEMO))
    expected = Vocab.from_tokenizer(demo_tokenizer()).encoder
    for text in TEXTS:
        assert vocab.encoder(text) == expected(text), text


@settings(max_examples=examples(200))
@given(text=st.text(max_size=40))
def test_any_prompt_on_the_demo_model_is_split_as_transformers_splits_it(text):
    encode, tokenizer = demo_encoders()
    assert encode(text, add_special=True) == tokenizer(text)["input_ids"]


@cache
def demo_encoders():
    return opened(DEMO)[1], demo_tokenizer()


def test_prompts_with_markers_are_split_as_transformers_splits_them():
    encode, tokenizer = demo_encoders()
    for text in [*TEXTS, "<|endoftext|><|im_start|>a", "x <|im_end|> y"]:
        assert encode(text, add_special=True) == tokenizer(text)["input_ids"]


def test_a_bos_is_added_once_and_an_eos_never():
    words = replace(made.spm_words(), add_bos=True)
    _, encode = from_words(words)
    plain = encode("hello", add_special=False)
    assert encode("hello", add_special=True) == [1, *plain]
    assert encode("<s>hello", add_special=True) == [1, *plain]
    assert encode("<s><s>hello", add_special=True) == [1, 1, *plain]
    assert encode("", add_special=True) == [1]
    assert encode("", add_special=False) == []


def few(**changes):
    """Eleven bytes: llama.cpp's own default for BOS and EOS is id 11."""
    words = replace(made.bpe_words(merges=1, specials=("<s>",), eos="<s>"), bos=None)
    return replace(words, tokens=words.tokens[1:12], kinds=words.kinds[1:12], **changes)


def test_a_file_that_adds_a_bos_and_has_none_does_not_end_the_process():
    _, encode = from_words(few(add_bos=True, eos=5))
    assert encode("\t\t", add_special=True) == [9, 9]


def test_a_character_without_a_token_is_refused_and_does_not_end_the_process():
    vocab, encode = from_words(without_bytes(made.spm_words()))
    assert vocab.decode(vocab.encoder("The dog")) == b"The dog"
    for split in (vocab.encoder, lambda text: encode(text, add_special=True)):
        with pytest.raises(InputError, match="no token for '東'"):
            split("The 東 dog")


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_half_a_character_is_refused(text):
    vocab, encode = from_words(made.bpe_words())
    for split in (vocab.encoder, lambda text: encode(text, add_special=True)):
        with pytest.raises(InputError, match="not valid Unicode"):
            split(text)


@pytest.mark.slow
@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "gpt-4o", "deepseek-llm", "tekken", "falcon"])
@pytest.mark.parametrize("run", ["a", " ", "1", "!", "é"])
def test_a_long_run_of_one_kind_does_not_end_the_process(pre, run):
    """Pre-tokenizers of a std::regex recurse: on the stack of a thread 200,000 characters end the process."""
    vocab, encode = from_words(replace(made.bpe_words(), pre=pre))
    text = run * 200_000
    assert vocab.decode(encode(text, add_special=True)) == text.encode()


def test_a_text_of_a_megabyte_is_split_and_a_longer_one_than_there_is_room_for_is_refused(monkeypatch):
    vocab, encode = from_words(replace(made.bpe_words(), pre="gpt-4o"))
    text = "Hello, world! " * 75_000
    assert vocab.decode(encode(text, add_special=True)) == text.encode()
    monkeypatch.setattr(llama_tokenize, "LONGEST", 100_000)
    with pytest.raises(LimitExceeded, match="1,050,000 bytes is too long"):
        encode(text, add_special=True)


def test_a_tokenizer_of_an_encoder_is_refused(tmp_path):
    with pytest.raises(CapabilityError, match="WordPiece"):
        opened(made.write_bert(tmp_path / "bert.gguf"))
    unigram = replace(made.spm_words(), model="t5", add_space_prefix=False)
    with pytest.raises(CapabilityError, match="Unigram"):
        opened(made.write_vocab_only(tmp_path / "t5.gguf", unigram))


def test_a_vocabulary_that_names_no_end_is_refused():
    with pytest.raises(VocabError, match="names no token that ends a text"):
        from_words(few(eos=None))


def test_a_vocabulary_outlives_its_model_and_says_so_when_it_is_asked_to_split():
    file = LlamaFile(DEMO, DEFAULT, vocab_only=True)
    vocab = read_vocab(library(), file.vocab, name="demo", keeper=weakref.ref(file))
    assert vocab.encoder("a")
    del file
    assert vocab.bytes_of(300)
    with pytest.raises(InputError, match="closed"):
        vocab.encoder("a")


@pytest.mark.parametrize("text", ["Say hi", "a é 中"])
def test_a_piece_without_a_token_is_refused_and_is_no_id(text):
    """A vocabulary that is read in another way than it was made for: llama.cpp gives -1."""
    words = made.bpe_words()
    words = replace(words, model="rwkv", tokens=tuple(f"z{n}z" for n in range(words.width)))
    _, encode = from_words(words)
    with pytest.raises(InputError, match="no token for '") as caught:
        encode(text, add_special=True)
    assert caught.value.field == "prompt"


def test_a_text_that_may_take_longer_than_is_left_is_refused_before_it_is_encoded():
    """The library's tokenizer cannot be ended."""
    vocab, _ = opened(DEMO)
    text = "\n" * 600_000
    with time_limit(1.0), pytest.raises(OutOfTime, match="may take longer to encode than is left"):
        vocab.encoder(text)
    told: list[float] = []
    with time_limit(20.0, spent=told.append):
        assert vocab.encoder("\n" * 10_000)
    assert sum(told) > 0
