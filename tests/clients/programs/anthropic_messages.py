"""Exercises Anthropic's Messages API with the SDK `anthropic`: chat, stream, format, tools over two turns, thinking,
counting, errors. BASE_URL is the server's address, MODEL its model, API_KEY its key. Says what it did, and exits with 1
at the first thing that is wrong.
"""

from __future__ import annotations

import json
import os
import sys

import anthropic

TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "cache_control": {"type": "ephemeral"},
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "enum": ["Ada", "Bob"]}},
    "required": ["name"],
    "additionalProperties": False,
}
ASKED = [{"role": "user", "content": "What is the weather in Oslo?"}]


def main() -> None:
    client = anthropic.Anthropic(
        base_url=os.environ["BASE_URL"], api_key=os.environ.get("API_KEY", "none"), max_retries=0
    )
    given = {"model": os.environ["MODEL"], "max_tokens": 120, "extra_body": {"temperature": 0}}
    create = client.messages.create

    reply = create(
        **given,
        messages=[{"role": "user", "content": "Who are you?"}],
        system=[{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
    )
    check("chat", reply.content[0].type == "text" and reply.stop_reason == "end_turn" and reply.usage.output_tokens)

    with client.messages.stream(**given, messages=[{"role": "user", "content": "Who are you?"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("stream", final.content[0].text == text and final.usage.output_tokens > 1 and final.usage.input_tokens >= 0)

    reply = create(**given, messages=ASKED, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    check("format", json.loads(reply.content[0].text)["name"] in ("Ada", "Bob"))

    talk: list[object] = [*ASKED]
    with client.messages.stream(
        **given, messages=talk, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}
    ) as stream:
        first = stream.get_final_message()
    call = first.content[-1]
    check("tool", first.stop_reason == "tool_use" and call.type == "tool_use" and "city" in call.input)
    talk.append({"role": "assistant", "content": first.content})
    talk.append(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]},
                {"type": "text", "text": "Answer in one sentence."},
            ],
        }
    )
    second = create(**given, messages=talk, tools=[TOOL])
    check("tool loop", second.stop_reason in ("end_turn", "tool_use", "max_tokens") and second.content)

    thought = create(
        **given,
        messages=[{"role": "user", "content": "What is 2 + 3? Think."}],
        thinking={"type": "enabled", "budget_tokens": 60},
    )
    check("thinking", [one.type for one in thought.content][:1] == ["thinking"])
    back = [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": thought.content}, *ASKED]
    check("thinking sent back", create(**given, messages=back).content)

    counted = client.messages.count_tokens(model=given["model"], messages=ASKED, tools=[TOOL])
    check("count", counted.input_tokens > 5)

    stopped = create(**given, messages=ASKED, stop_sequences=["e"])
    check("stop", (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "e"))

    for fault, body in {
        "messages": {"messages": []},
        "image": {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        "tool": {"messages": ASKED, "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    }.items():
        try:
            create(**given, **body)
        except anthropic.BadRequestError as error:
            check(f"error: {fault}", error.body["error"]["type"] == "invalid_request_error")
        else:
            check(f"error: {fault}", False)

    with client.messages.stream(**given, messages=ASKED) as stream:
        next(iter(stream))  # and leave
    check("cancellation", create(**given, messages=ASKED).content is not None)


def check(name: str, found: object) -> None:
    sys.stdout.write(f"{'ok' if found else 'WRONG'}: {name}\n")
    if not found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
