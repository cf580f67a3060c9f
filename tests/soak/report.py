"""Runs servers of both engines under a steady load of all that clients do, and says whether what they hold is flat.

Memory, open files, threads, sequences and the database are sampled every few seconds. It exits with 1 where one of them
grows, where a server ends, or where a task gets what it should not. Linux.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from espalier.files.writing import replaced
from tests.gguf_models import CHATML, bpe_words, write_llama
from tests.server_process import DEMO, ServerProcess, serving
from tests.soak.samples import QUANTITIES, Flatness, judge
from tests.soak.tasks import TASKS, Errand, Refused

SETTINGS = {
    "LOG_LEVEL": "ERROR",
    "RETENTION_ROWS": "25",
    "RETENTION_FLAGGED": "25",
    "BATCH_RETENTION_DAYS": "0.003",
    "STORE_GENERATIONS": "figures",
    "METRICS_PUBLIC": "true",
}
"""What is kept is little, so that it is full before the warm-up ends."""


@dataclass(slots=True)
class Soak:
    """What one server went through. samples: seconds since the start, with values by name. errors: what tasks got that
    they should not, with how often."""

    engine: str
    server: ServerProcess
    folder: Path
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sample(self, second: float) -> None:
        values = {quantity.name: quantity.read(self.server, self.folder) for quantity in QUANTITIES}
        self.samples.append((second, values))

    def flatness(self, warm_up: float) -> list[Flatness]:
        return [judge(self.samples, quantity, warm_up=warm_up) for quantity in QUANTITIES]

    def as_json(self) -> dict[str, Any]:
        return {"engine": self.engine, "tasks": self.tasks, "errors": self.errors, "samples": self.samples}


class Pace:
    """Gives out the numbers of tasks, so many a second over all clients of a server."""

    def __init__(self, rate: float, over: threading.Event) -> None:
        self._every, self._over, self._lock = 1 / rate, over, threading.Lock()
        self._next, self._number = time.monotonic(), 0

    def next(self) -> int | None:
        """The number of the next task, once it is due; None once the run is over."""
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next + self._every, now)
            due, self._number = self._next, self._number + 1
            number = self._number
        return None if self._over.wait(due - now) else number


def act(soak: Soak, pace: Pace, over: threading.Event, seed: int) -> None:
    """One client, until the run is over."""
    tasks, weights = list(TASKS), list(TASKS.values())
    # A connection that rests as long as the server keeps it may be closed while a request is on its way.
    reuse = httpx2.Limits(keepalive_expiry=1.0)
    with httpx2.Client(base_url=soak.server.url, timeout=120, verify=False, limits=reuse) as client:
        while (number := pace.next()) is not None:
            chance = random.Random(f"{seed} {number}")
            task = chance.choices(tasks, weights)[0]
            error = None
            try:
                task(Errand(client=client, number=number, random=chance, wait=lambda: not over.wait(0.3)))
            except (Refused, httpx2.HTTPError, KeyError) as problem:
                error = f"{task.__name__}: {type(problem).__name__}: {problem}"[:300]
            with soak.lock:
                soak.tasks[task.__name__] += 1
                if error is not None:
                    soak.errors[error] += 1


def models(folder: Path) -> dict[str, str]:
    """The bundled model on transformers, and a small random Llama on llama.cpp."""
    gguf = write_llama(folder / "random.gguf", bpe_words(), context=1024, chat_template=CHATML)
    return {"transformers": str(DEMO), "llama.cpp": str(gguf)}


def run(
    *,
    seconds: float,
    rate: float,
    clients: int = 4,
    every: float = 5.0,
    seed: int = 0,
    least: int = 0,
    engines: Sequence[str] = ("transformers", "llama.cpp"),
    after_sample: Callable[[list[Soak]], None] = lambda soaks: None,
) -> list[Soak]:
    """rate: tasks a second of each server. every: seconds between samples. least: tasks of each server, however long
    they take."""
    over = threading.Event()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        soaks = []
        for engine, model in models(Path(name)).items():
            if engine in engines:
                folder = Path(name) / engine
                folder.mkdir()
                server = stack.enter_context(serving("-m", model, cwd=folder, env=SETTINGS))
                soaks.append(Soak(engine=engine, server=server, folder=folder))
        threads = []
        for soak in soaks:
            pace = Pace(rate, over)
            threads += [threading.Thread(target=act, args=(soak, pace, over, seed)) for _ in range(clients)]
        began = time.monotonic()
        try:
            for thread in threads:
                thread.start()
            while (second := time.monotonic() - began) < seconds or any(soak.tasks.total() < least for soak in soaks):
                for soak in soaks:
                    if (code := soak.server.process.poll()) is not None:
                        raise RuntimeError(f"{soak.engine} ended with {code}:\n{soak.server.text[-3000:]}")
                    soak.sample(second)
                after_sample(soaks)
                over.wait(every)
        finally:
            over.set()
            for thread in threads:
                thread.join(120)
    return soaks


def table(soaks: Sequence[Soak], *, warm_up: float) -> str:
    """For people."""
    rows = [f"{'':32}{'first':>10}{'last':>10}{'highest':>10}{'growth':>10}{'may':>10}"]
    for soak in soaks:
        for flat in soak.flatness(warm_up):
            values = (flat.first, flat.last, flat.highest, flat.growth, flat.bound)
            figures = "".join(f"{value / flat.quantity.unit:10.1f}" for value in values)
            rows.append(f"{soak.engine + ': ' + flat.quantity.name:32}{figures}  {'' if flat.is_flat else 'GROWS'}")
        rows.append(f"{soak.engine}: {soak.tasks.total()} tasks, {soak.errors.total()} errors")
        rows += [f"  {count} times {error}" for error, count in soak.errors.most_common(10)]
    return "\n".join(rows)


def is_sound(soaks: Sequence[Soak], *, warm_up: float) -> bool:
    """Whether all is flat and no task got what it should not."""
    return all(flat.is_flat for soak in soaks for flat in soak.flatness(warm_up)) and not any(
        soak.errors for soak in soaks
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=1.0, help="tasks a second of each server")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--warm-up", type=float, default=1 / 3, help="the share of the time that does not count")
    parser.add_argument("--engine", action="append", choices=("transformers", "llama.cpp"), help="one of both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="all samples, written after each")
    asked = parser.parse_args(arguments)
    engines = asked.engine or ("transformers", "llama.cpp")

    def save(soaks: list[Soak]) -> None:
        if asked.json is not None:
            with replaced(asked.json) as path:
                path.write_text(json.dumps([soak.as_json() for soak in soaks]), encoding="utf-8")

    seconds = asked.hours * 3600
    soaks = run(
        seconds=seconds, rate=asked.rate, every=asked.every, seed=asked.seed, engines=engines, after_sample=save
    )
    warm_up = seconds * asked.warm_up
    print(table(soaks, warm_up=warm_up))
    return 0 if is_sound(soaks, warm_up=warm_up) else 1


if __name__ == "__main__":
    sys.exit(main())
