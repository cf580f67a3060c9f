"""Diagnose a trace: find out why a constraint was expensive and what to do, by rules with stated thresholds.

A rule reads only what was recorded: no model, no constraint. If the candidates of steps were not recorded, rules that
need them find nothing, and `diagnose` says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from espalier.chat.reasoning import REASONING
from espalier.trace.records import Candidate, StepRecord, Trace
from espalier.trace.report import findings as f
from espalier.trace.report.findings import Finding
from espalier.trace.report.fitting import fit, walk_specs, widen

SPACE_TOKENS = 12
SPACE_BYTES = 48
"""So many tokens or bytes of white space in a row are a loop; indented documents have shorter runs."""
DIGITS = 20
"""More digits in a row than any 64-bit number has."""
REPEATS = 4
REPEATED_BYTES = 32
MAX_PERIOD = 64
"""A phrase of up to MAX_PERIOD tokens is a loop if it occurs REPEATS times in a row and fills REPEATED_BYTES."""
LIKELY = 0.3
"""A candidate counts as the model's wish from this probability on."""
UNLIKELY = 0.05
MISALIGNED = 3
"""Steps: a single longer wish may be chance."""
HIGH_TAX = 0.7
"""Nats: half of the probability was removed."""
STEADY = 0.3
"""The share of a part's steps with a high tax from which on the constraint as a whole, not one token, is to blame."""
FEWEST = 4
"""The least number of steps with a high tax for that finding."""
FIRST = 3
"""The first token that costs anything is looked for among so many: a text may begin with layout."""
SURE = 0.5
"""From this probability on a blocked top choice at the beginning is a finding of its own."""
PLACE_SHARE = 0.6
PLACE_NATS = 2.0
"""One path is to blame from this share of at least so many nats on."""
SHOWN = 8
LAST_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*$")
LEAST_LETTERS = 3
LONGEST_WORD = 80
SHOWN_WORDS = 3
"""Words named as missing in a word list: of so many letters, since one token may be the beginning of a word."""
MARKERS = frozenset(text.encode() for style in REASONING.values() for text in (style.start, style.end))
ENDS = ("</s>", "<eos>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<turn|>")
"""Texts of end tokens, if the trace itself does not show one."""

Rule = Callable[[Trace], Iterator[Finding]]


def diagnose(trace: Trace) -> list[Finding]:
    """All findings: faults first, then costs, then notes; each group in the order of the text."""
    findings = [replace(finding, remedies=fit(finding.remedies, trace)) for rule in RULES for finding in rule(trace)]
    order = ("fault", "cost", "note")
    return sorted(findings, key=lambda finding: (order.index(finding.severity), finding.steps[:1] or (math.inf,)))


def _whitespace_loops(trace: Trace) -> Iterator[Finding]:
    for start, end in _runs(trace.steps, lambda step: bool(step.bytes) and not step.bytes.strip()):
        size = sum(len(step.bytes) for step in trace.steps[start:end])
        if end - start >= SPACE_TOKENS or size >= SPACE_BYTES:
            yield Finding(
                code="whitespace_loop",
                severity="fault",
                message=f"{end - start} tokens in a row are white space ({size} bytes)",
                steps=_first_steps(range(start, end)),
                evidence={"tokens": end - start, "bytes": size},
                remedies=(f.BOUNDED_WHITESPACE, f.SHOW_THE_SCHEMA),
            )


def _digit_loops(trace: Trace) -> Iterator[Finding]:
    for start, end in _runs(trace.steps, lambda step: step.bytes.isdigit()):
        size = sum(len(step.bytes) for step in trace.steps[start:end])
        if size >= DIGITS:
            yield Finding(
                code="digit_loop",
                severity="fault",
                message=f"a number runs on for {size} digits",
                steps=_first_steps(range(start, end)),
                evidence={"digits": size},
                remedies=(f.BOUND_NUMBERS, f.BREAK_LOOPS),
            )


