"""Files whose keys or tensors llama.cpp asserts on, ending the process: each is refused before it sees them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp")
gguf = pytest.importorskip("gguf")

from espalier.engines.gguf.checks import check_generates, check_tensors  # noqa: E402
from espalier.engines.gguf.header import Header, read_header  # noqa: E402
from espalier.errors import CapabilityError, InputError  # noqa: E402
from tests import gguf_models as make  # noqa: E402

pytestmark = pytest.mark.slow

F16, BF16, Q8_0, Q8_K, I8, I32, F64 = 1, 30, 8, 15, 24, 26, 28
RMS = "attention.layer_norm_rms_epsilon"
KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown rope scaling": ({"rope.scaling.type": "zz"}, "a rope scaling 'zz'"),
    "experts and none used": ({"expert_count": 4}, "4 experts, 0 of them used"),
    "more experts used than there are": ({"expert_count": 4, "expert_used_count": 5}, "4 experts, 5 of them used"),
    "experts used and none there": ({"expert_used_count": 2}, "0 experts, 2 of them used"),
    "too many experts": ({"expert_count": 1025, "expert_used_count": 2}, "1025 experts, and"),
    "groups without experts": ({"expert_group_count": 2}, "2 groups of 0 experts"),
    "groups that do not divide": (
        {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 3, "expert_group_used_count": 1},
        "3 groups of 4 experts",
    ),
    "no group used": ({"expert_count": 4, "expert_used_count": 2, "expert_group_count": 2}, "0 of them used"),
    "every group used": (
        {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 2, "expert_group_used_count": 2},
        "2 groups of 4 experts, 2 of them used",
    ),
    "as many groups as experts": ({"expert_count": 4, "expert_used_count": 2, "expert_group_count": 4}, "4 groups"),
    "more layers for later tokens than layers": ({"nextn_predict_layers": 9}, "9 layers that predict"),
    "an epsilon below 0": ({RMS: -1.0}, f"an {RMS} of -1.0"),
    "an epsilon that is no number": ({RMS: math.nan}, "of nan"),
    "an epsilon without end": ({RMS: math.inf}, "of inf"),
    "another epsilon below 0": ({"attention.layer_norm_epsilon": -1.0}, "attention.layer_norm_epsilon of -1.0"),
}
TENSORS: dict[str, tuple[str, int, str]] = {
    "a norm in float16": ("output_norm.weight", F16, "not of the type F32"),
    "a norm in bfloat16": ("blk.0.attn_norm.weight", BF16, "not of the type F32"),
    "a norm in blocks": ("output_norm.weight", Q8_0, "not of the type F32"),
    "a norm in bytes": ("output_norm.weight", I8, "not of the type F32"),
    "a bias in float16": ("blk.0.attn_q.bias", F16, "not of the type F32"),
    "frequencies in float16": ("rope_freqs.weight", F16, "not of the type F32"),
    "weights as integers": ("output.weight", I32, "of the type I32"),
    "weights in float64": ("blk.1.ffn_up.weight", F64, "of the type F64"),
    "weights in blocks of activations": ("token_embd.weight", Q8_K, "of the type Q8_K"),
}
LOAD = """
import sys
from pathlib import Path
from espalier.decoding.ports import Extend
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
options = EngineOptions(threads=1, kv_size=256, sequences=2)
for path in sorted(Path(sys.argv[1]).glob("*.gguf")):
    try:
        model = LlamaStepModel(LlamaFile(path, options), options)
        model.extend([Extend(sequence=model.new(), tokens=(1, 2, 3))])
        print("loaded", path.name)
    except InputError as error:
        assert "is damaged" in error.message and error.hint == "fetch the file again", error
        print("refused", path.name)
