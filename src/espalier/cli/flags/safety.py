"""Safety flags: `--safety` and so on, the filter that they ask for, and a warning for categories without patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from espalier.cli import output
from espalier.constraints.joining.rule import together, unenforced
from espalier.constraints.safety.catalogue import CATEGORIES, PRESETS
from espalier.constraints.safety.lists import read_list
from espalier.constraints.safety.spec import Safety, check_category
from espalier.constraints.spec import Spec
from espalier.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyFlags:
    """The `--safety...` flags. level: a preset, or categories separated by commas."""

    level: Annotated[
        str | None,
        typer.Option(
            "--safety", help=f"A filter: {', '.join(PRESETS)}, or categories: pii,credentials.", metavar="LEVEL"
        ),
    ] = None
    mode: Annotated[str | None, typer.Option("--safety-mode", help="mask (the default), rewind.", metavar="MODE")] = (
        None
    )
    lists: Annotated[
        list[str] | None, typer.Option("--safety-list", help="Phrases of a category; repeat it.", metavar="NAME=FILE")
    ] = None

    must_mask: Annotated[
        bool, typer.Option("--safety-must-mask", help="Refuse an engine that cannot hold the filter at every token.")
    ] = False

    def filter(self) -> Safety | None:
        """The filter, or None without `--safety`. Raises InputError and its kin."""
        if self.level is None:
            for name, value in (
                ("--safety-mode", self.mode),
                ("--safety-list", self.lists),
                ("--safety-must-mask", self.must_mask),
            ):
                if value:
                    raise InputError(f"{name} needs --safety", hint="--safety strict", field="safety")
            return None
        from espalier.constraints.safety.compile import FILTERS  # noqa: PLC0415  # slow to import
        from espalier.kernels.group import start  # noqa: PLC0415

        start([FILTERS])  # while the model is read
        names = [name.strip() for name in self.level.split(",")]
        is_preset = len(names) == 1 and names[0] not in CATEGORIES
        lists = read_lists(self.lists or ())
        return Safety(
            names[0] if is_preset else None,
            categories=(*(() if is_preset else names), *lists),
            lists=lists,
            mode=self.mode or "mask",  # type: ignore[arg-type]  # checked by Safety itself
            must_mask=self.must_mask,
        )

    def join(self, constraint: Spec | None) -> Spec | None:
        """The constraint joined with the filter. Raises as `filter`."""
        return together(constraint, self.filter())


def read_lists(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Phrases by category, from `NAME=FILE`. Raises InputError, UnknownName, LimitExceeded."""
    lists: dict[str, tuple[str, ...]] = {}
    for option in given:
        name, equals, path = option.partition("=")
        if not equals or not path:
            raise InputError(f"--list {option}", hint="a category and a file: violence=words.txt", field="lists")
        lists[check_category(name)] = read_list(Path(path).expanduser())
    return lists


def warn_unenforced(spec: Safety) -> None:
    """Warn on stderr of each category for which the filter has no patterns."""
    for note in unenforced(spec):
        output.note(note)
