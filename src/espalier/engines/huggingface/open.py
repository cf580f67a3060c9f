"""Opens the transformers engine: a model and tokenizer from a folder or the hub, as a LocalEngine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier.chat.prompt.template import ChatTemplate
from espalier.engines.huggingface.hidden import TransformersHidden
from espalier.engines.huggingface.loading import eos_ids, load_model, make_encode
from espalier.engines.huggingface.model import TransformersStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.engines.model_folder import local_folder
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.tokens.vocab import Vocab

TAKES = ("device", "dtype", "draft_model")


def open_engine(model: str, *, options: EngineOptions = DEFAULT, **shared: Any) -> LocalEngine:
    """The engine for a folder or a hub name; `shared` are a LocalEngine's arguments. Raises what `load_model` raises,
    VocabError and TemplateError."""
    options.check_only("transformers", TAKES)
    loaded, tokenizer = load_model(model, device=options.device, dtype=options.dtype)
    step_model = TransformersStepModel(loaded)
    source = getattr(tokenizer, "chat_template", None)
    sources = source if isinstance(source, dict) else {"default": source}  # a tokenizer may have several templates
    bos, eos = tokenizer.bos_token or "", tokenizer.eos_token or ""
    templates = {name: ChatTemplate(text, bos_token=bos, eos_token=eos) for name, text in sources.items() if text}
    return LocalEngine(
        name=_shown_name(model),
        model=step_model,
        # Without a stated EOS, Vocab searches for the markers that end a chat turn.
        vocab=Vocab.from_tokenizer(tokenizer, eos_ids=eos_ids(loaded, tokenizer) or None, width=step_model.width),
        encode=make_encode(tokenizer),
        template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        tool_format=options.tool_format,
        hidden=TransformersHidden(loaded, step_model, local_folder(model)),
        **shared,
    )


def _shown_name(model: str) -> str:
    """The model's name; of a local path only the last part, so that no path shows up in replies and traces."""
    return Path(model).expanduser().resolve().name if local_folder(model) else model
