"""The tool `logit` of PedroCLI: one tool with an `action`, its parameters and its messages. Each action is a verb.

Its answer is PedroCLI's: `success`, `output` as text, `error`; `result` has the verb's own answer beside it. It does
nothing that the verbs do not do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.agents.arguments import checked
from espalier.agents.verb import Answer, Verb
from espalier.errors import InputError

NAME = "logit"
OUTPUT: Mapping[str, Any] = {
    "success": {"type": "boolean"},
    "output": {"type": "string", "description": "The text, JSON or report that the action gives."},
    "error": {"type": ["string", "null"]},
    "result": {"type": "object", "description": "What the tool of the action's name answers."},
}
TEXTS: Mapping[str, str] = {"generate_structured": "content", "test_config": "report"}
"""Actions whose output is one text of the answer."""
PARTS: Mapping[str, Sequence[str]] = {
    "generate": ("text", "token_count", "stop_reason"),
    "generate_tool_call": ("tool_call", "raw_text"),
}
"""Actions whose output is a JSON object of some fields of the answer."""


def logit_verb(verbs: Sequence[Verb]) -> Verb:
    """The tool over these verbs: its parameters are those of all of them, and the action says which may be given."""
    properties: dict[str, Any] = {
        "action": {"enum": [verb.name for verb in verbs], "description": "What to do: the name of another tool."}
    }
    for member in verbs:
        for name, schema in member.properties.items():
            properties.setdefault(name, schema)
    return Verb(
        name=NAME,
        title="Logit control",
        about="All tools as one, by `action`; the other parameters are those of the tool of that name.",
        properties=properties,
        required=("action",),
        output=OUTPUT,
        always=("success", "output", "error", "result"),
        is_read_only=False,
    )


def split(tool: Verb, verbs: Mapping[str, Verb], arguments: Any) -> tuple[Verb, dict[str, Any]]:
    """The verb of the action, and its checked arguments. Raises InputError in PedroCLI's words."""
    if isinstance(arguments, Mapping) and "action" in arguments:
        action = arguments["action"]
        if not isinstance(action, str) or action not in verbs:
            raise InputError(f"unknown action: {action!s:.80}", hint=f"there are: {', '.join(verbs)}", field="action")
        rest = {name: value for name, value in arguments.items() if name != "action"}
        verb = verbs[action]
        return verb, checked(verb.input_schema, rest, of=f"the action {action}")
    checked(tool.input_schema, arguments)
    raise AssertionError("an action is required")


def shaped(verb: Verb, answer: Answer) -> Answer:
    """A verb's answer as PedroCLI's result."""
    if verb.name in TEXTS:
        output = str(answer[TEXTS[verb.name]])
    elif verb.name == "list_presets":
        output = _text(answer["presets"])
    else:
        output = _text({name: answer[name] for name in PARTS.get(verb.name, answer)})
    return {"success": bool(answer.get("passed", True)), "output": output, "error": None, "result": answer}


def failed(message: str) -> Answer:
    """The result of an action that failed."""
    return {"success": False, "output": "", "error": message, "result": {}}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
