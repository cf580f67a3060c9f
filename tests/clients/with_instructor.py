"""instructor, in the modes that ask for JSON by schema and by tools: whole, in parts, errors, cancellation."""

from __future__ import annotations

from typing import Literal

import instructor
import openai
from checks import ASK, MODEL, V1, expect, run
from pydantic import BaseModel


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


def made(mode: instructor.Mode) -> instructor.Instructor:
    return instructor.from_openai(openai.OpenAI(base_url=V1, api_key="none", max_retries=0), mode=mode)


def structured() -> None:
    found = made(instructor.Mode.JSON_SCHEMA).create(
        model=MODEL, messages=ASK, response_model=Person, max_tokens=120, temperature=0, max_retries=0
    )
    expect(isinstance(found, Person), found)


def tools() -> None:
    found = made(instructor.Mode.TOOLS).create(
        model=MODEL, messages=ASK, response_model=Person, max_tokens=120, temperature=0, max_retries=0
    )
    expect(isinstance(found, Person), found)


def stream() -> None:
    parts = list(
        made(instructor.Mode.JSON_SCHEMA).create_partial(
            model=MODEL, messages=ASK, response_model=Person, max_tokens=120, temperature=0, max_retries=0
        )
    )
    expect(parts[-1].mood in ("calm", "glad"), parts[-1])


def errors() -> None:
    try:
        made(instructor.Mode.JSON_SCHEMA).create(
            model=MODEL, messages=ASK, response_model=Person, temperature=-1, max_retries=0
        )
    except Exception as error:  # noqa: BLE001  # instructor wraps it
        expect("temperature" in str(error), error)
        return
    raise AssertionError("a wrong field is an error")


def cancellation() -> None:
    parts = made(instructor.Mode.JSON_SCHEMA).create_partial(
        model=MODEL, messages=ASK, response_model=Person, max_tokens=300, temperature=0, max_retries=0
    )
    next(iter(parts))
    del parts
    structured()


run(structured, tools, stream, errors, cancellation)
