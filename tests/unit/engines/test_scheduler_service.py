"""A service: the thread, its readers in threads and on event loops, closing, and the engine's own runs beside it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

import espalier
from espalier.api import make_request
from espalier.decoding.options import FAITHFUL
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import FinishEvent, TokenEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.engines.serving import service as service_module
from espalier.errors import (
    Cancelled,
    DeadlineExceeded,
    GenerationError,
    InputError,
    Overloaded,
    PromptTooLong,
    Unavailable,
)
from espalier.tokens.vocab import Vocab
from espalier.trace.recorders.memory import MemoryRecorder

SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
    "additionalProperties": False,
}
ASKED = [
    ("hi", {"temperature": 0, "seed": 1, "max_tokens": 40}),
    ("hi", {"constraint": espalier.JsonObject(), "temperature": 1.5, "seed": 3, "max_tokens": 60, "trace": "off"}),
    ("how are you", {"constraint": espalier.Regex(r"\d{3}-[a-z]{4}"), "seed": 4, "trace": "summary"}),
    ("how is she", {"constraint": espalier.Choice(["yes", "yes!", "no"]), "seed": 5}),
    ("how", {"constraint": espalier.JsonSchema(SCHEMA), "temperature": 0, "seed": 2, "max_tokens": 60}),
    ("hi", {"n": 3, "seed": 9, "max_tokens": 20, "top_k": 0, "temperature": 1.0}),
]


class Gate:
    """Holds the model's passes back, so that a test decides when time goes on."""

    def __init__(self, model):
        self.open = threading.Event()
        self.reached = threading.Event()
        self._extend, model.extend = model.extend, self._held

    def _held(self, work):
        self.reached.set()
        assert self.open.wait(60)
        return self._extend(work)


def loaded(**more):
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width, **more)
    return espalier.LoadedEngine(
        LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: [*text.encode()])
    )


@pytest.fixture
def eng():
    return loaded()


@pytest.fixture
def service(eng):
    with_service = eng.serve()
    yield with_service
    with_service.close()
    assert eng.engine.model.live == 0


def requests(eng, asked=ASKED):
    return [request for prompt, options in asked for request in eng.requests(prompt, **options)[0]]


def whole(running):
    *tokens, last = list(running)
    assert all(isinstance(event, TokenEvent) for event in tokens)
    assert isinstance(last, FinishEvent)
    return tokens, last.result


def options_of(strategy, more):
    """What a request needs besides to be decoded like this: several texts where there are any, and what draws draws."""
    faithful = {
        "strategy": strategy,
        "temperature": more.get("temperature") or 0.8,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "particles": 3,
        "num_return_sequences": 2,
    }
    return {
        "beam": {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2},
        **dict.fromkeys(FAITHFUL, faithful),
    }.get(strategy, {"strategy": strategy})


def comparable(result):
    """Of a result what must be equal; probabilities to 1e-5."""
    trace = result.trace and [
        (
            s.token_id,
            s.allowed_count,
            s.was_rejected,
            pytest.approx(s.removed_mass, abs=1e-5),
            [(c.id, pytest.approx(c.prob, abs=1e-5)) for c in s.pre_masking or ()],
        )
        for s in result.trace.steps
    ]
    return (
        result.token_ids,
        result.text,
        result.finish_reason,
        result.parsed,
        result.verdict,
        result.usage,
        result.seed,
        result.turn,
        trace,
        result.closed_by_budget,
        pytest.approx(result.score, abs=1e-5),
        result.weighing and [pytest.approx(one, abs=1e-5) for one in asdict(result.weighing).values()],
        [comparable(one) for one in result.others],
    )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES.names())
@pytest.mark.parametrize("options", [{}, {"prefix_tokens": 0, "prefill_chunk": 3}, {"lanes": 2}])
def test_every_request_in_it_equals_the_same_request_alone(eng, strategy, options):
    asked = [(prompt, more | options_of(strategy, more)) for prompt, more in ASKED * 3]
    alone = [
        event.result for r in requests(eng, asked) for event in eng.engine.run([r]) if isinstance(event, FinishEvent)
    ]
    served = eng.serve(**options)
    runnings = [served.submit(request) for request in requests(eng, asked)]
    results = [whole(running)[1] for running in runnings]
    served.close()
    assert [comparable(one) for one in results] == [comparable(one) for one in alone]
    assert eng.engine.model.live == 0


