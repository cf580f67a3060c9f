"""What a LlamaStepModel asks of llama.cpp: context, sequences, size and type of the KV cache, and memory given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

import espalier
from espalier.engines.llamacpp import context as module
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.options import EngineOptions
from espalier.errors import CapabilityError, InputError, LimitExceeded
from tests import gguf_models as make
from tests.llama_models import DEMO, Failing, load, model_of, put
from tests.step_model_laws import words


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("gguf")
    make.write_llama(folder / "bpe.gguf", make.bpe_words(padded_to=400))
    make.write_lora(folder / "lora.gguf")
    return folder


def test_more_context_than_trained_is_refused_with_both_numbers(folder):
    with pytest.raises(InputError, match="513 is longer than the 512"):
        model_of(folder / "bpe.gguf", context=513)


def test_as_many_sequences_as_llama_cpp_runs_and_no_more(folder):
    assert model_of(folder / "bpe.gguf", sequences=256).max_sequences == 256
    with pytest.raises(InputError, match="at most 256 sequences at once, not 257"):
        model_of(folder / "bpe.gguf", sequences=257)


def test_a_cache_beyond_the_memory_is_refused_and_not_granted(folder):
    with pytest.raises(LimitExceeded, match="GiB") as caught:
        model_of(folder / "bpe.gguf", kv_size=2**31 - 256)
    assert caught.value.field == "kv_size"
    for size in (2**31, 2**32, 2**32 + 512):
        with pytest.raises(InputError, match="kv_size is at most"):
            model_of(folder / "bpe.gguf", kv_size=size)


@pytest.mark.slow
def test_what_llama_cpp_itself_cannot_reserve_is_a_limit(folder):
    """In a process that may have 1 GiB more, and whose own check of the memory is switched off."""
    script = f"""
import resource
from pathlib import Path
from espalier.engines.llamacpp import context
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
from espalier.errors import LimitExceeded
file = LlamaFile(Path({str(folder / "bpe.gguf")!r}), EngineOptions())
context._free_memory = lambda: None
held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**30, resource.getrlimit(resource.RLIMIT_AS)[1]))
for size in (2**22, 2**28):  # the first fails in the cache, the second in what is kept about it
    try:
        LlamaStepModel(file, EngineOptions(kv_size=size, kv_type="f32", threads=1))
    except LimitExceeded as error:
        print(error.field)
LlamaStepModel(file, EngineOptions(threads=1))
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc here")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["kv_size", "kv_size"]), done.stderr


def test_a_cache_smaller_than_one_context_is_refused_where_both_were_said(folder):
    with pytest.raises(InputError, match="cannot hold one sequence of 400"):
        model_of(folder / "bpe.gguf", context=400, kv_size=256)
    assert model_of(folder / "bpe.gguf", kv_size=256).max_positions == 256


def test_each_sequence_has_its_own_cache_where_memory_allows(folder, monkeypatch):
    path = folder / "bpe.gguf"
    model = model_of(path)
    assert (model.is_unified, model.max_sequences, model.capacity) == (False, 72, 72 * 512)
    assert model_of(path, kv_unified=True).is_unified
    with espalier.load(str(path)) as engine, espalier.load(str(path), kv_unified=True) as shared:
        assert (engine.capabilities.kv_unified, shared.capabilities.kv_unified) == (False, True)
    assert not model_of(path, kv_size=64 * 512).is_unified
    assert model_of(path, kv_size=64 * 512 - 1).is_unified, "a size that is too small for all is shared"
    assert not model_of(path, sequences=4, kv_size=2048).is_unified
    needed = 64 * (load(path).cache_bytes(512, 4.0) + 512 * module.CELL)
    for free, unified in ((8 * needed, False), (8 * needed - 1, True)):
        with monkeypatch.context() as patch:
            patch.setattr(module, "_free_memory", lambda free=free: free)
            model = model_of(path)
            assert (model.is_unified, model.max_sequences) == (unified, 72)
            own = model_of(path, kv_unified=False)
            assert (own.is_unified, own.max_sequences) == (False, 4 if unified else 64)


def test_sequences_share_a_cache_where_a_fork_would_copy_much_or_memory_is_not_known(folder, monkeypatch):
    path = folder / "bpe.gguf"
    with monkeypatch.context() as patch:
        patch.setattr(module, "OWN_BYTES", load(path).cache_bytes(512, 4.0) - 1)
        assert model_of(path).is_unified
    with monkeypatch.context() as patch:
        patch.setattr(module, "_free_memory", lambda: None)
        assert model_of(path).is_unified
    make.write_mamba(folder / "recurrent.gguf", make.bpe_words(padded_to=400))
    assert model_of(folder / "recurrent.gguf").is_unified


