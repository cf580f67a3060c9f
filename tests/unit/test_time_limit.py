"""A limit on the time of a compilation: it is looked at everywhere, and what was interrupted can be done again."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest

from espalier import AllOf, AnyOf, Ban, Choice, Gbnf, JsonObject, JsonSchema, Regex, Vocab, Wordlist
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.errors import Cancelled, LimitExceeded
from espalier.time_limit import OutOfTime, WorkLock, check, left, spend, time_limit

NESTED = Gbnf('root ::= "[" (root ("," root)*)? "]" | [0-9]+ | word\nword ::= "a"* "b" word?\n')
SPECS: dict[str, Callable[[], Spec]] = {
    "schema": lambda: JsonSchema({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(20)}}),
    "schema on the own backend": lambda: JsonSchema(
        {"type": "array", "contains": {"const": 1}, "items": {"enum": [1, 2, 3]}, "not": {"maxItems": 2}}
    ),
    "regex": lambda: Regex("(?:[a-z]{1,9}-){0,6}(a|b)*a(a|b){5}"),
    "choice": lambda: Choice([f"choice {i}" for i in range(300)]),
    "gbnf": lambda: NESTED,
    "json": JsonObject,
    "words": lambda: Wordlist([f"wort{i}" for i in range(200)]),
    "all of": lambda: AllOf(NESTED, Ban(["12", "[["])),
    "any of": lambda: AnyOf(Regex("a{2,9}b"), Regex("[0-9]{3,9}")),
}


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of these tests count in this process only."""
    monkeypatch.setattr("espalier.confined.builds.is_supported", lambda: False)


@contextmanager
def stopped_at(count: int) -> Iterator[None]:
    """A limit that is over at the count-th look."""
    looks = iter(range(1, 1 << 60))

    def clock() -> float:
        return float(next(looks))

    with time_limit(count, clock=clock):
        yield


def looks(spec: Spec) -> int:
    """How often a compilation and a first mask look at the limit."""
    count = 0

    def clock() -> float:
        nonlocal count
        count += 1
        return 0.0

    with time_limit(1, clock=clock):
        Compiler(Vocab.bytes()).compile(spec).matcher().mask()
    return count


def test_no_limit_means_none() -> None:
    check()
    with time_limit(None):
        check()


def test_the_limit_that_ends_first_holds() -> None:
    now = [0.0]

    def clock() -> float:
        return now[0]

    with time_limit(5, clock=clock):
        with time_limit(50, clock=clock):
            now[0] = 6
            with pytest.raises(LimitExceeded, match="longer than 5 s"):
                check()
        now[0] = 1
        with time_limit(2, clock=clock):
            now[0] = 4
            with pytest.raises(LimitExceeded, match="longer than 2 s"):
                check()
        check()
    now[0] = 100
    check()


def test_work_that_nobody_wants_any_more_stops_inside_any_limit() -> None:
    gone = [False]
    for seconds in (100, None):
        gone[0] = False
        with time_limit(seconds, cancelled=lambda: gone[0]), time_limit(50), time_limit(99, cancelled=lambda: False):
            check()
            gone[0] = True
            with pytest.raises(Cancelled):
                check()
    check()


def test_a_flag_alone_leaves_the_limit_around_it() -> None:
    now = [0.0]
    with time_limit(5, clock=lambda: now[0]), time_limit(None, cancelled=lambda: False):
        check()
        now[0] = 6
        with pytest.raises(LimitExceeded, match="longer than 5 s"):
            check()


def test_what_counts_is_the_cpu_time_of_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the clock runs on and the work does not: that is nobody's fault."""
    now, used = [100.0], [5.0]
    monkeypatch.setattr("espalier.time_limit.time.monotonic", lambda: now[0])
    monkeypatch.setattr("espalier.time_limit.time.thread_time", lambda: used[0])
    with time_limit(2):
        now[0] += 1000
        check()
        used[0] += 1.9
        now[0] += 1000
        check()
        used[0] += 0.2
        now[0] += 0.05
        check()  # 0.1 s of CPU time were left 0.05 s ago: there is no need to look
        now[0] += 0.06
        with pytest.raises(LimitExceeded, match="longer than 2 s"):
            check()


def test_work_is_paced_now_and_then_and_waiting_costs_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now, used, paces = [0.0], [0.0], [0]
    monkeypatch.setattr("espalier.time_limit.time.monotonic", lambda: now[0])
    monkeypatch.setattr("espalier.time_limit.time.thread_time", lambda: used[0])

    def pace() -> None:
        paces[0] += 1
        now[0] += 60

    with time_limit(2, pace=pace):
        for _ in range(100):
            now[0] += 0.001
            used[0] += 0.001
            with time_limit(1, what="a part"):
                check()
    assert 10 <= paces[0] <= 110


