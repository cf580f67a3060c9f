"""Constraints that take forever: each fails alone within its time limit, and other requests are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx2

from espalier.constraints import slow_patterns
from espalier.decoding.strategies import STRATEGIES
from espalier.time_limit import check
from tests.server_app import fake_engine, make_app, settings

URL = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 8}
RULES = "\n".join(f'r{n} ::= "a" r{n + 1} | [a-z]{{1,9}} r{(n * 7919) % 9000} | ""' for n in range(9000))
HOSTILE: dict[str, dict[str, Any]] = {
    "regex": {"structured_outputs": {"regex": "(?:[a-z]{1,40}[a-z0-9]{1,40}){1,2000}"}},
    "grammar": {"grammar": f'root ::= r0\n{RULES}\nr9000 ::= "z"'},
}
EXPLODING = "^(a|a)+$"


@asynccontextmanager
async def client(wish: str = "Hello there.", **options: str) -> AsyncIterator[httpx2.AsyncClient]:
    api = make_app(wish, config=settings(**options), engine=fake_engine(wish))
    transport = httpx2.ASGITransport(api, raise_app_exceptions=False)
    async with (
        api.router.lifespan_context(api),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as found,
    ):
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_constraint_that_takes_too_long_to_compile_is_refused_and_nobody_waits_for_it(kind: str) -> None:
    async def main() -> None:
        async with client(compile_seconds="3", max_schema_bytes="2000000") as http:
            done: list[str] = []

            async def ask(name: str, body: dict[str, Any]) -> httpx2.Response:
                answer = await http.post(URL, json=body)
                done.append(name)
                return answer

            other = ASKED | {"structured_outputs": {"regex": "[a-z]{3}"}}
            # What a process loads at its first request is not what is looked at here.
            assert (await http.post(URL, json=other)).status_code == 200
            hostile = asyncio.create_task(ask("hostile", ASKED | HOSTILE[kind]))
            others = [await ask("other", other) for _ in range(5)]
            answer = await hostile
            assert done == ["other"] * 5 + ["hostile"], "everybody waited"
            assert [one.status_code for one in others] == [200] * 5
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "too_costly"), answer.text[:500]
            assert re.search(r"takes longer than (3|2\.\d) s", error["message"])  # what the first try left of it
            assert "make it smaller" in error["message"]
            assert error["param"] == {"regex": "structured_outputs.regex", "grammar": "grammar"}[kind]

    asyncio.run(main())


def test_a_step_that_takes_too_long_ends_its_own_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constraint of one request thinks for ever at its third token: its steps look at the limit, as ours do."""
    plain = STRATEGIES.load("mask")
    thinks = threading.Event()

    def slow(job: Any) -> Any:
        steps = plain.make_plan(job)
        return _stuck(steps, thinks) if job.matcher is not None else steps

    monkeypatch.setattr(STRATEGIES, "load", lambda name: replace(plain, make_plan=slow))

    async def main() -> None:
        bodies = [ASKED, ASKED | {"structured_outputs": {"regex": "[a-z]{30}"}}, ASKED, ASKED]
        with pytest.MonkeyPatch.context() as patched:  # what a process loads once is not a part of the step
            patched.setattr(STRATEGIES, "load", lambda name: plain)
            async with client() as http:
                assert (await http.post(URL, json=bodies[1])).status_code == 200
        async with client(step_seconds="0.2") as http:
            first, stuck, *others = await asyncio.gather(*(http.post(URL, json=body) for body in bodies))
            assert thinks.is_set()
            assert [one.status_code for one in (first, *others)] == [200] * 3
            assert len({one.json()["choices"][0]["message"]["content"] for one in (first, *others)}) == 1
            error = stuck.json()["error"]
            assert (stuck.status_code, error["code"]) == (400, "too_costly"), stuck.text
            assert "one step of the constraint takes longer than 0.2 s" in error["message"]
            assert error["param"] == "structured_outputs.regex"
            streamed = await http.post(URL, json=bodies[1] | {"stream": True})
            assert "too_costly" in streamed.text
            assert (await http.get("/ready")).json() == {"status": "ok", "running": 0, "waiting": 0}

    asyncio.run(main())


def _stuck(steps: Any, thinks: threading.Event) -> Any:
    answer = None
    for count in range(1000):
        if count == 3:
            thinks.set()
            while True:
                check()
        try:
            answer = yield steps.send(answer)
        except StopIteration as end:
            return end.value


@pytest.mark.slow
def test_a_pattern_on_which_re_has_no_end_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's `re` cannot be interrupted, and holds the interpreter: nobody may give it this."""
    monkeypatch.setattr(slow_patterns, "JUDGE_SECONDS", 1.0)
    text = "a" * 60 + "!"
    schemas = [
        {"anyOf": [{"type": "string", "pattern": EXPLODING}, {"enum": [text]}]},
        {"enum": [text, "b"], "not": {"pattern": EXPLODING}},
        {
            "type": "object",
            "properties": {text: {"type": "null"}},
            "required": [text],
            "additionalProperties": False,
            "patternProperties": {EXPLODING: False},
        },
    ]

    async def main() -> None:
        async with client(json.dumps(text)) as http:
            for schema in schemas:
                body = ASKED | {"json_schema": schema, "espalier": {}, "max_tokens": 200}
                hostile = asyncio.create_task(http.post(URL, json=body))
                assert (await http.post(URL, json=ASKED)).status_code == 200
                answer = await hostile
                assert answer.status_code in (200, 400), answer.text
                if answer.status_code == 200:
                    assert text in answer.json()["choices"][0]["message"]["content"]

    asyncio.run(main())