def test_caches_of_their_own_must_hold_a_whole_context_each(folder):
    model = model_of(folder / "bpe.gguf", kv_unified=False, sequences=4)
    assert (model.max_sequences, model.max_positions, model.capacity) == (4, 512, 4 * 512)
    model = model_of(folder / "bpe.gguf", kv_unified=False, kv_size=1200)  # 300 each, rounded up
    assert (model.max_sequences, model.max_positions, model.capacity) == (4, 512, 4 * 512)
    with pytest.raises(InputError, match="1200 cannot hold 4 sequences of 301") as caught:
        model_of(folder / "bpe.gguf", kv_unified=False, kv_size=1200, context=301)
    assert caught.value.field == "kv_size"
    assert "kv_size 1204" in str(caught.value.hint)
    with pytest.raises(InputError, match="no token for each of 4"):
        model_of(folder / "bpe.gguf", kv_unified=False, kv_size=3)


def test_capacity_is_padded_up_as_llama_cpp_pads_it(folder):
    assert model_of(folder / "bpe.gguf", kv_size=300).capacity == 512


def test_a_quantised_cache_needs_flash_attention(folder):
    with pytest.raises(InputError, match="q8_0 needs flash attention"):
        model_of(folder / "bpe.gguf", kv_type="q8_0", flash_attention="off")


def test_a_quantised_cache_needs_heads_of_whole_blocks(folder):
    with pytest.raises(InputError, match="does not divide") as caught:
        model_of(folder / "bpe.gguf", kv_type="q4_0", flash_attention="auto")
    assert caught.value.field == "kv_type"


@pytest.mark.parametrize("kv_type", ["f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_every_cache_type_gives_about_the_same_logits(kv_type):
    tokens = words(Random(5), 2000, 40)
    _, wanted = put(model_of(DEMO), tokens)
    _, found = put(model_of(DEMO, kv_type=kv_type, flash_attention="on"), tokens)
    assert np.corrcoef(wanted[0], found[0])[0, 1] > 0.95


def test_a_context_that_is_not_what_was_asked_for_is_refused(folder):
    file = load(folder / "bpe.gguf")

    class Moved(Failing):
        def llama_n_seq_max(self, _: Any) -> int:
            return 1

    import espalier.engines.llamacpp.model as opened

    real = opened.library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opened, "library", lambda: Moved(real, 0, 10, does=True))
        with pytest.raises(CapabilityError, match="n_seq_max is 1 where 72"):
            LlamaStepModel(file, EngineOptions())


@pytest.mark.slow
def test_a_stream_that_nobody_closed_does_not_crash_the_process_at_its_end():
    """What exits free the context first; then the stream gives its sequence back."""
    script = f"""
import espalier
opened = espalier.load({str(DEMO)!r}, threads=1)
kept = [opened.stream("Hello", seed=1, strategy=name) for name in ("mask", "draft")]
print([len(next(one).text) > 0 for one in kept])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[True, True]\n", "")


@pytest.mark.slow
def test_memory_is_given_back_once_in_order_and_at_the_end_of_the_process(folder):
    """In a process of its own: contexts and files dropped in every order, one left to the interpreter's exit."""
    script = f"""
import gc
from pathlib import Path
from espalier.decoding.ports import Extend
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions, Lora
from espalier.errors import EspalierError
path, lora = Path({str(folder / "bpe.gguf")!r}), Lora(path={str(folder / "lora.gguf")!r})
options = EngineOptions(threads=1, lora=(lora,))
def use(model):
    return model.extend([Extend(sequence=model.new(), tokens=(1, 2))])[0]
for order in (0, 1, 2):
    file = LlamaFile(path, options)
    one, two = LlamaStepModel(file, options), LlamaStepModel(file, options)
    if order == 0:
        del file, one; use(two); del two
    elif order == 1:
        rows = use(one); del one, two, file; gc.collect(); rows.sum()
    else:
        del two; use(one); del one; file.meta("general.name")
    gc.collect()
for wrong in (EngineOptions(lora=(lora, Lora(path="nowhere"))), EngineOptions(context=10_000)):
    try:
        LlamaStepModel(file, wrong)
    except EspalierError as error:
        print(type(error).__name__)
left = LlamaStepModel(file, options)
rows = use(left)
print("end")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["UnknownModel", "InputError", "end"]), done.stderr
    assert not done.stderr
