"""Judges one output by the expectations of its case: each check is a function, and a failure says what to do.

A pattern that may not finish is searched for in a process with a time limit. It runs nothing and knows no engine.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.constraints.slow_patterns import JUDGE_SECONDS, run_limited
from espalier.constraints.spec import JsonSchema
from espalier.constraints.verdict import judge
from espalier.engines.base import Result
from espalier.harness.cases.case import ExpectedCall, TestCase
from espalier.json_record import JsonRecord
from espalier.schema.patterns.cost import is_quick
from espalier.time_limit import OutOfTime, time_limit

SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(JsonRecord):
    """One expectation that an output did not meet. check: its name in `CHECKS`, or `determinism` or `error`. reason:
    what was found. remedy: what a person can do about it."""

    check: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOutput:
    """What is judged beside the text. latency: seconds. tax, rejection_rate: None where nothing was measured."""

    result: Result
    latency: float
    tax: float | None
    rejection_rate: float | None


Reasons = Iterator[tuple[str, str]]
"""Pairs of reason and remedy."""


def failures(case: TestCase, output: MeasuredOutput) -> tuple[Failure, ...]:
    """Every expectation that the output does not meet, in the order of `CHECKS`."""
    return tuple(
        Failure(check=name, reason=reason, remedy=remedy)
        for name, check in CHECKS.items()
        for reason, remedy in check(case, output)
    )


def excerpt(text: str) -> str:
    """A text as a reason quotes it."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def search(pattern: str, text: str) -> bool | None:
    """Whether `re.search` finds the pattern; None where that took too long."""
    if is_quick(pattern, len(text)):
        return re.search(pattern, text) is not None
    try:
        return run_limited([("search", pattern, text)])[0]
    except subprocess.SubprocessError:
        return None


def _try(output: MeasuredOutput, usual: str) -> str:
    """What to try: a text that was cut needs more tokens first and, under a constraint, nothing else."""
    if output.result.finish_reason != "length":
        return usual
    more = f"the text was cut at {output.result.usage.completion_tokens} tokens: raise max_tokens"
    return more if output.result.verdict is not None else f"{more}; {usual}"


def _constraint(case: TestCase, output: MeasuredOutput) -> Reasons:
    verdict = output.result.verdict
    if verdict is not None and verdict.valid is False:
        errors = "; ".join(verdict.errors)[:400]
        usual = CONSTRAINT_REMEDIES[verdict.breaks or "enforced"]
        yield f"the output breaks its constraint ({verdict.judge}): {errors}", _try(output, usual)


def _format(case: TestCase, output: MeasuredOutput) -> Reasons:
    if case.expected_format is not None:
        yield from _check_pattern(
            case.expected_format, case, output, "constrain the text with a grammar, or fix the expression"
        )


def _contains(case: TestCase, output: MeasuredOutput) -> Reasons:
    for pattern in case.contains:
        yield from _check_pattern(pattern, case, output, "ask for it in the prompt, or demand it with a grammar")


def _check_pattern(pattern: str, case: TestCase, output: MeasuredOutput, remedy: str) -> Reasons:
    is_found = search(pattern, output.result.text)
    if is_found is None:
        yield f"searching for {pattern!r:.120} took too long", SLOW_REMEDY
    elif not is_found:
        yield f"{pattern!r:.120} is not found in {excerpt(output.result.text)}", _try(output, remedy)


def _not_contains(case: TestCase, output: MeasuredOutput) -> Reasons:
    for pattern in case.not_contains:
        is_found = search(pattern, output.result.text)
        if is_found is None:
            yield f"searching for {pattern!r:.120} took too long", SLOW_REMEDY
        elif is_found:
            yield f"{pattern!r:.120} is found in {excerpt(output.result.text)}", BAN_REMEDY


def _json(case: TestCase, output: MeasuredOutput) -> Reasons:
    if not case.expected_json:
        return
    text = output.result.text.strip()
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        yield f"the output is not JSON: {error}: {excerpt(text)}", _try(output, JSON_REMEDY)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _schema(case: TestCase, output: MeasuredOutput) -> Reasons:
    if case.expected_json_schema is None:
        return
    try:
        with time_limit(JUDGE_SECONDS, what="judging the output"):
            verdict = judge(JsonSchema(json.loads(case.expected_json_schema)), output.result.text.strip())
    except OutOfTime as error:  # some schemas take the judge longer than a lifetime
        yield f"the output could not be judged under the expected schema: {error}", ""
        return
    if verdict.valid is not True:  # what could not be judged is not proved
        reason = f"the output is not valid under the expected schema: {'; '.join(verdict.errors)[:400]}"
        yield reason, _try(output, "constrain it: json_schema with this schema")


def _check_banned(case: TestCase, output: MeasuredOutput) -> Reasons:
    text = output.result.text.casefold()
    for phrase in case.banned_content:
        if (place := text.find(phrase.casefold())) >= 0:
            yield f"the output has {phrase!r:.120} at character {place}: {excerpt(output.result.text)}", BAN_REMEDY


