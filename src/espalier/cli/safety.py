"""`espalier safety check|list`, and the flags that ask for a filter: read, shown, and joined to a constraint.

It prints; what a filter is, and what it finds, is the constraints' to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from espalier.cli import output
from espalier.cli.flags.inputs import read_text
from espalier.constraints.join_safety import filters_in, with_safety
from espalier.constraints.safety.catalogue import CATEGORIES, NEEDS_LIST, PATTERNS, PRESETS
from espalier.constraints.safety.compile import checked_parts
from espalier.constraints.safety.judge import Finding, NotSearched, find
from espalier.constraints.safety.lists import read_list
from espalier.constraints.safety.spec import Safety, check_category
from espalier.constraints.spec import Spec
from espalier.errors import InputError, UnsupportedError

app = typer.Typer(
    help="Say what a safety filter catches, and what it would have caught in a text.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Preset = Annotated[str | None, typer.Option(help=f"{', '.join(PRESETS)}.", metavar="PRESET")]
Category = Annotated[list[str] | None, typer.Option(help="One more category; repeat it.", metavar="NAME")]
Include = Annotated[list[str] | None, typer.Option(help="A pattern that is off unless named, such as email.")]
Lists = Annotated[
    list[str] | None, typer.Option("--list", help="Phrases of a category, one a line; repeat it.", metavar="NAME=FILE")
]
SafetyLevel = Annotated[
    str | None,
    typer.Option("--safety", help=f"A filter: {', '.join(PRESETS)}, or categories: pii,credentials.", metavar="LEVEL"),
]
SafetyModeFlag = Annotated[
    str | None, typer.Option("--safety-mode", help="mask (the default), rewind.", metavar="MODE")
]
SafetyLists = Annotated[
    list[str] | None, typer.Option("--safety-list", help="Phrases of a category; repeat it.", metavar="NAME=FILE")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
SHOWN = 60  # characters of a match


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyFlags:
    """The `--safety...` flags. level: a preset, or categories with commas between them."""

    level: str | None = None
    mode: str | None = None
    lists: Sequence[str] = ()

    def filter(self) -> Safety | None:
        """Raises InputError and its kin."""
        if self.level is None:
            for name, value in (("--safety-mode", self.mode), ("--safety-list", self.lists)):
                if value:
                    raise InputError(f"{name} wants --safety", hint="--safety strict", field="safety")
            return None
        names = [name.strip() for name in self.level.split(",")]
        is_preset = len(names) == 1 and names[0] not in CATEGORIES
        lists = read_lists(self.lists)
        return Safety(
            names[0] if is_preset else None,
            categories=(*(() if is_preset else names), *lists),
            lists=lists,
            mode=self.mode or "mask",  # type: ignore[arg-type]  # checked by Safety itself
        )

    def join(self, constraint: Spec | None) -> Spec | None:
        """The constraint with the filter. Raises as `filter`."""
        found = self.filter()
        return constraint if found is None else with_safety(constraint, [found])


def read_lists(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """From `NAME=FILE`. Raises InputError, UnknownName, LimitExceeded."""
    found: dict[str, tuple[str, ...]] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not equals or not path:
            raise InputError(f"--list {one}", hint="a category and a file: violence=words.txt", field="lists")
        found[check_category(name)] = read_list(Path(path).expanduser())
    return found


def tell_filters(constraint: Spec | None) -> None:
    """What of the safety filters in a constraint is not enforced, a preset's too, on stderr."""
    for one in filters_in(constraint):
        tell_unenforced(one)


def tell_unenforced(spec: Safety) -> None:
    """One line on stderr for each category of which nothing is looked for."""
    for entry in spec.describe():
        if not entry["enforced"]:
            output.note(f"safety: {entry['category']}: {entry['note']}")


@app.command("check", short_help="Say what of a text would have been caught, and where.")
def check_command(
    text: Annotated[str, typer.Argument(help="The text; `-` reads stdin.", metavar="TEXT")],
    preset: Preset = None,
    category: Category = None,
    include: Include = None,
    lists: Lists = None,
    pattern: Annotated[list[str] | None, typer.Option(help="A text of your own; repeat it.", metavar="TEXT")] = None,
    regex: Annotated[list[str] | None, typer.Option(help="An expression of your own; repeat it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what of a text a filter would have caught: category, pattern, place. Exit 1 if there is anything.

    Without --preset and --category the filter is `maximum`, with every pattern but the optional ones.
    """
    found_lists = read_lists(lists or ())
    spec = Safety(
        preset if preset is not None or category else "maximum",
        categories=(*(category or ()), *found_lists),
        include=include or (),
        patterns=[*(pattern or ()), *({"regex": one} for one in regex or ())],
        lists=found_lists,
    )
    for one in spec.patterns:
        if one.is_regex:
            checked_parts(one)  # what `generate` would refuse is refused here
    data = read_text("-", "text") if text == "-" else text
    try:
        found = find(spec, data)
    except NotSearched as error:
        raise UnsupportedError(str(error), hint="repeat less within what is repeated", field="patterns") from error
    if as_json:
        output.data_json({"caught": [one.to_json() for one in found], "enforced": spec.describe()})
    else:
        tell_unenforced(spec)
        for match in found:
            output.data(_line(match))
        if not found:
            output.note("nothing would have been caught")
    raise typer.Exit(1 if found else 0)


def _line(one: Finding) -> str:
    shown = one.text if len(one.text) <= SHOWN else f"{one.text[: SHOWN - 1]}…"
    return f"{one.category}/{one.pattern}\tcharacters {one.start}-{one.end}\t{shown!r}"


@app.command("list", short_help="List categories, presets and patterns.")
def list_command(as_json: AsJson = False) -> None:
    """List the categories, the presets and the patterns, and which categories need a list."""
    if as_json:
        patterns = [
            {"name": one.name, "category": one.category, "about": one.about, "optional": one.is_option}
            for one in PATTERNS
        ]
        categories = [
            {"name": name, "about": about, "needs_list": name in NEEDS_LIST} for name, about in CATEGORIES.items()
        ]
        output.data_json({"presets": PRESETS, "categories": categories, "patterns": patterns})
        return
    lines = ["presets"]
    lines += [f"  {name:<10}{', '.join(members)}" for name, members in PRESETS.items()]
    for name, about in CATEGORIES.items():
        lines += ["", f"{name}: {about}"]
        lines += [
            f"  {one.name:<22}{one.about}{' (only if named)' if one.is_option else ''}"
            for one in PATTERNS
            if one.category == name
        ]
        lines += ["  needs a list: none is shipped"] if name in NEEDS_LIST else []
    output.data("\n".join(lines))
