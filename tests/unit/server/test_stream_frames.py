"""Streams put a token's text into a frame that is made once, and send at once what has come at once: the bytes are
those of the chunks."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi")

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, ContentDelta, ReasoningDelta
from espalier.engines.base import TokenEvent
from espalier.errors import InputError
from espalier.server.answering.replies import ChatChunks, Head, ReplyChunks, TextChunks
from espalier.server.answering.route import _stream
from tests.server_app import events

PIECES = ["", "a", '"', '""', '"content":""', "\n", "\\", "\u2028", "😀", "\ud800", "\x00", "é"]
texts = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
deltas = st.lists(
    st.builds(ContentDelta, texts)
    | st.builds(ReasoningDelta, texts)
    | st.just(CallBegun(0, "f", "id"))
    | st.builds(ArgumentsDelta, st.just(0), texts),
    max_size=2,
).map(tuple)


def chunks_of(kind: Any, **more: Any) -> Any:
    asked = SimpleNamespace(
        **{
            "top_logprobs": None,
            "token_ids": False,
            "stream_steps": False,
            "timings_per_token": False,
            "returned": 2,
            "include_usage": False,
            "has_functions": False,
            "custom_tools": frozenset(),
            "requests": [SimpleNamespace(prompt_top=None)] * 2,
            "prompt_ids": (),
            "echo": ["", ""],
            "ends": (),
            **more,
        }
    )
    head = Head(id='x""', kind="chat.completion", created=1, model='m""', fingerprint="")
    return kind(asked, head, None)


@given(
    st.sampled_from([ChatChunks, TextChunks]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1),
    st.lists(st.tuples(texts, deltas), max_size=4),
)
def test_a_frame_gives_the_bytes_of_the_chunks(kind, include_usage, has_functions, run, told):
    fast, slow = (chunks_of(kind, include_usage=include_usage, has_functions=has_functions) for _ in range(2))
    for text, added in told:
        happened = TokenEvent(index=0, token_id=5, text=text, deltas=added)
        assert fast.sent(run, happened, None) == ReplyChunks.sent(slow, run, happened, None)


@pytest.mark.parametrize("error", [ValueError("broken"), InputError("broken")])
def test_what_came_before_an_error_in_the_same_burst_is_sent_before_it(error):
    """The texts of a burst were lost if one of its later events could not be told."""

    class Running:
        outputs, request_id = (SimpleNamespace(trace_id=None),), "r"
        asked = SimpleNamespace(shown_trace="none", reasoning_place="separate", named=lambda error: error)

        async def events(self):
            yield [(0, TokenEvent(index=0, token_id=1, text=one, deltas=(ContentDelta(one),))) for one in "ab"]
            yield [(0, TokenEvent(index=0, token_id=1, text=one, deltas=(ContentDelta(one),))) for one in "cde"]

        def failed(self, error):
            pass

    class Breaking(ChatChunks):
        def sent(self, run, happened, trace_id, *, by_parts=False):
            if happened.text == "e":
                raise error
            return super().sent(run, happened, trace_id, by_parts=by_parts)

    async def main():
        return [one async for one in _stream(Running(), chunks_of(Breaking, requests=[None]), None)]

    told = [json.loads(one) for one in events(b"".join(asyncio.run(main())).decode())]
    assert [one["choices"][0]["delta"]["content"] for one in told[:-1]] == ["", "a", "b", "c", "d"]
    assert "error" in told[-1]


def test_what_has_come_at_once_is_sent_at_once_with_one_event_for_each_token():
    class Running:
        outputs, request_id = (SimpleNamespace(trace_id=None),), "r"
        asked = SimpleNamespace(shown_trace="none", reasoning_place="separate")

        async def events(self):
            yield [(0, TokenEvent(index=0, token_id=1, text=one, deltas=(ContentDelta(one),))) for one in "abc"]
            yield [(0, TokenEvent(index=0, token_id=1, text="d", deltas=(ContentDelta("d"),)))]
            await asyncio.Event().wait()

    async def main():
        made = _stream(Running(), chunks_of(ChatChunks, requests=[None]), None)
        role, first, second = [await anext(made) for _ in range(3)]
        await made.aclose()
        return role, first, second

    role, first, second = asyncio.run(main())
    assert [len(events(one.decode())) for one in (role, first, second)] == [1, 3, 1]
    assert [b'"content":"%c"' % one in first for one in b"abc"] == [True] * 3
