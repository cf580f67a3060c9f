"""64 mixed requests at once on both in-process engines with the demo model: each as alone, each valid."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import espalier
from espalier.constraints.verdict import judge
from espalier.engine_table import open_engine
from espalier.engines.base import FinishEvent
from espalier.engines.options import EngineOptions
from espalier.errors import Cancelled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CONSTRAINTS = (
    espalier.JsonSchema(SCHEMA),
    espalier.Regex(r"[A-Z][a-z]{2,8}-\d{2}"),
    espalier.Choice(["red", "green", "blue", "nothing of all that"]),
    espalier.Gbnf('root ::= "[" item ("," item)* "]"\nitem ::= [a-z]+ | "[" item "]"'),
    espalier.JsonObject(),
    None,
)
PROMPTS = ("Generate user info", "Name a colour of the sea", "Hi", "Say something about the weather of today, please")


def transformers_engine():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return open_engine(str(DEMO), options=EngineOptions(device="cpu", dtype="float32"))


def llamacpp_engine(**more):
    pytest.importorskip("llama_cpp")
    options = EngineOptions(kv_type="f32", flash_attention="off", threads=1, **more)
    return open_engine(str(DEMO / "demo.gguf"), options=options)


def own_caches_engine():
    return llamacpp_engine(kv_unified=False, sequences=12)


ENGINES = {
    "transformers": transformers_engine,
    "llamacpp": llamacpp_engine,
    "llamacpp-no-kv-unified": own_caches_engine,
}


@pytest.fixture(scope="module", params=ENGINES.values(), ids=ENGINES)
def eng(request):
    with espalier.LoadedEngine(request.param()) as loaded:
        yield loaded


def asked(eng, number):
    constraint = CONSTRAINTS[number % len(CONSTRAINTS)]
    prompt = PROMPTS[number // len(CONSTRAINTS) % len(PROMPTS)]
    level = ("off", "summary", "full")[number % 3]
    options = {"temperature": 0, "seed": 0, "max_tokens": 32, "trace": level, "strategy": "mask"}
    return eng.requests(prompt, constraint=constraint, **options)[0][0]


def alone(eng, count):
    """Each by itself, through the one-sequence driver; what repeats is run once."""
    period = len(CONSTRAINTS) * len(PROMPTS)
    results = []
    for number in range(min(period, count)):
        (result,) = (e.result for e in eng.engine.run([asked(eng, number)]) if isinstance(e, FinishEvent))
        results.append(result)
    return [results[number % period] for number in range(count)]


@pytest.mark.parametrize("options", [{}, {"prefix_tokens": 0, "prefill_chunk": 7, "lanes": 24}], ids=["kept", "plain"])
def test_64_mixed_requests_at_once_each_as_alone(eng, options):
    wanted = alone(eng, 64)
    with closing(eng.serve(**options)) as service:
        check(service, eng, wanted, is_kept=not options)
    assert service.load().tokens_held == 0


def check(service, eng, wanted, *, is_kept):
    async def read(number):
        running = service.submit(asked(eng, number), owner=f"owner {number % 3}")
        stops_after = 4 if number % 8 == 7 else None
        events = []
        try:
            async for event in running.events():
                events.append(event)
                if len(events) == stops_after:
                    running.cancel()
        except Cancelled:
            return number, "cancelled", events
        return number, events[-1].result, events

    async def main():
        return await asyncio.gather(*(read(number) for number in range(64)))

    kinds = Counter()
    for number, result, events in asyncio.run(main()):
        if result == "cancelled":
            kinds["cancelled"] += 1
            ids = tuple(event.token_id for event in events)
            assert ids == wanted[number].token_ids[: len(ids)]
            continue
        constraint = CONSTRAINTS[number % len(CONSTRAINTS)]
        kinds[constraint and constraint.kind] += 1
        assert (result.token_ids, result.text) == (wanted[number].token_ids, wanted[number].text), number
        assert "".join(event.text for event in events) == result.text
        if result.trace is not None:
            for step, other in zip(result.trace.steps, wanted[number].trace.steps, strict=True):
                assert (step.token_id, step.allowed_count) == (other.token_id, other.allowed_count)
                assert step.removed_mass == pytest.approx(other.removed_mass, abs=1e-5)
        if constraint is not None and result.finish_reason == "stop":
            assert judge(constraint, result.text).valid is True
            kinds["judged"] += 1
    load = service.load()
    assert (load.running, load.waiting) == (0, 0)
    assert (load.reused > 0) == is_kept
    assert kinds["cancelled"] >= 3
    assert kinds["judged"] >= 20
    assert {one and one.kind for one in CONSTRAINTS} <= set(kinds)
