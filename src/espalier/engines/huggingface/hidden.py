"""Reads the hidden states of a text with a transformers model, beside the runs that use it.

What the model says of pooling is in the files of sentence-transformers; of matryoshka in its config, as vLLM reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from espalier.engines.embedding import Pooling, Vectors
from espalier.engines.huggingface.errors import mapped
from espalier.engines.huggingface.model import TransformersStepModel
from espalier.errors import InputError, PromptTooLong
from espalier.files.limits import MODEL_JSON
from espalier.files.reading import read_text

POOLING_FILE = Path("1_Pooling") / "config.json"
MODES: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


class TransformersHidden:
    """A HiddenReader. folder: the model's, None if it is not on this machine as one."""

    def __init__(self, model: Any, steps: TransformersStepModel, folder: Path | None) -> None:
        self._body, self._steps = model.base_model, steps
        config = model.config.get_text_config(decoder=True)
        self._size: int = config.hidden_size
        self._pooling = None if folder is None else _pooling(folder / POOLING_FILE)
        self._prefixes = _prefixes(config, self._size)

    @property
    def size(self) -> int:
        return self._size

    @property
    def pooling(self) -> Pooling | None:
        return self._pooling

    @property
    def prefixes(self) -> Sequence[int]:
        return self._prefixes

    def read(self, tokens: Sequence[int]) -> Vectors:
        if len(tokens) > self._steps.max_positions:
            raise PromptTooLong.over(self._steps.max_positions, tokens=len(tokens))
        # The lock keeps a pass of a captured run apart, whose hooks this one would call too.
        with mapped(), torch.inference_mode(), self._steps.passing:
            ids = torch.tensor([[*tokens]], device=self._body.device)  # (1, T)
            states = self._body(input_ids=ids, use_cache=False, return_dict=True).last_hidden_state  # (1, T, D)
            vectors: Vectors = states[0].float().cpu().numpy()
        return vectors


def _pooling(path: Path) -> Pooling | None:
    """What a file of sentence-transformers says. Raises InputError for one that cannot be read, or for a pooling that
    is not supported, for then every vector would be wrong."""
    if not path.is_file():
        return None
    try:
        pooling = json.loads(read_text(path, MODEL_JSON))
        modes = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True]
    except (ValueError, AttributeError) as error:
        raise InputError(f"{path.parent.name}/{path.name} cannot be read: {error}", field="model") from error
    if len(modes) != 1 or modes[0] not in MODES:
        raise InputError(f"the model pools by {', '.join(modes) or 'nothing'}", hint="mean, cls or last", field="model")
    return MODES[modes[0]]


def _prefixes(config: Any, size: int) -> tuple[int, ...]:
    dimensions = getattr(config, "matryoshka_dimensions", None)
    if dimensions:
        return tuple(int(dimension) for dimension in dimensions)
    return tuple(range(1, size + 1)) if getattr(config, "is_matryoshka", False) is True else ()
