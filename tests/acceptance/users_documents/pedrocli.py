"""The inputs of PedroCLI's guide to logit control, as they stand there, and what runs its command lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from espalier.wiring import demo_model
from tests.scripted_server import STREAM, Asked, event, reply
from tests.server_process import clean_environment

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "llama_cli.py"
MODEL = demo_model()
GGUF = MODEL / "demo.gguf"
OBJECT_GRAMMAR = r"""
root   ::= object
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
array  ::= "[" ws (value ("," ws value)*)? "]"
value  ::= object | array | string | number | "true" | "false" | "null"
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]*) ("." [0-9]+)?
ws     ::= [ \t\n\r]*
"""
CALL_GRAMMAR = (
    r'root ::= "{" ws "\"name\"" ws ":" ws string ws "," ws "\"args\"" ws ":" ws object ws "}"'
    + "\n"
    + (OBJECT_GRAMMAR.split("\n", 2)[2])
)
NAME_GRAMMAR = r"""
root ::= "{" ws "\"name\"" ws ":" ws string ws "}"
string ::= "\"" [^"]* "\""
ws ::= [ \t\n]*
"""
CALL_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "args": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
    "required": ["name", "args"],
}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
EXAMPLE: dict[str, Any] = {
    "tool": "logit",
    "args": {
        "action": "generate_structured",
        "prompt": "Generate user info",
        "json_schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
            "required": ["name", "email"],
        },
    },
}
HOSTS = "Read the file /etc/hosts"
CAUGHT: dict[str, str] = {
    "CategoryCodeInjection": "rm -rf /",
    "CategoryCredentials": 'api_key = "abcd1234efgh5678ijkl"',
    "CategoryPII": "my SSN is 123-45-6789",
    "CategoryDangerous": "dd if=/dev/zero of=/dev/sda",
}
CONFIG = {
    "Temperature": "temperature",
    "TopK": "top_k",
    "TopP": "top_p",
    "MinP": "min_p",
    "RepetitionPenalty": "repetition_penalty",
    "RepetitionWindow": "repetition_window",
    "Mirostat": "mirostat",
    "MirostatTau": "mirostat_tau",
    "MirostatEta": "mirostat_eta",
    "LogitBias": "logit_bias",
    "MaxTokens": "max_tokens",
    "StopSequences": "stop",
}
READ_FILE = {"name": "read_file", "description": "Read a file.", "parameters": PATH}
ACTIONS: dict[str, dict[str, Any]] = {
    "generate": {"prompt": "Hi", "max_tokens": 8},
    "generate_structured": EXAMPLE["args"],
    "generate_tool_call": {"prompt": HOSTS, "available_tools": [READ_FILE], "max_tokens": 120, "seed": 1},
    "test_config": {"test_prompts": "Generate a user object", "preset": "json_strict", "iterations": 1},
    "list_presets": {},
    "analyze_vocabulary": {"search_terms": ["name"]},
}


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )


def called(stdout: str) -> Any:
    """The first JSON object that a program printed."""
    return json.JSONDecoder().raw_decode(stdout, stdout.index("{"))[0]


class Ollama:
    """A server without logits and grammars, whose second answer is right."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, asked: Asked) -> list[Any]:
        if asked.path == "/v1/models":
            return [reply({"object": "list", "data": [{"id": "org/ollama", "owned_by": "library"}]})]
        self.count += 1
        text = "no JSON" if self.count == 1 else '{"name": "Ada", "email": "a@b.c"}'
        chunks = [
            {"index": 0, "delta": {"content": text}, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        return [STREAM, *(event({"choices": [one]}) for one in chunks), event("[DONE]")]
