"""Write a Llama checkpoint as a float32 GGUF: `python scripts/export_demo_gguf.py models/demo`.

Made for the demo model: byte-level BPE, tied output, no biases. It does not know other architectures.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, TokenType
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]

LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def permute(weight: Array, heads: int) -> Array:
    """Reorder the rows of q or k: the checkpoint rotates halves of a head, llama.cpp neighbouring pairs."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def unpermute(weight: Array, heads: int) -> Array:
    """Undo `permute`."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensor_names(layers: int) -> dict[str, str]:
    """Checkpoint name to GGUF name, in the order written."""
    names = {"model.embed_tokens.weight": "token_embd.weight"}
    for layer in range(layers):
        for theirs, ours in LAYER_TENSORS.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"blk.{layer}.{ours}.weight"
    names["model.norm.weight"] = "output_norm.weight"
    return names


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def chat_template(folder: Path) -> str:
    apart = folder / "chat_template.jinja"
    if apart.exists():
        return apart.read_text(encoding="utf-8")
    return str(read_json(folder / "tokenizer_config.json")["chat_template"])


def add_vocabulary(writer: GGUFWriter, folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    pieces: dict[int, str] = {index: piece for piece, index in tokenizer["model"]["vocab"].items()}
    kinds = dict.fromkeys(pieces, TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        pieces[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    order = range(len(pieces))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([pieces[index] for index in order])
    writer.add_token_types([kinds[index] for index in order])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])


def export(folder: Path, out: Path) -> None:
    """Read `config.json`, `model.safetensors` and the tokenizer from `folder`; write `out`."""
    config = read_json(folder / "config.json")
    generation = read_json(folder / "generation_config.json")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    eos: list[int] = generation["eos_token_id"]
    writer = GGUFWriter(str(out), "llama")
    writer.add_name("Espalier demo model")
    writer.add_license("apache-2.0")
    writer.add_file_type(0)  # all float32
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    add_vocabulary(writer, folder)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(eos[0])
    writer.add_eot_token_id(eos[0])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(chat_template(folder))
    weights = load_file(folder / "model.safetensors")
    for theirs, ours in tensor_names(config["num_hidden_layers"]).items():
        weight: Array = weights[theirs].astype(np.float32)
        if theirs.endswith("q_proj.weight"):
            weight = permute(weight, heads)
        elif theirs.endswith("k_proj.weight"):
            weight = permute(weight, kv_heads)
        writer.add_tensor(ours, np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="default: demo.gguf in the folder")
    options = parser.parse_args(argv)
    out: Path = options.out or options.folder / "demo.gguf"
    export(options.folder, out)
    print(f"{out}: {out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