def _phrase_loops(trace: Trace) -> Iterator[Finding]:
    steps = trace.steps
    ids = [step.token_id for step in steps]
    at = 0
    while at < len(ids):
        longest = min(MAX_PERIOD, (len(ids) - at) // REPEATS)
        runs = [
            (count * period, -period, count)
            for period in range(1, longest + 1)
            if ids[at] == ids[at + period] and (count := _repeats(ids, at, period)) >= REPEATS
        ]
        if not runs:
            at += 1
            continue
        _, negated, count = max(runs)
        period = -negated
        covered = steps[at : at + count * period]
        phrase = b"".join(step.bytes for step in covered[:period])
        size = sum(len(step.bytes) for step in covered)
        if size >= REPEATED_BYTES and phrase.strip() and not phrase.isdigit():
            text = phrase.decode("utf-8", "replace")
            yield Finding(
                code="phrase_loop",
                severity="fault",
                message=f"{text[:60]!r} comes {count} times in a row",
                steps=_first_steps(range(at, at + count * period)),
                evidence={"phrase": text, "repeats": count, "tokens": count * period},
                remedies=(f.BREAK_LOOPS, f.BOUND_LENGTH),
            )
        at += count * period  # the whole run, even if it was no finding: there is nothing else in it


def _repeats(ids: Sequence[int], at: int, period: int) -> int:
    """How often the first `period` ids from `at` occur in a row, the first time included."""
    count, phrase = 1, ids[at : at + period]
    while ids[at + count * period : at + (count + 1) * period] == phrase:
        count += 1
    return count


def _rewinds(trace: Trace) -> Iterator[Finding]:
    if trace.rewinds:
        lost = sum(len(rewind.tokens) for rewind in trace.rewinds)
        who = sorted({rewind.blame.member for rewind in trace.rewinds if rewind.blame is not None})
        by = f", by {', '.join(who)}" if who else ""
        yield Finding(
            code="rewinds",
            severity="cost",
            message=f"text was taken back {len(trace.rewinds)} times, {lost} tokens in all{by}",
            steps=_first_steps([rewind.step for rewind in trace.rewinds]),
            evidence={"rewinds": len(trace.rewinds), "tokens": lost},
            remedies=(f.LESS_CONFLICT, f.SHOW_THE_SCHEMA),
        )


def _eos(trace: Trace) -> Iterator[Finding]:
    wanted = [step for step in _with_wish(trace) if _forbidden(step) and _ends(_wish(step), trace)]
    sure = [step for step in wanted if _wish(step).prob >= LIKELY]
    if sure:
        yield Finding(
            code="eos_forbidden",
            severity="cost",
            message=f"at {_many(sure)} the model wanted to end the text, and the constraint did not let it",
            steps=_first_steps([step.step for step in sure]),
            evidence={"steps": len(sure), "largest_prob": max(_wish(step).prob for step in sure)},
            remedies=(f.EOS_ALLOWED, f.SHOW_THE_SCHEMA),
        )
    last = trace.steps[-1] if trace.steps else None
    if last is not None and trace.finish_reason == "stop" and last.is_special and last.tax_nats >= -math.log(UNLIKELY):
        yield Finding(
            code="eos_forced",
            severity="cost",
            message=f"the constraint ended the text where the model gave that {math.exp(last.logprob):.2g}",
            steps=(last.step,),
            evidence={"prob": math.exp(last.logprob), "tax_nats": last.tax_nats},
            remedies=(f.SHOW_THE_SCHEMA, f.ANOTHER_STRATEGY),
        )


def _budget(trace: Trace) -> Iterator[Finding]:
    if trace.closed_by_budget:
        yield Finding(
            code="closed_by_budget",
            severity="note",
            message=f"the limit of {len(trace.steps)} tokens decided how the text ends",
            steps=(len(trace.steps) - 1,),
            remedies=(f.MORE_TOKENS,),
        )
    elif trace.finish_reason == "length" and trace.constraint is not None:
        yield Finding(
            code="cut_off",
            severity="fault",
            message=f"the text was cut off after {len(trace.steps)} tokens and is not complete",
            steps=(len(trace.steps) - 1,) if trace.steps else (),
            remedies=(f.MORE_TOKENS, f.CLOSE_IN_TIME),
        )


def _find_misaligned(trace: Trace) -> Iterator[Finding]:
    steps = []
    for step in _with_wish(trace):
        wish = _wish(step)
        longer = (
            _forbidden(step) and step.bytes and wish.bytes.startswith(step.bytes) and len(wish.bytes) > len(step.bytes)
        )
        if longer and wish.prob >= LIKELY:
            steps.append(step)
    if len(steps) >= MISALIGNED:
        first = steps[0]
        yield Finding(
            code="misaligned",
            severity="cost",
            message=f"at {_many(steps)} the model wanted a longer token that begins as what was taken, "
            f"first {_wish(first).text!r} instead of {first.text!r}",
            steps=_first_steps([step.step for step in steps]),
            evidence={"steps": len(steps), "tax_nats": math.fsum(step.tax_nats for step in steps)},
            remedies=(f.NATURAL_LAYOUT, f.JUMP),
        )


def _fights(trace: Trace) -> Iterator[Finding]:
    """Steps with a high tax: separately for keys and values of a document, or all together without one."""
    for name, steps in _parts(trace):
        high = [step for step in steps if step.tax_nats >= HIGH_TAX]
        if len(high) < FEWEST or len(high) < STEADY * len(steps):
            continue
        tax = math.fsum(step.tax_nats for step in high)
        yield Finding(
            code="fights_the_prompt",
            severity="cost",
            message=f"{len(high)} of {len(steps)} tokens of {name} cost over {HIGH_TAX} nats each, {tax:.1f} in all",
            steps=_first_steps([step.step for step in high]),
            evidence={"part": name, "steps": len(high), "of": len(steps), "tax_nats": tax},
            remedies=(f.SHOW_THE_SCHEMA, f.OWN_ORDER, f.ANOTHER_STRATEGY),
        )


def _first(trace: Trace) -> Iterator[Finding]:
    """The first token at which the top choice was blocked, where nothing but prose or layout came before it."""
    for step in trace.steps[:FIRST]:
        if not step.pre_masking or step.tax_nats <= 0:
            continue
        wish = _wish(step)
        if _forbidden(step) and wish.prob >= SURE and not _marks(wish) and not _ends(wish, trace):
            yield Finding(
                code="blocked_at_once",
                severity="cost",
                message=f"the model wanted to begin with {wish.text!r} ({wish.prob:.0%}), not with {step.text!r}",
                steps=(step.step,),
                evidence={"wanted": wish.text, "prob": wish.prob, "tax_nats": step.tax_nats},
                remedies=(
                    f.SHOW_THE_SCHEMA,
                    *((f.LET_IT_THINK,) if any(_marks(other) for other in step.pre_masking) else ()),
                    f.PROSE_FIRST,
                    f.NATURAL_LAYOUT,
                    f.ANOTHER_STRATEGY,
                ),
            )
        return


def _one_place(trace: Trace) -> Iterator[Finding]:
    """The one path that holds most of the tax; that of the first token is told by `_first`."""
    table = trace.by_path() or {}
    total = math.fsum(cost["tax_nats"] for cost in table.values())
    if not math.isfinite(total) or total < PLACE_NATS or len(table) < 2:
        return
    path, dearest = max(table.items(), key=lambda item: item[1]["tax_nats"])
    if dearest["tax_nats"] < PLACE_SHARE * total:
        return
    is_container = any(other != path and other.startswith(f"{path}/") for other in table)
    name = f"the keys and punctuation of {path or 'the document'}" if is_container else path
    advice = (
        (f.RENAME_KEYS, f.OWN_ORDER, f.NATURAL_LAYOUT) if is_container else widen(trace, path, _wish_at(trace, path))
    )
    yield Finding(
        code="one_place",
        severity="cost",
        message=f"{dearest['tax_nats'] / total:.0%} of the tax sits in one place: {name}",
        steps=(),
        evidence={"path": path, "tax_nats": dearest["tax_nats"], "of": total},
        remedies=(f.SHOW_THE_SCHEMA, *advice, f.ANOTHER_STRATEGY),
    )


def _reasoning(trace: Trace) -> Iterator[Finding]:
    for step in _with_wish(trace):
        wish = _wish(step)
        if _forbidden(step) and wish.prob >= LIKELY and _marks(wish):
            yield Finding(
                code="reasoning_suppressed",
                severity="cost",
                message=f"the model wanted to write {wish.text} ({wish.prob:.0%}), and the constraint did not let it",
                steps=(step.step,),
                evidence={"marker": wish.text, "prob": wish.prob, "tax_nats": step.tax_nats},
                remedies=(f.LET_IT_THINK,),
            )
            return


def _unlisted_words(trace: Trace) -> Iterator[Finding]:
    """Words that the model wanted and that a word list does not have, as far as one token tells the word."""
    if not any(spec["kind"] == "wordlist" for spec in walk_specs(trace.constraint)):
        return
    words: dict[str, list[int]] = {}
    text = ""
    for step in trace.steps:
        if step.pre_masking and _forbidden(step) and _wish(step).prob >= LIKELY:
            wanted = text + _wish(step).bytes.decode("utf-8", "replace")
            match = LAST_WORD.search(wanted)
            if match and len(match[0]) >= LEAST_LETTERS:
                words.setdefault(match[0], []).append(step.step)
        text = (text + step.bytes.decode("utf-8", "replace"))[-LONGEST_WORD:]
    for word, steps in list(words.items())[:SHOWN_WORDS]:
        yield Finding(
            code="word_not_listed",
            severity="cost",
            message=f"“{word}” is not in the list",
            steps=_first_steps(steps),
            evidence={"word": word, "steps": len(steps)},
            remedies=(f.allow_word(word),),
        )


def _not_recorded(trace: Trace) -> Iterator[Finding]:
    if trace.level == "summary" or (trace.steps and not any(step.pre_masking for step in trace.steps)):
        yield Finding(
            code="not_recorded",
            severity="note",
            message="what the model wanted at each step was not recorded, so wishes and endings cannot be looked at",
            remedies=(f.RECORD_STEPS,),
        )


def _not_known(trace: Trace) -> Iterator[Finding]:
    unknown = [step.step for step in trace.steps if step.is_unknown]
    if unknown:
        yield Finding(
            code="rejections_unknown",
            severity="note",
            message=f"at {len(unknown)} of {len(trace.steps)} steps it is not known whether a token was rejected",
            steps=_first_steps(unknown),
            evidence={"steps": len(unknown), "of": len(trace.steps)},
        )


RULES: tuple[Rule, ...] = (
    _whitespace_loops,
    _digit_loops,
    _phrase_loops,
    _rewinds,
    _eos,
    _budget,
    _find_misaligned,
    _first,
    _fights,
    _one_place,
    _reasoning,
    _unlisted_words,
    _not_recorded,
    _not_known,
)


def _parts(trace: Trace) -> Iterator[tuple[str, list[StepRecord]]]:
    """The steps of a document's keys and of its values, or all steps without a document."""
    paths = [cost.path for cost in trace.by_token()]
    if all(path is None for path in paths):
        yield "the text", list(trace.steps)
        return
    # Keys and punctuation count at their container; a path without children is a value.
    containers = {path.rpartition("/")[0] for path in paths if path}
    placed = [(step, path) for step, path in zip(trace.steps, paths, strict=True) if path is not None]
    yield "the keys", [step for step, path in placed if path in containers]
    yield "the values", [step for step, path in placed if path not in containers]


def _runs(steps: Sequence[StepRecord], holds: Callable[[StepRecord], bool]) -> Iterator[tuple[int, int]]:
    """Maximal runs of steps for which `holds` is true, as (first, one past the last)."""
    start: int | None = None
    for index, step in enumerate(steps):
        if holds(step):
            start = index if start is None else start
        elif start is not None:
            yield start, index
            start = None
    if start is not None:
        yield start, len(steps)


def _with_wish(trace: Trace) -> list[StepRecord]:
    return [step for step in trace.steps if step.pre_masking]


def _wish(step: StepRecord) -> Candidate:
    return step.pre_masking[0]


def _forbidden(step: StepRecord) -> bool:
    return not _wish(step).allowed


def _marks(candidate: Candidate) -> bool:
    """Whether a candidate begins or ends reasoning."""
    return (candidate.bytes or candidate.text.encode()) in MARKERS


def _wish_at(trace: Trace, path: str) -> str | None:
    """What the model wanted at the most expensive token of a value, without quotes and layout."""
    costs = trace.by_token()
    at = [i for i, cost in enumerate(costs) if cost.path == path and trace.steps[i].pre_masking]
    worst = max(at, key=lambda i: costs[i].tax_nats, default=None)
    return None if worst is None else _wish(trace.steps[worst]).text.strip(' "\n\t,:') or None


def _ends(candidate: Candidate, trace: Trace) -> bool:
    """Whether a candidate ends texts: it ended this one, or is a special token that is no reasoning marker."""
    last = trace.steps[-1] if trace.steps else None
    if last is not None and last.is_special and trace.finish_reason == "stop":
        return candidate.id == last.token_id
    return candidate.text in ENDS


def _many(steps: Sequence[StepRecord]) -> str:
    return f"step {steps[0].step}" if len(steps) == 1 else f"{len(steps)} steps"


def _first_steps(places: Sequence[int]) -> tuple[int, ...]:
    return tuple(places[:SHOWN])
