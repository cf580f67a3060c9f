"""The gate: identification, rate and concurrency limits, and slots that are always given back."""

from __future__ import annotations

import asyncio
import threading

import pytest

pytest.importorskip("dotenv", reason="the extra [server] is not installed")
pytest.importorskip("sqlalchemy", reason="the extra [server] is not installed")

from espalier.errors import InputError, OutputError, TooManyRequests, Unauthorized
from espalier.server.admit.auth import Key, Keyring
from espalier.server.admit.cpu_accounts import CpuAccounts
from espalier.server.admit.gate import KeyGate, make_gate
from espalier.server.admit.limits import LocalCounters
from espalier.server.ports import Caller
from espalier.server.settings import settings_of

TEAM, OTHER = Caller(name="team"), Caller(name="other")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Shared(LocalCounters):
    """Counters that block, as a database does: what was asked of them, and a door that can be shut."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.door = threading.Event()
        self.door.set()
        self.entered = threading.Event()
        self.renewed: list[list[str]] = []
        self.is_broken = False

    def enter(self, *asked):
        self.entered.set()
        self.door.wait(30)
        return super().enter(*asked)

    def renew(self, holders, now):
        if self.is_broken:
            raise OutputError("the database is away")
        self.renewed.append(holders)


def gate_of(counters=None, clock=None, **given: str) -> KeyGate:
    keys = Keyring([Key(name="team", digest=b"x", requests_per_minute=3, concurrent=2)])
    return KeyGate(settings_of(given), keys, counters or LocalCounters(), now=clock or Clock())


async def admit(gate, caller=TEAM, **more):
    async with gate.admit(caller, **more):
        pass


def test_a_key_may_have_so_many_at_once():
    async def main():
        gate = gate_of()
        async with gate.admit(TEAM), gate.admit(TEAM):
            with pytest.raises(TooManyRequests, match="2 requests running at once") as caught:
                await admit(gate)
            assert caught.value.retry_after >= 1
            await admit(gate, OTHER)
        async with gate.admit(TEAM):
            pass

    asyncio.run(main())


def test_a_key_may_ask_so_often_and_is_told_in_whole_seconds_when_again():
    async def main():
        clock = Clock()
        gate = gate_of(clock=clock)
        for _ in range(3):
            await admit(gate)
        clock.now += 0.5
        with pytest.raises(TooManyRequests, match="3 times a minute") as caught:
            await admit(gate)
        assert (caught.value.retry_after, caught.value.http_status) == (20, 429)
        clock.now += caught.value.retry_after
        await admit(gate)

    asyncio.run(main())


def test_who_is_turned_away_holds_no_slot_and_has_used_nothing_up():
    async def main():
        gate = gate_of()
        async with gate.admit(TEAM), gate.admit(TEAM):
            for _ in range(5):
                with pytest.raises(TooManyRequests):
                    await admit(gate)
        await admit(gate)  # the third of the minute
        for _ in range(5):
            with pytest.raises(TooManyRequests, match="a minute"):
                await admit(gate)
        clock = gate._now
        clock.now += 60
        async with gate.admit(TEAM), gate.admit(TEAM):
            pass

    asyncio.run(main())


def test_outputs_count_one_by_one_and_more_than_the_limit_is_a_wrong_request():
    async def main():
        gate = gate_of()
        async with gate.admit(TEAM, requests=2):
            with pytest.raises(TooManyRequests):
                await admit(gate)
        with pytest.raises(InputError, match="3 outputs are asked for; this key may have 2 at once"):
            await admit(gate, requests=3)

    asyncio.run(main())


def test_beams_and_particles_count_as_running_at_once_and_not_against_the_rate():
    """A key with two at once ran four searches of 64 particles."""

    async def main():
        gate = gate_of(REQUESTS_PER_MINUTE="10")
        async with gate.admit(TEAM, requests=1, sequences=2):
            with pytest.raises(TooManyRequests):
                await admit(gate)
        with pytest.raises(InputError, match="64 sequences are asked for; this key may have 2 at once"):
            await admit(gate, requests=1, sequences=64)
        async with gate.admit(OTHER, requests=1, sequences=64):
            pass

    asyncio.run(main())


def test_keys_without_limits_have_those_of_the_settings():
    async def main():
        gate = gate_of(CONCURRENT_PER_KEY="1")
        async with gate.admit(OTHER):
            with pytest.raises(TooManyRequests):
                await admit(gate, OTHER)
            await admit(gate, Caller(name="third"))

    asyncio.run(main())


def test_a_slot_comes_back_when_the_generation_fails_or_is_cancelled():
    async def main():
        gate = gate_of(Shared(), CONCURRENT_PER_KEY="1")
        with pytest.raises(ZeroDivisionError):
            async with gate.admit(OTHER):
                raise ZeroDivisionError
        running = asyncio.Event()

        async def generate():
            async with gate.admit(OTHER):
                running.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(generate())
        await running.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await admit(gate, OTHER)
        await gate.close()

    asyncio.run(main())


def test_a_caller_who_leaves_while_the_database_is_asked_leaves_no_slot_behind():
    async def main():
        counters = Shared()
        gate = gate_of(counters, CONCURRENT_PER_KEY="1")
        counters.door.clear()
        task = asyncio.create_task(admit(gate, OTHER))
        await asyncio.to_thread(counters.entered.wait, 30)
        task.cancel()
        counters.door.set()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert counters._slots == {}
        await admit(gate, OTHER)
        await gate.close()

    asyncio.run(main())


def test_what_is_held_is_renewed_and_a_database_that_is_away_ends_no_generation(caplog):
    async def main():
        counters = Shared()
        gate = gate_of(counters)
        async with gate.admit(TEAM):
            await gate.renew()
            assert [len(holders) for holders in counters.renewed] == [1]
            counters.is_broken = True
            await gate.renew()
        assert "slots could not be renewed" in caplog.text
        counters.is_broken = False
        await gate.renew()
        assert len(counters.renewed) == 1  # nothing was held any more
        await gate.close()

    asyncio.run(main())


def test_slots_of_a_shared_database_are_renewed_as_long_as_they_are_held(monkeypatch):
    monkeypatch.setattr("espalier.server.admit.gate.LEASE_SECONDS", 0)

    async def main():
        counters = Shared()
        gate = gate_of(counters)
        for _ in range(2):  # it ends with the last slot, and begins again with the next
            counters.renewed.clear()
            async with gate.admit(TEAM):
                while len(counters.renewed) < 2:
                    await asyncio.sleep(0)
            while not gate._renewing.done():
                await asyncio.sleep(0)
        await gate.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_slots_of_this_process_need_no_renewal():
    async def main():
        gate = gate_of(LocalCounters())
        async with gate.admit(TEAM):
            assert asyncio.all_tasks() == {asyncio.current_task()}
        await gate.close()

    asyncio.run(main())


def test_a_query_token_counts_only_where_it_is_allowed_and_then_before_the_header():
    shut = make_gate(settings_of({"SECRET_TOKEN": "the-right-one"}))
    with pytest.raises(Unauthorized, match="not allowed here"):
        shut.identify(None, "the-right-one")
    assert shut.identify("Bearer the-right-one", "wrong").name == "default"
    open_ = make_gate(settings_of({"SECRET_TOKEN": "the-right-one", "ALLOW_QUERY_TOKEN": "true"}))
    assert open_.identify(None, "the-right-one").name == "default"
    assert open_.identify("bearer the-right-one", None).name == "default"
    with pytest.raises(Unauthorized):
        open_.identify("Bearer the-right-one", "wrong")


def test_without_keys_whatever_header_there_is_lets_in():
    gate = make_gate(settings_of({}))
    assert gate.is_open
    assert gate.identify("Basic x", "y").name == gate.identify(None, None).name == "anonymous"


def test_cheap_routes_have_a_limit_of_their_own_ten_times_as_large():
    async def main():
        clock = Clock()
        gate = gate_of(clock=clock)
        for _ in range(30):
            gate.admit_cheap(TEAM)
        with pytest.raises(TooManyRequests, match="30 times a minute") as caught:
            gate.admit_cheap(TEAM)
        assert caught.value.retry_after == 2
        for _ in range(3):
            await admit(gate)  # generating has its own
        for _ in range(100):
            gate.admit_cheap(OTHER)  # no limit is set

    asyncio.run(main())


def cpu_gate(now, **given) -> KeyGate:
    gate = gate_of(**given)
    gate._cpu = CpuAccounts(gate._cpu_limit, now=now)
    return gate


def test_a_key_that_has_used_its_cpu_time_is_refused_until_it_is_earned_again():
    async def main():
        now = Clock()
        gate = cpu_gate(now, CPU_SECONDS_PER_MINUTE="6")
        gate.charge("team", 6.0)
        await admit(gate)  # it may use all of it
        gate.charge("team", 1.0)
        with pytest.raises(TooManyRequests, match="6 CPU seconds a minute") as caught:
            await admit(gate)
        assert caught.value.retry_after == pytest.approx(10.0)
        await admit(gate, OTHER)
        now.now += 9.0
        with pytest.raises(TooManyRequests):
            await admit(gate)
        now.now += 1.5
        await admit(gate)
        now.now += 60.0
        gate.charge("team", 6.0)  # idle time earns no more than a minute's share
        gate.charge("team", 0.5)
        with pytest.raises(TooManyRequests):
            await admit(gate)

    asyncio.run(main())


def test_a_key_may_have_its_own_share_of_cpu_time_and_callers_without_a_key_have_no_limit():
    async def main():
        keys = Keyring([Key(name="team", digest=b"x", cpu_seconds_per_minute=1.0), Key(name="other", digest=b"y")])
        gate = KeyGate(settings_of({}), keys, LocalCounters())
        for name in ("team", "other", "anonymous"):
            gate.charge(name, 2.0)
        with pytest.raises(TooManyRequests, match="1 CPU seconds"):
            await admit(gate)
        await admit(gate, OTHER)
        gate.charge("other", 60.0)
        with pytest.raises(TooManyRequests, match="60 CPU seconds"):
            await admit(gate, OTHER)
        gate.charge("anonymous", 1e9)
        await admit(gate, Caller(name="anonymous"))

    asyncio.run(main())
