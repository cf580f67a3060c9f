"""Any causal language model of Hugging Face transformers as a StepModel and as an engine.

It does not know constraints, sampling or strategies: it turns token ids into logits, and a name into a model.
Nothing of a model's repository is ever executed (`trust_remote_code` is always False).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from espalier.errors import (
    CapabilityError,
    InputError,
    LimitExceeded,
    MissingDependency,
    UnknownModel,
)

try:
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        DynamicCache,
        PreTrainedConfig,
    )
    from transformers.cache_utils import DynamicLayer
except ModuleNotFoundError as error:
    raise MissingDependency(error.name or "transformers", extra="transformers") from error

from espalier.chat.prompt.template import ChatTemplate
from espalier.decoding.ports import Extend, Rows, SequenceId
from espalier.engines.huggingface.errors import first_line, mapped, mapped_loading, quiet
from espalier.engines.huggingface.slot_cache import NativeCaches, RowCaches, SlotCache
from espalier.engines.local.engine import LocalEngine
from espalier.engines.local.ports import Encode
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.tokens.vocab import Vocab

TAKES = ("device", "dtype")
MAX_SEQUENCES = 256
# Where a model names no limit (recurrent layers, ALiBi): far beyond any prompt, small enough to multiply.
UNBOUNDED = 1 << 20
# A pass pads every row to its longest. Rows up to this many tokens share a pass whatever their lengths, since a
# pass over few tokens costs what reading the weights costs; longer ones only with rows of a like length.
SHORT = 16
LIKE = 4
DTYPES: dict[str, Any] = {
    "auto": "auto",
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
# Implementations that take a ready 4-D mask; flash and flex attention have forms of their own.
_MASKED_ATTENTION = frozenset({"eager", "sdpa"})
# Rotary tables that change with the longest position in the batch: rows would not be independent.
_BATCH_WIDE_ROPE = frozenset({"dynamic", "longrope"})


class TransformersStepModel:
    """A StepModel over a model in memory, which it puts in eval mode and does not change otherwise.

    Full-attention models run all rows in one pass over a `SlotCache`. Models with sliding windows or recurrent
    layers keep transformers' own caches: rows run one at a time and `truncate` is refused. Raises CapabilityError
    for a model that is no causal language model or whose cache cannot be told.
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
        # Recurrent kernels take one token at a time once there is a state; not all models can resume a chunk.
        self._singly = any(not isinstance(layer, DynamicLayer) for layer in layers)
        self._nothing = np.empty((0, self._width), dtype=np.float32)  # (0, V)

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
            return SequenceId(self._caches.fork(sequence))

    def truncate(self, sequence: SequenceId, length: int) -> None:
        held = self._caches.length(sequence)
        if not 0 <= length <= held:
            raise ValueError(f"cannot truncate {held} tokens to {length}")
        self._caches.truncate(sequence, length)

    def free(self, sequence: SequenceId) -> None:
        self._caches.remove(sequence)

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        before = self._checked(work)
        answers: list[Rows] = [self._nothing] * len(work)
        with mapped(), torch.inference_mode():
            try:
                for group in self._passes(work):
                    self._run(work, group, answers)
            except BaseException:
                # Passes before the one that failed have taken effect: undone, so that none has.
                if self._caches.can_truncate:
                    for item, length in zip(work, before, strict=True):
                        self._caches.truncate(item.sequence, length)
                raise
        return answers

    def _checked(self, work: Sequence[Extend]) -> list[int]:
        """The lengths before. Raises before anything has changed."""
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
        """Indices of `work` that run together: all of them, unless padding would cost more than a pass."""
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
                # New tokens stand at the right, so what is wanted are the last places of the line.
                answers[group[n]] = logits[line, places - wanted[n] :]  # (wanted, V)

    def _forward(
        self, rows: Sequence[int], tokens: Sequence[tuple[int, ...]], keep: int
    ) -> tuple[tuple[int, ...], Any]:
        """One pass. Returns the order of the lines and `(B, at least keep, V)` float32."""
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
        # 0 would mean all places; one that nobody wants is cheap and every model can do it.
        keep = max(keep, 1)
        if self._keeps_logits:
            inputs["logits_to_keep"] = keep
        logits = self._model(**inputs).logits[:, -keep:]  # (B, keep, V), the model's dtype
        self._caches.commit()
        return layout.order, logits.float().cpu().numpy()  # no copy for float32 on the CPU


_WANTED: dict[str, Callable[[int], int]] = {"last": lambda n: 1, "all": lambda n: n, "none": lambda n: 0}
"""How many rows of logits `n` tokens are asked for."""


