"""Worker processes: what comes back, and what ends a call: CPU time, memory, a caller who leaves, closing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from espalier.confined import frames
from espalier.confined.parent import HAS_WATCH
from espalier.confined.pool import ConfinedError, Processes, is_supported
from espalier.errors import Cancelled, Unavailable
from espalier.time_limit import OutOfTime, time_limit

pytestmark = pytest.mark.skipif(not is_supported(), reason="this system cannot limit a process")
FOREVER = "__import__('re').search('(a*)*b', 'a' * 40)"
"""One call of C code that looks at nothing."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    made = Processes(count=1, memory_bytes=600_000_000)
    yield made
    made.close()


def evaluated(processes: Processes, text: str, seconds: float = 20) -> object:
    return processes.call(eval, text, seconds=seconds, what="this work")


def test_a_value_comes_back(processes: Processes) -> None:
    assert evaluated(processes, "[1, 'é\\ud800', None]") == [1, "é\ud800", None]


def test_what_the_function_raises_is_told_and_ends_nothing(processes: Processes) -> None:
    before = evaluated(processes, "__import__('os').getpid()")
    with pytest.raises(ConfinedError, match="this work failed: ZeroDivisionError"):
        evaluated(processes, "1 / 0")
    assert evaluated(processes, "__import__('os').getpid()") == before


def test_the_kernel_ends_what_looks_at_no_limit_and_another_process_takes_its_place(processes: Processes) -> None:
    before = evaluated(processes, "__import__('os').getpid()")
    with pytest.raises(OutOfTime, match=r"this work takes longer than 0\.1 s"):
        evaluated(processes, FOREVER, seconds=0.1)
    after = evaluated(processes, "__import__('os').getpid()")
    assert before != after
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)  # type: ignore[arg-type]  # a number


def test_waiting_costs_no_cpu_time(processes: Processes) -> None:
    assert evaluated(processes, "__import__('select').select([], [], [], 0.3)", seconds=0.05) == [[], [], []]


def test_more_memory_than_its_limit_is_refused(processes: Processes) -> None:
    with pytest.raises(OutOfTime, match="this work takes too much memory"):
        evaluated(processes, "len('a' * 10**10)")
    assert evaluated(processes, "1") == 1


def test_a_process_that_ends_by_itself_is_replaced(processes: Processes) -> None:
    with pytest.raises(ConfinedError, match="ended its process"):
        evaluated(processes, "__import__('os')._exit(3)")
    assert evaluated(processes, "1") == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
