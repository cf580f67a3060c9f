"""Draws a trace in a terminal: sums, tokens coloured by cost, tables, findings; or one step with its stages.

It computes nothing but the lengths of bars. Control characters of a model's text are escaped, so that they cannot
command the terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from espalier.constraints.verdict import REPORT
from espalier.errors import InputError
from espalier.trace.foreign.read import has_gaps
from espalier.trace.records import Candidate, StepRecord, Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.findings import Finding

ROWS = 10
TOKENS = 400
"""Rows and tokens shown without --limit."""
LEVELS = ((0.05, ""), (0.7, "yellow"), (2.3, "bold magenta"), (math.inf, "bold white on red"))
"""Upper bounds in nats of each colour: 0.7 nats remove half of the probability, 2.3 remove nine tenths."""
STAGES = (
    ("pre_masking", "what the model wanted"),
    ("post_grammar", "after the constraint"),
    ("post_chain", "after the samplers"),
)
BAR = 24
MARKS = {"fault": "bold red", "cost": "magenta", "note": "cyan"}


def terminal() -> Console:
    """A console on stdout: no colour if redirected or with NO_COLOR; 80 columns if the width is unknown."""
    return Console(highlight=False, markup=False, emoji=False)


def visible(text: str) -> str:
    """A text in quotes, with control characters as escapes."""
    return json.dumps(printable(text, newline="\n"), ensure_ascii=False).replace("\\\\u", "\\u")


def printable(text: str, *, newline: str) -> str:
    """A text with control and direction characters as escapes. newline: what a line break is shown as."""
    return "".join(newline if char == "\n" else char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def show(trace: Trace, to: Console, *, limit: int | None = None) -> None:
    """Draw a whole trace. limit: at most so many tokens and rows of each table; 0 is no limit."""
    tokens, rows = (TOKENS, ROWS) if limit is None else (limit or len(trace.steps), limit or len(trace.steps))
    for line in head(trace):
        to.print(line)
    to.print()
    if trace.steps:
        _tokens(trace, to, tokens)
    else:
        to.print(printable(trace.text, newline="↵\n"))
    _costs("by JSON path", trace.by_path(), to, rows)
    _costs("by rule", trace.by_rule(), to, rows)
    _worst(trace, to, rows)
    if has_gaps(trace):
        to.print("\nno findings: what lies between these steps is not known", style="dim")
        return
    show_findings(diagnose(trace), to)


def head(trace: Trace) -> list[str]:
    """Lines that name the run and its sums. A sum that is known within bounds is shown as `≥` its lower bound."""
    sums = trace.summary()
    bounded = any(step.exactness == "bounded" for step in trace.steps)
    least = "≥ " if bounded else ""
    facts = [
        f"model {trace.model}" if trace.model else "",
        f"strategy {trace.strategy}",
        f"finish {trace.finish_reason}",
    ]
    if trace.constraint is not None:
        facts.append(f"constraint {trace.constraint.get('kind', '?')}")
    total, unknown = (f"{n} step{'' if n == 1 else 's'}" for n in (sums["total_steps"], sums["unknown_steps"]))
    rejected = f"{sums['rejected_steps']} rejected ({100 * sums['rejected_rate']:.1f} %)"
    if sums["unknown_steps"]:
        rejected += f" · {sums['unknown_steps']} unknown"
    lines = [
        printable(" · ".join(fact for fact in facts if fact), newline=" "),
        f"{total} · {rejected} · {sums['forced_steps']} forced · "
        f"{sums['changed_steps']} top {'choice' if sums['changed_steps'] == 1 else 'choices'} blocked",
        f"tax {least}{sums['total_tax_nats']:.3f} nats · mean removed mass {least}{sums['mean_removed_mass']:.4f}"
        + ("" if bounded else f" · mean entropy {sums['mean_entropy_before']:.3f} → {sums['mean_entropy_after']:.3f}"),
    ]
    if trace.decoding.get("estimated"):
        lines.append("rejections are estimated, not recorded")
    if sums["unknown_steps"]:
        lines.append(f"whether a token was rejected is not known at {unknown}")
    if trace.rewinds:
        lines.append(f"{len(trace.rewinds)} rewind{'' if len(trace.rewinds) == 1 else 's'}")
    if trace.verdict is not None and trace.verdict.get("valid") is False:
        lines.append(printable(f"not valid: {'; '.join(map(str, trace.verdict.get('errors', ())))}", newline=" "))
        if trace.verdict.get("breaks") == "enforced":
            lines.append(f"that was called enforced: {REPORT}")
    return lines


def _tokens(trace: Trace, to: Console, limit: int) -> None:
    """Print the tokens in order. Without colour a high tax is marked by brackets, and a rejection by ^."""
    is_plain = not to.is_terminal or to.no_color
    is_blind = all(step.is_unknown for step in trace.steps)  # then the head says so
    some = not is_blind and any(step.is_unknown for step in trace.steps)
    line = Text()
    last = -1
    for record in trace.steps[:limit]:
        if record.step != last + 1:
            line.append("…")
        last = record.step
        shown = printable(record.text, newline="↵\n") or ("⟨end⟩" if record.is_special else "⟨⟩")
        if is_plain:
            expensive = record.tax_nats >= LEVELS[1][0]
            mark = "^" if record.was_rejected else "?" if record.is_unknown and not is_blind else ""
            line.append(f"{mark}{f'[{shown}]' if expensive else shown}")
        else:
            style = next(style for below, style in LEVELS if record.tax_nats < below or math.isinf(below))
            unknown = record.is_unknown and not is_blind
            line.append(
                shown, style=f"{style} underline" if record.was_rejected else f"{style} dim" if unknown else style
            )
    rest = len(trace.steps) - limit
    if rest > 0:
        line.append(f" … {rest} more (--limit 0)")
    to.print(line)
    marks = "[ ] tax of 0.7 nats or more   ^ rejected before it" if is_plain else "colour: tax   underlined: rejected"
    if some:
        marks += "   ? not known" if is_plain else "   faint: not known"
    to.print(Text(marks, style="" if is_plain else "dim"))


def _costs(title: str, costs: dict[str, dict[str, float]] | None, to: Console, limit: int) -> None:
    if not costs:
        return
    to.print(Text(f"\n{title}", style="bold"))
    table = _table(("", "tokens", "nats", "removed"))
    ranked = sorted(costs.items(), key=lambda cost: -cost[1]["tax_nats"])
    for name, cost in ranked[:limit]:
        shown = "(keys and punctuation)" if name == "" else printable(name, newline="\\n")
        table.add_row(shown, f"{cost['tokens']:.0f}", f"{cost['tax_nats']:.3f}", f"{cost['removed_mass']:.4f}")
    _print_table(table, to, len(ranked) - limit)


def _worst(trace: Trace, to: Console, limit: int) -> None:
    paths = {token.step: token.path for token in trace.by_token()}
    by_cost = sorted((step for step in trace.steps if step.tax_nats > 0), key=lambda step: (-step.tax_nats, step.step))
    if not by_cost:
        return
    to.print(Text("\nmost expensive tokens", style="bold"))
    table = _table(("step", "token", "nats", "removed", "model wanted", "where"))
    for record in by_cost[:limit]:
        wish = (
            record.rejected
            if record.rejected is not None and not record.pre_masking
            else next(iter(record.pre_masking), None)
        )
        table.add_row(
            str(record.step),
            visible(record.text),
            f"{record.tax_nats:.3f}",
            f"{'≥ ' if record.bounds else ''}{record.removed_mass:.4f}",
            "" if wish is None else f"{visible(wish.text)} {wish.prob:.2f}",
            printable(record.rule or paths.get(record.step) or "", newline="\\n"),
        )
    _print_table(table, to, len(by_cost) - limit)


def show_findings(findings: Sequence[Finding], to: Console) -> None:
    """Print findings, each with its remedies."""
    to.print()
    if not findings:
        to.print("nothing found")
    for finding in findings:
        where = (
            f" (step {', '.join(map(str, finding.steps[:4]))}{', …' if len(finding.steps) > 4 else ''})"
            if finding.steps
            else ""
        )
        line = Text(f"{finding.severity}: ", style=MARKS[finding.severity])
        line.append(printable(finding.message, newline=" ") + where, style="default")
        to.print(line)
        for remedy in finding.remedies:
            to.print(Padding(Text(f"→ {printable(remedy.said('cli'), newline=' ')}"), (0, 0, 0, 2)))


def show_step(trace: Trace, number: int, to: Console, *, limit: int | None = None) -> None:
    """Draw the stages of one step as bars. Raises InputError if the step does not exist."""
    record = next((step for step in trace.steps if step.step == number), None)
    if record is None:
        known = f"{trace.steps[0].step} to {trace.steps[-1].step}" if trace.steps else "none"
        raise InputError(f"there is no step {number}", hint=f"there are {known}", field="step")
    for line in _step_head(record):
        to.print(line)
    for name, meaning in STAGES:
        candidates: Sequence[Candidate] = getattr(record, name)
        if not candidates:
            continue
        to.print(Text(f"\n{name}: {meaning}", style="bold"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True, max_width=30)
        table.add_column(no_wrap=True)
        for candidate in candidates[: limit or ROWS]:
            table.add_row(
                _bar(candidate.prob), _chance(candidate.prob), visible(candidate.text), _role(candidate, record)
            )
        _print_table(table, to, len(candidates) - (limit or ROWS))


def _step_head(step: StepRecord) -> list[str]:
    number = f" (id {step.token_id})" if step.token_id >= 0 else ""
    chance = f", ln p {step.logprob:.4f}" if math.isfinite(step.logprob) else ""
    lines = [f"step {step.step}: {visible(step.text)}{number}{chance}"]
    if step.bounds is not None:
        lower, upper = step.bounds
        lines.append(f"removed mass between {lower:.4f} and {upper:.4f} · tax ≥ {step.tax_nats:.3f} nats")
    else:
        lines.append(
            f"removed mass {step.removed_mass:.4f} · tax {step.tax_nats:.3f} nats · {step.allowed_count} allowed · "
            f"entropy {step.entropy_before:.3f} → {step.entropy_after:.3f}"
        )
    if step.is_unknown:
        lines.append("whether a token was rejected here is not known")
    if step.rejected is not None:
        lines.append(f"rejected: {visible(step.rejected.text)} {step.rejected.prob:.4f}")
    if step.was_forced:
        lines.append("forced: nothing was drawn")
    if step.blame is not None:
        blame = step.blame
        why = ", ".join(part for part in (blame.member, blame.rule, blame.reason) if part)
        lines.append(printable(f"why: {why}{f'; expected {blame.expected}' if blame.expected else ''}", newline="\\n"))
    return lines


def _role(candidate: Candidate, step: StepRecord) -> str:
    if step.token_id >= 0 and candidate.id == step.token_id:
        return "taken"
    if step.rejected is not None and candidate.id == step.rejected.id:
        return "rejected"
    return "" if candidate.allowed else "refused"


def _chance(prob: float) -> str:
    return f"{prob:.4f}" if prob >= 5e-5 or prob == 0 else f"{prob:.0e}"


def _bar(share: float) -> str:
    """A bar in eighths of a block; a share above 0 has at least one."""
    eighths = round(share * BAR * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(BAR, "·")


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        is_number = name in ("step", "tokens", "nats", "removed")
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=None if is_number else 30,
        )
    return table


def _print_table(table: Table, to: Console, rest: int) -> None:
    to.print(table)
    if rest > 0:
        to.print(f"{rest} more (--limit)", style="dim")
