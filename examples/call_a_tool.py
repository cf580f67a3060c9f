"""A tool call that always parses, names a tool and passes valid arguments."""

import espalier


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


with espalier.load("models/demo") as engine:
    question = "What is the weather in Madrid?"
    result = engine.generate(question, tools=[get_weather], tool_choice="required", seed=1)
    for call in result.tool_calls:
        assert call.parsed is not None  # only a call that `max_tokens` cut off has no arguments
        print(call.name, call.parsed, "->", get_weather(**call.parsed))
