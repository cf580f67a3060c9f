"""The verb `test_config`: runs test cases with the harness, as `espalier test` does."""

from __future__ import annotations

from typing import Any

from espalier.agents.arguments import DECODING, GRAMMAR, PRESET, SAMPLING, SCHEMA, SYSTEM, TEXT
from espalier.agents.generating import blaming
from espalier.agents.verb import Answer, Arguments, Desk, Verb
from espalier.errors import InputError
from espalier.harness.cases.case import TestCase
from espalier.harness.run import Harness

MOST_CASES = 100
MOST_RUNS = 1000
"""Iterations of all cases of one call."""
CONFIG = tuple(name for name in SAMPLING if name != "max_tokens")
SAME = (
    "preset",
    "grammar",
    "system_prompt",
    "expected_format",
    "expected_json",
    "banned_content",
    "required_content",
    "iterations",
    "max_tokens",
    "safety_preset",
    "strategy",
)
"""Arguments with the name of the case's field."""


def cases_of(arguments: Arguments) -> list[TestCase]:
    """The cases that the arguments state. Raises InputError and its subclasses, naming the argument."""
    if ("test_prompts" in arguments) == ("cases" in arguments):
        if "cases" in arguments:
            raise InputError("give test_prompts or cases, not both", field="cases")
        raise InputError("missing required parameter: test_prompts", hint="a prompt, or a list", field="test_prompts")
    if "cases" in arguments:
        shared = [name for name in arguments if name not in ("cases", "seed")]
        if shared:
            raise InputError(f"each case states its own {shared[0]}", hint="beside test_prompts", field=shared[0])
        with blaming("cases"):
            made = [TestCase.from_json(case) for case in arguments["cases"]]
    else:
        prompts = arguments["test_prompts"]
        made = [
            _case(i, prompt, arguments)
            for i, prompt in enumerate([prompts] if isinstance(prompts, str) else prompts, 1)
        ]
    if (count := sum(case.iterations for case in made)) > MOST_RUNS:
        field = "cases" if "cases" in arguments else "iterations"
        raise InputError(f"{count} iterations in all; at most {MOST_RUNS}", field=field)
    return made


def iterations_of(arguments: Arguments) -> int:
    """The iterations of all cases. Raises as `cases_of`."""
    return sum(case.iterations for case in cases_of(arguments))


def _case(number: int, prompt: str, arguments: Arguments) -> TestCase:
    fields: dict[str, Any] = {name: arguments[name] for name in SAME if name in arguments}
    for name in ("json_schema", "expected_json_schema"):
        if name in arguments:
            fields[name] = arguments[name]
    config = {name: arguments[name] for name in CONFIG if name in arguments}
    if isinstance(stop := config.get("stop"), str):
        config["stop"] = [stop]
    return TestCase.from_json({"name": f"test_{number}", "prompt": prompt, "config": config, **fields})


def _test_config(arguments: Arguments, desk: Desk) -> Answer:
    cases = cases_of(arguments)
    for case in cases:
        if case.preset is not None:
            with blaming("cases" if "cases" in arguments else "preset"):
                desk.presets.get(case.preset)
    report = Harness(desk.runs, seed=arguments.get("seed", 0), progress=desk.told).add(*cases).run()
    return {"passed": report.passed, "report": str(report), **report.to_json()}


TEST_CONFIG = Verb(
    name="test_config",
    title="Test a configuration",
    about="Prove a configuration: generate for each prompt, several times, and check every output. The report says how "
    "many passed, and why the others did not.",
    properties={
        "test_prompts": {"type": ["string", "array"], "items": TEXT, "minItems": 1, "maxItems": MOST_CASES},
        "iterations": {"type": "integer", "minimum": 0, "maximum": MOST_RUNS, "description": "Of each prompt."},
        **PRESET,
        **GRAMMAR,
        **SCHEMA,
        **SYSTEM,
        **SAMPLING,
        "strategy": DECODING["strategy"],
        "safety_preset": {"type": "string", "description": "minimal, standard, strict, maximum."},
        "expected_format": {"type": "string", "description": "A regular expression that every output has."},
        "expected_json": {"type": "boolean"},
        "expected_json_schema": {**SCHEMA["json_schema"], "description": "Every output is valid under it."},
        "banned_content": {"type": "array", "items": TEXT},
        "required_content": {"type": "array", "items": TEXT},
        "cases": {
            "type": "array",
            "items": {"type": "object"},
            "minItems": 1,
            "maxItems": MOST_CASES,
            "description": "In place of test_prompts: cases as files of `espalier test` state them.",
        },
    },
    output={
        "passed": {"type": "boolean"},
        "report": {"type": "string", "description": "For people."},
        "model": TEXT,
        "seed": {"type": "integer"},
        "seconds": {"type": "number"},
        "results": {"type": "array", "items": {"type": "object"}},
    },
    always=("passed", "report", "model", "seed", "seconds", "results"),
    answers=_test_config,
    runs=iterations_of,
    is_read_only=False,
)
