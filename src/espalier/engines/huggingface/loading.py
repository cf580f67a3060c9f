"""Loads a causal language model and its tokenizer from a folder or the Hugging Face hub.

Nothing of a model's repository is ever executed (`trust_remote_code` is always False).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from espalier.engines.huggingface.errors import first_line, mapped, mapped_loading, quiet
from espalier.engines.local.ports import EncodePrompt
from espalier.engines.model_folder import check_folder, local_folder
from espalier.errors import CapabilityError, InputError, UnknownModel
from espalier.tokens.far_tokenizer import FarTokenizer
from espalier.tokens.tokenizer_json import foreign_faults

DTYPES: dict[str, Any] = {
    "auto": "auto",
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

HUB_SECONDS = 5.0
"""For the hub to answer at all."""


def load_model(name_or_path: str, *, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """A model in eval mode on its device, and its tokenizer, from a folder or by its name on the hub.

    device: `cuda`, `cuda:N`, `mps` or `cpu`; by default the first of these that is available. dtype: a key of DTYPES;
    by default float32 on the CPU and `auto` elsewhere. A model in the hub's cache is loaded without asking the hub.
    Raises UnknownModel, CapabilityError (not a causal model, or one that transformers cannot load), InputError (bad
    device, dtype or files), LimitExceeded (does not fit).
    """
    where = _device(device)
    number = _dtype(dtype, where)
    folder = local_folder(name_or_path)
    there = cached_folder(name_or_path) if folder is None else folder
    if there is not None:
        check_folder(there)
    with mapped_loading(name_or_path), quiet():
        if folder is None:
            try:
                model, tokenizer = _read(name_or_path, number, local=True)
            except OSError:
                _check_hub(name_or_path)
                model, tokenizer = _read(name_or_path, number, local=False)
        else:
            model, tokenizer = _read(str(folder), number, local=True)
        model.to(where).eval()
    check_causal(model, name_or_path)
    return model, tokenizer


def check_causal(model: Any, name: str) -> None:
    """Raises CapabilityError for a model that has no next token. name: the model's, for the message."""
    if model.config.is_encoder_decoder:
        raise CapabilityError(f"{name} is an encoder-decoder, not a causal language model")
    if not _is_causal(model):
        raise CapabilityError(
            f"{name} ({type(model).__name__}) is not a causal model: its tokens attend to later tokens",
            hint="encoder models such as BERT cannot generate",
        )


def eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a text, in order: the generation config's, then the tokenizer's."""
    generation = getattr(model, "generation_config", None)
    ids: list[int] = []
    for stated in (getattr(generation, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)):
        if stated is not None:
            ids += np.atleast_1d(stated).tolist()  # an int or a list of them
    return tuple(dict.fromkeys(ids))


def make_encode(tokenizer: Any) -> EncodePrompt:
    """Prompt text to ids with the tokenizer. Special tokens spelled in the text become their ids, a BOS is never
    doubled, and an EOS that the tokenizer would append is left out, since the model continues the prompt."""
    far = far_tokenizer(tokenizer)

    def encode(text: str, *, add_special: bool) -> list[int]:
        def ids(special: bool) -> list[int]:
            if far is not None and far.takes(text):
                return far.encode(text, special=special)
            # verbose=False: we raise an error for a prompt that is too long, instead of a warning.
            with foreign_faults("the tokenizer"):
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


def far_tokenizer(tokenizer: Any) -> FarTokenizer | None:
    """The same tokenizer for long texts, in worker processes; None for one that cannot be written as JSON."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or getattr(tokenizer, "split_special_tokens", False):
        return None
    try:
        return FarTokenizer(backend.to_str(), spells_specials=True)
    except Exception:  # noqa: BLE001  # a part in Python cannot be written; such a text is encoded in place
        return None


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


def cached_folder(name: str) -> Path | None:
    """The folder of a model in the hub's cache; None if it is not there."""
    try:
        path = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None  # no name of the hub; loading says so
    return Path(path).parent if isinstance(path, str) else None


def _check_hub(name: str) -> None:
    """Ask the hub for the model once: transformers would ask it again and again for half a minute. Raises UnknownModel
    if nobody answers; what a hub that answers says is left to transformers."""
    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_SECONDS)
    except (HfHubHTTPError, HFValidationError):
        return
    except Exception as error:  # of the hub's HTTP library, which is another one in each of its versions
        raise UnknownModel(
            f"there is no folder {name!r}, nor such a model in the hub's cache, and the Hugging Face hub cannot be "
            f"reached: {first_line(error)}",
            hint="give a model's folder or GGUF file",
            field="model",
        ) from error


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
        # transformers would fill them with random numbers and only warn.
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
    """Whether a token's logits are independent of later tokens: measured, since class names do not tell."""
    rows = model.get_input_embeddings().weight.shape[0]
    pair = torch.tensor([[0, rows // 3], [0, rows - 1]], device=model.device)  # (2, 2) int64
    with mapped(), torch.inference_mode():
        first = model(input_ids=pair, return_dict=True).logits[:, 0].float()  # (2, V)
    # Far above rounding errors, far below the effect of a visible token.
    tolerance = 1e-4 if model.dtype == torch.float32 else 2e-2
    return bool((first[0] - first[1]).abs().max() <= tolerance * first.abs().max())
