"""LlamaStepModel on tiny random models of several kinds and on the demo model: laws, limits and failures."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from espalier.decoding.ports import Extend
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
from espalier.errors import CapabilityError, GenerationError, LimitExceeded
from tests import gguf_models as make
from tests.llama_models import DEMO, Failing, model_of, put
from tests.step_model_laws import check_step_model, close, last, words

CONTEXT = 192


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The files of this module."""
    folder: Path = tmp_path_factory.mktemp("gguf")
    bpe, spm = make.bpe_words(padded_to=400), make.spm_words()
    make.write_llama(folder / "bpe.gguf", bpe)
    make.write_llama(folder / "spm.gguf", spm)
    make.write_gemma3(folder / "window.gguf", bpe)
    make.write_mamba(folder / "recurrent.gguf", bpe)
    make.write_lora(folder / "lora.gguf")
    return folder


def oracle_of(path: Path, **options: Any):
    """One pass over all tokens, in an otherwise empty context that serves nothing else: as many as there are
    sequences, which are rows that it has room for."""
    model, known = model_of(path, sequences=256, batch_size=2048, **options), {}

    def oracle(tokens):
        if tokens not in known:
            sequence, known[tokens] = put(model, tokens, "all")
            model.free(sequence)
        return known[tokens]

    return oracle


