"""Why an output ended, in the words of OpenAI's replies and vLLM's."""

from __future__ import annotations

from typing import Any

from espalier.engines.base import Result
from espalier.server.asking.draft import ParsedRequest

BROKEN = "content_filter"
"""The finish reason of a text that breaks what was called enforced: the one of OpenAI's that says not to use the text.
"""


def finish_reason(result: Result, parsed: ParsedRequest) -> str:
    """The finish reason of a chat. A text that a stop text cut is not whole, as one that the token limit cut."""
    if result.breach is not None:
        return BROKEN
    finish = "length" if result.is_cut_by_stop else result.finish_reason
    return "function_call" if parsed.has_functions and finish == "tool_calls" else finish


def plain_reason(result: Result) -> str:
    """The finish reason of a text completion, which has no tool calls."""
    if result.breach is not None:
        return BROKEN
    finish = "length" if result.is_cut_by_stop else result.finish_reason
    return "stop" if finish == "tool_calls" else finish


def stop_reason(result: Result) -> dict[str, Any]:
    """vLLM's field: the stop text or token that ended an output. None is no field."""
    return {} if result.stop_reason is None else {"stop_reason": result.stop_reason}
