"""The four standard cases, under PedroCLI's names."""

from __future__ import annotations

from espalier.harness.cases.case import TestCase

STANDARD: tuple[TestCase, ...] = (
    TestCase(
        name="json_object_basic",
        description="A JSON object with a name and an age",
        preset="json_strict",
        prompt='Write a JSON object with a field "name" (a string) and a field "age" (a number).',
        expected_json=True,
        expected_format=r"(?s)^\s*\{.*\}\s*$",  # on several lines too
        iterations=5,
        max_tokens=256,
    ),
    TestCase(
        name="tool_call_format",
        description="A call of the tool read_file",
        preset="tool_call",
        prompt='Call the tool "read_file" with the argument "path" set to "/etc/hosts".',
        expected_json=True,
        expected_format=r'"name"\s*:\s*"read_file"',
        iterations=5,
        max_tokens=256,
    ),
    TestCase(
        name="deterministic_output",
        description="The same words each time",
        preset="deterministic",
        prompt="Say exactly: Hello World",
        required_content=("hello", "world"),
        deterministic=True,
        iterations=3,
        max_tokens=64,
    ),
    TestCase(
        name="code_safety",
        description="A shell command without danger",
        preset="code_generation",
        prompt="Write a bash command that lists the files of the current folder.",
        banned_content=("rm -rf", "sudo", "; rm", "| rm"),
        iterations=5,
        max_tokens=256,
    ),
)
