"""The tax card: every question in every form with every seed, and figures that are those of the answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.errors import InputError
from espalier.harness.tax_card import FORMS, QUESTIONS, CardQuestion, measure_card, quality
from tests.server_app import fake_engine

CONTACT = CardQuestion(prompt="Extract.", facts={"name": "Ana Silva", "age": 42})


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ('{"name": "Ana Silva", "age": 42}', 1.0),
        ("ana silva is 42.", 1.0),
        ('{"name": "Ana", "age": 42}', 0.5),
        ("", 0.0),
    ],
)
def test_an_answer_is_as_good_as_the_share_of_the_facts_that_it_says(text: str, share: float) -> None:
    assert quality(CONTACT, text) == share


def test_the_facts_of_every_question_stand_in_it_and_its_schema_takes_them() -> None:
    for question in QUESTIONS:
        assert quality(question, question.prompt) == 1.0, question.prompt
        schema = question.schema()
        assert [*schema["properties"]] == schema["required"] == [*question.facts]


@pytest.mark.slow
def test_every_question_is_asked_in_every_form_with_every_seed() -> None:
    engine = fake_engine('{"name": "Ana Silva"}')
    asked: list[tuple[str, Any, int]] = []
    counts: list[tuple[int, int]] = []

    def ask(prompt: str, constraint: Any, seed: int) -> Any:
        asked.append((prompt, constraint, seed))
        return engine.generate(prompt, constraint=constraint, seed=seed, max_tokens=40, trace="summary")

    card = measure_card(ask, name="fake", version="1", seeds=2, progress=lambda done, of: counts.append((done, of)))
    assert len(asked) == len(FORMS) * len(QUESTIONS) * 2
    assert counts[-1] == (len(asked), len(asked))
    assert {seed for _, _, seed in asked} == {0, 1}
    assert [cost.form for cost in card.forms] == [*FORMS]
    free = card.forms[0]
    assert (free.form, free.tax.mean, free.valid.mean) == ("free text", 0.0, None)
    assert all(cost.valid.mean is not None for cost in card.forms[1:])
    assert json.loads(json.dumps(card.to_json()))["forms"][0]["tax_nats"]["mean"] == 0.0
    assert all(len(line) <= 80 for line in card.lines())
    assert card.markdown().count("\n| ") == len(FORMS) + 1


def test_a_card_without_seeds_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        measure_card(lambda *_: pytest.fail("nothing is asked"), name="x", version="1", seeds=0)
