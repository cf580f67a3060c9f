"""What each form of an answer costs a model: the same questions as free text, JSON, a schema and a tool call.

    card = measure_card(ask, name="demo", version="0.1.0", seeds=4)
    print(card.markdown())

The facts that a question asks for stand in it, so that any model of language can be right, and a program can tell: an
answer is as good as the share of the facts that it says. The tax is what the form takes, -ln of the probability that
the model gives to what the form allows, summed over the tokens of an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from espalier.constraints.spec import JsonObject, JsonSchema, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.engines.base import Result
from espalier.errors import InputError
from espalier.harness.qa.intervals import Mean, bootstrap

SEEDS = 4
MOST_TOKENS = 96
"""The limit of an answer: a form that the model cannot end is cut, and is then not valid."""
Ask: TypeAlias = "Callable[[str, Spec | None, int], Result]"
"""A prompt, the form and a seed -> the answer, with a trace of its sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardQuestion:
    """prompt: with the facts in it. facts: by the name of a property, what a right answer says."""

    prompt: str
    facts: Mapping[str, str | int]

    def schema(self) -> dict[str, Any]:
        """Its facts as required properties, in their order."""
        kinds = {name: {"type": "integer" if isinstance(fact, int) else "string"} for name, fact in self.facts.items()}
        return {"type": "object", "properties": kinds, "required": [*kinds], "additionalProperties": False}


def _contact(name: str, email: str) -> CardQuestion:
    return CardQuestion(
        prompt=f"Extract name and email: Write to {name} at {email}.", facts={"name": name, "email": email}
    )


QUESTIONS = (
    _contact("Ana Silva", "ana.silva@example.com"),
    _contact("Jack Morris", "jack.morris@example.com"),
    _contact("Eva Lopez", "eva.lopez@example.com"),
    CardQuestion(
        prompt="Extract item, count and city: Please send 3 lamps to Lisbon.",
        facts={"item": "lamps", "count": 3, "city": "Lisbon"},
    ),
    CardQuestion(
        prompt="Extract city and day: The train to Madrid leaves on Friday.", facts={"city": "Madrid", "day": "Friday"}
    ),
    CardQuestion(
        prompt="Extract name and age: Rosa Parker turned 42 last week.", facts={"name": "Rosa Parker", "age": 42}
    ),
    CardQuestion(
        prompt="Extract colour and animal: A brown fox sat by the door.", facts={"colour": "brown", "animal": "fox"}
    ),
    CardQuestion(
        prompt="Extract product and price in euros: The kettle costs 25 euros.",
        facts={"product": "kettle", "price": 25},
    ),
)


def _tool(form: str) -> Callable[[CardQuestion], Spec]:
    return lambda question: ToolCalls({"save": question.schema()}, format=form, choice="required", max_calls=1)


