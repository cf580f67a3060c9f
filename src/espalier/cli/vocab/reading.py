"""Finds and reads the vocabulary of a model by its name. No weights are read.

`kept.py` reads those of the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from espalier import api
from espalier.cli.vocab.kept import KEPT, read_kept
from espalier.engine_table import is_gguf, read_gguf_vocab
from espalier.errors import InputError, UnknownModel
from espalier.files.json_shape import check_shape
from espalier.files.limits import MODEL_JSON
from espalier.files.reading import read_text, shortened
from espalier.optional import optional_imports
from espalier.tokens.tokenizer_json import MAX_IDS
from espalier.tokens.vocab import Vocab
from espalier.wiring import demo_model

NAMED: Mapping[str, Callable[[], Vocab]] = {"bytes": Vocab.bytes, "fake": Vocab.bytes}


def read(name: str | None) -> tuple[Vocab, int | None]:
    """A vocabulary, and the model's number of logits if its config has it. No weights are read.

    Without a name: those of the configured model, else the demo model. Raises VocabError, UnknownModel,
    MissingDependency.
    """
    name = name if name is not None else api.default_app().settings.model or str(demo_model())
    if not name.strip():
        raise InputError("the name of the model is empty", field="model")
    if name in NAMED:
        return NAMED[name](), None
    try:
        vocab = read_vocab(name)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}", field="model") from error
    if is_gguf(name) or name.startswith(KEPT):
        return vocab, vocab.width  # a file has one token for each logit
    logits = model_width(name)
    return (vocab if logits is None or logits <= len(vocab) else replace(vocab, width=logits)), logits


def model_width(name: str) -> int | None:
    """The number of logits that a model's config names, or None. Raises InputError for one that no model has."""
    path = Path(name).expanduser()
    try:
        config = _hub_config(name) if not path.exists() else _folder_config(path)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(config, dict):
        return None
    # A model of several modalities keeps its text model's config inside its own.
    levels = [level for level in (config.get("text_config"), config) if isinstance(level, dict)]
    widths = [level["vocab_size"] for level in levels if type(level.get("vocab_size")) is int]
    if widths and not 0 < widths[0] <= MAX_IDS:
        raise InputError(f"{path / 'config.json'}: vocab_size is {shortened(str(widths[0]), 30)}", field="model")
    return widths[0] if widths else None


def _folder_config(folder: Path) -> Any:
    path = folder / "config.json"
    if not path.is_file():
        return None
    text = read_text(path, MODEL_JSON)
    check_shape(text, MODEL_JSON, str(path))
    return json.loads(text)


def _hub_config(name: str) -> dict[str, Any]:
    from transformers import AutoConfig  # noqa: PLC0415  # heavy, and only names on the hub need it

    config: dict[str, Any] = AutoConfig.from_pretrained(name, trust_remote_code=False).to_dict()
    return config


def read_vocab(name: str) -> Vocab:
    """The vocabulary of a tokenizer file, a GGUF file, a folder, a hub name, or `kept:FINGERPRINT` from the store.
    Raises VocabError, UnknownModel, CapabilityError, MissingDependency."""
    if name.startswith(KEPT):
        return read_kept(name.removeprefix(KEPT))
    path = Path(name).expanduser()
    if is_gguf(name):
        return read_gguf_vocab(name)
    if path.exists():
        return Vocab.from_tokenizer(path)
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or path.suffix in (".json", ".model"):
        raise UnknownModel(f"there is no tokenizer {name}", field="tokenizer")
    with optional_imports("transformers"):
        from transformers import AutoTokenizer  # noqa: PLC0415  # heavy, and only names on the hub need it
    try:
        return Vocab.from_tokenizer(AutoTokenizer.from_pretrained(name, trust_remote_code=False))
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UnknownModel(f"there is no tokenizer {name}: {reason}", field="tokenizer") from error
