"""`espalier safety check|list`: what a safety filter finds in a text, and which filters there are.

`constraints/safety/` defines the filters and searches; this module prints.
"""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from espalier.cli import output
from espalier.cli.flags.groups import sub_app
from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.safety import read_lists, warn_unenforced
from espalier.cli.progress import working
from espalier.constraints.safety.catalogue import CATEGORIES, NEEDS_LIST, PATTERNS, PRESET_TEXTS, PRESETS
from espalier.constraints.safety.judge import SafetyMatch, UnsearchablePattern, find
from espalier.constraints.safety.parts import checked_parts
from espalier.constraints.safety.spec import Safety
from espalier.errors import UnsupportedError

app = sub_app("List what safety filters catch, and check a text with one.")

Preset = Annotated[str | None, typer.Option(help=f"Filter: {', '.join(PRESETS)}.", metavar="PRESET")]
Category = Annotated[list[str] | None, typer.Option(help="One more category; repeat it.", metavar="NAME")]
Include = Annotated[list[str] | None, typer.Option(help="An optional pattern, such as email; repeat it.")]
Lists = Annotated[
    list[str] | None,
    typer.Option("--list", help="Phrases of a category, one on each line; repeat it.", metavar="NAME=FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
COLUMNS = 80
SHOWN = 60  # characters of a match


@app.command("check", short_help="Find what a filter would catch in a text.")
def check_command(
    text: Annotated[str, typer.Argument(help="The text; `-` reads stdin.", metavar="TEXT")],
    preset: Preset = None,
    category: Category = None,
    include: Include = None,
    lists: Lists = None,
    pattern: Annotated[list[str] | None, typer.Option(help="A text of your own; repeat it.", metavar="TEXT")] = None,
    regex: Annotated[list[str] | None, typer.Option(help="A regular expression of your own; repeat it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find what a filter would catch in a text: category, pattern, position. Exit 1 if it finds anything.

    Without --preset and --category the filter is `maximum`, with all patterns except the optional ones.
    """
    found_lists = read_lists(lists or ())
    spec = Safety(
        preset if preset is not None or category else "maximum",
        categories=(*(category or ()), *found_lists),
        include=include or (),
        patterns=[*(pattern or ()), *({"regex": expression} for expression in regex or ())],
        lists=found_lists,
    )
    for checked in spec.patterns:
        if checked.is_regex:
            checked_parts(checked)  # what `generate` would refuse is refused here
    data = read_text("-", "text") if text == "-" else text
    try:
        with working("building the safety filter"):
            matches = find(spec, data)
    except UnsearchablePattern as error:
        raise UnsupportedError(str(error), hint="repeat less within what is repeated", field="patterns") from error
    if as_json:
        output.data_json({"caught": [match.to_json() for match in matches], "enforced": spec.describe()})
    else:
        warn_unenforced(spec)
        for match in matches:
            output.data(_line(match))
        if not matches:
            output.note("nothing would be caught")
    raise typer.Exit(1 if matches else 0)


def _line(finding: SafetyMatch) -> str:
    shown = finding.text if len(finding.text) <= SHOWN else f"{finding.text[: SHOWN - 1]}…"
    where = "\tin decoded text" if finding.decoded else ""
    return f"{finding.category}/{finding.pattern}\tcharacters {finding.start}-{finding.end}\t{shown!r}{where}"


def _row(name: str, wide: int, about: str) -> str:
    """A name and what it is, in 80 columns; the second column starts after `wide` characters."""
    return textwrap.fill(
        about, COLUMNS, initial_indent=f"  {name:<{wide}}", subsequent_indent=" " * (wide + 2), break_on_hyphens=False
    )


@app.command("list", short_help="List categories, presets and patterns.")
def list_command(as_json: AsJson = False) -> None:
    """List categories, presets and patterns, and the categories that need a list of phrases."""
    if as_json:
        patterns = [
            {"name": pattern.name, "category": pattern.category, "about": pattern.about, "optional": pattern.is_option}
            for pattern in PATTERNS
        ]
        categories = [
            {"name": name, "about": about, "needs_list": name in NEEDS_LIST} for name, about in CATEGORIES.items()
        ]
        output.data_json({"presets": PRESETS, "categories": categories, "patterns": patterns})
        return
    lines = ["presets"]
    lines += [
        _row(name, 13, ", ".join((*members, *(repr(text) for text in PRESET_TEXTS.get(name, ())))))
        for name, members in PRESETS.items()
    ]
    for name, about in CATEGORIES.items():
        lines += ["", f"{name}: {about}"]
        lines += [
            _row(pattern.name, 22, pattern.about + (" (only if named)" if pattern.is_option else ""))
            for pattern in PATTERNS
            if pattern.category == name
        ]
        lines += ["  needs a list: none is shipped"] if name in NEEDS_LIST else []
    output.data("\n".join(lines))
