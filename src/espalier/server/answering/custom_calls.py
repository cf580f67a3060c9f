"""Calls of custom tools as the chat route tells them: `custom` with a text, in place of `function` with arguments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from espalier.server.answering.custom_input import CustomInput

Json = dict[str, Any]


def as_custom(call: Json, custom: Collection[str]) -> Json:
    """A whole call. custom: the names of custom tools."""
    function = call["function"]
    if function["name"] not in custom:
        return call
    rest = {name: value for name, value in call.items() if name != "function"}
    text = CustomInput().feed(function["arguments"])
    return {**rest, "type": "custom", "custom": {"name": function["name"], "input": text}}


class CustomDeltas:
    """The calls of one stream, piece by piece."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[int, int], CustomInput] = {}  # of the open calls, by output and call

    def of(self, output: int, delta: Json, custom: Collection[str]) -> Json:
        """The delta of a message; an empty one where all of it is held back. custom: the names of custom tools."""
        if "tool_calls" not in delta:
            return delta
        calls = [told for call in delta["tool_calls"] if (told := self._call((output, call["index"]), call, custom))]
        return {"tool_calls": calls} if calls else {}

    def _call(self, place: tuple[int, int], call: Json, custom: Collection[str]) -> Json | None:
        function = call["function"]
        if function.get("name") in custom:
            self._inputs[place] = CustomInput()
            begun = {"name": function["name"], "input": ""}
            return {"index": call["index"], "id": call["id"], "type": "custom", "custom": begun}
        if place not in self._inputs:
            return call
        text = self._inputs[place].feed(function["arguments"])
        return {"index": call["index"], "custom": {"input": text}} if text else None
