"""The verb `try_remedies`: what each remedy of a constraint really does, as `espalier explain --try` measures it.

Its generations go where those of test cases go, several seeds of each, in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from espalier.agents.generating import EXPLAIN, EXPLANATION, explain_question
from espalier.agents.verb import Answer, Arguments, Desk, Verb
from espalier.api.explaining import explained, remedies_of, trials_json
from espalier.engines.base import Event, FinishEvent, Request
from espalier.errors import GenerationError, InputError
from espalier.harness.compare.remedies import SEEDS, tried
from espalier.trace.report.diagnose import diagnose

MOST_SEEDS = 32
MOST_REMEDIES = 5
"""Of those that the diagnosis names, in its order."""


def runs_of(arguments: Arguments) -> int:
    """The most generations that a call takes: one, and as asked and with each remedy one to warm up and each seed."""
    return 1 + (MOST_REMEDIES + 1) * (_seeds(arguments) + 1)


def _try_remedies(arguments: Arguments, desk: Desk) -> Answer:
    question = explain_question(arguments, desk)
    service = desk.runs.serve()

    def make(**options: object) -> Request:
        requests, _ = desk.runs.requests(question.prompt, **options)
        if len(requests) > 1:
            raise InputError("a call has one answer: n is 1", field="preset")
        return requests[0]

    def run(requests: Sequence[Request]) -> Iterator[Event]:
        for request in requests:
            yield from service.submit(request)

    try:
        ends = (event for event in run([make(**question.options)]) if isinstance(event, FinishEvent))
        first = next(ends, None)
        if first is None:
            raise GenerationError("the run ended without a result")
        trace = first.result.trace
        if trace is None:
            raise AssertionError("a trace was asked for")
        named = remedies_of(diagnose(trace), trace)[:MOST_REMEDIES]
        trials = tried(named, question.options, make=make, run=run, seeds=_seeds(arguments), progress=desk.told)
    finally:
        service.close()
    return explained(trace, "tool", seed=first.result.seed) | trials_json(trials, "tool")


def _seeds(arguments: Arguments) -> int:
    argument: int = arguments.get("seeds", SEEDS)
    return argument


TRY_REMEDIES = Verb(
    name="try_remedies",
    title="Try the remedies",
    about="Generate under a constraint, then run each remedy that the diagnosis names on several seeds, paired with "
    "the run as asked: what it does to tax, validity, tokens and time, with intervals, and which one is recommended. "
    "It takes many generations.",
    properties={
        **{name: schema for name, schema in EXPLAIN.properties.items() if name != "trace"},
        "seeds": {"type": "integer", "minimum": 1, "maximum": MOST_SEEDS, "description": f"Default: {SEEDS}."},
    },
    required=EXPLAIN.required,
    output={
        **EXPLANATION,
        "seed": {"type": "integer"},
        "tried": {"type": "array", "items": {"type": "object"}, "description": "What each remedy was measured to do."},
        "recommended": {"type": ["string", "null"], "description": "The argument that helps; null: none was shown to."},
        "recommendation": {"type": "string", "description": "The same in a sentence, with figures."},
    },
    always=(*EXPLANATION, "seed", "tried", "recommended", "recommendation"),
    answers=_try_remedies,
    runs=runs_of,
    is_read_only=False,
)