def test_events_come_in_the_order_of_the_run_and_say_the_same(eng, service):
    request = requests(eng)[1]
    service.close()
    alone = list(eng.engine.run([request]))
    again = eng.serve()
    assert list(again.submit(request)) == alone
    again.close()


def test_many_readers_on_an_event_loop_and_in_threads(eng, service):
    made = requests(eng)
    alone = [whole(service.submit(request))[1].text for request in made]

    async def read(request):
        return [event async for event in service.submit(request).events()][-1].result.text

    async def main():
        return await asyncio.gather(*(read(request) for request in made * 4))

    with ThreadPoolExecutor(8) as pool:
        threads = [pool.submit(lambda r=request: whole(service.submit(r))[1].text) for request in made * 2]
        assert asyncio.run(main()) == alone * 4
        assert [thread.result(60) for thread in threads] == alone * 2
    assert (service.load().running, service.load().waiting) == (0, 0)


def test_who_reads_a_whole_text_is_woken_once_with_the_times_of_its_tokens(eng, service):
    request = next(request for request in requests(eng) if request.sampling.max_tokens > 3)
    alone = list(service.submit(request))
    assert all(event.after is None for event in alone[:-1])

    async def read():
        running = service.submit(replace(request, whole=True))
        return [burst async for burst in running.bursts()]

    bursts = asyncio.run(read())
    first, last = [event for burst in bursts[:-1] for event in burst], bursts[-1]
    assert first == alone[:-1]
    # It may have begun to read before the text ended, but is woken once from then on.
    assert len(bursts) <= 3 + len(alone) // service_module.AT_ONCE
    times = [event.after for event in first]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1]
    assert comparable(last[0].result) == comparable(alone[-1].result)


def test_a_whole_text_is_read_in_a_thread_as_any_other(eng, service):
    request = requests(eng)[0]
    assert whole(service.submit(replace(request, whole=True)))[1].text == whole(service.submit(request))[1].text


def test_what_recorders_get_is_not_put_off(eng, service):
    request = replace(requests(eng)[0], whole=True)
    watched = replace(request, recorders=(MemoryRecorder(),))
    assert service_module._ticket(eng.engine.prepare(request), (None, 0)).times == []
    assert service_module._ticket(eng.engine.prepare(watched), (None, 0)).times is None


def test_a_slow_reader_makes_nobody_wait(eng, service):
    slow = service.submit(requests(eng)[0])
    for _ in range(3):
        whole(service.submit(requests(eng)[0]))
    tokens, result = whole(slow)
    assert len(tokens) == len(result.token_ids)


@pytest.mark.parametrize("most", [3, 64])
def test_a_reader_of_bursts_gets_at_once_what_has_come(eng, service, monkeypatch, most):
    monkeypatch.setattr(service_module, "AT_ONCE", most)
    request = requests(eng)[0]
    alone = list(service.submit(request))
    late = service.submit(request)
    assert service._scheduler.wait_idle(60)

    async def read():
        return [burst async for burst in late.bursts()]

    *tokens, last = asyncio.run(read())
    assert tokens == [alone[:-1][start : start + most] for start in range(0, len(alone) - 1, most)]
    assert comparable(last[0].result) == comparable(alone[-1].result)


def test_nothing_is_idle_before_the_last_reader_is_told(eng, service):
    scheduler, idle = service._scheduler, []
    deliver = scheduler._deliver
    scheduler._deliver = lambda batch: (idle.append(scheduler.wait_idle(0)), deliver(batch))
    whole(service.submit(requests(eng)[0]))
    assert idle
    assert not any(idle)
    assert scheduler.wait_idle(60)


