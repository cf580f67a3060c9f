"""Detect the wire format of tool calls from a chat template's source.

Nothing is rendered and no model is known by name: only the marks that every template of a format contains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """How to recognise one format: patterns that the source contains, and patterns of similar formats that it must
    not."""

    format: str
    shows: tuple[str, ...]
    lacks: tuple[str, ...] = ()


SIGNS = (
    # Only Mistral's templates contain this marker. With [CALL_ID] an id stands between name and arguments. Where the
    # name follows the marker without [ARGS] there is no list: that is no supported format.
    Sign(format="mistral_id", shows=(r"\[TOOL_CALLS\]", r"\[CALL_ID\]", r"\[ARGS\]")),
    Sign(format="mistral_args", shows=(r"\[TOOL_CALLS\]", r"\[ARGS\]"), lacks=(r"\[CALL_ID\]",)),
    Sign(
        format="mistral",
        shows=(r"\[TOOL_CALLS\]",),
        lacks=(r"\[ARGS\]", r"\[CALL_ID\]", r"\[TOOL_CALLS\]['\"]\s*[+~]\s*[\w.\[\]'\"]*name\b"),
    ),
    # The fence came with V3 and R1, and went with V3.1.
    Sign(format="deepseek_v3", shows=(r"<｜tool▁calls▁begin｜>", r"<｜tool▁sep｜>", r"```json")),
    Sign(format="deepseek_v31", shows=(r"<｜tool▁calls▁begin｜>", r"<｜tool▁sep｜>"), lacks=(r"```json",)),
    Sign(format="kimi", shows=(r"<\|tool_calls_section_begin\|>", r"<\|tool_call_argument_begin\|>")),
    Sign(format="harmony", shows=(r"<\|channel\|>", r"\bfunctions\b", r"<\|call\|>")),
    Sign(format="function_gemma", shows=(r"<start_function_call>", r"\bcall:", r"<escape>")),
    Sign(format="gemma4", shows=(r"<\|tool_call>", r"\bcall:", r"<tool_call\|>")),
    Sign(format="minimax", shows=(r"<minimax:tool_call>", r"<invoke name=")),
    Sign(format="glm", shows=(r"<tool_call>", r"<arg_key>", r"<arg_value>"), lacks=(r"<tool_sep>",)),
    Sign(format="qwen_coder", shows=(r"<tool_call>", r"<function=", r"<parameter=")),
    # `<tool_call>` contains JSON in Hermes and Qwen, but XML in Qwen3-Coder, pairs of tags in GLM and a plain name in
    # Hunyuan. Before functionary, whose tag Qwen3-Coder's templates contain.
    Sign(
        format="hermes",
        shows=(r"<tool_call>", r'\\?"name\\?"\s*:', r"\barguments\b"),
        lacks=(r"<function=", r"<parameter=", r"<arg_key>", r"<tool_sep>"),
    ),
    # Before llama3: Llama's template for custom tools also mentions ipython and "parameters".
    Sign(format="functionary", shows=(r"<function=", r"</function>"), lacks=(r"<parameter=", r"<tool_call>")),
    # Before llama3: Llama's pythonic templates also mention ipython. After a tag the list has a marker, as in LFM2.
    Sign(format="pythonic", shows=(r"(?<!>)\[func_name1\(param\w*=",), lacks=(r"<\|tool_call_start\|>",)),
    # Plain JSON with short keys, as in agents' prompts; it has no marker, so all formats with one come first.
    Sign(format="args", shows=(r'\\?"name\\?"\s*:(?:(?!description).){0,160}?\\?"args\\?"\s*:',)),
    Sign(format="tool_args", shows=(r'\\?"tool\\?"\s*:(?:(?!description).){0,160}?\\?"args\\?"\s*:',)),
    # Last, since it has no marker: a name and then "parameters" (a list of tools has the description between them), and
    # the words with which Llama's templates begin the tool environment.
    Sign(
        format="llama3",
        shows=(r'\\?"name\\?"\s*:(?:(?!description).){0,160}?\\?"parameters\\?"\s*:', r"ipython|<\|python_tag\|>"),
    ),
)
"""In order of precedence: the first sign that fits wins."""


def detect_format(template_source: str) -> str | None:
    """The name of the format (a key of WIRE_FORMATS); None if the template shows none, or an unsupported one."""
    source = _COMMENT.sub("", template_source)
    return next((sign.format for sign in SIGNS if _fits(sign, source)), None)


def _fits(sign: Sign, source: str) -> bool:
    def has(pattern: str) -> bool:
        return re.search(pattern, source, re.DOTALL) is not None

    return all(map(has, sign.shows)) and not any(map(has, sign.lacks))