FORMS: Mapping[str, Callable[[CardQuestion], Spec | None]] = {
    "free text": lambda question: None,
    "JSON mode": lambda question: JsonObject(),
    "schema": lambda question: JsonSchema(question.schema()),
    "schema, compact": lambda question: JsonSchema(question.schema(), whitespace="compact"),
    "schema, any order": lambda question: JsonSchema(question.schema(), order="any"),
    **{f"tool call, {form}": _tool(form) for form in ("openai", "llama3", "pythonic")},
}
"""What is measured, by name: the constraint of a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormCost:
    """What one form costs, over all answers: means with 95 % intervals. valid: None for free text."""

    form: str
    tax: Mean
    quality: Mean
    tokens: Mean
    valid: Mean

    def to_json(self) -> dict[str, Any]:
        figures = {"tax_nats": self.tax, "quality": self.quality, "tokens": self.tokens, "valid": self.valid}
        return {"form": self.form} | {
            name: {"mean": mean.mean, "low": mean.low, "high": mean.high} for name, mean in figures.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxCard:
    """The costs of all forms for one model."""

    model: str
    version: str
    seeds: int
    forms: tuple[FormCost, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "espalier": self.version,
            "questions": len(QUESTIONS),
            "seeds": self.seeds,
            "forms": [form.to_json() for form in self.forms],
        }

    def lines(self) -> Iterator[str]:
        """The card for a terminal of 80 columns."""
        yield f"{'':<20}{'tax, nats':>22}{'right':>18}{'valid':>8}{'tokens':>9}"
        for cost in self.forms:
            tax = _with_interval(cost.tax, ".2f", 1)
            right = _with_interval(cost.quality, ".0f", 100)
            yield f"{cost.form:<20}{tax:>22}{right:>18}{_share(cost.valid):>8}{_number(cost.tokens):>9}"
        yield ""
        yield f"{len(QUESTIONS)} questions, {self.seeds} seeds. Tax per answer and right (%) with 95 % intervals."

    def markdown(self) -> str:
        """The card as a page that can be published."""
        rows = [
            f"| {cost.form} | {_with_interval(cost.tax, '.2f', 1)} | {_with_interval(cost.quality, '.0f', 100)} "
            f"| {_share(cost.valid)} | {_number(cost.tokens)} |"
            for cost in self.forms
        ]
        head = ABOUT.format(model=self.model, questions=len(QUESTIONS), seeds=self.seeds, version=self.version)
        return head + "".join(f"{row}\n" for row in rows)


ABOUT = """# Tax card of {model}

What each form of an answer takes from the model: the tax is -ln of the probability that the model gives to what the
form allows, summed over an answer; right is the share of the facts asked for that the answer says. Means over
{questions} questions, each with {seeds} seeds, with 95 % intervals. `espalier tax-card`, Espalier {version}.

| form | tax, nats | right, % | valid | tokens |
|---|---:|---:|---:|---:|
"""


def measure_card(
    ask: Ask,
    *,
    name: str,
    version: str,
    seeds: int = SEEDS,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> TaxCard:
    """Ask every question in every form with every seed. progress: told how many answers of how many there are. Raises
    InputError for no seeds, and what `ask` raises."""
    if seeds < 1:
        raise InputError("seeds is at least 1", field="seeds")
    done, total = 0, len(FORMS) * len(QUESTIONS) * seeds
    costs = []
    for form, constraint_of in FORMS.items():
        answers: list[tuple[CardQuestion, Result]] = []
        for question in QUESTIONS:
            constraint = constraint_of(question)
            for seed in range(seeds):
                answers.append((question, ask(question.prompt, constraint, seed)))
                done += 1
                progress(done, total)
        costs.append(_cost(form, answers))
    return TaxCard(model=name, version=version, seeds=seeds, forms=tuple(costs))


def _cost(form: str, answers: list[tuple[CardQuestion, Result]]) -> FormCost:
    results = [result for _, result in answers]
    verdicts = [result.verdict.valid is True for result in results if result.verdict is not None]
    taxes = [float(result.trace.summary()["total_tax_nats"]) for result in results if result.trace is not None]
    return FormCost(
        form=form,
        tax=bootstrap(taxes),
        quality=bootstrap([quality(question, result.text) for question, result in answers]),
        tokens=bootstrap([float(result.usage.completion_tokens) for result in results]),
        valid=bootstrap([float(verdict) for verdict in verdicts]),
    )


def quality(question: CardQuestion, text: str) -> float:
    """The share of the facts that an answer says, in whatever form, capitals aside."""
    said = text.casefold()
    spelled = [json.dumps(fact, ensure_ascii=False).strip('"').casefold() for fact in question.facts.values()]
    return sum(fact in said for fact in spelled) / len(spelled)


def _with_interval(mean: Mean, form: str, times: float) -> str:
    if mean.mean is None or mean.low is None or mean.high is None:
        return "–"
    return f"{mean.mean * times:{form}} ({mean.low * times:{form}}–{mean.high * times:{form}})"


def _share(mean: Mean) -> str:
    return "–" if mean.mean is None else f"{mean.mean:.0%}"


def _number(mean: Mean) -> str:
    return "–" if mean.mean is None else f"{mean.mean:.0f}"
