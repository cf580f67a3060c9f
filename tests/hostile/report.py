"""Runs attacks one after the other beside the victims, and prints what these noticed, worst first.

    python -m benchmarks.hostile [--model models/demo] [--keys] [--only TEXT]... [--part 1/4] [--json FILE]

The file is written after every attack. A run that was cut off goes on with the same command and the same file: what is
in the file is not attacked again. A quiet time before every fifth attack is what the next five are compared with.

The goal, for every attack: no victim is ended or refused; its p99 gap is at most 5 times that of the quiet run or
300 ms; memory is back within 10 s; SIGTERM ends the server within the drain and 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from espalier.files.writing import replaced
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.bodies import encoded
from tests.hostile.neighbours import Broken
from tests.hostile.sockets import Shot
from tests.hostile.victims import Noticed, Victim
from tests.server_process import DEMO, ServerProcess, resident_bytes, serving

ATTACKER, VICTIM = "attacker-key-of-a-test", "victim-key-of-a-test"
KEYS = f'[[key]]\nname = "attacker"\nkey = "{ATTACKER}"\n\n[[key]]\nname = "victim"\nkey = "{VICTIM}"\n'
DRAIN = 2
SETTLED_SECONDS = 10.0
ROOM = 80_000_000
"""Bytes above the memory before the attack that count as back: the allocator keeps some."""
QUIET_SECONDS = 2.0
EVERY = 5
"""Attacks between two quiet times."""
GOAL_SECONDS, GOAL_TIMES = 0.3, 5.0
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """p99, gap, first: seconds, of both victims: the 99th percentile and the largest of their gaps, and the longest
    time to a first token. cpu, cpu_p99: the largest CPU time of the server within one gap, and its 99th percentile.
    memory: bytes gained when the attack ended; settled: seconds until they were back, None if not in time."""

    name: str
    p99: float
    gap: float
    cpu: float
    cpu_p99: float
    first: float
    faults: list[str]
    statuses: dict[str, int]
    took: float
    memory: int
    settled: float | None
    threads: int
    alive: bool = True
    #: Of the quiet time before, so that what else runs on the machine counts on both sides.
    quiet_p99: float = 0.0
    quiet_worst: float = 0.0

    @property
    def limit(self) -> float:
        return max(GOAL_SECONDS, GOAL_TIMES * self.quiet_p99)

    @property
    def largest_limit(self) -> float:
        """For the largest gap, as `limit` is for the 99th percentile."""
        return max(GOAL_SECONDS, GOAL_TIMES * self.quiet_worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What victims noticed without an attack, in seconds as in `Found`."""

    p99: float
    worst: float
    cpu_p99: float


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of many attacks, on one server or, where it was cut off, on several. ended: seconds from SIGTERM to the
    end, of each server."""

    model: str
    keys: bool
    quiet: list[Quiet] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def quiet_p99(self) -> float:
        """The median of the quiet times between attacks: one that other programs spoilt counts for little."""
        return median([one.p99 for one in self.quiet] or [0.0])

    def quiet_worst(self) -> float:
        return max((one.worst for one in self.quiet), default=0.0)

    def quiet_cpu(self) -> float:
        return median([one.cpu_p99 for one in self.quiet] or [0.0])

    def misses(self) -> list[tuple[Found, str]]:
        found = []
        for one in self.found:
            why = [f"{len(one.faults)} faults, such as {one.faults[0]}"] if one.faults else []
            why += [f"p99 gap {one.p99:.3f} s, cpu {one.cpu_p99:.3f} s"] if one.p99 > one.limit else []
            why += ["memory is not back"] if one.settled is None else []
            found += [(one, "; ".join(why))] if why else []
        return found


@contextmanager
def server_for(folder: Path, model: str, *, keys: bool) -> Iterator[ServerProcess]:
    env = {"DRAIN_SECONDS": str(DRAIN), "LOG_LEVEL": "ERROR", "UPLOAD_BYTES_PER_KEY": "50000000"}
    if keys:
        (folder / "keys.toml").write_text(KEYS, encoding="utf-8")
        env["API_KEYS_FILE"] = str(folder / "keys.toml")
    with serving("-m", model, cwd=folder, env=env) as server:
        yield server


def run(
    model: str,
    attacks: Sequence[Attack],
    *,
    keys: bool,
    seconds: float,
    say: Any = print,
    found: Run | None = None,
    keep: Callable[[Run], None] = lambda found: None,
) -> Run:
    """seconds: after which the attackers of one attack leave. found: an earlier run that goes on. keep: called after
    every attack."""
    found = found or Run(model=model, keys=keys)
    with tempfile.TemporaryDirectory() as name, server_for(Path(name), model, keys=keys) as server:
        host, port = "127.0.0.1", int(server.url.rpartition(":")[2])
        victims = [
            Victim(kind, host, port, _headers(VICTIM if keys else None), server.pid) for kind in ("plain", "json")
        ]
        time.sleep(2 * QUIET_SECONDS)  # what a server does once, at its first requests
        _warm(victims)
        for number, attack in enumerate(attacks):
            if number % EVERY == 0:
                quiet = _quiet(victims)
                found.quiet.append(quiet)
                say(
                    f"-- quiet: p99 {quiet.p99 * 1e3:.0f} ms, worst {quiet.worst * 1e3:.0f} ms, cpu "
                    f"{quiet.cpu_p99 * 1e3:.0f} ms",
                    flush=True,
                )
            one = _attacked(attack, server, victims, str(Path(name) / "espalier.db"), keys=keys, seconds=seconds)
            one = replace(one, quiet_p99=found.quiet[-1].p99, quiet_worst=found.quiet[-1].worst)
            found.found.append(one)
            keep(found)
            say(_line(one), flush=True)
            if not one.alive:
                say("the server has ended:", server.text[-2000:], flush=True)
                break
        found.ended.append(_terminated(server, attacks, host, port, name, keys=keys))
        keep(found)
        for victim in victims:
            victim.stop()
    return found


def _line(one: Found) -> str:
    times = f"p99 {one.p99 * 1e3:6.0f}  gap {one.gap * 1e3:6.0f}  cpu {one.cpu_p99 * 1e3:5.0f} {one.cpu * 1e3:5.0f}"
    times += f"  first {one.first * 1e3:6.0f} ms  {one.took:5.1f} s"
    rest = f"+{one.memory / 1e6:5.0f} MB  {one.threads:3} threads  {one.statuses}"
    return f"{one.name:52.52} {times}  {rest}  {'FAULT ' + one.faults[0] if one.faults else ''}"[:400]


def _warm(victims: Sequence[Victim]) -> None:
    """Until both have heard something: what a server does once, at its first requests, is nobody's attack."""
    heard = [False for _ in victims]
    while not all(heard):
        time.sleep(0.2)
        heard = [had or bool(one.take().firsts) for had, one in zip(heard, victims, strict=True)]


