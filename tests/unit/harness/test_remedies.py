"""Remedies are tried in pairs, and only one that is shown to help is recommended."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import espalier
from espalier.api import make_request
from espalier.constraints.spec import JsonSchema, Regex
from espalier.constraints.verdict import Verdict
from espalier.engines.base import FinishEvent
from espalier.errors import CapabilityError, InputError
from espalier.harness.compare.remedies import changed, recommendation, recommended, trials_text, tried
from espalier.trace.report import findings as f
from tests.server_app import fake_engine

SCHEMA = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


class Usage:
    def __init__(self, tokens: int) -> None:
        self.completion_tokens = tokens


class Traced:
    def __init__(self, tax: float) -> None:
        self.tax = tax

    def summary(self) -> dict[str, float]:
        return {"total_tax_nats": self.tax}


class Told:
    """What a trial reads of a Result."""

    def __init__(self, tax: float, *, valid: bool) -> None:
        self.trace, self.verdict, self.usage = Traced(tax), Verdict(valid=valid, judge="test"), Usage(10)


def trials(cost: Any, *remedies: f.Remedy, seeds: int = 8, valid: Any = lambda request: True) -> Any:
    """The trials of a made-up model: cost gives the tax of a request."""

    def run(requests: Any) -> Any:
        (request,) = requests
        told: Any = Told(cost(request), valid=valid(request))
        yield FinishEvent(index=0, text="", result=told)

    ticks = itertools.count()
    return tried(
        remedies,
        {"constraint": SCHEMA},
        seeds=seeds,
        clock=lambda: float(next(ticks)),
        run=run,
        make=lambda **options: make_request("hi", **options),
    )


def cheaper(request: Any) -> float:
    """5 nats less with the schema in the prompt, one more with smc; streams differ."""
    return 10 + request.stream - 5 * request.schema_in_prompt + (request.decoding.strategy == "smc")


def test_the_remedy_that_is_shown_to_help_is_recommended() -> None:
    found = trials(cheaper, f.ANOTHER_STRATEGY, f.SHOW_THE_SCHEMA)
    best = recommended(found)
    assert best is not None
    assert best.how == "schema_in_prompt=True"
    tax = best.of("tax")
    assert (tax.first, tax.second, tax.mean, tax.low, tax.high, tax.sign) == (13.5, 8.5, -5, -5, -5, -1)
    lines = list(trials_text(found, seeds=8))
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).endswith("and the time by +0.00 s.")
    assert recommendation(found).startswith("Recommended: --schema-in-prompt. It changes the tax from 13.50 to 8.50")


def test_what_too_few_pairs_show_and_what_spoils_texts_is_not_recommended() -> None:
    assert recommended(trials(cheaper, f.SHOW_THE_SCHEMA, seeds=5)) is None
    spoilt = trials(cheaper, f.SHOW_THE_SCHEMA, valid=lambda one: not (one.schema_in_prompt and one.stream == 3))
    assert recommended(spoilt) is None
    assert "Recommended: none." in recommendation(spoilt)


def test_a_remedy_that_gives_valid_texts_is_recommended_whatever_its_tax() -> None:
    found = trials(lambda one: 3.0, f.CLOSE_IN_TIME, valid=lambda one: one.decoding.on_budget == "close")
    best = recommended(found)
    assert best is not None
    assert (best.how, best.of("valid").mean) == ('on_budget="close"', 1.0)


def test_a_remedy_that_cannot_be_had_says_why_and_the_others_go_on() -> None:
    def cost(request: Any) -> float:
        if request.decoding.strategy == "smc":
            raise CapabilityError("no smc here")
        return cheaper(request)

    found = trials(cost, f.ANOTHER_STRATEGY, f.SHOW_THE_SCHEMA)
    assert found[0].error == "no smc here"
    assert not found[0].helps
    assert recommended(found) is found[1]
    assert any("not possible: no smc here" in line for line in trials_text(found, seeds=8))


def test_what_is_in_force_or_the_users_to_change_is_not_tried() -> None:
    assert changed(f.SHOW_THE_SCHEMA, {"constraint": SCHEMA, "schema_in_prompt": True}) is None
    assert changed(f.NATURAL_LAYOUT, {"constraint": SCHEMA}) is None
    assert changed(f.NATURAL_LAYOUT, {"constraint": Regex("a")}) is None
    assert changed(f.RENAME_KEYS, {"constraint": SCHEMA}) is None
    assert next(trials_text((), seeds=8)).startswith("Nothing to try")
    with pytest.raises(InputError):
        trials(cheaper, f.SHOW_THE_SCHEMA, seeds=0)


def test_every_remedy_that_is_tried_makes_a_request() -> None:
    every = [one for one in vars(f).values() if isinstance(one, f.Remedy)]
    spec = JsonSchema({"type": "object"}, whitespace="flexible")
    plans = {one.action: changed(one, {"constraint": spec}) for one in every}
    made = {action: make_request("hi", **plan[1]) for action, plan in plans.items() if plan is not None}
    assert made.keys() >= {
        "schema_in_prompt",
        "let_it_think",
        "prose_first",
        "natural_layout",
        "property_order",
        "another_strategy",
        "jump",
        "break_loops",
        "close_in_time",
        "bounded_whitespace",
    }


def test_python_explains_and_tries() -> None:
    asked = []
    with fake_engine('Sure: {"a": 1}') as engine:
        found = espalier.explain(
            "hi",
            engine=engine,
            constraint=SCHEMA,
            temperature=0,
            try_remedies=True,
            seeds=2,
            max_tokens=40,
            progress=lambda done, of: asked.append((done, of)),
        )
    assert found.result.text.startswith("{")
    assert found.trials
    told = found.to_json()
    assert told["tried"]
    assert told["recommendation"].startswith("Recommended:")
    assert asked[-1][0] == asked[-1][1]
