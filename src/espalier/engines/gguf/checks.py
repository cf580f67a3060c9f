"""Refuses GGUF files that are no text model, or on which llama.cpp would end the process instead of returning an error.

It reads only the header: it loads no weights and calls no library. What llama.cpp refuses with a reason is left to it.
The conditions are the pinned llama.cpp's assertions on keys and tensors, found by reading its source and by damaging
files; a file made on purpose may still break others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from espalier.engines.gguf.header import DAMAGED, STRING, Header
from espalier.errors import CapabilityError, InputError

MAX_LAYERS, MAX_EXPERTS = 512, 1024  # LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS
INT32, FLOAT32 = 5, 6  # types of values
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
EPSILON = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "attention.group_norm_epsilon")
# Architectures whose layers are always, or from one layer on, made of experts.
EXPERTS = ("bailingmoe2", "glm4moe", "grovemoe", "llada-moe", "smallthinker")
# Architectures in which one expert means none.
DENSE = ("hunyuan-dense", "hunyuan_vl")

RANK = 4  # of enum llama_pooling_type: a reranker's
EMBEDDERS = ("gemma-embedding",)
ENCODERS = ("t5", "t5encoder", "eagle3", "dflash")  # llama_model_has_encoder; the last two also need another model

F32 = 0  # of enum ggml_type
# These are combined with float32 rows, or read as float32, whatever the model computes in, and every converter writes
# them as F32. Integer tensors have other names.
ALWAYS_F32 = ("_norm.weight", ".bias", ".ssm_conv1d.weight", ".ssm_a", ".ssm_d", "rope_freqs.weight")
# Types that cannot be multiplied with a row: the enum without the float and block types.
NO_PRODUCT = MappingProxyType({9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"})


def check_generates(header: Header, name: str) -> None:
    """Raises CapabilityError for a model that does not write text, InputError for a file that is no model, or is
    damaged so that llama.cpp would end the process."""
    kind = header.values.get("general.type", "model")
    if kind == "adapter":
        raise InputError(
            f"{name} is a LoRA adapter, not a model",
            hint="load the model that it was made for, with it as lora",
            field="model",
        )
    ranks = header.own("pooling_type") == RANK
    if header.own("attention.causal") is False or ranks or header.architecture in EMBEDDERS:
        raise CapabilityError(
            f"{name} ({header.architecture}) is a model for embeddings: it cannot generate",
            hint="load a model that was trained to write text",
            field="model",
        )
    if header.architecture in ENCODERS:
        raise CapabilityError(f"{name} ({header.architecture}) has an encoder", field="model")
    if not header.tensors:
        raise InputError(f"{name} holds a vocabulary and no weights", field="model")
    for fault in _faults(header):
        raise InputError(f"{name} is damaged: it says that it has {fault}", hint=DAMAGED, field="model")
    check_tensors(header, name)


def check_tensors(header: Header, name: str, *, what: str = "model") -> None:
    """Raises InputError for a tensor of a type on which llama.cpp would end the process in the first pass. what: the
    field that the error names."""
    for tensor, kind in header.types.items():
        if tensor.endswith(ALWAYS_F32) and kind != F32:
            raise InputError(
                f"{name} is damaged: its tensor {tensor!r} is not of the type F32", hint=DAMAGED, field=what
            )
        if tensor.endswith((".weight", ".lora_a", ".lora_b")) and kind in NO_PRODUCT and "tid2eid" not in tensor:
            raise InputError(
                f"{name} is damaged: its tensor {tensor!r} is of the type {NO_PRODUCT[kind]}, which is not for weights",
                hint=DAMAGED,
                field=what,
            )


def check_vocabulary(header: Header, name: str) -> None:
    """Raises InputError for a vocabulary on which llama.cpp would end the process, or read beyond an array."""
    # GGML_ASSERT in llama_vocab::load: every spelling is unique, as it reads them: up to a NUL, an empty one by its id.
    seen: set[bytes] = set()
    for number, token in enumerate(header.tokens):
        token = token.split(b"\0", 1)[0] or b"[EMPTY_%d]" % number
        if token in seen:
            shown = token.decode("utf-8", "replace")
            raise InputError(f"{name} has the token {shown!r} twice in its vocabulary", hint=DAMAGED, field="model")
        seen.add(token)
    # llama.cpp reads these as C arrays of one type, without checking the type.
    wanted = {"tokens": (STRING,), "merges": (STRING,), "scores": (FLOAT32, INT32), "token_type": (INT32,)}
    for key, types in wanted.items():
        full = f"tokenizer.ggml.{key}"
        array = header.arrays.get(full)
        if (array is not None and array[0] not in types) or full in header.values:
            raise InputError(f"{name} is damaged: {full} has the wrong type", hint=DAMAGED, field="model")


def _faults(header: Header) -> Iterator[str]:
    """The broken assertions of llama_model_base::load_hparams and of the forward passes, as text."""
    layers, later = header.own("block_count"), header.count("nextn_predict_layers")
    if isinstance(layers, int) and not 0 < layers <= MAX_LAYERS:
        yield f"{layers} layers"
    if isinstance(layers, int) and later > layers:
        yield f"{later} layers that predict further tokens, of {layers}"
    scaling = header.own("rope.scaling.type")
    if isinstance(scaling, str) and scaling not in ROPE_SCALINGS:
        yield f"a rope scaling {scaling[:40]!r}, and llama.cpp knows {', '.join(ROPE_SCALINGS)}"
    for key in EPSILON:
        value = header.own(key)
        if isinstance(value, float) and not 0 <= value < math.inf:
            yield f"an {key} of {value}"
    yield from _expert_faults(header)
    for broken, fault in OWN.get(header.architecture, ()):
        if broken(header):
            yield fault


def _expert_faults(header: Header) -> Iterator[str]:
    experts, used = header.count("expert_count"), header.count("expert_used_count")
    groups, groups_used = header.count("expert_group_count"), header.count("expert_group_used_count")
    if header.architecture in DENSE and experts <= 1:
        experts = used = 0
    if experts > MAX_EXPERTS:
        yield f"{experts} experts, and llama.cpp can have {MAX_EXPERTS}"
    if used > experts or bool(used) != bool(experts):
        yield f"{experts} experts, {used} of them used"
    if header.architecture in EXPERTS and not experts:
        yield "no experts"
    wrong = groups >= experts or (groups > 1 and (experts % groups or not 0 < groups_used < groups))
    if groups and wrong:
        yield f"{groups} groups of {experts} experts, {groups_used} of them used"


_Rule = tuple[Callable[[Header], object], str]


def _cycles(header: Header) -> bool:
    per_stack, high, low = (header.count(f"hrm.{key}") for key in ("layers_per_stack", "h_cycles", "l_cycles"))
    layers = header.count("block_count") - header.count("nextn_predict_layers")
    return not (per_stack > 0 and high > 0 and low > 0 and layers == per_stack * high * (low + 1))


def _loops(header: Header) -> bool:
    loops = header.own("num_loops")
    layers = header.count("block_count") - header.count("nextn_predict_layers")
    return isinstance(loops, int) and not (loops >= 1 and layers * loops <= MAX_LAYERS)


def _pools(header: Header) -> bool:
    pool = header.count("attention.indexer.kpool")
    return pool <= 1 or header.count("attention.indexer.top_k") % pool != 0


def _sparse(header: Header) -> bool:
    dense = header.count("leading_dense_block_count")
    return dense < header.count("block_count") and not header.count("expert_count")


def _gate(header: Header) -> bool:
    bound = header.own("kda.gate_lower_bound")
    return header.own("kda.safe_gate") is False or (isinstance(bound, float) and not bound < 0)


def _wide(header: Header) -> bool:
    return header.count("ssm.inner_size") != 2 * header.count("embedding_length")


OWN: Mapping[str, tuple[_Rule, ...]] = MappingProxyType(
    {
        "bailingmoe3": ((_gate, "no safe gate with a lower bound below 0"),),
        "deepseek4": (
            (
                lambda h: h.arrays.get("deepseek4.attention.compress_ratios", (0, 0))[1] > MAX_LAYERS,
                "more compression ratios than layers",
            ),
        ),
        "glm5-next": (
            (_pools, "an indexer that pools by no number above 1 which divides its top_k"),
            (lambda h: h.count("hyper_connection.count") != 4, "other than 4 hyper-connections"),
        ),
        "granitehybrid": ((_wide, "a state that is not twice as wide as an embedding"),),
        "grovemoe": ((lambda h: not h.count("experts_per_group"), "no experts in a group"),),
        "hrm_text": ((_cycles, "another number of layers than its cycles have"),),
        "hy_v4": (
            (
                lambda h: not (h.count("attention.key_length_mla") and h.count("attention.value_length_mla")),
                "no lengths of keys and values for MLA",
            ),
        ),
        "jamba": ((_wide, "a state that is not twice as wide as an embedding"),),
        "lfm2moe": ((_sparse, "layers of experts and no experts"),),
        "minimax-m3": ((lambda h: not h.count("attention.indexer.block_size"), "blocks of 0 in its indexer"),),
        "nanbeige": ((_loops, "no loops over its layers, or too many"),),
    }
)
"""Assertions of single architectures: whether one is broken, and how the error describes it."""
