"""The table of verbs, and how a call is read: the one place that MCP and `LogitTool` take their tools from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from espalier.agents import generating, logit, looking, testing, tracing, trying
from espalier.agents.arguments import blamed, checked
from espalier.agents.verb import Answer, Verb
from espalier.errors import EspalierError, UnknownName

VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        generating.GENERATE,
        generating.STRUCTURED,
        generating.TOOL_CALL,
        testing.TEST_CONFIG,
        looking.LIST_PRESETS,
        looking.ANALYZE,
        looking.CHECK_SCHEMA,
        generating.EXPLAIN,
        trying.TRY_REMEDIES,
        tracing.EXPLAIN_TRACE,
        tracing.LIST_TRACES,
        looking.SAFETY_CHECK,
    )
}
LOGIT = logit.logit_verb(tuple(VERBS.values()))
TOOLS: Mapping[str, Verb] = {**VERBS, LOGIT.name: LOGIT}
"""Everything that can be called, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbCall:
    """A call that was read. verb: what is done. arguments: valid under its schema. shape: from the verb's answer to the
    tool's. tool: what was called."""

    tool: Verb
    verb: Verb
    arguments: Mapping[str, Any]
    shape: Callable[[Answer], Answer]

    def blamed(self, error: EspalierError) -> EspalierError:
        """The error, its field an argument of this call."""
        return blamed(error, self.tool.properties, self.arguments)


def read_call(name: str, arguments: Any) -> VerbCall:
    """Raises UnknownName for a tool that there is not, InputError naming the argument."""
    tool = TOOLS.get(name)
    if tool is None:
        raise UnknownName(f"there is no tool {name!r:.80}", hint=f"there are: {', '.join(TOOLS)}", field="name")
    if tool is LOGIT:
        verb, values = logit.split(tool, VERBS, arguments)
        return VerbCall(tool=tool, verb=verb, arguments=values, shape=partial(logit.shaped, verb))
    return VerbCall(tool=tool, verb=tool, arguments=checked(tool.input_schema, arguments), shape=_same)


def failure(name: str, message: str) -> Answer | None:
    """What a tool answers where it failed, if it has a shape for that."""
    return logit.failed(message) if name == LOGIT.name else None


def _same(answer: Answer) -> Answer:
    return answer