def test_cancelling_and_letting_go_frees_at_once(eng, service):
    long = eng.requests("x", temperature=1.0, max_tokens=4000, ignore_eos=True, trace="off")[0][0]
    running = service.submit(long)
    events = iter(running)
    next(events)
    running.cancel()
    with pytest.raises(Cancelled):
        list(events)
    running.cancel()
    closed = iter(service.submit(long))
    next(closed)
    closed.close()  # type: ignore[attr-defined]
    service.submit(long)  # nobody keeps it
    gc.collect()
    assert service._scheduler.wait_idle(60)
    assert service.load().running == 0

    async def leave():
        async for _ in service.submit(long).events():
            break

    asyncio.run(leave())
    assert service._scheduler.wait_idle(60)


def test_an_async_reader_that_is_cancelled_cancels_its_request(eng, service):
    gate = Gate(eng.engine.model)

    async def main():
        task = asyncio.create_task(anext(service.submit(requests(eng)[0]).events()))
        await asyncio.to_thread(gate.reached.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gate.open.set()
    assert service._scheduler.wait_idle(60)
    assert eng.engine.model.live == 0


def test_a_request_tells_how_long_it_waited_for_its_place(eng):
    now = [0.0]
    gate = Gate(eng.engine.model)
    service = eng.serve(clock=lambda: now[0], lanes=1)
    first = service.submit(make_request("hi", temperature=0, max_tokens=4))
    assert gate.reached.wait(60)
    second = service.submit(make_request("hi", temperature=0, max_tokens=4, constraint=espalier.Regex("[a-z]{2}")))
    assert (first.progress.queued, second.progress.queued) == (0.0, None)
    now[0] = 5.0
    gate.open.set()
    assert [*first]
    usage = [*second][-1].result.usage
    assert second.progress.queued == 5.0
    assert second.progress.compiled > 0
    assert usage.cached_tokens == usage.prompt_tokens - 1
    service.close()


def test_deadlines_are_by_the_clock_that_is_given(eng):
    now = [0.0]
    service = eng.serve(clock=lambda: now[0])
    gate = Gate(eng.engine.model)
    running = service.submit(requests(eng)[0], deadline=2.0)
    late = service.submit(requests(eng)[0], deadline=5.0)
    assert gate.reached.wait(60)
    now[0] = 3.0
    gate.open.set()
    with pytest.raises(DeadlineExceeded):
        list(running)
    assert whole(late)[1].text
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(InputError) as caught:
            service.submit(requests(eng)[0], deadline=wrong)
        assert caught.value.field == "deadline"
    service.close()


def test_what_is_asked_wrongly_is_refused_at_once(eng, service):
    with pytest.raises(PromptTooLong):
        service.submit(eng.requests("x" * 5000)[0][0])
    running = service.submit(requests(eng)[0])
    whole(running)
    with pytest.raises(InputError, match="can be read once"):
        iter(running)


def test_a_full_queue_refuses(eng):
    service = eng.serve(lanes=1, queue_size=2)
    gate = Gate(eng.engine.model)
    request = requests(eng)[0]
    first = service.submit(request)
    assert gate.reached.wait(60)
    rest = [service.submit(request), service.submit(request)]
    with pytest.raises(Overloaded):
        service.submit(request)
    assert (service.load().running, service.load().waiting) == (1, 2)
    gate.open.set()
    texts = {whole(running)[1].text for running in (first, *rest)}
    assert len(texts) == 1
    service.close()


def test_closing_refuses_drains_cancels_and_frees(eng):
    service = eng.serve(lanes=1)
    gate = Gate(eng.engine.model)
    short = eng.requests("x", temperature=0, max_tokens=3)[0][0]
    endless = eng.requests("x", temperature=1.0, max_tokens=4000, ignore_eos=True, trace="off")[0][0]
    first, second = service.submit(short), service.submit(endless)
    assert gate.reached.wait(60)
    wait_idle, has_ended = service._scheduler.wait_idle, threading.Event()
    # The drain ends between the ends of the two, however slow this machine is.
    service._scheduler.wait_idle = lambda seconds: has_ended.wait(60) and wait_idle(seconds)
    with ThreadPoolExecutor(2) as pool:
        closings = [pool.submit(service.close, drain=0.05) for _ in range(2)]
        while True:
            try:
                service._scheduler.check("")
            except Unavailable:
                break
        with pytest.raises(Unavailable):
            service.submit(short)
        gate.open.set()
        assert whole(first)[1].finish_reason == "length"
        has_ended.set()
        with pytest.raises(Cancelled):
            list(second)
        for closing in closings:
            closing.result(60)
    service.close()
    assert eng.engine.model.live == 0
    assert not service._thread.is_alive()
    assert eng.generate("x", temperature=0, max_tokens=3).text  # the engine is its own again


def test_a_drain_that_is_long_enough_lets_all_end(eng):
    service = eng.serve(lanes=2)
    runnings = [service.submit(request) for request in requests(eng)]
    service.close(drain=60)
    assert all(whole(running)[1].token_ids for running in runnings)


def test_a_service_that_never_ran_can_be_closed(eng):
    service = eng.serve()
    service.close(drain=5)
    service.close()
    with pytest.raises(Unavailable):
        service.submit(requests(eng)[0])


def test_a_thread_that_dies_leaves_nobody_hanging(eng):
    service = eng.serve(lanes=1)
    gate = Gate(eng.engine.model)
    runnings = [service.submit(requests(eng)[0]) for _ in range(3)]
    assert gate.reached.wait(60)
    service._scheduler._join = lambda: 1 / 0
    gate.open.set()
    for running in runnings:
        with pytest.raises(GenerationError, match="ZeroDivisionError"):
            list(running)
    service._thread.join(60)
    with pytest.raises(Unavailable, match="division"):
        service.submit(requests(eng)[0])
    service.close()
    assert eng.engine.model.live == 0


def test_runs_of_the_engine_go_through_the_service(eng):
    made = requests(eng)
    alone = [comparable(e.result) for r in made for e in eng.engine.run([r]) if isinstance(e, FinishEvent)]
    again = eng.serve(lanes=2, queue_size=1)
    endless = eng.requests("x", temperature=1.0, max_tokens=4000, ignore_eos=True, trace="off")[0][0]
    beside = iter(again.submit(endless))
    next(beside)
    ends = {e.index: e.result for e in eng.engine.run(made) if isinstance(e, FinishEvent)}  # no queue's limit
    assert [comparable(ends[i]) for i in range(len(made))] == alone
    stream = eng.stream("x", temperature=1.0, max_tokens=4000, ignore_eos=True)
    next(stream)
    stream.close()
    model = eng.engine.model
    eng.close()  # closes the service too
    assert model.live == 0
    with pytest.raises(Cancelled):
        list(beside)
    with pytest.raises(InputError, match="closed"):
        eng.engine.run([endless])


def test_an_engine_is_served_once_and_not_while_it_generates(eng, service):
    with pytest.raises(InputError, match="served already"):
        eng.serve()
    service.close()
    stream = eng.stream("x", temperature=0, max_tokens=9)
    next(stream)
    with pytest.raises(InputError, match="while it generates"):
        eng.serve()
    stream.close()
    eng.serve().close()


def test_a_service_that_is_let_go_ends_its_thread():
    eng = loaded()
    service = eng.serve()
    whole(service.submit(requests(eng)[0]))
    thread, model = service._thread, eng.engine.model
    seen = weakref.ref(service)
    del service, eng
    gc.collect()
    assert seen() is None
    thread.join(60)
    assert not thread.is_alive()
    assert model.live == 0


def test_what_has_ended_is_freed_without_the_collector(eng, service):
    gc.collect()
    gc.disable()
    try:
        running = service.submit(requests(eng)[0])
        whole(running)
        plan, box = weakref.ref(running.ticket.plan), weakref.ref(running._box)
        del running
        assert service._scheduler.wait_idle(60)
        assert (plan(), box()) == (None, None)
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["", "next(iter(running))"])
def test_a_program_that_forgets_to_close_ends(reading):
    program = f"""
        import espalier
        eng = espalier.load("fake")
        service = eng.serve()
        request = eng.requests("x", temperature=1.0, max_tokens=4000, ignore_eos=True, trace="off")[0][0]
        running = service.submit(request)
        {reading}
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
