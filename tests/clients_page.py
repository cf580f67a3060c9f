"""The page docs/reference/clients.md: which client, in which version, ran which checks, and with what result.

The conformance run (tests/integration/clients) writes it; clients, versions and checks are read from the programs of
tests/clients and from the pins of their environment, so that a test without these compares them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "clients"
PAGE = ROOT / "docs" / "reference" / "clients.md"
AGAIN = "python -m pytest tests/integration/clients --clients-page docs/reference/clients.md"
ENGINES = {"transformers": "Transformers", "llamacpp": "llama.cpp"}
#: By program: the packages whose interface it uses, as pip or npm names them.
CLIENTS = {
    "with_adk.py": ("google-adk",),
    "with_agents.py": ("openai-agents",),
    "with_anthropic.py": ("anthropic",),
    "with_autogen.py": ("autogen-agentchat", "autogen-ext"),
    "with_dspy.py": ("dspy",),
    "with_haystack.py": ("haystack-ai",),
    "with_huggingface_hub.py": ("huggingface_hub",),
    "with_inspect_ai.py": ("inspect_ai",),
    "with_instructor.py": ("instructor",),
    "with_langchain.py": ("langchain-openai",),
    "with_langchain_ollama.py": ("langchain-ollama",),
    "with_litellm.py": ("litellm",),
    "with_llama_index.py": ("llama-index-core", "llama-index-llms-openai-like"),
    "with_llm.py": ("llm",),
    "with_mistralai.py": ("mistralai",),
    "with_npm.mjs": ("openai", "ai", "@ai-sdk/openai-compatible", "ollama"),
    "with_ollama.py": ("ollama",),
    "with_openai.py": ("openai",),
    "with_pydantic_ai.py": ("pydantic-ai-slim",),
    "with_semantic_kernel.py": ("semantic-kernel",),
}
#: By program: its environment, of the files in tests/clients/environments; `requirements.txt` has that of the others.
ENVIRONMENTS = {
    "with_adk.py": "adk",
    "with_autogen.py": "autogen",
    "with_dspy.py": "dspy",
    "with_haystack.py": "indexes",
    "with_huggingface_hub.py": "vendors",
    "with_inspect_ai.py": "shells",
    "with_llama_index.py": "indexes",
    "with_llm.py": "shells",
    "with_mistralai.py": "vendors",
    "with_semantic_kernel.py": "semantic-kernel",
}
HEAD = f"""# Clients

These clients run unchanged against `espalier serve` with the demo model. Each line is a program of `tests/clients`, in
an environment that `scripts/setup_clients.sh` installs with the versions given here; `checks` are its functions. This
page is written by `{AGAIN}`; a program that
was not run this time keeps its line, as long as its versions and checks are the same.
[Beside llama-server](../compared.md) is the same for single requests.

| client | checks | {" | ".join(ENGINES.values())} |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Client:
    """A line of the page."""

    #: Packages with their versions.
    versions: str
    #: The names of its checks, in the order in which they run.
    checks: tuple[str, ...]


def read_clients() -> dict[str, Client]:
    """What each program of tests/clients says of itself. Raises KeyError for a package without a pin."""
    npm = json.loads((PROGRAMS / "package.json").read_text(encoding="utf-8"))["dependencies"]
    clients = {}
    for program, packages in CLIENTS.items():
        pins, registry = (npm, "npm: ") if program.endswith(".mjs") else (_read_pins(program), "")
        versions = registry + ", ".join(f"{package} {pins[package]}" for package in packages)
        clients[program] = Client(versions, _read_checks(PROGRAMS / program))
    return clients


def _read_pins(program: str) -> dict[str, str]:
    environment = ENVIRONMENTS.get(program)
    name = "requirements.txt" if environment is None else f"environments/{environment}.txt"
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)$", (PROGRAMS / name).read_text(encoding="utf-8")))


def _read_checks(program: Path) -> tuple[str, ...]:
    source = program.read_text(encoding="utf-8")
    if program.suffix == ".mjs":
        (names,) = re.findall(r"for \(const check of \[([\w, ]+)\]\)", source)
        return tuple(names.split(", "))
    (call,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "run"
    )
    return tuple(ast.unparse(argument) for argument in call.args)


def page(results: Mapping[str, Mapping[str, Sequence[str]]], before: str = "") -> str:
    """The page. results: by program and engine, the checks that worked. before: the page so far."""
    lines = []
    for program, client in read_clients().items():
        head = f"| {client.versions} | {', '.join(client.checks)} |"
        so_far = next((line for line in before.splitlines() if line.startswith(head)), None)
        if program not in results and so_far is not None:
            lines.append(f"{so_far}\n")
            continue
        of_engines = (results.get(program, {}).get(engine) for engine in ENGINES)
        states = " | ".join("not run" if worked is None else _state(client, worked) for worked in of_engines)
        lines.append(f"{head} {states} |\n")
    return HEAD + "".join(lines)


def _state(client: Client, worked: Sequence[str]) -> str:
    faults = [check for check in client.checks if check not in worked]
    return f"fail: {', '.join(faults)}" if faults else f"all {len(client.checks)} work"
