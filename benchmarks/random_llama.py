"""A Llama of about 100 M random weights, the same ones each time: what a larger model costs, without a download."""

from __future__ import annotations

from typing import Any

import torch
import transformers


def random_llama(**config: Any) -> transformers.LlamaForCausalLM:
    """config: fields of `LlamaConfig` beside the usual ones here."""
    usual = {
        "vocab_size": 32000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 9,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "max_position_embeddings": 2048,
    }
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**usual | config)).eval()
