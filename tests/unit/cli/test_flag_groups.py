"""Groups of flags: a field is a flag of every command that takes its group, and the command is given the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from espalier.api.options import DECLARED
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.decoding import DecodingFlags
from espalier.cli.flags.groups import DataclassGroup, FlagsOf, with_flags
from espalier.cli.flags.sampling import SamplingFlags
from espalier.cli.main import app as espalier_app
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.fields import Field, entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Fruit:
    pears: Annotated[int | None, typer.Option(help="How many pears.", metavar="N")] = None
    late_apples: Annotated[list[str] | None, typer.Option(help="An apple; repeat it.")] = None
    peel: Annotated[bool, typer.Option("--peel", help="Peel them.")] = False


def digits(text: str) -> int:
    if not text.isdigit():
        raise InputError(f"{text!r} is no number", field="seeds")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchard:
    trees: Annotated[int, Field("Trees.", least=1, most=9, flags=("--trees", "-t"))] = 3
    pears: Annotated[tuple[int, ...], Field("Their seeds.", parse=digits, flags=("--seeds",))] = ()
    hidden: Annotated[str, Field("No flag.")] = ""


def cli(command: Any) -> Any:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(with_flags(command))
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "NO_COLOR": "1"})


seen: list[Any] = []


def grow(
    *, name: Annotated[str, typer.Argument()], fruit: Fruit, orchard: Annotated[dict[str, Any], FlagsOf(Orchard)]
) -> None:
    """Grow."""
    seen.append((name, fruit, orchard))


def tend(*, fruit: Fruit, orchard: Annotated[dict[str, Any], FlagsOf(Orchard, is_checked=True)]) -> None:
    """Tend."""


def clash(*, one: Fruit, two: Fruit) -> None:
    """Clash."""


def test_a_command_is_given_an_instance_and_a_mapping_of_what_was_set():
    seen.clear()
    run = cli(grow)
    assert run("x").exit_code == 0
    assert run("x", "--pears", "2", "--late-apples", "a", "--late-apples", "b", "--peel", "-t", "99").exit_code == 0
    assert run("x", "--seeds", "1", "--seeds", "2").exit_code == 0
    assert seen == [
        ("x", Fruit(), {}),
        ("x", Fruit(pears=2, late_apples=["a", "b"], peel=True), {"trees": 99}),
        ("x", Fruit(), {"pears": (1, 2)}),  # fields of two groups may have one name
    ]
    assert isinstance(run("x", "--seeds", "y").exception, InputError)


def test_the_help_of_a_field_stands_in_the_help_of_the_command():
    run = cli(tend)
    lines = [" ".join(line.split()) for line in run("--help").output.splitlines()]
    assert "--pears N How many pears." in lines
    assert "--peel Peel them." in lines
    assert "-t, --trees <int range> Trees. [default: 3] [1<=x<=9]" in lines
    assert not any("No flag" in line for line in lines)
    assert run("--trees", "10").exit_code == 2


@pytest.mark.parametrize("command", ["generate", "chat", "explain"])
@pytest.mark.parametrize("group", [ConstraintFlags, DecodingFlags, SamplingFlags])
def test_a_command_takes_all_flags_of_a_group(command, group):
    shown = CliRunner().invoke(espalier_app, [command, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"}).output
    for name, _, _ in DataclassGroup(group).flags():
        assert f"--{(DECLARED[name].flag if name in DECLARED else None) or name.replace('_', '-')} " in shown, name


def test_two_flags_of_one_name_are_a_fault_of_the_program():
    with pytest.raises(TypeError, match="two flags are called --pears"):
        with_flags(clash)


@pytest.mark.parametrize("command", [["generate"], ["chat"], ["explain"], ["trace", "replay"]])
def test_every_engine_option_with_a_flag_is_offered_wherever_a_model_is_opened(command):
    shown = CliRunner().invoke(espalier_app, [*command, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"}).output
    names = [name for entry in entries(EngineOptions).values() for name in entry.field.flags]
    flags = [flag for name in names for flag in name.split("/")]
    assert len(flags) > 9
    words = shown.replace(",", " ").split()
    for flag in flags:
        assert flag in words, flag
