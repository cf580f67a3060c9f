"""The words of a remedy are whole: a token that the model wanted may be only the beginning of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from espalier.engines.base import Event, FinishEvent, Request
from espalier.harness.compare.schema_edits import WantedAt, schema_edits
from espalier.harness.compare.whole_words import MOST_WORDS, whole_words
from espalier.trace.paths import json_paths

SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["piece", "kg"]}},
    "required": ["unit"],
    "additionalProperties": False,
}


def step(text: str, wanted: str | None = None) -> Any:
    listed = [SimpleNamespace(text=wanted or text, allowed=wanted is None)]
    return SimpleNamespace(text=text, bytes=text.encode(), pre_masking=listed)


def trace(*steps: Any, prompt: str = "How much?\n") -> Any:
    text = "".join(each.text for each in steps)
    paths = json_paths([each.bytes for each in steps])
    return SimpleNamespace(prompt=prompt, text=text, steps=steps, sum_up=lambda: (None, paths))


class Scripted:
    """Goes on as the script says where a prompt ends so."""

    def __init__(self, script: Mapping[str, str]) -> None:
        self.script, self.asked = script, list[Request]()

    def __call__(self, requests: Sequence[Request]) -> Iterator[Event]:
        for request in requests:
            self.asked.append(request)
            assert request.constraint is None
            assert request.prompt is not None
            text = next((rest for end, rest in self.script.items() if request.prompt.endswith(end)), "")
            result: Any = SimpleNamespace(text=text)
            yield FinishEvent(index=0, text=text, result=result)


PIECES = trace(step('{"unit":"'), step("piece", wanted="pack"), step('"}'))
PLACE = WantedAt("/unit", "pack", "piece", 3.0)


def test_a_fragment_of_a_word_was_offered_as_a_value_of_an_enum() -> None:
    run = Scripted({'How much?\n{"unit":"pack': 'age", and more'})
    (place,) = whole_words([PLACE], [PIECES], run)
    assert place == PLACE._replace(wanted="package")
    (edit,) = schema_edits(SCHEMA, [place])
    assert edit.about == "add 'package' to the enum at /unit"


def test_a_word_that_the_model_does_not_end_or_no_trace_has_is_left_out() -> None:
    endless = Scripted({"pack": "ages-and-more"})
    assert whole_words([PLACE], [PIECES], endless) == []
    assert whole_words([PLACE], [], endless) == []
    elsewhere = PLACE._replace(path="/other")
    assert whole_words([elsewhere], [PIECES], Scripted({"pack": 'age"'})) == []


def test_what_ends_a_word_itself_and_what_is_none_is_not_asked_for() -> None:
    run = Scripted({})
    places = [PLACE._replace(wanted='pack"'), PLACE._replace(wanted="}", tax=9.0)]
    assert whole_words(places, [PIECES], run) == [places[1], places[0]]
    assert not run.asked


def test_only_the_words_of_the_most_tax_are_asked_for() -> None:
    words = ["".join(pair) for pair in zip("abcdefghijklmno", "pqrstuvwxyzabcd", strict=True)]
    traces = [trace(step('{"unit":"'), step("piece", wanted=word), step('"}')) for word in words]
    places = [WantedAt("/unit", word, "piece", float(index)) for index, word in enumerate(words)]
    run = Scripted(dict.fromkeys(words, '"'))
    whole = whole_words(places, traces, run)
    assert [place.wanted for place in whole] == words[::-1][:MOST_WORDS]
    assert len(run.asked) == MOST_WORDS
