"""Rows of costs as lines of 80 columns. Titles, paths and tokens come from clients and models: control characters are
shown as escapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from espalier.columns import WIDTH, clip, middle, shown
from espalier.store.costs.report import ConstraintCosts, Interval, PathChange, PathWindow, Point

BLOCKS = "▁▂▃▄▅▆▇█"
TREND = 12
"""Columns of a trend."""


def cost_lines(rows: Sequence[ConstraintCosts]) -> Iterator[str]:
    """Two lines for each constraint: its numbers; the tax of an answer, its change, its speed."""
    yield f"{'constraint':<26}{'answers':>8}{'not valid':>10}{'tax':>10}{'changed':>9}  trend"
    for row in rows:
        now = row.now
        title = clip(shown(row.title or row.kind or "free text"), 25)
        numbers = f"{now.answers:>8,}{now.invalid:>10,}{_short(now.tax):>10}{now.share(now.changed):>9.1%}"
        yield f"{title:<26}{numbers}  {trend_of(row.trend)}"
        yield clip(f"  {row.fingerprint or '-':<16}  {', '.join(_taxes(row))}", WIDTH)
        if notes := "; ".join(_notes(row)):
            yield clip(f"  {'':<16}  {notes}", WIDTH)


def _taxes(row: ConstraintCosts) -> Iterator[str]:
    now = row.now
    if now.mean_tax is None:
        yield "tax not known"
        return
    high = now.high_tax("answer")
    yield f"{_short(now.mean_tax)} nats an answer" + ("" if high is None else f" (95 %: {_short(high)})")
    if row.change is not None:
        yield change_of(row.change)


def _notes(row: ConstraintCosts) -> Iterator[str]:
    """What else there is to say: cut answers, the time of a token beside free text, what began in the window."""
    now, free = row.now, None if row.free is None else row.free.token_seconds
    if now.cut:
        yield f"{now.cut:,} cut"
    if now.token_seconds is not None and free and row.fingerprint:
        yield f"a token takes {now.token_seconds / free:.2f} of free text"
    yield from sorted({shown(mark) for point in row.trend for mark in point.marks})


def path_lines(paths: Sequence[PathWindow]) -> Iterator[str]:
    """A line for each path, and one for each token that the model wanted there."""
    total = sum(path.tax for path in paths)
    yield f"{'path':<40}{'share':>8}{'tax':>12}{'taken':>9}{'answers':>10}"
    for path in paths:
        share = path.tax / total if total > 0 else 0.0
        mass = path.removed / path.tokens if path.tokens else 0.0
        yield f"{middle(shown(path.path), 39):<40}{share:>8.1%}{_short(path.tax):>12}{mass:>9.1%}{path.answers:>10,}"
        for wanted in path.wanted:
            times = "once" if wanted.times == 1 else f"{wanted.times:,} times"
            yield clip(f"    wanted {_token(wanted.wanted)} ({times}), came {_token(wanted.taken)}", WIDTH)


def change_lines(changes: Sequence[PathChange]) -> Iterator[str]:
    """A line for each path: nats for each answer before and after, and the change."""
    yield f"{'path':<24}{'before':>9}{'after':>9}  {'change, nats an answer'}"
    for change in changes:
        mark = "  dearer" if change.is_dearer else ""
        path = middle(shown(change.path), 23)
        yield clip(
            f"{path:<24}{_short(change.before):>9}{_short(change.after):>9}  {change_of(change.change)}{mark}", WIDTH
        )


def change_of(change: Interval) -> str:
    """A difference of means with its interval."""
    if change.low is None or change.high is None:
        return f"{_signed(change.mean)} (few answers)"
    return f"{_signed(change.mean)} ({_signed(change.low)} to {_signed(change.high)})"


def trend_of(points: Sequence[Point]) -> str:
    """The tax of an answer in each part of the window, as blocks."""
    means = [point.tax / point.answers for point in points if point.answers]
    if not means:
        return ""
    size = -(-len(means) // TREND)
    parts = [means[at : at + size] for at in range(0, len(means), size)]
    heights = [sum(part) / len(part) for part in parts]
    most = max(heights)
    return "".join(BLOCKS[round((len(BLOCKS) - 1) * (height / most))] if most > 0 else BLOCKS[0] for height in heights)


def _token(text: str) -> str:
    return f"'{clip(shown(text), 24)}'"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1_000 else f"{number:.3g}"


def _signed(number: float) -> str:
    """With two decimals: less than a hundredth of a nat is no difference that anybody acts on."""
    text = f"{number:+,.0f}" if abs(number) >= 100 else f"{number:+.2f}"
    return text if float(text.replace(",", "")) else "0.00"
