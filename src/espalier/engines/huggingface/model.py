"""Any causal language model of Hugging Face transformers as a StepModel: token ids in, logits out.

It knows no constraints, sampling or strategies, and not where a model comes from (`loading.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

from espalier.activations.capture.tree import CaptureTree
from espalier.decoding.ports import Extend, Rows, SequenceId
from espalier.engines.huggingface.errors import mapped
from espalier.engines.huggingface.slot_cache import NativeCaches, RowCaches, SlotCache
from espalier.engines.huggingface.taps import Taps
from espalier.errors import CapabilityError, LimitExceeded

MAX_SEQUENCES = 256
# For models that state no limit (recurrent layers, ALiBi): beyond any prompt, small enough to multiply.
UNBOUNDED = 1 << 20
# A pass pads every row to the longest. Rows of up to SHORT tokens always share a pass, since a pass over few tokens
# costs as much as reading the weights; longer rows share one only with rows at least 1/LIKE as long.
SHORT = 16
LIKE = 4
# Implementations that take a 4-D mask; flash and flex attention take other forms.
_MASKED_ATTENTION = frozenset({"eager", "sdpa"})
# RoPE variants that depend on the longest position in the batch: rows would not be independent.
_BATCH_WIDE_ROPE = frozenset({"dynamic", "longrope"})


class TransformersStepModel:
    """A StepModel over a loaded model, which it puts in eval mode and does not change otherwise.

    Full-attention models run all rows in one pass over a `SlotCache`. Models with sliding windows or recurrent layers
    keep transformers' own caches: rows run one at a time, and `truncate` is refused. Raises CapabilityError for a model
    that is no causal language model, or whose kind of cache is unknown.
    """

    def __init__(self, model: Any, *, max_sequences: int = MAX_SEQUENCES) -> None:
        config = model.config.get_text_config(decoder=True)
        if model.config.is_encoder_decoder:
            raise CapabilityError(f"{type(model).__name__} is an encoder-decoder, not a causal language model")
        self._model: Callable[..., Any] = model.eval()
        self._device: torch.device = model.device
        self._max_sequences = max_sequences
        self._max_positions = _max_positions(config)
        self._vocab_rows: int = model.get_input_embeddings().weight.shape[0]
        head = model.get_output_embeddings()
        self._width: int = config.vocab_size if head is None else head.weight.shape[0]
        accepted = signature(model.forward).parameters
        self._cache_name = _cache_name(model, accepted)
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in accepted
        layers = _layers(config, type(model).__name__)
        if self._cache_name == "past_key_values" and _is_plain(model, layers, self._max_positions):
            self._caches: RowCaches = SlotCache(
                layers=len(layers),
                max_rows=max_sequences,
                max_positions=self._max_positions,
                device=self._device,
                dtype=model.dtype,
            )
        else:
            self._caches = NativeCaches(config=config, max_rows=max_sequences, device=self._device)
        self._together = self._caches.can_truncate and self._takes_positions and _rows_can_share(config)
        # With a recurrent state, tokens run one at a time: not all kernels can resume a chunk.
        self._singly = any(not isinstance(layer, DynamicLayer) for layer in layers)
        self._nothing = np.empty((0, self._width), dtype=np.float32)  # (0, V)
        self._taps = Taps(model, len(layers))
        self.passing = threading.Lock()
        """Held during a pass: one at a time, as hooks see every pass."""

    @property
    def watched_layers(self) -> int:
        return self._taps.layers

    @property
    def watched_sites(self) -> tuple[str, ...]:
        return self._taps.sites

    @property
    def width(self) -> int:
        return self._width

    @property
    def max_positions(self) -> int:
        return self._max_positions

    @property
    def max_sequences(self) -> int:
        return self._max_sequences

    @property
    def capacity(self) -> int:
        return self._max_sequences * self._max_positions

    @property
    def can_truncate(self) -> bool:
        return self._caches.can_truncate

    def new(self) -> SequenceId:
        with mapped():
            return SequenceId(self._caches.add())

    def length(self, sequence: SequenceId) -> int:
        return self._caches.length(sequence)

    def fork(self, sequence: SequenceId) -> SequenceId:
        with mapped():
            fork = SequenceId(self._caches.fork(sequence))
        self._taps.fork(sequence, fork)
        return fork

    def watch(self, sequence: SequenceId, watch: CaptureTree | None) -> None:
        self._taps.forget(sequence)
        if watch is not None:
            self._taps.watch(sequence, watch)

    def truncate(self, sequence: SequenceId, length: int) -> None:
        held = self._caches.length(sequence)
        if not 0 <= length <= held:
            raise ValueError(f"cannot truncate {held} tokens to {length}")
        self._caches.truncate(sequence, length)
        self._taps.cut(sequence, length)

    def free(self, sequence: SequenceId) -> None:
        self._caches.remove(sequence)
        self._taps.forget(sequence)

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        before = self._check_work(work)
        answers: list[Rows] = [self._nothing] * len(work)
        with mapped(), torch.inference_mode():
            try:
                for group in self._passes(work):
                    self._run(work, group, answers)
            except BaseException:
                # Earlier passes have taken effect: undo them, so that the call changes nothing.
                if self._caches.can_truncate:
                    for item, length in zip(work, before, strict=True):
                        self._caches.truncate(item.sequence, length)
                        self._taps.cut(item.sequence, length)
                raise
        return answers

    def _check_work(self, work: Sequence[Extend]) -> list[int]:
        """The lengths before the call. Raises before anything has changed."""
        before = []
        for item in work:
            length = self._caches.length(item.sequence)
            before.append(length)
            if not item.tokens:
                raise ValueError(f"nothing to append to sequence {item.sequence}")
            if length + len(item.tokens) > self._max_positions:
                raise LimitExceeded(
                    f"a sequence would outgrow {self._max_positions} positions",
                    hint="shorten the prompt or generate fewer tokens",
                )
            if min(item.tokens) < 0 or max(item.tokens) >= self._vocab_rows:
                raise ValueError(f"a token of sequence {item.sequence} is outside 0..{self._vocab_rows - 1}")
        if len({item.sequence for item in work}) != len(work):
            raise ValueError("a sequence occurs twice in one call")
        return before

    def _passes(self, work: Sequence[Extend]) -> list[list[int]]:
        """Indices of `work` that run in one pass: all of them, unless padding would cost more than another pass."""
        if not self._together:
            return [[i] for i in range(len(work))]
        if len(work) == 1:
            return [[0]]
        groups: list[list[int]] = []
        shortest = 0
        for i in sorted(range(len(work)), key=lambda i: len(work[i].tokens)):
            if not groups or len(work[i].tokens) > max(SHORT, LIKE * shortest):
                groups.append([])
                shortest = len(work[i].tokens)
            groups[-1].append(i)
        return groups

    def _run(self, work: Sequence[Extend], group: list[int], answers: list[Rows]) -> None:
        rows = [work[i].sequence for i in group]
        tokens = [work[i].tokens for i in group]
        wanted = [_WANTED[work[i].logits](len(work[i].tokens)) for i in group]
        if self._singly and self._caches.length(rows[0]):
            parts = [self._forward(rows, [(token,)], 1)[1] for token in tokens[0]]
            lines: tuple[int, ...] = (0,)
            logits = np.concatenate(parts, axis=1)  # (1, T, V)
        else:
            lines, logits = self._forward(rows, tokens, max(wanted))
        places = logits.shape[1]
        for line, n in enumerate(lines):
            if wanted[n]:
                # New tokens are right-aligned, so the wanted rows are the last of the line.
                answers[group[n]] = logits[line, places - wanted[n] :]  # (wanted, V)

    def _forward(
        self, rows: Sequence[int], tokens: Sequence[tuple[int, ...]], keep: int
    ) -> tuple[tuple[int, ...], Any]:
        """One pass. Returns the order of the lines and the logits `(B, at least keep, V)` float32."""
        layout = self._caches.begin(rows, [len(t) for t in tokens])
        width = max(map(len, tokens))
        lines = [[0] * (width - len(tokens[n])) + [*tokens[n]] for n in layout.order]
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor(lines, device=self._device),  # (B, T) int64
            "attention_mask": layout.attention_mask,  # (B, 1, T, total) or None
            self._cache_name: layout.cache,
            "use_cache": True,
            "return_dict": True,
        }
        if self._takes_positions:
            inputs["position_ids"] = layout.position_ids  # (B, T) int64
        # 0 would mean all positions; computing one that nobody wants is cheap.
        keep = max(keep, 1)
        if self._keeps_logits:
            inputs["logits_to_keep"] = keep
        with self.passing:
            logits = self._model(**inputs).logits[:, -keep:]  # (B, keep, V), the model's dtype
            self._caches.commit()
            if self._taps.is_idle:
                return layout.order, logits.float().cpu().numpy()  # no copy for float32 on the CPU
            copied = self._taps.copy(rows, [len(t) for t in tokens], layout.order)
        values = logits.float().cpu().numpy()
        self._taps.take(rows, tokens, copied)
        return layout.order, values


_WANTED: dict[str, Callable[[int], int]] = {"last": lambda n: 1, "all": lambda n: n, "none": lambda n: 0}
"""`Extend.logits` to the number of rows of logits wanted for `n` tokens."""


def _max_positions(config: PreTrainedConfig) -> int:
    # Configs map their own names (n_positions, n_ctx) to this one.
    stated = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    return int(stated) if stated else UNBOUNDED


def _cache_name(model: Any, accepted: Any) -> str:
    """The argument of `forward` that takes a cache."""
    standard: Callable[[], bool] = getattr(model, "_supports_default_dynamic_cache", lambda: True)
    for name in ("past_key_values", "cache_params"):
        if name in accepted and standard():
            return name
    raise CapabilityError(
        f"{type(model).__name__} keeps its state in a form of its own", hint="it takes no transformers Cache"
    )


def _layers(config: PreTrainedConfig, name: str) -> list[Any]:
    """The layers of transformers' own cache for this model, one object per layer."""
    try:
        return list(DynamicCache(config=config).layers)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise CapabilityError(f"{name} has an unknown kind of cache: {error}") from error


def _is_plain(model: Any, layers: list[Any], max_positions: int) -> bool:
    """Whether all state is keys and values of every position, so that a slot can hold it."""
    if getattr(model, "_is_stateful", False):
        return False
    # Subclasses keep more, or less: only the class itself is plain. A window as long as the context is no window.
    return all(type(layer) is DynamicLayer or getattr(layer, "sliding_window", 0) >= max_positions for layer in layers)


def _rows_can_share(config: PreTrainedConfig) -> bool:
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {rope.get("rope_type")} | {r.get("rope_type") for r in rope.values() if isinstance(r, dict)}
    # ALiBi is computed from a 2-D mask.
    return (
        config._attn_implementation in _MASKED_ATTENTION
        and not kinds & _BATCH_WIDE_ROPE
        and not getattr(config, "alibi", False)
    )
