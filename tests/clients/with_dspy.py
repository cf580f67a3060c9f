"""DSPy, as docs/how-to/dspy.md says: its JSON adapter with a schema, once LiteLLM knows that the server takes one."""

from __future__ import annotations

from typing import Any, Literal

import dspy
import litellm
from checks import MODEL, V1, expect, run

NAME = f"openai/{MODEL}"
litellm.register_model(
    {
        NAME: {
            "litellm_provider": "openai",
            "mode": "chat",
            "supports_response_schema": True,
            "supports_function_calling": True,
        }
    }
)


class Person(dspy.Signature):
    """Generate user info."""

    question: str = dspy.InputField()
    mood: Literal["calm", "glad"] = dspy.OutputField()
    age: int = dspy.OutputField()


def model(**more: Any) -> dspy.LM:
    return dspy.LM(
        NAME,
        api_base=V1,
        api_key="none",
        max_tokens=200,
        temperature=0.0,
        cache=False,
        num_retries=0,
        engine="litellm",
        **more,
    )


def structured() -> None:
    with dspy.context(lm=model(), adapter=dspy.JSONAdapter()):
        for question in ("Generate user info", "Who is it?", "Another one"):
            answer = dspy.Predict(Person)(question=question)
            expect(answer.mood in ("calm", "glad") and isinstance(answer.age, int), answer)


def reasoning() -> None:
    with dspy.context(lm=model(), adapter=dspy.JSONAdapter()):
        answer = dspy.ChainOfThought("question -> age: int")(question="How old?")
        expect(isinstance(answer.age, int) and isinstance(answer.reasoning, str), answer)


def markers() -> None:
    """The default adapter sends no schema: an expression of its markers holds the model to them."""
    pattern = r"\[\[ ## mood ## \]\]\n(calm|glad)\n\n\[\[ ## age ## \]\]\n[0-9]{1,2}\n\n\[\[ ## completed ## \]\]"
    held = model(extra_body={"structured_outputs": {"regex": pattern}})
    with dspy.context(lm=held, adapter=dspy.ChatAdapter()):
        answer = dspy.Predict(Person)(question="Generate user info")
        expect(answer.mood in ("calm", "glad") and isinstance(answer.age, int), answer)


def errors() -> None:
    try:
        model()("x " * 9000)
    except Exception as error:  # noqa: BLE001  # LiteLLM's or DSPy's own
        expect("context" in str(error).lower(), error)
        return
    raise AssertionError("an overlong prompt is an error")


run(structured, reasoning, markers, errors)
