"""The reader of rejection logs: what others stumble over, cuts at every byte, and Python's own reader beside it."""

from __future__ import annotations

import io
import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import TooLarge
from espalier.trace.foreign import log_reader
from espalier.trace.foreign.log_reader import LogError, LogReader

SAMPLE = (
    '{"log_version":"x","timestamp":"2026-01-02T03:04:05Z","events":['
    '{"task_id":7,"slot_id":0,"step":0,"rejected":{"id":11,"text":"<a>","prob":0.9},'
    '"pre_masking":[{"id":11,"text":"<a>","prob":0.9}],'
    '"post_grammar":[{"id":11,"text":"<a>","logit":-inf},{"id":3,"text":"\\n","logit":1.5}],'
    '"post_chain":[{"id":3,"text":"\\n","prob":1.0}],"resampled":{"id":3,"text":"\\n","prob":1.0}},\n'
    '{"task_id":8,"slot_id":1,"step":3,"rejected":{"id":5,"text":"\\"-info\\\\","prob":-nan(ind)},'
    '"resampled":{"id":6,"text":"ñ ] } , inf","prob":1e-3},"extra":{"deep":[[{"a":[null,true]}]]}}'
)
"""As `rejection_log.json` comes from llama.cpp: never closed. It ends after a whole event."""


def read(text: str | bytes, **options: Any) -> list[dict[str, Any]]:
    data = text.encode() if isinstance(text, str) else text
    return list(LogReader(io.BytesIO(data), **options))


def log(*events: str) -> str:
    return '{"events":[' + ",".join(events) + "]}"


def test_events_of_a_log_that_was_never_closed() -> None:
    reader = LogReader(io.BytesIO(SAMPLE.encode()))
    first, second = reader
    assert (first["task_id"], first["step"], first["resampled"]["text"]) == (7, 0, "\n")
    assert first["post_grammar"][0]["logit"] == -math.inf
    assert second["rejected"]["text"] == '"-info\\'
    assert math.isnan(second["rejected"]["prob"])
    assert second["resampled"]["text"] == "ñ ] } , inf"
    assert second["extra"] == {"deep": [[{"a": [None, True]}]]}
    assert second["pre_masking"] == second["post_grammar"] == second["post_chain"] == []
    assert (reader.log_version, reader.timestamp, reader.is_closed) == ("x", "2026-01-02T03:04:05Z", False)


@pytest.mark.parametrize("end", ["", ",", " ,\n", "]", "]}", ",]}\n", '],"later":1}', "]}\r\n \t"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b" \n"])
def test_however_it_ends_and_begins_the_events_are_the_same(start: bytes, end: str) -> None:
    reader = LogReader(io.BytesIO(start + (SAMPLE + end).encode()))
    assert [one["task_id"] for one in reader] == [7, 8]
    assert reader.is_closed == ("]" in end)


def test_cut_at_every_byte_it_gives_each_whole_event_and_nothing_else() -> None:
    data = (SAMPLE + "]}").encode()
    whole = read(data)
    ends = []
    for end in range(len(data) + 1):
        found = read(data[:end])
        assert str(found) == str(whole[: len(found)])
        ends.append(len(found))
    first = SAMPLE.encode().index(b',\n{"task_id":8')
    assert [ends.index(1), ends.index(2)] == [first, len(SAMPLE.encode())]


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_it_does_not_matter_how_the_file_comes(chunk: int) -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(chunk, size or chunk))

    assert str(list(LogReader(Dripping(SAMPLE.encode())))) == str(read(SAMPLE))


def test_text_is_read_as_bytes_are() -> None:
    assert str(list(LogReader(io.StringIO(SAMPLE)))) == str(read(SAMPLE))


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("-inf", -math.inf),
        ("inf", math.inf),
        ("+inf", math.inf),
        ("INF", math.inf),
        ("-Infinity", -math.inf),
        ("Infinity", math.inf),
        ("infinity", math.inf),
        ("-1.5e-3", -0.0015),
        ("0", 0),
    ],
)
@pytest.mark.parametrize("around", ["%s", " %s ", "\n%s\t"])
def test_numbers_as_printf_writes_them(written: str, number: float, around: str) -> None:
    (event,) = read(log(f'{{"step":0,"logit":{around % written},"list":[{written},{written}]}}'))
    assert event["logit"] == number
    assert event["list"] == [number, number]


@pytest.mark.parametrize("written", ["nan", "-nan", "NaN", "nan(ind)", "-nan(ind)", "nan(0x7ff8)", "+nan", "NAN"])
def test_what_is_no_number_is_one_that_is_none(written: str) -> None:
    (event,) = read(log(f'{{"step":0,"prob":{written}}}'))
    assert math.isnan(event["prob"])


@pytest.mark.parametrize("text", ["-info", "-inf", " nan,", ",]", "a:-inf,", "[inf]", '\\"inf\\"', "}{", "\\\\", "\t"])
def test_fault_1_texts_that_look_like_numbers_are_left_alone(text: str) -> None:
    (event,) = read(log(f'{{"step":0,"logit":-inf,"text":"{text}","more":[nan,]}}'))
    assert event["text"] == json.loads(f'"{text}"', strict=False)


