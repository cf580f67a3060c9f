"""What cannot be loaded: one clear error each, and nothing ends the process."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp")
gguf = pytest.importorskip("gguf")

from espalier.engines.gguf.header import read_header  # noqa: E402
from espalier.engines.llamacpp.model import LlamaStepModel  # noqa: E402
from espalier.engines.llamacpp.weights import LlamaFile  # noqa: E402
from espalier.engines.options import EngineOptions  # noqa: E402
from espalier.errors import CapabilityError, EspalierError, InputError, UnknownModel  # noqa: E402
from tests import gguf_models as make  # noqa: E402
from tests.examples import examples  # noqa: E402

OPTIONS = EngineOptions(threads=1, kv_size=256)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return make.write_llama(tmp_path_factory.mktemp("gguf") / "good.gguf", make.bpe_words())


def load(path: Path) -> LlamaStepModel:
    return LlamaStepModel(LlamaFile(path, OPTIONS), OPTIONS)


def refused(path: Path, error: type[EspalierError], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        load(path)
    assert type(caught.value) is error
    assert caught.value.field == "model"


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UnknownModel, match=r"there is no file .*none\.gguf") as caught:
        load(tmp_path / "none.gguf")
    assert caught.value.field == "model"
    assert "the path of a GGUF file" in caught.value.hint


def test_a_folder(tmp_path):
    refused(tmp_path, InputError, "is not a file")


def test_a_pipe(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(tmp_path / "pipe.gguf")
    refused(tmp_path / "pipe.gguf", InputError, "is not a file")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.gguf", b"", "it is empty"),
        ("text.gguf", b"Once upon a time there was no model.", "does not begin with GGUF"),
        ("model.safetensors", struct.pack("<Q", 20) + b'{"__metadata__":{}} ', "safetensors"),
        ("pytorch_model.bin", b"PK\x03\x04" + bytes(40), "PyTorch"),
        ("old.bin", b"tjgg" + bytes(40), "before GGUF"),
        ("short.gguf", b"GGUF\x03\0\0\0", "ends in its first bytes"),
        ("counts.gguf", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60), "ends before its"),
        ("key.gguf", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + bytes(40), "ends within its keys"),
    ],
)
def test_what_is_no_gguf_file(tmp_path, name, data, said):
    refused(written(tmp_path / name, data), InputError, said)


@pytest.mark.parametrize(
    ("version", "said"),
    [(1, "version 1 .*reads no more"), (99, "version 99"), (0, "version 0"), (3 << 24, "big-endian")],
)
def test_another_version(tmp_path, good, version, said):
    data = bytearray(good.read_bytes())
    struct.pack_into("<I", data, 4, version)
    refused(written(tmp_path / "v.gguf", data), InputError, said)


def test_a_file_that_cannot_be_read(good, monkeypatch):
    def denied(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    refused(good, InputError, r"good\.gguf cannot be read: Permission denied")


@pytest.mark.slow
def test_a_file_cut_anywhere_is_refused(tmp_path, good):
    data, random = good.read_bytes(), Random(1)
    end = gguf.GGUFReader(str(good)).data_offset
    places = {0, 3, 4, 8, 23, 24, 25, end - 1, end, end + 1, len(data) - 1}
    places |= {random.randrange(end) for _ in range(60)} | {random.randrange(end, len(data)) for _ in range(20)}
    for place in sorted(places):
        with pytest.raises(InputError) as caught:
            load(written(tmp_path / "cut.gguf", data[:place]))
        assert "cut.gguf" in caught.value.message
    assert "not within the file bounds" in caught.value.message
    assert caught.value.hint == "fetch the file again"


def test_an_unknown_architecture(tmp_path, good):
    data = good.read_bytes().replace(b"llama", b"lxama")
    refused(written(tmp_path / "arch.gguf", data), CapabilityError, "unknown model architecture: 'lxama'")


def test_an_embedding_model(tmp_path):
    refused(make.write_bert(tmp_path / "bert.gguf"), CapabilityError, r"\(bert\) is a model for embeddings")


@pytest.mark.parametrize("keys", [{"pooling_type": 4}, {"llama.attention.causal": False}])
def test_a_decoder_made_into_an_embedding_model(tmp_path, keys):
    refused(make.write_llama(tmp_path / "e.gguf", make.bpe_words(), keys=keys), CapabilityError, "for embeddings")


def test_no_pooling_is_no_embedding_model(tmp_path):
    load(make.write_llama(tmp_path / "e.gguf", make.bpe_words(), keys={"pooling_type": 0}))


def test_an_encoder(good, monkeypatch):
    lib = pytest.importorskip("espalier.engines.llamacpp.library").library()
    monkeypatch.setattr(lib, "llama_model_has_encoder", lambda _: True)
    refused(good, CapabilityError, "has an encoder")


def test_an_adapter_instead_of_a_model(tmp_path):
    refused(make.write_lora(tmp_path / "lora.gguf"), InputError, "is a LoRA adapter, not a model")


def test_a_vocabulary_without_weights(tmp_path):
    path = make.write_vocab_only(tmp_path / "vocab.gguf", make.bpe_words())
    refused(path, InputError, "a vocabulary and no weights")
    file = LlamaFile(path, OPTIONS, vocab_only=True)
    assert file.meta("tokenizer.ggml.model") == "gpt2"
    assert file.meta("nothing") is None


def test_a_missing_tensor_is_named(tmp_path):
    path = make.write_llama(tmp_path / "m.gguf", make.bpe_words(), without=["blk.1.attn_k.weight"])
    refused(path, InputError, r"tensor 'blk\.1\.attn_k\.weight' not found")


def test_a_token_twice_in_the_vocabulary(tmp_path, good):
    """llama.cpp would end the process."""
    words = make.bpe_words()
    tokens = (*words.tokens[:-1], words.tokens[10])
    twice = make.replace(words, tokens=tokens)
    refused(make.write_llama(tmp_path / "t.gguf", twice), InputError, "twice in its vocabulary")


@pytest.mark.parametrize("layers", [0, 513])
def test_a_number_of_layers_that_would_end_the_process(tmp_path, good, layers):
    data = bytearray(good.read_bytes())
    at = data.index(b"llama.block_count") + len(b"llama.block_count") + 4
    struct.pack_into("<I", data, at, layers)
    refused(written(tmp_path / "l.gguf", data), InputError, f"it has {layers} layers")


def split(path: Path, folder: Path, name: str = "model") -> list[Path]:
    """The same model in two parts: the keys and some tensors, and the rest."""
    reader = gguf.GGUFReader(str(path))
    paths = [folder / f"{name}-0000{n}-of-00002.gguf" for n in (1, 2)]
    for n, part in enumerate(paths):
        writer = gguf.GGUFWriter(str(part), "llama")
        if n == 0:
            for field in reader.fields.values():
                if not field.name.startswith(("GGUF.", "general.architecture")):
                    sub = field.types[-1] if len(field.types) > 1 else None
                    writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub)
        writer.add_uint16("split.no", n)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        half = len(reader.tensors) // 2
        for tensor in reader.tensors[:half] if n == 0 else reader.tensors[half:]:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_a_model_in_parts(tmp_path, good):
    first, second = split(good, tmp_path)
    load(first)
    refused(second, InputError, "is not the first part")
    second.rename(tmp_path / "away")
    shutil.copy(first, second)
    with pytest.raises(InputError, match=r"model-00002-of-00002\.gguf is not part 2 of 2") as caught:
        load(first)
    assert "its own name" in caught.value.hint
    second.unlink()
    refused(first, InputError, r"needs model-00002-of-00002\.gguf beside it")
    second.write_text("hello")
    refused(first, InputError, r"model-00002-of-00002\.gguf is not a usable GGUF file")
    alone = first.rename(tmp_path / "alone.gguf")
    refused(alone, InputError, "is one of 2 parts")


def test_the_header_says_what_is_in_the_file(good):
    header = read_header(good)
    assert (header.architecture, header.own("context_length"), header.version) == ("llama", 512, 3)
    assert header.arrays["tokenizer.ggml.tokens"] == (8, len(header.tokens))
    assert header.tokens[:2] == [b"<|endoftext|>", b"<|im_start|>"]
    assert header.types["blk.0.attn_norm.weight"] == 0
    assert len(header.types) == header.tensors


def test_a_model_does_not_keep_what_was_for_checks_alone(good):
    file = LlamaFile(good, OPTIONS)
    assert (file.header.tokens, file.header.types) == ([], {})
    assert file.header.own("context_length") == 512


FUZZ = """
import sys
from pathlib import Path
from random import Random
from espalier.decoding.ports import Extend
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
from espalier.errors import EspalierError
options, random = EngineOptions(threads=1, kv_size=256, sequences=2), Random(7)
folder, count, loaded, refused = Path(sys.argv[1]), int(sys.argv[2]), 0, 0
for name in sys.argv[3:]:
    path, end = Path(name.split("=")[0]), int(name.split("=")[1])
    source = path.read_bytes()
    for _ in range(count):
        data = bytearray(source)
        at = random.choice([random.randrange(600), random.randrange(end), end - 1 - random.randrange(2000)])
        kind = random.choice(["flip", "flip", "zeros", "ones", "cut"])
        if kind == "flip":
            data[at] ^= 1 << random.randrange(8)
        elif kind == "cut":
            del data[at:]
        else:
            width = random.choice([1, 4, 8])
            data[at : at + width] = (b"\\0" if kind == "zeros" else b"\\xff") * width
        damaged = folder / "damaged.gguf"
        damaged.write_bytes(data)
        try:
            model = LlamaStepModel(LlamaFile(damaged, options), options)
            model.extend([Extend(sequence=model.new(), tokens=(1, 2, 3))])
            loaded += 1
        except EspalierError as error:
            assert error.message, error
            refused += 1
print(loaded, refused)
"""


@pytest.mark.slow
def test_no_damage_to_a_header_ends_the_process(tmp_path, good):
    """360 damaged files with a fixed seed, or a share, in a process of their own: each is loaded or refused by an error
    of ours."""
    count = examples(120)
    spm = make.write_llama(tmp_path / "spm.gguf", make.spm_words())
    state = make.write_mamba(tmp_path / "state.gguf", make.bpe_words())
    files = [f"{path}={gguf.GGUFReader(str(path)).data_offset}" for path in (good, spm, state)]
    command = [sys.executable, "-X", "faulthandler", "-c", FUZZ, str(tmp_path), str(count), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded, refused_count = map(int, done.stdout.split())
    assert loaded + refused_count == 3 * count
    assert min(loaded, refused_count) > count // 6