def _quiet(victims: Sequence[Victim]) -> Quiet:
    _taken(victims)
    time.sleep(QUIET_SECONDS)
    noticed = _taken(victims)
    return Quiet(p99=noticed.p99(), worst=noticed.worst(), cpu_p99=noticed.cpu_p99())


def _headers(key: str | None) -> dict[str, str]:
    return {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})


def _taken(victims: Sequence[Victim]) -> Noticed:
    """What both noticed, together."""
    both = [one.take() for one in victims]
    return Noticed(
        gaps=[gap for one in both for gap in one.gaps],
        firsts=[gap for one in both for gap in one.firsts],
        faults=[fault for one in both for fault in one.faults],
        cpu=[used for one in both for used in one.cpu],
    )


def _attacked(
    attack: Attack, server: ServerProcess, victims: Sequence[Victim], database: str, *, keys: bool, seconds: float
) -> Found:
    body = attack.body()
    sent = None if body is None else encoded(body)
    del body
    over, statuses, lock = threading.Event(), Counter[str](), threading.Lock()
    broken: list[str] = []
    port = int(server.url.rpartition(":")[2])
    shot = Shot(
        host="127.0.0.1",
        port=port,
        database=database,
        method=attack.method,
        path=attack.path,
        body=sent,
        headers=_headers(ATTACKER if keys else None) | attack.headers,
        over=over,
    )

    def act() -> None:
        for _ in range(attack.times):
            if over.is_set():
                return
            try:
                status = str(attack.behaves(shot))
            except Broken as error:
                status = "broken"
                broken.append(str(error))
            except Exception as error:  # noqa: BLE001  # what an attacker sees of the attack is counted
                status = type(error).__name__
            with lock:
                statuses[status] += 1

    before = memory_of(server.pid)
    _taken(victims)
    began = time.monotonic()
    threads = [threading.Thread(target=act, daemon=True) for _ in range(attack.count)]
    for thread in threads:
        thread.start()
    while time.monotonic() - began < max(seconds, attack.lasts) and any(thread.is_alive() for thread in threads):
        time.sleep(0.05)
    over.set()
    took = time.monotonic() - began
    time.sleep(max(0.0, LEAST_SECONDS - took))
    noticed = _taken(victims)
    alive = server.process.poll() is None
    gained = memory_of(server.pid) - before if alive else 0
    count = threads_of(server.pid) if alive else 0
    settled = _settled(server, before)
    after = _taken(victims)
    for thread in threads:
        thread.join(5)
    return Found(
        name=attack.name,
        p99=noticed.p99(),
        cpu=max(noticed.cpu, default=0.0),
        cpu_p99=noticed.cpu_p99(),
        gap=max(noticed.gaps, default=0.0),
        first=max(noticed.firsts, default=0.0),
        faults=[*broken, *noticed.faults, *after.faults],
        statuses=dict(statuses),
        took=took,
        memory=gained,
        settled=settled,
        threads=count,
        alive=alive,
    )


