"""Queueing at many replicas, simulated: how long requests take where there are 10 to 1,000 engines, at which load.

A replica works on all of its requests at once (continuous batching): with n of them it ends `speeds[n - 1]` requests a
second in all, as measured on one (`python -m benchmarks.scale.ray`). A proxy chooses as Ray Serve does. With one
request at a time, exponential work and one queue it is the M/M/c queue, whose formula (`erlang_c`) the test asks.

    python -m benchmarks.scale.queueing measured.json
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import json
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WARM = 0.2
"""Share of the requests at the beginning that is not counted: the queues begin empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """speeds: requests a second that one replica ends with 1, 2, … at once; the last holds for more. draw: the work of
    a request, 1 on average. most: requests that a replica takes at once; the others wait in the proxy."""

    speeds: Sequence[float]
    draw: Callable[[random.Random], float]
    most: int

    def speed(self, count: int) -> float:
        return self.speeds[min(count, len(self.speeds)) - 1]

    @property
    def best(self) -> float:
        """Requests a second of one replica at its fullest."""
        return self.speed(self.most)


@dataclass(slots=True)
class _Replica:
    """Work is shared evenly. done: work that each of its requests has had since the start; ends: when each ends, on the
    same scale, with its arrival."""

    done: float = 0.0
    since: float = 0.0
    version: int = 0
    ends: list[tuple[float, float]] = field(default_factory=list)


def two_choices(rng: random.Random, replicas: Sequence[_Replica]) -> int:
    """Two at random, and the one with fewer requests: what Ray Serve does."""
    if len(replicas) == 1:
        return 0
    one, two = rng.sample(range(len(replicas)), 2)
    return min(one, two, key=lambda place: len(replicas[place].ends))


def at_random(rng: random.Random, replicas: Sequence[_Replica]) -> int:
    """Whatever comes: what sessions do, each of which has its replica."""
    return rng.randrange(len(replicas))


def simulate(
    service: Service,
    *,
    replicas: int,
    rate: float,
    requests: int,
    seed: int,
    choose: Callable[[random.Random, Sequence[_Replica]], int] = two_choices,
) -> list[float]:
    """Seconds from arrival to end of each request that counts, Poisson arrivals at `rate` a second. Where the chosen
    replica is full, a free one takes the request; where none is, it waits in one queue."""
    rng = random.Random(seed)
    all_of_them = [_Replica() for _ in range(replicas)]
    free = replicas * service.most
    waiting: deque[tuple[float, float]] = deque()
    events: list[tuple[float, int, int]] = []  # time, replica, its version
    took: list[float] = []
    now, arrival, arrived = 0.0, rng.expovariate(rate), 0

    def advance(place: int) -> _Replica:
        one = all_of_them[place]
        if one.ends:
            one.done += (now - one.since) * service.speed(len(one.ends)) / len(one.ends)
        one.since = now
        return one

    def plan(place: int) -> None:
        one = all_of_them[place]
        one.version += 1
        if one.ends:
            left = (one.ends[0][0] - one.done) * len(one.ends) / service.speed(len(one.ends))
            heapq.heappush(events, (now + max(0.0, left), place, one.version))

    def begin(place: int, came: float, work: float) -> None:
        one = advance(place)
        heapq.heappush(one.ends, (one.done + work, came))
        plan(place)

    while len(took) < requests:
        if arrived < requests and (not events or arrival <= events[0][0]):
            now, arrived = arrival, arrived + 1
            arrival = now + rng.expovariate(rate)
            work = service.draw(rng)
            if not free:
                waiting.append((now, work))
                continue
            free -= 1
            place = choose(rng, all_of_them)
            if len(all_of_them[place].ends) >= service.most:
                place = next(p for p in _shuffled(rng, replicas) if len(all_of_them[p].ends) < service.most)
            begin(place, now, work)
            continue
        at, place, version = heapq.heappop(events)
        if version != all_of_them[place].version:
            continue
        now = at
        one = advance(place)
        _, came = heapq.heappop(one.ends)
        took.append(now - came)
        if waiting:
            begin(place, *waiting.popleft())
        else:
            free += 1
            plan(place)
    return took[int(requests * WARM) :]


def _shuffled(rng: random.Random, count: int) -> range | list[int]:
    start = rng.randrange(count)
    return [*range(start, count), *range(start)]


def erlang_c(servers: int, rate: float, speed: float) -> float:
    """Mean seconds in an M/M/c queue: waiting and service. Raises ValueError where the queue grows without end."""
    load = rate / speed
    if load >= servers:
        raise ValueError("the queue grows without end")
    blocked = 1.0  # Erlang B, by its recurrence, which overflows nowhere
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    waits = servers * blocked / (servers - load * (1 - blocked))
    return waits / (servers * speed - rate) + 1 / speed


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def from_sample(works: Sequence[float]) -> Callable[[random.Random], float]:
    """Draws from measured work, scaled to 1 on average."""
    mean = sum(works) / len(works)
    scaled = [one / mean for one in works]
    return lambda rng: rng.choice(scaled)


def interpolated(measured: Sequence[tuple[int, float]]) -> list[float]:
    """Speeds at 1, 2, 3, … requests at once, from those at some numbers."""
    places = [count for count, _ in measured]
    found = []
    for count in range(1, places[-1] + 1):
        right = bisect.bisect_left(places, count)
        if places[right] == count:
            found.append(measured[right][1])
            continue
        (a, low), (b, high) = measured[right - 1], measured[right]
        found.append(low + (high - low) * (count - a) / (b - a))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path, help="what benchmarks.scale.ray wrote")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--replicas", default="10,30,100,300,1000")
    given = parser.parse_args()
    data = json.loads(given.measured.read_text())
    speeds = interpolated([(one["at_once"], one["per_second"]) for one in data["one_replica"]])
    service = Service(speeds=speeds, draw=from_sample(data["works"]), most=len(speeds))
    alone = 1 / speeds[0]
    print(f"one replica: {service.best:.2f} requests/s at its fullest, {alone * 1000:.0f} ms for one alone")
    print("| replicas | load | requests/s | median s | 99 % s | sessions: 99 % s |\n|---|---|---|---|---|---|")
    for replicas in map(int, given.replicas.split(",")):
        for load in (0.5, 0.8, 0.95):
            rate = load * replicas * service.best
            count = max(given.requests, 40 * replicas)
            took, sticky = (
                simulate(service, replicas=replicas, rate=rate, requests=count, seed=1, choose=choose)
                for choose in (two_choices, at_random)
            )
            print(
                f"| {replicas:,} | {load:.2f} | {rate:,.0f} | {quantile(took, 0.5):.2f} | {quantile(took, 0.99):.2f} "
                f"| {quantile(sticky, 0.99):.2f} |"
            )


if __name__ == "__main__":
    main()
