"""CPU seconds of steps: few looks at the CPU clock, and still nobody is charged for what others do."""

import time

import pytest

from espalier.engines.scheduling.step_meter import QUICK, StepMeter


class Clocks:
    """The clock on the wall and the CPU clock of this thread. looks: how often the CPU clock was read."""

    def __init__(self, monkeypatch):
        self.wall = self.cpu = 100.0
        self.looks = 0
        monkeypatch.setattr(time, "monotonic", lambda: self.wall)
        monkeypatch.setattr(time, "thread_time", self.read)

    def read(self):
        self.looks += 1
        return self.cpu

    def step(self, meter, owner, wall, cpu):
        """One step; returns what the meter says that the CPU clock said before it, and how long it took."""
        began = meter.start()
        self.wall += wall
        self.cpu += cpu
        return began, meter.stop(owner)


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def test_a_round_of_quick_steps_reads_the_cpu_clock_twice(clocks):
    meter = StepMeter(time.thread_time)
    meter.begin()
    for number in range(10):
        began, took = clocks.step(meter, "ab"[number % 2], wall=1e-4, cpu=1e-4)
        assert began == pytest.approx(100.0 + number * 1e-4)
        assert took == pytest.approx(1e-4)
    meter.settle()
    assert clocks.looks == 2
    assert meter.seconds == pytest.approx(1e-3)
    assert meter.drain() == {"a": pytest.approx(5e-4), "b": pytest.approx(5e-4)}
    assert meter.seconds == 0.0
    assert meter.drain() == {}


def test_who_waits_for_a_core_is_charged_for_what_it_computed(clocks):
    meter = StepMeter(time.thread_time)
    meter.begin()
    assert clocks.step(meter, "a", wall=1.0, cpu=3e-4)[1] == pytest.approx(3e-4)
    clocks.step(meter, "b", wall=0.9 * QUICK, cpu=1e-4)
    meter.settle()
    assert sum(meter.drain().values()) == pytest.approx(4e-4)


def test_a_slow_step_is_charged_as_measured_and_quick_ones_that_wait_are_not_charged_to_its_owner(clocks):
    """Who computed 50 ms in one step was charged 24, and 40 quick steps of another owner, 4 ms in all, 29."""
    meter = StepMeter(time.thread_time)
    meter.begin()
    clocks.step(meter, "a", wall=0.05, cpu=0.05)
    for _ in range(40):
        clocks.step(meter, "b", wall=0.75 * QUICK, cpu=1e-4)
    meter.settle()
    assert meter.drain() == {"a": pytest.approx(0.05), "b": pytest.approx(0.004)}


def test_a_slow_step_is_known_at_once_and_its_limit_never_ends_early(clocks):
    meter = StepMeter(time.thread_time)
    meter.begin()
    clocks.step(meter, "a", wall=0.4 * QUICK, cpu=0.0)
    began, took = clocks.step(meter, "b", wall=0.5, cpu=0.4)
    assert 100.0 <= began <= 100.0 + QUICK
    assert took == pytest.approx(0.4)
    began, took = clocks.step(meter, "b", wall=0.03, cpu=0.03)
    assert began == pytest.approx(100.4)
    assert took == pytest.approx(0.03)


def test_another_clock_is_read_before_and_after_each_step():
    now = [0.0]
    meter = StepMeter(lambda: now[0])
    meter.begin()
    for seconds in (0.5, 0.001):
        assert meter.start() == now[0]
        now[0] += seconds
        assert meter.stop("a") == pytest.approx(seconds)
    meter.settle()
    assert meter.drain() == {"a": pytest.approx(0.501)}
