"""llm: its plugin for OpenAI-compatible models, in Python as its command line has it."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any

from checks import MODEL, SCHEMA, V1, expect, run

FOLDER = pathlib.Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(FOLDER)
(FOLDER / "extra-openai-models.yaml").write_text(
    f"- model_id: here\n  model_name: {MODEL}\n  api_base: {V1}\n  supports_schema: true\n  supports_tools: true\n"
)
import llm  # noqa: E402  # it reads the folder of the environment

ASK = "Generate user info"


def model() -> Any:
    return llm.get_model("here")


def chat() -> None:
    reply = model().prompt(ASK, stream=False, max_tokens=8, temperature=0, key="none")
    expect(reply.text() is not None and reply.usage().output, reply)


def stream() -> None:
    expect("".join(model().prompt(ASK, max_tokens=8, temperature=0, key="none")))


def structured() -> None:
    reply = model().prompt(ASK, schema=SCHEMA, stream=False, max_tokens=80, temperature=0, key="none")
    expect(json.loads(reply.text())["mood"] in ("calm", "glad"), reply.text())


def tools() -> None:
    def look_up(city: str) -> str:
        """Finds a place."""
        return f"{city} is sunny"

    chain = (
        model()
        .conversation()
        .chain(
            "What is the weather in Rome?",
            tools=[look_up],
            stream=False,
            options={"max_tokens": 60, "temperature": 0},
            key="none",
        )
    )
    expect(chain.text() is not None)


def errors() -> None:
    try:
        model().prompt("x " * 9000, stream=False, key="none").text()
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in str(error), error)
    else:
        raise AssertionError("an overlong prompt is an error")


run(chat, stream, structured, tools, errors)
