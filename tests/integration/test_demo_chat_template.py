"""llama.cpp's own Jinja and parser of calls read the chat template of the demo model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp")

from tests.llama_server import llama_server

FOLDER = Path(__file__).parents[2] / "models" / "demo"
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def test_llama_server_calls_a_tool_of_the_demo_model() -> None:
    """It said "Unable to generate parser for this template"."""
    body = {
        "messages": [{"role": "user", "content": "Read the file /etc/hosts"}],
        "tools": [TOOL],
        "temperature": 0,
        "max_tokens": 60,
    }
    with llama_server(FOLDER / "demo.gguf", context=512) as server:
        (choice,) = server.post("/v1/chat/completions", body)["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "read_file"
    assert json.loads(call["function"]["arguments"]) == {"path": "/etc/hosts"}