def _settled(server: ServerProcess, before: int) -> float | None:
    began = time.monotonic()
    while server.process.poll() is None:
        if memory_of(server.pid) <= before + ROOM:
            return time.monotonic() - began
        if time.monotonic() - began > SETTLED_SECONDS:
            return None
        time.sleep(0.1)
    return None


def _terminated(
    server: ServerProcess, attacks: Sequence[Attack], host: str, port: int, name: str, *, keys: bool
) -> float:
    """Seconds from SIGTERM to the end, while three of the attacks run."""
    for attack in [one for one in attacks if one.path == "/v1/completions"][:3]:
        body = attack.body()
        shot = Shot(
            host=host,
            port=port,
            database=str(Path(name) / "espalier.db"),
            method=attack.method,
            path=attack.path,
            body=None if body is None else encoded(body),
            headers=_headers(ATTACKER if keys else None),
            over=threading.Event(),
        )

        def act(attack: Attack = attack, shot: Shot = shot) -> None:
            with suppress(Exception):  # the server ends meanwhile
                attack.behaves(shot)

        threading.Thread(target=act, daemon=True).start()
    time.sleep(0.5)
    began = time.monotonic()
    server.terminate()
    return time.monotonic() - began


def memory_of(pid: int) -> int:
    """Bytes that a process and its children hold. Linux."""
    return sum(_resident(one) for one in (pid, *children_of(pid)))