def test_fault_3_events_of_several_tasks_are_told_apart() -> None:
    found = read(log('{"task_id":1,"step":0}', '{"task_id":2,"step":0}'))
    assert [(one["task_id"], one["step"]) for one in found] == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ('{"task_id":9}', "event 1 at byte 22 (task 9) has no step"),
        ('{"task_id":9,"step":"3"}', "event 1 at byte 22 (task 9): its step is no whole number"),
        ('{"task_id":9,"step":true}', "event 1 at byte 22 (task 9): its step is no whole number"),
        ("[1]", "event 1 at byte 22 is no object"),
        ("null", "event 1 at byte 22 is no object"),
        ('"step"', "event 1 at byte 22 is no object"),
        ('{"step":0,"prob":1.2.3}', "event 1 at byte 22 cannot be read"),
        ('{"step":0 "prob":1}', "event 1 at byte 22 cannot be read"),
        ('{"step":0,"x":binf}', "event 1 at byte 22 cannot be read"),
        ('{"step":0,"x":}', "event 1 at byte 22 cannot be read"),
        ('{"step":0,"x":' + "9" * 5000 + "}", "event 1 at byte 22 cannot be read"),
    ],
)
def test_an_event_that_is_none_is_named(event: str, said: str) -> None:
    reader = LogReader(io.BytesIO(log('{"step":0}', event).encode()))
    events = iter(reader)
    assert next(events)["step"] == 0
    with pytest.raises(LogError) as found:
        next(events)
    assert found.value.message.startswith(said)


@pytest.mark.parametrize("text", ["[]", "step", "3", '"', "PK\x03\x04", "{1:2}", "{{}}", '{"a" 1}', '{"events":[]}{}'])
def test_what_is_no_log_is_refused(text: str) -> None:
    with pytest.raises(LogError):
        read(text)


@pytest.mark.parametrize("text", ["", " \n", "\ufeff", "{", "{}", '{"events":[', '{"events":[]}', '{"log_version":"x"'])
def test_a_log_without_events_has_none(text: str) -> None:
    assert read(text) == []


def test_bytes_that_are_no_utf8_do_not_end_it() -> None:
    (event,) = read(b'{"events":[{"step":0,"text":"\xe2\x82"}]}')
    assert event["text"] == "\ufffd"


def test_it_goes_on_where_another_reader_stopped_while_the_log_grew() -> None:
    closed = log('{"step":0}', '{"step":1}').encode()
    first = LogReader(io.BytesIO(closed))
    assert len(list(first)) == 2
    grown = closed[: first.offset] + b',{"step":2}]}'
    second = LogReader(io.BytesIO(grown), offset=first.offset)
    assert [one["step"] for one in second] == [2]
    assert grown[second.offset :] == b"]}"
    empty = LogReader(io.BytesIO(b'{"events":[]}'))
    assert list(empty) == []
    assert [one["step"] for one in LogReader(io.BytesIO(b'{"events":[{"step":5}]}'), offset=empty.offset)] == [5]


def test_an_event_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MAX_EVENT", 100_000)
    endless = '{"events":[{"step":0,"text":"' + "x" * 1_000_000
    with pytest.raises(TooLarge, match="byte 11"):
        read(endless)
    monkeypatch.setattr(log_reader, "MAX_FIELDS", 3)
    with pytest.raises(TooLarge, match="fields"):
        read('{"a":1,"b":2,"c":3,"d":4,"events":[]}')


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, "[" * 100_000])
def test_an_event_that_is_nested_without_end_is_refused_where_it_begins(deep: str) -> None:
    with pytest.raises(TooLarge, match="byte 22 is nested deeper than 64 levels"):
        read(log('{"step":0}', '{"step":0,"x":' + deep + "}"))


def test_a_log_of_commas_is_skipped_at_once() -> None:
    """It took 4 s: a step of Python for each comma."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    text = '{"events":[' + "," * 5_000_000 + '{"step":3}' + ", \n" * 1_000_000 + "]}"
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        (event,) = read(text)
    finally:
        sys.setprofile(before)
    assert event["step"] == 3
    assert calls < 10_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
STAGES: dict[str, Any] = {name: [] for name in log_reader.STAGES}
EVENTS = st.lists(
    st.dictionaries(st.text(), JSON, max_size=4).flatmap(
        lambda more: st.integers(0, 99).map(lambda step: {**more, **STAGES, "step": step})
    ),
    max_size=4,
)


@settings(deadline=None)
@given(events=EVENTS, front=st.dictionaries(st.text(), JSON, max_size=2), is_ascii=st.booleans(), data=st.data())
def test_valid_documents_read_as_pythons_reader_reads_them(
    events: list[dict[str, Any]], front: dict[str, Any], is_ascii: bool, data: st.DataObject
) -> None:
    front.pop("events", None)
    space = data.draw(st.sampled_from([None, 1]))
    text = json.dumps({**front, "events": events, "last": 1}, ensure_ascii=is_ascii, indent=space)
    encoded = text.encode("utf-8", "surrogatepass")
    reader = LogReader(io.BytesIO(encoded))
    assert list(reader) == json.loads(text)["events"]
    assert reader.header == {**json.loads(json.dumps(front)), "last": 1}
    cut = data.draw(st.integers(0, len(encoded)))
    found = read(encoded[:cut])
    assert found == events[: len(found)]