def test_a_process_that_was_stopped_is_replaced_and_one_that_goes_on_answers(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses no CPU time, so its caller waited as long as nobody let it go on."""
    stop = "__import__('os').kill(__import__('os').getpid(), __import__('signal').SIGSTOP)"
    monkeypatch.setattr("espalier.confined.pool.STOPPED_SECONDS", 0.2)
    before = evaluated(processes, "__import__('os').getpid()")
    with pytest.raises(ConfinedError, match="ended its process"):
        evaluated(processes, stop)
    after = evaluated(processes, "__import__('os').getpid()")
    assert after != before
    monkeypatch.setattr("espalier.confined.pool.STOPPED_SECONDS", 60.0)

    def let_go_on() -> None:
        for _ in range(6000):
            if Path(f"/proc/{after}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                os.kill(after, signal.SIGCONT)  # type: ignore[arg-type]  # a number
                return
            select.select([], [], [], 0.01)

    helper = threading.Thread(target=let_go_on)
    helper.start()
    assert evaluated(processes, f"[{stop}, 2]") == [None, 2]
    helper.join()


def test_a_caller_who_leaves_ends_the_call_at_once(processes: Processes, tmp_path: Path) -> None:
    pid = evaluated(processes, "__import__('os').getpid()")
    begun = tmp_path / "begun"  # who leaves before that ends no process
    with pytest.raises(Cancelled), time_limit(None, cancelled=begun.exists):
        evaluated(processes, f"[open({str(begun)!r}, 'w').close(), {FOREVER}]", seconds=1000)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # type: ignore[arg-type]  # a number


def test_the_cpu_time_of_a_call_is_told_however_it_ends(processes: Processes, tmp_path: Path) -> None:
    used: list[float] = []

    def call(text: str, seconds: float) -> object:
        return processes.call(eval, text, seconds=seconds, what="this work", used=used.append)

    call("sum(range(3_000_000))", 20)
    assert 0.005 < used[-1] < 20
    with pytest.raises(OutOfTime):
        call(FOREVER, 0.1)
    assert used[-1] >= 0.1
    begun = tmp_path / "begun"  # the process in the place of the one that was ended takes a while to start
    with pytest.raises(Cancelled), time_limit(None, cancelled=begun.exists):
        # The work before the file is long enough for the coarsest clock of CPU time.
        call(f"[sum(range(5_000_000)), open({str(begun)!r}, 'w').close(), {FOREVER}]", 1000)
    assert 0 < used[-1] < 1000
    with pytest.raises(ConfinedError):
        call("1 / 0", 20)
    assert len(used) == 4


HANGS = (signal.pause,)
"""What a process does first: it waits for a signal that never comes."""


def test_a_process_that_hangs_while_it_starts_is_killed_and_replaced() -> None:
    made = Processes(count=1, warm=HANGS, start_seconds=0.3)
    try:
        made.start()
        [first] = made._all
        with pytest.raises(ConfinedError, match=r"a worker process did not start within 0\.3 s"):
            evaluated(made, "1")
        assert first.ended_by == signal.SIGKILL
        [second] = made._all
        assert second is not first
    finally:
        made.close()


def test_a_caller_who_leaves_while_a_process_starts_does_not_end_it() -> None:
    made = Processes(count=1, warm=HANGS)
    try:
        made.start()
        [first] = made._all
        began = time.monotonic()
        with pytest.raises(Cancelled), time_limit(None, cancelled=lambda: time.monotonic() - began > 0.1):
            evaluated(made, "1")
        assert [*made._all] == [first]
        assert first.ended_by is None
    finally:
        made.close()


def test_a_process_that_ends_while_it_starts_is_an_error_and_is_replaced() -> None:
    def nothing() -> None:
        """There is no such function over there."""

    nothing.__module__, nothing.__qualname__ = "espalier.nowhere", "nothing"
    made = Processes(count=1, warm=(nothing,))
    try:
        with pytest.raises(ConfinedError, match="a worker process ended while it started"):
            evaluated(made, "1")
        assert len(made._all) == 1
    finally:
        made.close()


def test_once_closed_nothing_is_called_and_nothing_runs() -> None:
    made = Processes(count=2)
    pid = evaluated(made, "__import__('os').getpid()")
    made.close()
    made.close()
    with pytest.raises(Unavailable):
        evaluated(made, "1")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # type: ignore[arg-type]  # a number


def test_a_message_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LARGEST", 10)
    with pytest.raises(frames.FrameTooLarge):
        frames.packed("a" * 11)


def test_a_large_parent_does_not_make_its_processes_large() -> None:
    """What Linux reports as the peak of a new process begins with the memory of the one that started it."""
    ballast = bytearray(450_000_000)
    made = Processes(count=1)
    try:
        pids = {evaluated(made, "__import__('os').getpid()") for _ in range(3)}
    finally:
        made.close()
    assert len(pids) == 1
    assert ballast


def test_a_process_gives_back_what_a_call_left_behind() -> None:
    """Two processes that had encoded long texts kept 80 MB each, which a server's memory then seemed to have lost."""
    held = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    cycles = "[one.append(one) for one in ([0] * 50_000 for _ in range(150))] and None"  # 60 MB
    one = Processes(count=1)
    try:
        before = evaluated(one, held)
        evaluated(one, cycles)
        assert isinstance(before, int)
        assert evaluated(one, f"{held} - {before}") < 30_000_000  # type: ignore[operator]
    finally:
        one.close()


def test_one_owner_leaves_a_process_to_the_others() -> None:
    """One key's builds kept both processes, and another key's build waited for them."""
    made = Processes(count=2, for_one=1)

    def work() -> None:
        with suppress(Unavailable):
            made.call(eval, "__import__('time').sleep(600)", seconds=20, what="this work", owner="a")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert made.call(eval, "1", seconds=20, what="this work", owner="b") == 1
    made.close()
    for thread in threads:
        thread.join(60)


def test_owners_take_turns_at_the_only_process() -> None:
    made, order = Processes(count=1), []
    begun, go = threading.Event(), threading.Event()

    def first(seconds: float) -> None:
        begun.set()
        go.wait(60)

    def work(owner: str) -> None:
        made.call(eval, "1", seconds=20, what="this work", owner=owner, used=lambda _: order.append(owner))

    holder = threading.Thread(
        target=lambda: made.call(eval, "1", seconds=20, what="this work", owner="a", used=first), daemon=True
    )
    holder.start()
    assert begun.wait(60)
    threads = [threading.Thread(target=work, args=(owner,), daemon=True) for owner in "aaab"]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while len(made._waiting) < count:
            pass
    go.set()
    for thread in [holder, *threads]:
        thread.join(60)
    made.close()
    assert order == ["b", "a", "a", "a"]


@pytest.mark.skipif(not HAS_WATCH, reason="this system has no signal for a parent that has ended")
@pytest.mark.parametrize("work", ["idle", "computing", "starting"])
def test_processes_end_with_a_parent_that_is_killed(work: str, tmp_path: Path) -> None:
    """At once, also in the middle of a call of C code that looks at nothing: its own limit is far away."""
    program = f"""
import os, sys, threading, time
from espalier.confined.parent import HAS_WATCH
from espalier.confined.pool import Processes
made = Processes(count=2)
made.start()
pids = [process._process.pid for process in made._all]
if {work!r} != "starting":
    for _ in pids:
        made.call(eval, "1", seconds=20, what="it")
if {work!r} == "computing":
    calls = [
        threading.Thread(target=made.call, args=(eval, {FOREVER!r}), kwargs=dict(seconds=60, what="it")) for _ in pids
    ]
    for call in calls:
        call.start()
    while any(process.cpu() < 0.3 for process in made._all):
        made._idle  # until both compute
print(*pids, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
        parent.wait()
        ends = time.monotonic() + 20.0
        while any(_is_alive(pid) for pid in pids) and time.monotonic() < ends:
            select.select([], [], [], 0.01)
        assert [pid for pid in pids if _is_alive(pid)] == []


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
