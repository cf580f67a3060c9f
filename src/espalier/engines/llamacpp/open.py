"""Opens the llama.cpp engine: joins a GGUF file, its vocabulary and its chat templates into a LocalEngine.

It knows no constraints and no sampling.
"""

from __future__ import annotations

import weakref
from functools import partial
from pathlib import Path
from typing import Any

from espalier.chat.prompt.template import BrokenTemplate, ChatTemplate, template_of
from espalier.constraints.compiler import NOWHERE, Folders
from espalier.engines.llamacpp.hidden import LlamaHidden
from espalier.engines.llamacpp.library import library
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.native import LlamaSampler
from espalier.engines.llamacpp.tokenize import make_encode
from espalier.engines.llamacpp.vocab import read_vocab
from espalier.engines.llamacpp.weights import OF_WEIGHTS, LlamaFile
from espalier.engines.local.engine import LocalEngine
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import InputError
from espalier.fields import entries
from espalier.tokens.vocab import Vocab

NOT_TAKEN = ("dtype", "tool_format")  # the file has its dtype; tool_format is for the chat template
TAKES = tuple(name for name in entries(EngineOptions) if name not in NOT_TAKEN)
TAKES_LOADED = tuple(name for name in TAKES if name not in OF_WEIGHTS)
"""Of a model that is loaded already, whose weights stay where they are."""
TEMPLATE = "tokenizer.chat_template"


def open_engine(
    model: str, *, options: EngineOptions = DEFAULT, folders: Folders = NOWHERE, **shared: Any
) -> LocalEngine:
    """The engine for a GGUF file; `shared` are a LocalEngine's arguments. Raises UnknownModel, InputError,
    CapabilityError, LimitExceeded. A broken chat template raises when it is rendered, not here."""
    options.check_only("llamacpp", TAKES)
    file = LlamaFile(Path(model).expanduser(), options, cache=folders.cache)
    return _engine_over(file, options, folders=folders, **shared)


def engine_of(model: Any, tokenizer: Any = None, *, options: EngineOptions = DEFAULT, **shared: Any) -> LocalEngine:
    """The engine over a `llama_cpp.Llama`: its weights are used as they lie in memory, in a context of our own, by
    default of the same length. Close it before the Llama. Raises as `open_engine`, and InputError for a Llama that is
    closed or that has only the vocabulary."""
    if tokenizer is not None:
        raise InputError("a GGUF file has its own tokenizer", hint="leave tokenizer out", field="tokenizer")
    if getattr(model, "model", None) is None or model.model_params.vocab_only:
        raise InputError("this Llama is closed, or has only the vocabulary", field="model")
    context = min(model.n_ctx(), model._model.n_ctx_train())
    options = options.over(EngineOptions(context=context, threads=model.n_threads))
    return _engine_over(LlamaFile(Path(model.model_path), options, loaded=model), options, **shared)


def _engine_over(file: LlamaFile, options: EngineOptions, **shared: Any) -> LocalEngine:
    path = file.path
    lib, handle = library(), file.vocab
    keeper = weakref.ref(file)  # a vocabulary may outlive its engine, and must not keep the weights in memory
    vocab = read_vocab(lib, handle, name=path.name, keeper=keeper)
    stepped = LlamaStepModel(file, options)
    hidden = LlamaHidden(file, options, stepped.max_positions)
    return LocalEngine(
        name=path.name,  # not the path: the name shows up in replies and traces
        model=stepped,
        vocab=vocab,
        encode=make_encode(lib, handle, keeper=keeper),
        template=_template(file, TEMPLATE),
        tool_template=_template(file, f"{TEMPLATE}.tool_use"),
        tool_format=options.tool_format,
        hidden=hidden,
        generates=hidden.pooling is None,
        kv_unified=stepped.is_unified,
        native=partial(LlamaSampler, handle, owner=file, context=stepped.max_positions),
        **shared,
    )


def read_vocab_of(model: str) -> Vocab:
    """The vocabulary of a GGUF file, without its weights. Raises what `open_engine` raises."""
    path = Path(model).expanduser()
    file = LlamaFile(path, DEFAULT, vocab_only=True)
    return read_vocab(library(), file.vocab, name=path.name, keeper=lambda: file)


def _template(file: LlamaFile, key: str) -> ChatTemplate | None:
    """The chat template in the file's metadata. llama.cpp's own call may return the name of a built-in one."""
    source = file.meta(key)
    if not source or not source.strip():
        return None
    if "{" not in source:
        reason = f"the model's chat template is {source.strip()[:40]!r}, which is no Jinja template"
        return BrokenTemplate(source, reason)
    lib, handle = library(), file.vocab
    return template_of(
        source,
        bos_token=_spelling(lib, handle, lib.llama_vocab_bos(handle)),
        eos_token=_spelling(lib, handle, lib.llama_vocab_eos(handle)),
    )


def _spelling(lib: Any, handle: Any, token: int) -> str:
    text: bytes = lib.llama_vocab_get_text(handle, token) if token >= 0 else b""
    return text.decode("utf-8", "replace")