def _resident(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(one) for one in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def summary(one: Run) -> str:
    misses = one.misses()
    worst = sorted(one.found, key=lambda found: -found.p99)[:10]
    lines = [
        f"{one.model}, {'two keys' if one.keys else 'no keys'}: {len(one.found)} attacks",
        f"quiet: p99 gap {one.quiet_p99() * 1e3:.0f} ms, worst {one.quiet_worst() * 1e3:.0f} ms; "
        f"goal: p99 gap at most {GOAL_SECONDS * 1e3:.0f} ms, or {GOAL_TIMES:g} times the quiet one before",
        f"CPU time of the server within a gap: quiet p99 {one.quiet_cpu() * 1e3:.0f} ms; over 300 ms (p99) in "
        f"{sum(found.cpu_p99 > GOAL_SECONDS for found in one.found)} attacks",
        f"ended or refused victims: {sum(bool(found.faults) for found in one.found)} attacks",
        f"p99 gap over the goal: {sum(found.p99 > found.limit for found in one.found)} attacks",
        f"largest gap over {GOAL_SECONDS * 1e3:.0f} ms and over {GOAL_TIMES:g} times the quiet largest one before: "
        f"{sum(found.gap > found.largest_limit for found in one.found)} attacks",
        f"memory not back in {SETTLED_SECONDS:g} s: {sum(found.settled is None for found in one.found)} attacks",
        f"SIGTERM under attack: {', '.join(f'{ended:.1f}' for ended in one.ended)} s with a drain of {DRAIN} s",
        *(f"  miss: {found.name}: {why}" for found, why in misses),
        *(
            f"  worst: {found.name}: p99 {found.p99 * 1e3:.0f} ms, gap {found.gap * 1e3:.0f} ms, "
            f"first token {found.first * 1e3:.0f} ms"
            for found in worst
        ),
    ]
    return "\n".join(lines)


def as_json(one: Run) -> Mapping[str, Any]:
    return {"quiet_p99": one.quiet_p99(), "quiet_worst": one.quiet_worst(), **asdict(one)}


def from_json(found: Mapping[str, Any]) -> Run:
    return Run(
        model=found["model"],
        keys=found["keys"],
        ended=found["ended"],
        quiet=[Quiet(**one) for one in found["quiet"]],
        found=[Found(**one) for one in found["found"]],
    )


def chosen(only: Sequence[str], part: str) -> list[Attack]:
    """Attacks whose name holds one of the texts, and of these every so manyth: `2/3` are the second, the fifth, and so
    on. Raises ValueError for a part that is none."""
    number, _, count = part.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(f"a part is 1/4 to 4/4, not {part}")
    named = [one for one in ATTACKS if not only or any(text in one.name for text in only)]
    return named[int(number) - 1 :: int(count)]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--model", default=str(DEMO))
    parser.add_argument("--keys", action="store_true", help="attackers and victims have keys of their own")
    parser.add_argument("--only", action="append", default=[], help="attacks whose name holds this text; repeatable")
    parser.add_argument("--part", default="1/1", help="1/4: the first of four runs that together are the whole one")
    parser.add_argument("--list", action="store_true", help="print the names of the attacks")
    parser.add_argument("--seconds", type=float, default=4.0, help="after which attackers leave")
    parser.add_argument("--json", type=Path, help="written after every attack; a run goes on where its file ends")
    asked = parser.parse_args([] if given is None else given)
    attacks = chosen(asked.only, asked.part)
    if asked.list:
        print("\n".join(one.name for one in attacks))
        return
    model = str(Path(asked.model).absolute()) if Path(asked.model).exists() else asked.model  # it runs elsewhere
    found = Run(model=model, keys=asked.keys)
    if asked.json is not None and asked.json.exists():
        found = from_json(json.loads(asked.json.read_text(encoding="utf-8")))
        if (found.model, found.keys) != (model, asked.keys):
            parser.error(f"{asked.json} holds a run of another model, or of other keys")
        done = {one.name for one in found.found}
        attacks = [one for one in attacks if one.name not in done]

    def keep(one: Run) -> None:
        if asked.json is not None:
            with replaced(asked.json) as path:
                path.write_text(json.dumps(as_json(one), indent=1), encoding="utf-8")

    if attacks:
        run(model, attacks, keys=asked.keys, seconds=asked.seconds, found=found, keep=keep)
    print("\n" + summary(found))
