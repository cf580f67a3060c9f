"""Plug-ins that are broken, take a name that is taken, or are of no group: told by name, and nobody else is hurt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import espalier
from espalier.cli.main import main_code
from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import Spec
from espalier.decoding.strategies import STRATEGIES
from espalier.errors import BrokenPlugin
from espalier.sampling.samplers.plugged import PLUGGED
from tests.plugins import declare, on_path
from tests.server_app import client

BROKEN = "import no_such_library\n"
WRONG = """
from dataclasses import dataclass
from typing import ClassVar
from espalier.constraints.compiler import ConstraintKind
from espalier.constraints.spec import Spec
from espalier.sampling.fields import Number
from espalier.sampling.samplers.sampler import Sampler

@dataclass(frozen=True)
class Faulty(Spec):
    kind: ClassVar[str] = "faulty"

class FaultyKind(ConstraintKind[Faulty]):
    spec = Faulty

    def compile(self, spec, compiler):
        raise ZeroDivisionError("no divisor")

FAULTY = FaultyKind()
NUMBER = 5
GREEDY_FIELD = Sampler(name="tall", transform=None, fields=(Number(name="top_k", off=0.0),))
FOREIGN_FIELD = Sampler(name="wide", transform=None, fields=(Number(name="top_k", off=0.0),))
"""


@pytest.fixture
def plugged(tmp_path: Path) -> Iterator[None]:
    declare(
        tmp_path,
        "bad-parts",
        {
            "constraints": {
                "absent": "bad_parts:X",
                "regex": "bad_parts:X",
                "faulty": "odd_parts:FAULTY",
                "other": "odd_parts:FAULTY",
                "number": "odd_parts:NUMBER",
                "whole": "odd_parts:FaultyKind",
            },
            "strategies": {"twice": "odd_parts:NUMBER", "leaves": "leaving:X"},
            "samplers": {"wide": "odd_parts:FOREIGN_FIELD", "top_k": "odd_parts:NUMBER"},
            "exporters": {"page": "odd_parts:NUMBER"},
            "constraint": {"misspelt": "odd_parts:FAULTY"},
        },
        {"bad_parts": BROKEN, "odd_parts": WRONG, "leaving": "raise SystemExit(3)\n"},
    )
    declare(tmp_path, "second", {"strategies": {"twice": "odd_parts:NUMBER"}}, {})
    with on_path(tmp_path):
        yield


def test_each_is_listed_with_its_reason(plugged: None) -> None:
    found = {(one.kind, one.name, one.package): (one.state, one.reason) for one in espalier.plugins()}
    assert found == {
        ("constraints", "absent", "bad-parts"): ("broken", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("constraints", "faulty", "bad-parts"): ("ready", ""),
        ("constraints", "number", "bad-parts"): ("broken", "a value of type int, not a ConstraintKind"),
        ("constraints", "other", "bad-parts"): ("broken", "its specs have the kind 'faulty'"),
        ("constraints", "whole", "bad-parts"): (
            "broken",
            "the class FaultyKind: declare an object of it, FaultyKind()",
        ),
        ("constraints", "regex", "bad-parts"): (
            "refused",
            "Espalier itself has this name, and a plug-in replaces nothing",
        ),
        ("strategies", "leaves", "bad-parts"): ("broken", "SystemExit: 3"),
        ("strategies", "twice", "bad-parts"): ("refused", "second declares this name too"),
        ("strategies", "twice", "second"): ("refused", "bad-parts declares this name too"),
        ("samplers", "top_k", "bad-parts"): (
            "refused",
            "Espalier itself has this name, and a plug-in replaces nothing",
        ),
        ("samplers", "wide", "bad-parts"): ("broken", "its field 'top_k' does not begin with 'wide'"),
        ("exporters", "page", "bad-parts"): ("broken", "a value of type int, not a function"),
        ("constraint", "misspelt", "bad-parts"): ("refused", "there is no group espalier.constraint"),
    }


def test_a_broken_one_is_named_where_it_is_used_and_breaks_nothing_else(plugged: None) -> None:
    with pytest.raises(BrokenPlugin, match=r"plug-in bad-parts 1\.0: constraints 'absent' .*no_such_library"):
        Spec.from_json({"kind": "absent"})
    with pytest.raises(BrokenPlugin, match=r"plug-in bad-parts 1\.0: .*ZeroDivisionError: no divisor"):
        espalier.compile(Spec.from_json({"kind": "faulty"}))
    with pytest.raises(BrokenPlugin, match="second declares this name too"):
        STRATEGIES.load("twice")
    with pytest.raises(BrokenPlugin, match="wide"):
        espalier.SamplingConfig(extra={"wide": 1})
    assert Spec.from_json({"kind": "regex", "pattern": "a"}) == espalier.Regex("a")
    with espalier.load("fake") as engine:
        assert engine.generate("x", constraint=espalier.Regex("[ab]{3}"), seed=1).text


def test_a_name_that_is_taken_is_refused_with_a_message(plugged: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "espalier.plugins"):
        assert "regex" in KINDS.names()
        assert "top_k" not in PLUGGED.plugin_names()
        KINDS.names()  # said once
    said = [record.message for record in caplog.records if "regex" in record.message]
    assert said == [
        "plug-in bad-parts 1.0: constraints 'regex' is refused: Espalier itself has this name, and a plug-in replaces "
        "nothing"
    ]
    assert KINDS.spec_of("regex") is espalier.Regex


def test_the_command_line_says_which_plug_in_is_broken(
    plugged: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.json").write_text('{"kind": "absent"}')
    assert main_code(["generate", "x", "--model", "fake", "--constraint", str(tmp_path / "c.json")]) == 1
    err = capsys.readouterr().err
    assert "plug-in bad-parts 1.0" in err
    assert "espalier plugins" in err
    assert main_code(["generate", "x", "--model", "fake", "--regex", "a{3}"]) == 0


def test_the_server_says_which_plug_in_is_broken(plugged: None) -> None:
    with client() as http:
        body = {"prompt": "x", "espalier": {"constraint": {"kind": "absent"}}}
        found = http.post("/v1/completions", json=body)
        assert (found.status_code, found.json()["error"]["code"]) == (501, "broken_plugin")
        assert "plug-in bad-parts 1.0" in found.json()["error"]["message"]
        body["espalier"] = {"constraint": {"kind": "regex", "pattern": "a{3}"}}
        assert http.post("/v1/completions", json=body).status_code == 200


def test_nothing_installed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_code(["plugins"]) == 0
    assert "no installed package" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"), [("Taken", "SampledToken"), ("Drafted", "DraftTokens"), ("Decision", "TokenDecision")]
)
def test_a_strategy_that_imports_an_old_name_works_with_a_warning(old: str, new: str) -> None:
    from espalier.decoding import plan

    with pytest.warns(DeprecationWarning, match=f"{old} is called {new}"):
        assert getattr(plan, old) is getattr(plan, new)