def load_model(name_or_path: str, *, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """A model in eval mode on its device, and its tokenizer, from a folder or by its name on the hub.

    device: `cuda`, `cuda:N`, `mps` or `cpu`; by default the first of these that there is. dtype: a key of DTYPES;
    by default float32 on the CPU and `auto` elsewhere. What is in the hub's cache is used without asking the hub.
    Raises UnknownModel, CapabilityError (not a causal model, or one that transformers cannot load), InputError (bad
    device, dtype or files), LimitExceeded (does not fit).
    """
    where = _device(device)
    number = _dtype(dtype, where)
    folder = _folder(name_or_path)
    with mapped_loading(name_or_path), quiet():
        if folder is None:
            try:
                model, tokenizer = _read(name_or_path, number, local=True)
            except OSError:
                model, tokenizer = _read(name_or_path, number, local=False)
        else:
            model, tokenizer = _read(str(folder), number, local=True)
        model.to(where).eval()
    if not _is_causal(model):
        raise CapabilityError(
            f"{name_or_path} ({type(model).__name__}) is no causal model: its tokens see the ones after them",
            hint="encoder models such as BERT cannot generate",
        )
    return model, tokenizer


def eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a text, in order: the generation config's, then the tokenizer's."""
    generation = getattr(model, "generation_config", None)
    found: list[int] = []
    for stated in (getattr(generation, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)):
        if stated is not None:
            found += np.atleast_1d(stated).tolist()  # an int or a list of them
    return tuple(dict.fromkeys(found))


def make_encode(tokenizer: Any) -> Encode:
    """Prompt text to ids with the tokenizer. Markers spelled in the text are read as such, a BOS is never doubled
    and an EOS that the tokenizer would add at the end is left out: a prompt is to be continued."""

    def encode(text: str, *, add_special: bool) -> list[int]:
        def ids(special: bool) -> list[int]:
            # verbose=False: too long a prompt is our error to raise, not a warning.
            return list(tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

        plain = ids(False)
        if not add_special:
            return plain
        full = ids(True)
        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        if bos is not None and full[:2] == [bos, bos] and plain[:1] == [bos]:
            full = full[1:]
        if full[-1:] == [eos] and plain[-1:] != [eos] and full != [bos]:
            full = full[:-1]
        return full

    return encode


def open_engine(model: str, *, options: EngineOptions = DEFAULT, **shared: Any) -> LocalEngine:
    """The engine for a folder or a hub name; `shared` are a LocalEngine's. Raises what `load_model` raises, VocabError
    and TemplateError."""
    options.check_only("transformers", TAKES)
    loaded, tokenizer = load_model(model, device=options.device, dtype=options.dtype)
    step_model = TransformersStepModel(loaded)
    source = getattr(tokenizer, "chat_template", None)
    sources = source if isinstance(source, dict) else {"default": source}  # there may be several, by name
    bos, eos = tokenizer.bos_token or "", tokenizer.eos_token or ""
    templates = {name: ChatTemplate(text, bos_token=bos, eos_token=eos) for name, text in sources.items() if text}
    return LocalEngine(
        name=Path(model).expanduser().resolve().name if _folder(model) else model,  # a path is nobody else's business
        model=step_model,
        # Without any stated EOS the vocabulary's own search for chat-end markers decides.
        vocab=Vocab.from_tokenizer(tokenizer, eos_ids=eos_ids(loaded, tokenizer) or None, width=step_model.width),
        encode=make_encode(tokenizer),
        template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        tool_format=options.tool_format,
        **shared,
    )


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
    """What transformers itself would cache, one object per layer."""
    try:
        return list(DynamicCache(config=config).layers)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise CapabilityError(f"{name} has a kind of cache that is not known: {error}") from error


def _is_plain(model: Any, layers: list[Any], max_positions: int) -> bool:
    """Whether all state is keys and values of every position, so that a slot can hold it."""
    if getattr(model, "_is_stateful", False):
        return False
    # Subclasses keep more, or less: only the class itself is plain. A window that is never left is no window.
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


def _device(name: str | None) -> torch.device:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [kind for kind, yes in there.items() if yes]
    if name is None:
        return torch.device(usable[0])
    hint = f"here: {', '.join(usable)}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"there is no device {name!r}", hint=hint, field="device") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in usable or (device.index or 0) >= count:
        raise InputError(f"the device {name!r} is not available", hint=hint, field="device")
    return device


def _dtype(name: str | None, device: torch.device) -> Any:
    if name is None:
        name = "float32" if device.type == "cpu" else "auto"
    if name not in DTYPES:
        raise InputError(f"unknown dtype {name!r}", hint=f"one of {', '.join(DTYPES)}", field="dtype")
    return DTYPES[name]


def _folder(name: str) -> Path | None:
    """The folder of a local model; None for what can only be a hub name. Raises UnknownModel."""
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        raise UnknownModel(f"the folder {name} holds no model", hint="it has no config.json", field="model")
    if path.exists():
        raise UnknownModel(f"{name} is a file", hint="give the folder that it is in", field="model")
    # Hub names are `name` or `owner/name`.
    if not name or name.startswith((".", "~", os.sep)) or name.count("/") > 1:
        raise UnknownModel(f"there is no folder {name!r}", field="model")
    return None


def _read(source: str, dtype: Any, *, local: bool) -> tuple[Any, Any]:
    common: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    config = AutoConfig.from_pretrained(source, **common)
    if config.is_encoder_decoder:
        raise CapabilityError(f"{source} is an encoder-decoder, not a causal language model")
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        source, config=config, dtype=dtype, output_loading_info=True, **common
    )
    model, info = loaded
    if info["missing_keys"]:
        # Upstream fills them with random numbers and only warns.
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise CapabilityError(f"{source} lacks weights of a causal language model: {missing}")
    try:
        return model, AutoTokenizer.from_pretrained(source, **common)
    except ValueError as error:
        raise UnknownModel(
            f"{source} has no tokenizer that can be read: {first_line(error)}",
            hint="tokenizer.json belongs into the model's folder",
            field="model",
        ) from error


def _is_causal(model: Any) -> bool:
    """Whether a token's logits are free of the token after it: seen in the model, as names do not tell."""
    rows = model.get_input_embeddings().weight.shape[0]
    pair = torch.tensor([[0, rows // 3], [0, rows - 1]], device=model.device)  # (2, 2) int64
    with mapped(), torch.inference_mode():
        first = model(input_ids=pair, return_dict=True).logits[:, 0].float()  # (2, V)
    # Far above rounding, far below what a token that is seen does.
    tolerance = 1e-4 if model.dtype == torch.float32 else 2e-2
    return bool((first[0] - first[1]).abs().max() <= tolerance * first.abs().max())