"""


def write(path: Path, keys: dict[str, Any]) -> Path:
    """A model with those keys instead of its own."""
    made = make.write_llama(path, make.bpe_words(), keys={f"llama.{k}": v for k, v in keys.items() if k != RMS})
    if RMS in keys:
        data = bytearray(made.read_bytes())
        at = data.index(RMS.encode()) + len(RMS) + 4
        data[at : at + 4] = np.float32(keys[RMS]).tobytes()
        made.write_bytes(data)
    return made


def write_typed(path: Path, tensor: str, kind: int) -> Path:
    """A model whose tensor is of another type, filled with zeros, and of the right length."""
    reader = gguf.GGUFReader(str(make.write_llama(path.with_suffix(".source"), make.bpe_words(), hidden=256)))
    writer = gguf.GGUFWriter(str(path), "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    shapes = {t.name: np.array(t.data).shape for t in reader.tensors}
    shape = shapes.get(tensor, (256,) if tensor.endswith("bias") else (32,))
    zeros = np.zeros((*shape[:-1], shape[-1] // block * size), dtype=np.uint8)
    for found in reader.tensors:
        if found.name != tensor:
            writer.add_tensor(found.name, np.array(found.data))
    writer.add_tensor(tensor, zeros, raw_dtype=gguf.GGMLQuantizationType(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("damage", KEYS)
def test_a_key_that_would_end_the_process_is_refused(tmp_path, damage):
    keys, said = KEYS[damage]
    with pytest.raises(InputError, match=said) as caught:
        check_generates(read_header(write(tmp_path / "k.gguf", keys)), "k.gguf")
    assert (caught.value.field, caught.value.hint) == ("model", "fetch the file again")


@pytest.mark.parametrize("damage", TENSORS)
def test_a_tensor_of_a_type_that_would_end_the_process_is_refused(tmp_path, damage):
    tensor, kind, said = TENSORS[damage]
    with pytest.raises(InputError, match=said) as caught:
        check_generates(read_header(write_typed(tmp_path / "t.gguf", tensor, kind)), "t.gguf")
    assert tensor in caught.value.message


def test_none_of_these_damages_ends_the_process(tmp_path):
    """All of them loaded for real, in a process of its own, among them three that are none."""
    for number, (keys, _) in enumerate(KEYS.values()):
        write(tmp_path / f"key{number:02}.gguf", keys)
    for number, (tensor, kind, _) in enumerate(TENSORS.values()):
        write_typed(tmp_path / f"tensor{number:02}.gguf", tensor, kind)
    write(tmp_path / "good0.gguf", {"rope.scaling.type": "yarn"})
    write(tmp_path / "good1.gguf", {"expert_count": 0, "expert_used_count": 0, "nextn_predict_layers": 0})
    write_typed(tmp_path / "good2.gguf", "blk.0.attn_q.weight", Q8_0)
    command = [sys.executable, "-X", "faulthandler", "-c", LOAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert loaded == [f"loaded good{n}.gguf" for n in range(3)]
    assert done.stdout.count("refused") == len(KEYS) + len(TENSORS)


OWN: dict[str, dict[str, Any]] = {
    "bailingmoe3": {"kda.gate_lower_bound": 0.5},
    "glm4moe": {},
    "glm5-next": {"attention.indexer.kpool": 3, "attention.indexer.top_k": 8, "hyper_connection.count": 4},
    "grovemoe": {"expert_count": 4, "expert_used_count": 2, "experts_per_group": 0},
    "hrm_text": {"hrm.layers_per_stack": 2, "hrm.h_cycles": 2, "hrm.l_cycles": 2},
    "hy_v4": {"attention.key_length_mla": 64},
    "jamba": {"embedding_length": 64, "ssm.inner_size": 64},
    "lfm2moe": {"leading_dense_block_count": 1},
    "minimax-m3": {"attention.indexer.block_size": 0},
    "nanbeige": {"num_loops": 0},
}


@pytest.mark.parametrize("arch", OWN)
def test_what_one_architecture_alone_asserts_is_refused(arch):
    keys = {"block_count": 2} | OWN[arch]
    header = Header(tensors=1, values={"general.architecture": arch} | {f"{arch}.{k}": v for k, v in keys.items()})
    with pytest.raises(InputError, match="is damaged"):
        check_generates(header, "m.gguf")


RIGHT: dict[str, dict[str, Any]] = {
    "bailingmoe3": {"kda.gate_lower_bound": -5.0},
    "glm4moe": {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 1, "expert_group_used_count": 1},
    "glm5-next": {"attention.indexer.kpool": 4, "attention.indexer.top_k": 8, "hyper_connection.count": 4},
    "granitehybrid": {"embedding_length": 64, "ssm.inner_size": 128},
    "hrm_text": {"block_count": 12, "hrm.layers_per_stack": 2, "hrm.h_cycles": 2, "hrm.l_cycles": 2},
    "hunyuan-dense": {"expert_count": 1, "expert_used_count": 1},
    "lfm2moe": {"leading_dense_block_count": 2},
    "nanbeige": {"num_loops": 2},
    "deepseek2": {"expert_count": 64, "expert_used_count": 6, "expert_group_count": 8, "expert_group_used_count": 4},
}


@pytest.mark.parametrize("arch", RIGHT)
def test_what_one_architecture_may_have_is_not_refused(arch):
    keys = {"block_count": 2} | RIGHT[arch]
    header = Header(tensors=1, values={"general.architecture": arch} | {f"{arch}.{k}": v for k, v in keys.items()})
    check_generates(header, "m.gguf")


def test_experts_may_differ_from_layer_to_layer():
    header = Header(tensors=1, values={"general.architecture": "llama", "llama.block_count": 3})
    header.values["llama.expert_count"] = 8
    header.numbers["llama.expert_used_count"] = (0, 2, 8)
    check_generates(header, "m.gguf")
    header.numbers["llama.expert_used_count"] = (0, 2, 9)
    with pytest.raises(InputError, match="9 of them used"):
        check_generates(header, "m.gguf")


@pytest.mark.parametrize(
    ("arch", "said"), [("t5", "has an encoder"), ("eagle3", "has an encoder"), ("gemma-embedding", "for embeddings")]
)
def test_a_model_that_cannot_write_is_known_by_its_architecture(arch, said):
    with pytest.raises(CapabilityError, match=said):
        check_generates(Header(tensors=1, values={"general.architecture": arch}), "m.gguf")


def test_integers_that_are_no_weights_may_stay():
    check_tensors(Header(types={"blk.0.ffn_gate_tid2eid.weight": I32, "d2t": 27}), "m.gguf")