@pytest.mark.parametrize("name", ["bpe", "spm"])
def test_the_laws_hold_exactly_with_a_float32_cache(folder, name):
    path = folder / f"{name}.gguf"
    check_step_model(
        lambda: model_of(path, context=CONTEXT, kv_size=1024, sequences=12),
        oracle=oracle_of(path, context=CONTEXT),
        programs=2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("name", ["bpe.gguf", "window.gguf", DEMO])
def test_the_laws_hold_where_each_sequence_has_a_cache_of_its_own(folder, name, batch_size):
    """Capacity is no limit there: each sequence can grow to its whole context."""
    path = folder / name
    usual = {"context": CONTEXT, "sequences": 12, "kv_unified": False, "batch_size": batch_size}
    model = model_of(path, **usual)
    assert model.capacity == 12 * 256 * -(-CONTEXT // 256)
    assert model.max_positions == CONTEXT
    check_step_model(
        lambda: model_of(path, **usual),
        oracle=oracle_of(path, context=CONTEXT),
        programs=2,
        tolerance=5e-3 if name == "window.gguf" else 1e-4,
        batch_tolerance=5e-3 if name == "window.gguf" else 1e-4,
    )


@pytest.mark.parametrize("name", ["bpe.gguf", "window.gguf", DEMO])
def test_sequences_that_step_together_become_neighbours_and_keep_what_they_hold(folder, name):
    """Each gap between the slots of a pass makes llama.cpp compute another pass."""
    path, tolerance = folder / name, 5e-3 if name == "window.gguf" else 1e-4
    model = model_of(path, context=CONTEXT, sequences=8, kv_unified=False)
    oracle = oracle_of(path, context=CONTEXT)
    random = Random(7)
    held = {sequence: list(words(random, model.width, 9)) for sequence in (model.new() for _ in range(6))}
    for sequence, tokens in held.items():
        put(model, tokens, sequence=sequence)
    first, second, *_ = held
    kept = held.pop(second)
    empty = model.new()
    for token in range(3):
        for tokens in held.values():
            tokens.append(token)
        rows = model.extend([Extend(sequence=sequence, tokens=(token,), logits="last") for sequence in held])
        for row, tokens in zip(rows, held.values(), strict=True):
            close(row[-1], oracle(tuple(tokens))[-1], tolerance, f"step {token}")
    slots = sorted(model._slots[sequence] for sequence in held)
    assert slots == list(range(slots[0], slots[0] + len(held)))
    for sequence, tokens in ((second, kept), (first, held[first])):
        put(model, (1,), sequence=sequence)
        row = put(model, (2,), sequence=sequence)[1][-1]
        close(row, oracle((*tokens, 1, 2))[-1], tolerance, "one alone, after the moves")
    close(put(model, kept, sequence=empty)[1][-1], oracle(tuple(kept))[-1], tolerance, "one that was empty")
    for sequence in (*held, second, empty):
        model.free(sequence)
    assert sorted(model._free_slots) == list(range(8))


def test_the_laws_hold_for_sliding_windows_which_can_be_cut(folder):
    """Its GELU is a table over float16 in llama.cpp, where the smallest difference may be one of 1e-3."""
    path = folder / "window.gguf"
    assert model_of(path).can_truncate
    check_step_model(
        lambda: model_of(path, context=CONTEXT, kv_size=1024, sequences=12),
        oracle=oracle_of(path, context=CONTEXT),
        programs=2,
        tolerance=5e-3,
        batch_tolerance=5e-3,
    )


def test_the_laws_hold_exactly_on_the_demo_model():
    check_step_model(
        lambda: model_of(DEMO, context=CONTEXT, kv_size=1024, sequences=12),
        oracle=oracle_of(DEMO, context=CONTEXT),
        programs=1,
    )


def test_the_laws_hold_when_every_call_is_many_passes(folder):
    path = folder / "bpe.gguf"
    check_step_model(
        lambda: model_of(path, context=CONTEXT, kv_size=1024, sequences=12, batch_size=5),
        oracle=oracle_of(path, context=CONTEXT),
        programs=2,
        batch_tolerance=1e-4,  # how a pass is cut changes the order of its sums
    )


@pytest.mark.parametrize("path", ["bpe.gguf", DEMO])
def test_the_laws_hold_with_the_default_cache_as_far_as_float16_goes(folder, path):
    """Logits have a standard deviation of about 1.6 (tiny) and 4 (demo); float16 has 11 bits."""
    usual = {"kv_type": None, "flash_attention": None, "context": CONTEXT}
    check_step_model(
        lambda: model_of(folder / path, kv_size=1024, sequences=12, **usual),
        oracle=oracle_of(folder / path, **usual),
        programs=1,
        tolerance=0.06,
        batch_tolerance=0.06,
    )


def test_the_laws_hold_for_a_recurrent_model_which_cannot_be_cut(folder):
    path = folder / "recurrent.gguf"
    model = model_of(path)
    assert not model.can_truncate
    assert model.max_sequences == 8
    assert model.capacity == 8 * model.max_positions
    check_step_model(
        lambda: model_of(path, context=CONTEXT, sequences=12), oracle=oracle_of(path, context=CONTEXT), programs=2
    )


def test_eight_sequences_at_once_equal_each_alone():
    model, random = model_of(DEMO), Random(8)
    prompts = [words(random, 2000, n) for n in (3, 40, 7, 1, 90, 12, 5, 33)]
    steps = [words(random, 2000, 6) for _ in prompts]
    alone = []
    for prompt, step in zip(prompts, steps, strict=True):
        sequence, _ = put(model, prompt)
        alone.append([put(model, (token,), sequence=sequence)[1][0] for token in step])
        model.free(sequence)
    held = [put(model, prompt)[0] for prompt in prompts]
    for n in range(6):
        work = [Extend(sequence=s, tokens=(step[n],)) for s, step in zip(held, steps, strict=True)]
        for rows, wanted in zip(model.extend(work), alone, strict=True):
            close(rows[0], wanted[n], 3e-5, f"step {n}")


def test_forks_of_a_long_prompt_need_no_room_of_their_own(folder):
    model = model_of(folder / "bpe.gguf", context=300, kv_size=512, sequences=40)
    first, _ = put(model, words(Random(1), 300, 290), "none")
    forks = [model.fork(first) for _ in range(39)]
    model.extend([Extend(sequence=s, tokens=(1, 2), logits="none") for s in [first, *forks]])
    assert model.capacity == 512 < 40 * 292


def test_a_prompt_longer_than_a_batch_equals_one_pass(folder):
    tokens, path = words(Random(2), 300, 150), folder / "bpe.gguf"
    _, whole = put(model_of(path), tokens, "all")
    _, cut = put(model_of(path, batch_size=64), tokens, "all")
    close(cut, whole, 1e-4, "cut into batches of 64")


def test_logits_are_not_copied_and_are_of_the_width_of_the_model(folder):
    model = model_of(folder / "bpe.gguf")
    sequence = model.new()
    rows = model.extend([Extend(sequence=sequence, tokens=(1, 2))])[0]
    assert not rows.flags.owndata
    assert rows.shape == (1, 400)
    again = model.extend([Extend(sequence=sequence, tokens=(3,))])[0]
    assert again.ctypes.data == rows.ctypes.data


def test_logits_that_are_kept_keep_the_memory_they_lie_in(folder):
    model = LlamaStepModel(LlamaFile(folder / "bpe.gguf", EngineOptions()), EngineOptions(threads=1))
    rows = model.extend([Extend(sequence=model.new(), tokens=(1, 2))])[0]
    before = rows.copy()
    del model
    gc.collect()
    assert np.array_equal(rows, before)


def test_logits_that_are_kept_can_be_read_after_a_pass_that_wants_more_rows_than_sequences(folder):
    """In a process of its own: llama.cpp would move its buffer away under them."""
    script = f"""
from pathlib import Path
from espalier.decoding.ports import Extend
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
options = EngineOptions(threads=1, sequences=2)
model = LlamaStepModel(LlamaFile(Path({str(DEMO)!r}), options), options)
keep = model.extend([Extend(sequence=model.new(), tokens=(1, 2))])[0]
rows = model.extend([Extend(sequence=model.new(), tokens=(5,) * 995, logits="all")])[0]
assert rows.shape == (995, model.width) and rows.flags.owndata is False and rows.base.flags.owndata
assert model._view(1).ctypes.data == keep.ctypes.data
print(bool(keep.sum()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr[-2000:]


def test_more_rows_than_sequences_are_those_of_one_pass(folder):
    path, random = folder / "bpe.gguf", Random(9)
    model, oracle = model_of(path, sequences=3, batch_size=16), oracle_of(path)
    tokens = [words(random, 300, n) for n in (20, 7, 30)]
    kinds = ("all", "last", "all")
    work = [Extend(sequence=model.new(), tokens=t, logits=k) for t, k in zip(tokens, kinds, strict=True)]
    for item, rows in zip(work, model.extend(work), strict=True):
        wanted = oracle(item.tokens)
        close(rows, wanted if item.logits == "all" else wanted[-1:], 1e-4, item.logits)


@pytest.mark.parametrize("tokens", [(-1,), (400,), (1, 2**31), (1, 2, 2**70), (3, -(2**40))])
def test_an_id_that_is_no_token_is_refused_and_nothing_changes(folder, tokens):
    model = model_of(folder / "bpe.gguf")
    sequence, _ = put(model, (1, 2))
    with pytest.raises(ValueError, match=r"outside 0\.\.399"):
        model.extend([Extend(sequence=sequence, tokens=tokens)])
    assert model.length(sequence) == 2


def test_nothing_to_append_and_a_sequence_twice_are_refused(folder):
    model = model_of(folder / "bpe.gguf")
    sequence = model.new()
    with pytest.raises(ValueError, match="nothing to append"):
        model.extend([Extend(sequence=sequence, tokens=())])
    with pytest.raises(ValueError, match="twice"):
        model.extend([Extend(sequence=sequence, tokens=(1,))] * 2)
    assert model.extend([]) == []


def test_a_full_cache_changes_no_sequence_even_in_the_middle_of_several_passes(folder):
    path = folder / "bpe.gguf"
    model, oracle = model_of(path, context=256, kv_size=256, batch_size=16, sequences=4), oracle_of(path)
    first, second = words(Random(3), 300, 100), words(Random(4), 300, 60)
    one, two = put(model, first, "none")[0], put(model, second, "none")[0]
    with pytest.raises(LimitExceeded, match="256 tokens of the KV cache") as caught:
        model.extend([Extend(sequence=one, tokens=(5,) * 50), Extend(sequence=two, tokens=(5,) * 50)])
    assert "kv_size" in str(caught.value)
    assert (model.length(one), model.length(two)) == (100, 60)
    close(last(model, one, (7,)), oracle((*first, 7))[-1], 1e-4, "the first")
    close(last(model, two, (7,)), oracle((*second, 7))[-1], 1e-4, "the second")
    put(model, (5,) * 94, "none", one)  # all the room is there again


@pytest.mark.parametrize(("code", "said"), [(2, "aborted"), (-1, "refused the batch"), (-3, "returned -3")])
@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("does", [True, False])
def test_after_a_pass_that_failed_no_sequence_has_changed(folder, code, said, after, does):
    path = folder / "bpe.gguf"
    model, oracle = model_of(path, batch_size=8), oracle_of(path)
    one, _ = put(model, (1, 2, 3))
    new, fork = model.new(), model.fork(one)
    real = model._lib
    model._lib = Failing(real, code, after, does=does)
    with pytest.raises(GenerationError, match=said) as caught:
        model.extend([Extend(sequence=s, tokens=tuple(range(11, 22))) for s in (one, new, fork)])
    assert not isinstance(caught.value, LimitExceeded)
    model._lib = real
    assert [model.length(s) for s in (one, new, fork)] == [3, 0, 3]
    for sequence, before in ((one, (1, 2, 3)), (new, ()), (fork, (1, 2, 3))):
        close(last(model, sequence, (9, 8)), oracle((*before, 9, 8))[-1], 1e-4, "after a failure")


def test_a_sequence_that_cannot_be_brought_back_is_not_used_again(folder):
    model = model_of(folder / "recurrent.gguf", batch_size=4, sequences=3)
    held, _ = put(model, (1, 2, 3))
    new = model.new()
    real = model._lib
    model._lib = Failing(real, 2, 1, does=False)
    with pytest.raises(GenerationError, match="aborted"):
        model.extend([Extend(sequence=s, tokens=(5, 6, 7)) for s in (held, new)])
    model._lib = real
    for use in (
        lambda: model.extend([Extend(sequence=held, tokens=(1,))]),
        lambda: model.fork(held),
        lambda: model.truncate(held, 1),
    ):
        with pytest.raises(GenerationError, match="lost when a pass failed"):
            use()
    put(model, (4, 5), sequence=new)  # it was empty, and a whole sequence can be removed
    model.free(held)
    again = model.new()
    wanted = put(model_of(folder / "recurrent.gguf"), (4, 5))[1]
    close(put(model, (4, 5), sequence=again)[1], wanted, 1e-4, "in its place")


def test_a_cache_that_refuses_to_be_cut_is_a_capability_error(folder):
    model = model_of(folder / "bpe.gguf")
    sequence, _ = put(model, (1, 2, 3))

    class Stubborn(Failing):
        def llama_memory_seq_rm(self, *_: Any) -> bool:
            return False

    model._lib = Stubborn(model._lib, 0, 10, does=True)
    with pytest.raises(CapabilityError, match="cannot be truncated"):
        model.truncate(sequence, 1)
    assert model.length(sequence) == 3
