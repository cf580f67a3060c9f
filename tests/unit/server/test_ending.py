"""A process ends in time after a signal: requests are told at the end of the drain, and then nothing holds it."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from espalier.server.process import ending as module
from espalier.server.process.ending import FORCED_STATUS, ShutdownPlan, ending_on_signals


async def nothing() -> None:
    """Nothing to finish."""


@pytest.fixture
def no_alarm(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """SIGALRM would end the test run."""
    found: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: found.append(seconds))
    return found


def test_what_still_runs_is_finished_at_the_end_of_the_drain(no_alarm: list[float]) -> None:
    async def main() -> None:
        finished = asyncio.Event()

        async def finish() -> None:
            finished.set()

        ending = ShutdownPlan(0.01, finish, leave=lambda _: None)
        assert ending.left() == 0.01
        assert not ending.has_begun
        ending.begin(asyncio.get_running_loop())
        ending.begin(asyncio.get_running_loop())
        assert ending.has_begun
        await asyncio.wait_for(finished.wait(), 20)
        assert ending.left() == 0
        assert no_alarm == [0.01 + module.ALARM_AFTER]

    asyncio.run(main())


def test_a_process_is_gone_two_seconds_after_the_drain_though_python_hears_of_the_signal_a_second_late() -> None:
    """It took 2.4 s once, on a busy machine."""
    late = 1.0
    assert module.CUT_AFTER < module.FORCED_AFTER < module.ALARM_AFTER <= module.GONE_AFTER - late


def test_a_process_that_does_not_end_is_ended(no_alarm: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORCED_AFTER", 0.0)
    monkeypatch.setattr(module.logging, "shutdown", lambda: None)
    left, codes = threading.Event(), []

    def leave(code: int) -> None:
        codes.append(code)
        left.set()

    async def main() -> None:
        ShutdownPlan(0.0, nothing, leave=leave).begin(asyncio.get_running_loop())
        await asyncio.to_thread(left.wait, 20)

    asyncio.run(main())
    assert codes == [FORCED_STATUS]


def test_signals_begin_the_ending_and_go_on_to_the_server(no_alarm: list[float]) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))

    async def main() -> None:
        ending = ShutdownPlan(9.0, nothing, leave=lambda _: None)
        with ending_on_signals(ending):
            signal.raise_signal(signal.SIGHUP)  # kills nobody
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert ending.has_begun
        assert seen == [signal.SIGTERM]

    try:
        asyncio.run(main())
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
