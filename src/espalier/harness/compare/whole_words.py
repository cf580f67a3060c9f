"""The words that a model wanted and did not get, as the model itself goes on to write them.

The sums know the first token of such a word, which may be a part of it. From a kept answer the model is asked what
comes after the text before that token and the token itself, without a constraint. It reads no store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from espalier.engines.base import Request
from espalier.harness.compare.remedies import Run, result_of
from espalier.harness.compare.schema_edits import WantedAt, is_beginning
from espalier.sampling.config import SamplingConfig
from espalier.trace.paths import without_indices
from espalier.trace.records import Trace

MOST_WORDS = 12
"""Words that are asked for, those of the most tax first."""
MOST_TOKENS = 12
"""Of the rest of one word; a longer one is no name and no value of a list."""
REST = re.compile(r"[\w-]*")
END = '"'


def whole_words(wanted: Sequence[WantedAt], traces: Sequence[Trace], run: Run) -> list[WantedAt]:
    """The same places with whole words. A place whose word cannot be known is left out: no trace has it, or the model
    does not end the word. Raises what the runs raise."""
    places = sorted(wanted, key=lambda place: -place.tax)
    asked = [place for place in places if is_beginning(place.wanted)][:MOST_WORDS]
    prompts = _prompts(asked, traces) if asked else {}
    rests = {place: _rest(prompt, run) for place, prompt in prompts.items()}
    whole: list[WantedAt] = []
    for place in places:
        if not is_beginning(place.wanted):
            whole.append(place)
        elif (rest := rests.get(place)) is not None:
            whole.append(place._replace(wanted=place.wanted + rest))
    return whole


def _prompts(places: Sequence[WantedAt], traces: Sequence[Trace]) -> Mapping[WantedAt, str]:
    """By place, the text up to the wanted token, that one included, of the first trace that has it."""
    by_step = {(place.path, place.wanted, place.taken): place for place in places}
    prompts: dict[WantedAt, str] = {}
    for trace in traces:
        for step, text in _changed(trace):
            place = by_step.get(step)
            if place is not None:
                prompts.setdefault(place, text)
    return prompts


def _changed(trace: Trace) -> Iterator[tuple[tuple[str, str, str], str]]:
    """The steps whose favourite was refused, as (path, wanted, taken), with the text up to the favourite."""
    paths = trace.sum_up()[1]
    if paths is None or not trace.prompt:
        return
    pieces = [step.bytes for step in trace.steps]
    for index, (step, path) in enumerate(zip(trace.steps, paths, strict=True)):
        favourite = step.pre_masking[0] if step.pre_masking else None
        if favourite is None or favourite.allowed or path is None:
            continue
        before = b"".join(pieces[:index]).decode(errors="ignore")
        yield (without_indices(path) or "/", favourite.text, step.text), trace.prompt + before + favourite.text


def _rest(prompt: str, run: Run) -> str | None:
    """What ends the word, None where the model does not end it."""
    sampling = replace(SamplingConfig(), temperature=0.0, max_tokens=MOST_TOKENS)
    result = result_of(run, Request(prompt=prompt, raw=True, sampling=sampling, trace="off"))
    rest = REST.match(result.text)
    assert rest is not None
    return rest[0] if result.text[rest.end() :].startswith(END) else None