def _check_required(case: TestCase, output: MeasuredOutput) -> Reasons:
    text = output.result.text.casefold()
    for phrase in case.required_content:
        if phrase.casefold() not in text:
            reason = f"the output lacks {phrase!r:.120}: {excerpt(output.result.text)}"
            yield reason, _try(output, "ask for it in the prompt, or demand it with a grammar")


def _tool_call(case: TestCase, output: MeasuredOutput) -> Reasons:
    wanted = case.expected_tool_call
    if wanted is None:
        return
    calls = calls_of(output.result)
    if not calls:
        reason = f"there is no tool call in {excerpt(output.result.text)}"
        yield reason, _try(output, 'name `tools` and set tool_choice to "required", or use the preset tool_call')
        return
    named = [arguments for name, arguments in calls if name == wanted.name]
    if not named:
        called = ", ".join(sorted({name for name, _ in calls}))[:200]
        yield f"{wanted.name} is not called, but {called}", f'set tool_choice to "{wanted.name}"'
        return
    faults = [list(_mismatches(wanted, arguments)) for arguments in named]
    if all(faults):
        yield min(faults, key=len)[0], "narrow the tool's schema (enum, const, pattern), or change the prompt"


def calls_of(result: Result) -> list[tuple[str, Mapping[str, Any]]]:
    """Names and arguments of the complete calls: those that were parsed, else a text that is one call as JSON, with
    `name` or `tool`, and `args` or `arguments`."""
    if result.tool_calls:
        return [(call.name, call.parsed) for call in result.tool_calls if call.parsed is not None]
    try:
        value = json.loads(result.text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, dict):
        return []
    name = value.get("name", value.get("tool"))
    arguments = value.get("args", value.get("arguments"))
    return [(name, arguments)] if isinstance(name, str) and isinstance(arguments, dict) else []


def _mismatches(wanted: ExpectedCall, arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in wanted.arguments.items():
        if name not in arguments:
            yield f"the call of {wanted.name} lacks the argument {name!r:.80}"
        elif not is_same(value, arguments[name]):
            yield f"the argument {name!r:.80} of {wanted.name} is {arguments[name]!r:.120}, not {value!r:.120}"
    for name, pattern in wanted.matches.items():
        value = arguments.get(name)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if name not in arguments or not search(pattern, text):
            yield f"the argument {name!r:.80} of {wanted.name} is {value!r:.120}, which does not match {pattern!r:.120}"


def is_same(wanted: Any, actual: Any) -> bool:
    """Equality of JSON values: true is not 1; an object may have more members than are wanted."""
    if isinstance(wanted, bool) or isinstance(actual, bool):
        return wanted is actual
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(k in actual and is_same(v, actual[k]) for k, v in wanted.items())
    if isinstance(wanted, list):
        return isinstance(actual, list) and len(wanted) == len(actual) and all(map(is_same, wanted, actual))
    return bool(wanted == actual)


def _tax(case: TestCase, output: MeasuredOutput) -> Reasons:
    if case.max_tax is None:
        return
    if output.tax is None:
        yield "the cost of the constraint was not measured", "use a strategy and an engine that give logits"
    elif output.tax > case.max_tax:
        yield f"the constraint cost {output.tax:.3f} nats, and the limit is {case.max_tax:g}", TAX_REMEDY


def _rejections(case: TestCase, output: MeasuredOutput) -> Reasons:
    limit, rate = case.max_rejection_rate, output.rejection_rate
    if limit is None:
        return
    if rate is None:
        yield "rejections were not measured", "use a strategy and an engine that give logits"
    elif rate > limit:
        yield f"{rate:.1%} of the tokens that the model wanted were refused, and the limit is {limit:.1%}", TAX_REMEDY


def _latency(case: TestCase, output: MeasuredOutput) -> Reasons:
    if case.max_latency is not None and output.latency > case.max_latency:
        tokens = output.result.usage.completion_tokens
        reason = f"it took {output.latency:.3f} s for {tokens} tokens, and the limit is {case.max_latency:g} s"
        yield reason, "lower max_tokens, try the strategy jump, or a smaller model"


CONSTRAINT_REMEDIES: Mapping[str, str] = {
    "enforced": "this is a fault of the engine or of Espalier: report it with the case",
    "checked": "this keyword is only checked, not enforced; `espalier check` shows which: rewrite it, or ask again",
    "cut": "a stop text ended the output before it was complete: choose another one",
}
"""By what the text breaks."""
SLOW_REMEDY = "write the expression without nested repetitions"
JSON_REMEDY = "constrain it: json_schema, or the preset json_strict"
BAN_REMEDY = "ban it: a filter of the type `ban` with these phrases, or a safety_preset"
TAX_REMEDY = "ask for the form in the prompt, or loosen the constraint; `espalier explain` shows where it costs"

CHECKS: Mapping[str, Callable[[TestCase, MeasuredOutput], Reasons]] = {
    "constraint": _constraint,
    "format": _format,
    "json": _json,
    "schema": _schema,
    "banned": _check_banned,
    "required": _check_required,
    "contains": _contains,
    "not_contains": _not_contains,
    "tool_call": _tool_call,
    "tax": _tax,
    "rejection_rate": _rejections,
    "latency": _latency,
}
"""Name -> check. Each gives nothing for an output that meets the expectation, or where there is none."""
