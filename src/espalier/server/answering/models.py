"""What `/v1/models` says of the model: OpenAI's entry, with the fields of llama-server, vLLM and Anthropic beside it.

The fields of the four do not collide, so clients of each read the same entry. It loads nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from espalier.engines.embedding import GivesHidden
from espalier.server.answering.ollama.card import abilities_of, list_entries, model_file
from espalier.server.process.state import Process

Json = dict[str, Any]
EFFORTS = ("low", "medium", "high", "xhigh", "max")


def write_models(process: Process) -> Json:
    """The reply of `/v1/models`. `models` is llama-server's list, for clients that are made for Ollama."""
    able = abilities_of(process)
    listed = [{**entry, "type": "model", "capabilities": able} for entry in list_entries(process)]
    ends = {"first_id": process.names[0], "last_id": process.names[-1], "has_more": False}
    return {"object": "list", "data": [write_model(name, process) for name in process.names], "models": listed, **ends}


def write_model(name: str, process: Process) -> Json:
    """The entry of one name. A length that is not known is null."""
    longest = process.engine.capabilities.max_context or None
    return {
        "id": name,
        "object": "model",
        "created": process.started,
        "owned_by": "espalier",
        # llama-server's
        "aliases": [other for other in process.names if other != name],
        "meta": _meta(process),
        # vLLM's
        "root": process.names[0],
        "parent": None,
        "max_model_len": longest,
        # Anthropic's
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(process.started, UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": longest,
        "max_tokens": longest,
        "capabilities": _capabilities(process, abilities_of(process)),
    }


def _meta(process: Process) -> Json:
    """llama-server's figures, of those that are known."""
    engine, file = process.engine.engine, model_file(process)
    reader = engine.hidden if isinstance(engine, GivesHidden) else None
    longest = process.engine.capabilities.max_context
    figures = {
        "n_vocab": None if engine.vocab is None else engine.vocab.width,
        "n_ctx": longest,
        "n_ctx_train": file.values.get(f"{file.family}.context_length", longest),
        "n_embd": None if reader is None else reader.size,
        "size": file.size,
    }
    return {name: value for name, value in figures.items() if value}


def _capabilities(process: Process, able: list[str]) -> Json:
    """Anthropic's capabilities: whether `/v1/messages` takes what asks for them."""
    can = process.engine.capabilities
    thinks, structured = "thinking" in able, "json_schema" in can.constraints
    return {
        "batch": _supported(process.batches is not None),
        "citations": _supported(False),
        "code_execution": _supported(False),
        "context_management": _supported(False),
        "effort": {**_supported(thinks), **{effort: _supported(thinks) for effort in EFFORTS}},
        "image_input": _supported(False),
        "pdf_input": _supported(False),
        "server_tools": {**_supported(False), "code_execution": _supported(False), "web_search": _supported(False)},
        "structured_outputs": _supported(structured),
        "thinking": {
            **_supported(thinks),
            "types": {
                "adaptive": _supported(thinks),
                "between_tools": _supported(False),
                "disabled": _supported(True),
                "enabled": _supported(thinks),
            },
        },
    }


def _supported(is_supported: bool) -> Json:
    return {"supported": is_supported}
