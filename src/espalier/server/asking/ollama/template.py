"""Renders a template of Ollama's for one turn: its variables, `if` and `else`, and trimmed white space.

These are what templates of a single turn are made of. Everything else of Go's templates is refused by name. It knows no
model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from espalier.server.http.errors import UnsupportedParameter

ACTION = re.compile(r"\{\{(-\s)?\s*(.*?)\s*(\s-)?\}\}", re.DOTALL)
VARIABLE = re.compile(r"\.(System|Prompt|Suffix|Response)")
CONDITION = re.compile(r"(else\s+)?if\s+\.(System|Prompt|Suffix|Response)")


def render_template(source: str, values: Mapping[str, str]) -> str:
    """The text up to `.Response`, where the model writes, or the whole of it. values: by the names of variables; one
    that is missing is empty. Raises UnsupportedParameter naming an action that is not one of these."""
    pieces: list[str] = []
    # Of each open `if`: whether the branch that is read is shown, and whether one was shown before it.
    branches: list[tuple[bool, bool]] = []
    for text, action in _actions(source):
        is_shown = all(shown for shown, _ in branches)
        if is_shown:
            pieces.append(text)
        condition, variable = CONDITION.fullmatch(action), VARIABLE.fullmatch(action)
        if variable is not None:
            if variable[1] == "Response" and is_shown:
                return "".join(pieces)
            pieces.append(values.get(variable[1], "") if is_shown else "")
        elif condition is not None and (branches or not condition[1]):
            before = False
            if condition[1]:
                shown, before = branches.pop()
                before = before or shown
            branches.append((not before and bool(values.get(condition[2])), before))
        elif action == "else" and branches:
            shown, before = branches.pop()
            branches.append((not shown and not before, True))
        elif action == "end" and branches:
            branches.pop()
        elif action and not action.startswith("/*"):
            raise _refusal(action)
    if branches:
        raise UnsupportedParameter("the template has an `if` without its `end`", field="template")
    return "".join(pieces)


def _actions(source: str) -> list[tuple[str, str]]:
    """Each action with the text before it; the last text comes with an empty action."""
    actions: list[tuple[str, str]] = []
    at, trims = 0, False
    for match in ACTION.finditer(source):
        text = source[at : match.start()]
        text = text.lstrip() if trims else text
        actions.append((text.rstrip() if match[1] else text, match[2]))
        at, trims = match.end(), match[3] is not None
    rest = source[at:]
    return [*actions, (rest.lstrip() if trims else rest, "")]


def _refusal(action: str) -> UnsupportedParameter:
    return UnsupportedParameter(
        f"the template has {{{{ {action[:60]} }}}}, which cannot be read here",
        hint="use .System, .Prompt, .Suffix, .Response, if, else and end; or leave `template` out, or render the "
        "prompt and send it with `raw`",
        field="template",
    )
