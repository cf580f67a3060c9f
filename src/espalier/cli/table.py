"""The commands of `espalier` by name, so that help lists them and only the one that runs is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command. target: `module:attribute` in `espalier.cli`, a function or a Typer app. panel: the heading of help
    under which it stands. command_class: the class of the command, `module:attribute` in `espalier.cli`."""

    target: str
    help: str
    panel: str
    command_class: str = "help:GroupedCommand"


OVERRIDES = "help:WithOverrides"
"""Takes `-o KEY VALUE`."""
LLAMA = "llama.generate:WithLlamaFlags"
"""Takes llama.cpp's flags too."""
RUN, LOOK, SERVE, MORE = "Generate", "Look, without generating", "Serve", "Many prompts, tests and stores"

COMMANDS = {
    "generate": CommandEntry("generate:command", "Generate text under a constraint.", RUN, LLAMA),
    "explain": CommandEntry("explain:command", "Explain what a constraint costs, where and why.", RUN, OVERRIDES),
    "chat": CommandEntry("chat:command", "Talk with a model.", RUN, OVERRIDES),
    "trace": CommandEntry("trace.commands:app", "Show, merge, compare and replay traces.", RUN),
    "check": CommandEntry("check:command", "Show what an engine enforces of a JSON Schema.", LOOK),
    "grammar": CommandEntry("grammar:app", "Check, print, sample, try and convert GBNF grammars.", LOOK),
    "wordlist": CommandEntry("wordlist:app", "Build, list and check against word lists.", LOOK),
    "safety": CommandEntry("safety:app", "Show what safety filters catch.", LOOK),
    "vocab": CommandEntry("vocab.command:command", "Show what is in a tokenizer's vocabulary.", LOOK),
    "presets": CommandEntry("presets:app", "List, show, add and remove presets.", LOOK),
    "config": CommandEntry("config:app", "Show the settings and where they come from.", LOOK),
    "plugins": CommandEntry("plugins:command", "List the plug-ins of installed packages.", LOOK),
    "doctor": CommandEntry("doctor:command", "Show what is installed and what can run.", LOOK),
    "completion": CommandEntry("completion:app", "Complete commands, flags, models and presets in your shell.", LOOK),
    "serve": CommandEntry("serve:command", "Serve a model over HTTP, to any OpenAI client.", SERVE),
    "proxy": CommandEntry("proxy:command", "Trace what constraints do in a llama-server.", SERVE),
    "mcp": CommandEntry("mcp:command", "Offer the verbs to agents as MCP tools.", SERVE),
    "logs": CommandEntry("logs.commands:app", "List, show and search the log of generations.", SERVE),
    "costs": CommandEntry("costs.commands:app", "Show what constraints cost over time.", SERVE),
    "batch": CommandEntry("batch.commands:app", "Run many prompts, on the spot or in the background.", MORE),
    "test": CommandEntry("testing:command", "Prove a configuration with test cases.", MORE),
    "eval": CommandEntry("evaluate:app", "Judge generated answers.", MORE),
    "tax-card": CommandEntry("tax_card:command", "Measure what each form of an answer costs a model.", MORE),
    "activations": CommandEntry("activations:app", "Capture hidden states and look after their stores.", MORE),
    "reconstruct": CommandEntry("reconstruct:command", "Rebuild an inference file from logged requests.", MORE),
}

EXAMPLES = {
    "": (
        'espalier generate "Generate user info"',
        'espalier generate --schema examples/user.schema.json "Generate user info"',
        'espalier explain "Generate user info" --schema examples/user.schema.json',
        "espalier serve",
        "espalier generate --help",
    ),
    "generate": (
        'espalier generate --schema examples/user.schema.json "Generate user info"',
        "espalier generate --schema 'name, age int' \"Generate user info\"",
        r"espalier generate --regex '\d{4}-\d{2}-\d{2}' \"Give me a date.\"".replace('\\"', '"'),
        'espalier generate --choice Paris --choice London "The capital of France?"',
        'espalier generate --json-object --seed 2 --trace out.html "Generate user info"',
        'echo "Tell me a short story." | espalier generate -o top_k 20 -',
    ),
    "explain": (
        'espalier explain "Generate user info" --schema examples/user.schema.json',
        'espalier explain "Generate user info" --json-object --strategy smc',
    ),
    "chat": ("espalier chat", 'espalier chat --system "Answer briefly." --json-object'),
    "check": (
        "espalier check examples/user.schema.json",
        "espalier check examples/user.schema.json --instances examples/users.jsonl",
    ),
    "vocab": ("espalier vocab models/demo --search file",),
    "serve": ("espalier serve", "espalier serve -m models/demo --port 8020"),
    "doctor": ("espalier doctor",),
    "completion install": ("espalier completion install", "espalier completion install zsh"),
    "trace show": ("espalier trace show trace.json", "espalier trace show trace.json --step 3"),
    "trace html": ("espalier trace html trace.json trace.html",),
    "trace replay": ("espalier trace replay trace.json --with examples/contact.schema.json",),
    "grammar convert": ("espalier grammar convert examples/user.schema.json",),
    "grammar accepts": ('espalier grammar accepts examples/arithmetic.gbnf "1 + x"',),
    "wordlist check": ("espalier wordlist check examples/story.txt --lang en -n 3000",),
    "safety check": ('espalier safety check "sudo rm -rf /" --preset minimal',),
}
"""Command -> lines that its help shows."""
