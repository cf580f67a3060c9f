"""Pages of the Python reference: which name stands on which page. mkdocstrings writes them from the docstrings."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from espalier.exports import EXPORTS

FOLDER = "reference/python"
PAGES = {
    "engines": (
        "Load and generate",
        ["load", "LoadedEngine", "Result", "generate", "explain", "plugins", "LlamaCppClient", "InferenceRequest"],
    ),
    "constraints": (
        "Constraints",
        [
            "JsonSchema",
            "JsonObject",
            "Regex",
            "Choice",
            "Gbnf",
            "Wordlist",
            "Ban",
            "Safety",
            "ToolCalls",
            "AllOf",
            "AnyOf",
            "After",
            "Thinking",
            "Channels",
            "Free",
            "Region",
            "SoftJson",
            "SoftWordlist",
            "CategoryCodeInjection",
            "CategoryCredentials",
            "CategoryPII",
            "CategoryProfanity",
            "CategoryViolence",
            "CategoryDangerous",
        ],
    ),
    "schemas": (
        "Schemas and grammars",
        [
            "compile",
            "contract",
            "hazards",
            "schema_of",
            "build",
            "parse_shorthand",
            "schema_to_gbnf",
            "to_llguidance",
            "to_xgrammar",
            "JSONObjectGrammar",
            "ToolCallGrammar",
            "tool_call_schema",
            "multi_tool_call_schema",
            "tools_of",
        ],
    ),
    "sampling": (
        "Sampling and presets",
        [
            "SamplingConfig",
            "Decoding",
            "Preset",
            "PresetBuilder",
            "get_preset",
            "ChatConfig",
            "CodeGenerationConfig",
            "CreativeConfig",
            "DeterministicConfig",
            "StructuredOutputConfig",
        ],
    ),
    "traces": ("Traces and recorders", ["Trace", "Recorder", "MemoryRecorder", "JsonLinesRecorder", "RejectionLog"]),
    "filters": (
        "Filters for a loop of your own",
        [
            "FilterChain",
            "FilterContext",
            "Priority",
            "LogitBias",
            "TokenBan",
            "MatcherFilter",
            "GrammarFilter",
            "JsonSchemaFilter",
            "JsonModeProcessor",
            "JsonState",
            "ToolCallFilter",
            "SafetyFilter",
        ],
    ),
    "more": (
        "Vocabularies, tests, agents, errors",
        ["Vocab", "analyse_vocab", "Harness", "TestCase", "Report", "LogitTool", "Activations", "EspalierError"],
    ),
}


def pages() -> dict[str, str]:
    """Path in the site -> Markdown. Raises ValueError if a public name stands on no page, or on two."""
    named = [name for _, names in PAGES.values() for name in names]
    if sorted(named) != sorted(EXPORTS):
        lost, strange = sorted(set(EXPORTS) - set(named)), sorted(set(named) - set(EXPORTS))
        raise ValueError(f"PAGES of scripts/docs_site/python_names.py: not named {lost}, unknown or twice {strange}")
    made = {f"{FOLDER}/{page}.md": text(title, names) for page, (title, names) in PAGES.items()}
    rows = [
        f"| [{title}]({page}.md) | {', '.join(f'`{n}`' for n in names)} |" for page, (title, names) in PAGES.items()
    ]
    made[f"{FOLDER}/index.md"] = "\n".join(
        [
            "# Python\n\nWhat `import espalier` offers, made from the docstrings. Each name is imported when it is"
            " first used, so that `import espalier` stays light.\n",
            "| page | names |",
            "|---|---|",
            *rows,
            "",
        ]
    )
    return made


def text(title: str, names: list[str]) -> str:
    return "\n".join([f"# {title}\n", *(section(name) for name in names)])


def section(name: str) -> str:
    """What mkdocstrings writes of a class or a function; a value is shown as it is."""
    found = getattr(import_module(EXPORTS[name]), name)
    if callable(found):
        return f"::: {found.__module__}.{name}\n"
    shown = found if isinstance(found, str) else fields_of(found)
    return f"## {name}\n\nA value of the type `{type(found).__name__}`:\n\n```text\n{shown.strip()}\n```\n"


def fields_of(value: Any) -> str:
    """The fields of a dataclass that differ from its defaults, one a line."""
    usual = type(value)()
    named = [(one.name, getattr(value, one.name)) for one in fields(value)]
    return "\n".join(f"{name}={set_to!r}" for name, set_to in named if set_to != getattr(usual, name))
