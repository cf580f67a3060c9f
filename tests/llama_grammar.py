"""llama.cpp's own grammar engine, as an oracle and a peer: the C library inside the `xllamacpp` wheel, by ctypes.

Only public functions of llama.h are called. A vocabulary-only GGUF is written for the purpose with `gguf`.
"""

from __future__ import annotations

import ctypes
import tempfile
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int32, c_size_t, c_ubyte, c_void_p
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from espalier.tokens.vocab import Vocab


class _ModelParams(Structure):
    """llama_model_params of the pinned xllamacpp; only `vocab_only` is written. Checked by `LlamaVocab`."""

    _fields_ = [
        ("before", c_ubyte * 72),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        # A newer library may have a longer struct; by value on the stack, room behind it is harmless.
        ("rest", c_ubyte * 117),
    ]


class _TokenData(Structure):
    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class _TokenArray(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("selected", ctypes.c_int64), ("sorted", c_bool)]


TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@cache
def library() -> ctypes.CDLL:
    """The shared library; skips by name where xllamacpp is missing."""
    package = pytest.importorskip("xllamacpp", reason="xllamacpp (llama.cpp itself) is not installed")
    path = next(Path(package.__file__).parent.glob("xllamacpp*.so"))
    lib = ctypes.CDLL(str(path))
    signatures: dict[str, tuple[object, list[object]]] = {
        "llama_model_default_params": (_ModelParams, []),
        "llama_model_load_from_file": (c_void_p, [c_char_p, _ModelParams]),
        "llama_model_get_vocab": (c_void_p, [c_void_p]),
        "llama_vocab_n_tokens": (c_int32, [c_void_p]),
        "llama_sampler_init_grammar": (c_void_p, [c_void_p, c_char_p, c_char_p]),
        "llama_sampler_init_grammar_lazy_patterns": (
            c_void_p,
            [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t],
        ),
        "llama_sampler_apply": (None, [c_void_p, POINTER(_TokenArray)]),
        "llama_sampler_accept": (None, [c_void_p, c_int32]),
        "llama_sampler_free": (None, [c_void_p]),
        "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool]),
        "llama_log_set": (None, [c_void_p, c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)(lambda *_: None)  # kept alive here
    lib.llama_log_set(ctypes.cast(lib.quiet, c_void_p), None)
    return lib


def write_vocab_gguf(vocab: Vocab, path: Path) -> None:
    """A GGUF of the vocabulary alone, as a byte-level BPE whose merges are not needed."""
    gguf = pytest.importorskip("gguf")
    spelling = byte_spelling()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    texts, types, seen = [], [], set()
    for token in range(vocab.width):
        data = vocab.bytes_of(token)
        text = "".join(spelling[b] for b in data) if data else vocab.special_texts.get(token, f"<pad{token}>")
        text = text if text not in seen else f"<dup{token}>"  # llama.cpp wants distinct spellings
        seen.add(text)
        texts.append(text)
        types.append(1 if data else 3)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(vocab.eos_ids[0])
    writer.add_bos_token_id(vocab.eos_ids[0])
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_spelling() -> dict[int, str]:
    """GPT-2's alphabet of printable characters for the 256 byte values."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


class LlamaVocab:
    """A vocabulary loaded by llama.cpp."""

    def __init__(self, path: Path) -> None:
        lib = library()
        params = lib.llama_model_default_params()
        if (params.vocab_only, params.check_tensors, params.use_extra_bufts) != (False, False, True):
            pytest.skip("xllamacpp has another llama_model_params than the one this oracle was written for")
        params.vocab_only = True
        self.model = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError("llama.cpp did not load the vocabulary")
        self.handle = lib.llama_model_get_vocab(self.model)
        self.size = int(lib.llama_vocab_n_tokens(self.handle))

    def tokenize(self, text: str) -> list[int]:
        """As llama.cpp splits it, markers in the text read as such, nothing added."""
        data = text.encode()
        room = (c_int32 * (len(data) + 8))()
        count = library().llama_tokenize(self.handle, data, len(data), room, len(room), False, True)
        if count < 0:
            raise RuntimeError(f"llama.cpp needs room for {-count} tokens")
        return list(room[:count])


@cache
def llama_bytes() -> LlamaVocab:
    """The byte vocabulary, loaded once; the file is not needed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes.gguf"
        write_vocab_gguf(Vocab.bytes(), path)
        return LlamaVocab(path)


class LlamaGrammar:
    """One grammar along one sequence. `mask` runs over the whole vocabulary, as its sampler does on a refusal."""

    def __init__(
        self,
        vocab: LlamaVocab,
        text: str,
        root: str = "root",
        *,
        patterns: list[str] | None = None,
        tokens: tuple[int, ...] = (),
    ) -> None:
        """patterns, tokens: triggers of a lazy grammar; patterns is None for one that holds from the start."""
        self.lib, self.vocab = library(), vocab
        if patterns is None:
            self.sampler = self.lib.llama_sampler_init_grammar(vocab.handle, text.encode(), root.encode())
        else:
            spelled = (c_char_p * len(patterns))(*(one.encode() for one in patterns))
            ids = (c_int32 * len(tokens))(*tokens)
            self.sampler = self.lib.llama_sampler_init_grammar_lazy_patterns(
                vocab.handle, text.encode(), root.encode(), spelled, len(patterns), ids, len(tokens)
            )
        if not self.sampler:
            raise ValueError("llama.cpp refuses this grammar")
        self.rows = np.empty(vocab.size, dtype=TOKEN_DATA)  # (V,)
        self.rows["id"] = np.arange(vocab.size)
        self.array = _TokenArray(self.rows.ctypes.data, vocab.size, -1, False)

    def mask(self) -> np.ndarray:
        """`(V,) bool`."""
        self.rows["logit"] = 0.0
        self.lib.llama_sampler_apply(self.sampler, ctypes.byref(self.array))
        return np.asarray(self.rows["logit"] > -np.inf)

    def allows(self, token: int) -> bool:
        """One token alone."""
        one = np.array([(token, 0.0, 0.0)], dtype=TOKEN_DATA)
        array = _TokenArray(one.ctypes.data, 1, -1, False)
        self.lib.llama_sampler_apply(self.sampler, ctypes.byref(array))
        return bool(one["logit"][0] > -np.inf)

    def accept(self, token: int) -> None:
        """Only an allowed token: llama.cpp ends the process on another."""
        self.lib.llama_sampler_accept(self.sampler, token)

    def close(self) -> None:
        if self.sampler:
            self.lib.llama_sampler_free(self.sampler)
            self.sampler = None
