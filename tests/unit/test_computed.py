"""`computed`: once for each object, and no object waits for another."""

from __future__ import annotations

import threading

from espalier.computed import computed


class Thing:
    def __init__(self, before: threading.Event | None = None) -> None:
        self.begun, self.before, self.count = threading.Event(), before, 0

    @computed
    def value(self) -> int:
        """What it is."""
        self.count += 1
        self.begun.set()
        if self.before is not None:
            assert self.before.wait(20)
        return self.count


def test_it_is_worked_out_once() -> None:
    thing = Thing()
    assert (thing.value, thing.value, thing.count) == (1, 1, 1)
    assert Thing.value.__doc__ == "What it is."


def test_an_object_does_not_wait_for_the_slow_work_of_another() -> None:
    """`functools.cached_property` of Python 3.11 would wait here for ever."""
    slow = Thing(threading.Event())
    thread = threading.Thread(target=lambda: slow.value, daemon=True)
    thread.start()
    assert slow.begun.wait(20)
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(Thing().value), daemon=True)
    other.start()
    other.join(20)
    assert found == [1]
    assert slow.before is not None
    slow.before.set()
    thread.join(20)


def test_threads_that_meet_get_the_same_value() -> None:
    both = threading.Barrier(2)

    class Met:
        @computed
        def value(self) -> object:
            both.wait(20)
            return object()

    thing, found = Met(), []
    threads = [threading.Thread(target=lambda: found.append(thing.value), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2
    assert found[0] is found[1] is thing.value