@pytest.mark.parametrize("kind", SPECS)
def test_a_compilation_without_time_is_refused_and_says_so(kind: str) -> None:
    with stopped_at(1), pytest.raises(LimitExceeded, match="takes longer than 1 s"):
        Compiler(Vocab.bytes()).compile(SPECS[kind]()).matcher().mask()


@pytest.mark.parametrize("kind", SPECS)
def test_what_was_interrupted_can_be_done_again(kind: str) -> None:
    spec, random = SPECS[kind](), Random(kind)
    total = looks(spec)
    wanted = Compiler(Vocab.bytes()).compile(spec).matcher().mask()
    compiler = Compiler(Vocab.bytes())
    stopped = 0
    for count in sorted({1, 2, total // 2, *(random.randrange(1, total) for _ in range(6))}):
        try:
            with stopped_at(count):
                compiler.compile(spec).matcher().mask()
        except LimitExceeded:
            stopped += 1  # not always: what an earlier try has found may be kept
    assert stopped >= 2
    np.testing.assert_array_equal(compiler.compile(spec).matcher().mask(), wanted)


@pytest.mark.parametrize("kind", ["gbnf", "all of", "json", "schema on the own backend"])
def test_a_step_that_was_interrupted_can_be_done_again(kind: str) -> None:
    random, spec, vocab = Random(1), SPECS[kind](), Vocab.bytes()
    compiled, fresh = Compiler(vocab).compile(spec).matcher(), Compiler(vocab).compile(spec).matcher()
    for _ in range(12):
        for count in (1, 2, 3, 5, 8, 13):
            try:
                with stopped_at(count):
                    compiled.mask()
            except LimitExceeded:
                continue
            break
        mask = compiled.mask()
        np.testing.assert_array_equal(mask, fresh.mask())
        ids = [i for i in range(257) if compiled.allows(i)]
        token = random.choice(ids)
        compiled.advance(token)
        fresh.advance(token)
        if compiled.is_finished:
            break


def test_who_holds_a_lock_does_not_wait_for_its_turn_and_keeps_its_limit() -> None:
    turns: list[str] = []
    lock, other, clock = WorkLock(), WorkLock(), iter(range(1000))
    with time_limit(50, clock=lambda: float(next(clock)), pace=lambda: turns.append("turn")):
        check()
        before = len(turns)
        assert before == 1
        with lock, lock:
            with other:
                check()
            check()
            assert len(turns) == before
            for _ in range(60):
                next(clock)
            with pytest.raises(OutOfTime):
                check()
        assert len(turns) == before
        with pytest.raises(OutOfTime):
            check()
        assert len(turns) == before + 1


def test_who_missed_his_turn_under_a_lock_takes_it_as_soon_as_he_has_released_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work that checks often under a lock that it takes for a moment at a time never waited for its turn."""
    now, turns = [0.0], [0]
    monkeypatch.setattr("espalier.time_limit.time.monotonic", lambda: now[0])

    def pace() -> None:
        turns[0] += 1

    with time_limit(None, pace=pace):
        for _ in range(100):
            with WorkLock():
                for _ in range(6):
                    now[0] += 0.001
                    check()
            check()
    assert turns[0] == 100


def test_who_waits_for_a_lock_looks_at_its_limit() -> None:
    lock, entered, done = WorkLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            done.wait(20)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert entered.wait(20)
    turns: list[str] = []
    with (
        time_limit(None, cancelled=lambda: len(turns) > 2, pace=lambda: turns.append("turn")),
        pytest.raises(Cancelled),
        lock,
    ):
        raise AssertionError("it is held")
    done.set()
    holder.join(20)
    with lock:
        pass


def test_the_holder_of_a_paced_lock_waits_for_its_turn() -> None:
    turns: list[str] = []
    with time_limit(None, pace=lambda: turns.append("turn")), WorkLock(is_paced=True):
        check()
    assert turns


def test_what_another_process_spends_counts_against_the_limit_and_is_told() -> None:
    told: list[float] = []
    assert left() == float("inf")
    spend(5.0)
    with time_limit(None, spent=told.append), time_limit(10, clock=lambda: 0.0):
        spend(4.0)
        assert left() == 6.0
        check()
        spend(7.0)
        assert left() == 0.0
        with pytest.raises(OutOfTime):
            check()
    assert told == [4.0, 7.0]
