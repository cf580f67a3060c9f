"""Opens the transformers engine: a model and tokenizer from a folder or the hub, as a LocalEngine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier.chat.prompt.template import ChatTemplate
from espalier.engines.huggingface.hidden import TransformersHidden
from espalier.engines.huggingface.loading import check_causal, eos_ids, load_model, make_encode
from espalier.engines.huggingface.model import TransformersStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.engines.model_folder import local_folder
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import InputError
from espalier.tokens.vocab import Vocab

TAKES = ("device", "dtype", "draft_model")
TAKES_LOADED = ("draft_model",)
"""Of a model that is loaded already."""


def open_engine(model: str, *, options: EngineOptions = DEFAULT, **shared: Any) -> LocalEngine:
    """The engine for a folder or a hub name; `shared` are a LocalEngine's arguments. Raises what `load_model` raises,
    VocabError and TemplateError."""
    options.check_only("transformers", TAKES)
    loaded, tokenizer = load_model(model, device=options.device, dtype=options.dtype)
    folder = local_folder(model)
    name = model if folder is None else folder.expanduser().resolve().name  # no path shows up in replies and traces
    return _engine_over(loaded, tokenizer, name, folder, options, **shared)


def engine_of(model: Any, tokenizer: Any = None, *, options: EngineOptions = DEFAULT, **shared: Any) -> LocalEngine:
    """The engine over a model and a tokenizer that are loaded already; the model is put in eval mode, and stays where
    it is. Raises InputError without a tokenizer, CapabilityError for a model that is not causal, VocabError and
    TemplateError."""
    if tokenizer is None:
        raise InputError(
            "a model that is loaded already needs its tokenizer",
            hint="espalier.load(model, tokenizer)",
            field="tokenizer",
        )
    source = str(getattr(model, "name_or_path", "") or type(model).__name__)
    is_folder = (Path(source) / "config.json").is_file()
    check_causal(model, source)
    return _engine_over(
        model,
        tokenizer,
        Path(source).resolve().name if is_folder else source,
        Path(source) if is_folder else None,
        options,
        **shared,
    )


def _engine_over(
    loaded: Any, tokenizer: Any, name: str, folder: Path | None, options: EngineOptions, **shared: Any
) -> LocalEngine:
    """folder: the model's, None if it is not on this machine as one."""
    step_model = TransformersStepModel(loaded)
    source = getattr(tokenizer, "chat_template", None)
    sources = source if isinstance(source, dict) else {"default": source}  # a tokenizer may have several templates
    bos, eos = tokenizer.bos_token or "", tokenizer.eos_token or ""
    templates = {name: ChatTemplate(text, bos_token=bos, eos_token=eos) for name, text in sources.items() if text}
    return LocalEngine(
        name=name,
        model=step_model,
        # Without a stated EOS, Vocab searches for the markers that end a chat turn.
        vocab=Vocab.from_tokenizer(tokenizer, eos_ids=eos_ids(loaded, tokenizer) or None, width=step_model.width),
        encode=make_encode(tokenizer),
        template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        tool_format=options.tool_format,
        hidden=TransformersHidden(loaded, step_model, folder),
        **shared,
    )
