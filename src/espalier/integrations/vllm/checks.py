"""What the processor refuses, and why: settings of vLLM and sampling params under which a constraint cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from espalier.errors import CapabilityError

REFUSED: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "structured_outputs": (
            lambda v: v is not None,
            "name both constraints under espalier: vLLM's and ours know nothing of one another, and may leave no token",
        ),
        "min_tokens": (bool, "a text that is complete must be allowed to end"),
        "ignore_eos": (bool, "a text that is complete must be allowed to end"),
        "allowed_token_ids": (lambda v: v is not None, "tokens that are left out may be the only ones allowed"),
        "bad_words": (bool, "name them as espalier.bad_words, which hold across tokens and leave no dead end"),
        "use_beam_search": (
            bool,
            "vLLM runs each step of a beam as a request of its own, without its extra_args: sample with n instead",
        ),
        "beam_width": (
            lambda v: v is not None,
            "vLLM runs each step of a beam as a request of its own, without its extra_args: sample with n instead",
        ),
    }
)
"""Sampling params that cannot be had beside a constraint."""


def check_params(params: Any, *, report: bool) -> None:
    """Raises CapabilityError, naming the field."""
    for name, (is_set, why) in REFUSED.items():
        if is_set(getattr(params, name, None)):
            raise CapabilityError(f"{name} cannot be had beside a constraint: {why}", field=name)
    bias = getattr(params, "logit_bias", None) or {}
    if report and bias:
        raise CapabilityError(
            "report cannot be had beside logit_bias: vLLM adds the bias first, and the tax is that of the model's own "
            "logits",
            field="logit_bias",
        )
    if any(value == -float("inf") for value in bias.values()):
        raise CapabilityError(
            "logit_bias bans tokens, which may be the only ones allowed", hint="espalier.bad_words", field="logit_bias"
        )


def check_config(config: Any, *, tells_tokens: bool, sees_drafts: bool) -> None:
    """Refuses an engine in which a constraint cannot hold. tells_tokens: whether processors are told the tokens of the
    last step where it schedules ahead of them. sees_drafts: whether they see the rows of drafted tokens. Raises
    CapabilityError."""
    drafted = getattr(config, "speculative_config", None)
    if drafted is not None and not sees_drafts:
        raise CapabilityError(
            "speculative decoding verifies several tokens in rows that a logits processor does not see",
            hint="serve without speculative decoding, or with VLLM_USE_V2_MODEL_RUNNER=1 where that runs",
            field="speculative_config",
        )
    if getattr(drafted, "rejection_sample_method", None) == "synthetic":
        raise CapabilityError(
            "synthetic acceptance keeps drafted tokens whatever a mask says",
            hint="another rejection_sample_method",
            field="rejection_sample_method",
        )
    scheduler = getattr(config, "scheduler_config", None)
    if getattr(scheduler, "async_scheduling", False) and not tells_tokens:
        raise CapabilityError(
            "this vLLM schedules ahead of its tokens, and does not tell them to this logits processor",
            hint="name the processor in --logits-processors, or serve with --no-async-scheduling",
            field="async_scheduling",
        )
    if getattr(getattr(config, "model_config", None), "skip_tokenizer_init", False):
        raise CapabilityError(
            "a constraint needs the tokenizer", hint="leave skip_tokenizer_init out", field="skip_tokenizer_init"
        )
