"""Our server against llama-server and llama-cpp-python's, and what a schema, and a round of the scheduler, cost.

How to read it: `tok/s` is over all requests of a burst of so many at once, `first` the time to the first text (median
and 95th percentile over a burst); all are medians of rounds, in which the servers take turns on the same file, schema,
sampling, threads, context and KV cache (f16), each with its defaults otherwise. A ratio is the median of the rounds'
own, ours over the other's, so that load on the machine hits both sides; `bar` is what it must reach.
`python -m benchmarks.server.report [--rounds N] [--threads N] [--large FILE]
[--only demo|large|transformers|rounds|traces]`
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import espalier
from benchmarks.figures import OURS, note
from benchmarks.harness import Table, in_turns, medians, ratio, resident_megabytes
from benchmarks.server.cases import SAMPLING, SCHEMA, prompt
from benchmarks.server.load import Burst, burst
from benchmarks.server.rounds import measured
from benchmarks.server.servers import CONTEXT, Server, llama_cpp_python, llama_server, missing, ours
from espalier.wiring import demo_model

ROUNDS = 5
AT_ONCE = (1, 8, 32)
SLOW = 8  # more requests at once than this are not sent to a server that answers one after the other, on a large model
OTHERS = 10_000
LEVEL, THRICE, FREE = 1.0, 3.0, 0.95
LEVELS = ("off", "summary", "steps")
"""What is kept of each answer; with `steps`, 0.95 of the speed without is to be left."""
PARTS = ("demo", "large", "transformers", "rounds", "traces")

Ask = Callable[[int], Burst]


def main(
    rounds: int = ROUNDS,
    threads: int | None = None,
    large: Path | None = None,
    only: Sequence[str] = PARTS,
    at_once: Sequence[int] = AT_ONCE,
) -> None:
    threads = threads or max(1, (os.cpu_count() or 2) // 2)
    print(f"{os.cpu_count()} cores, {threads} for each model; medians of {rounds} rounds; load {_load()}")
    demo = demo_model()
    if "demo" in only:
        against("demo model", demo / "demo.gguf", tokens=64, threads=threads, rounds=rounds, at_once=at_once)
    if "large" in only:
        with ExitStack() as stack:
            if large is None:
                from tests.gguf_models import write_large

                large = write_large(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "large.gguf")
            against(
                "random Llama, 100 M", large, tokens=32, threads=threads, rounds=rounds, at_once=at_once, is_slow=True
            )
    if "transformers" in only:
        transformers(demo, threads=threads, rounds=rounds)
    if "rounds" in only:
        overhead(demo)
    if "traces" in only:
        traces(demo / "demo.gguf", threads=threads, rounds=rounds, at_once=at_once)
    print(f"load at the end: {_load()}")


def against(
    title: str, path: Path, *, tokens: int, threads: int, rounds: int, at_once: Sequence[int], is_slow: bool = False
) -> None:
    """One table: all servers at each number of requests at once."""
    print(f"\n{title}, llama.cpp: {tokens} tokens a request")
    table = _table("ours / it")
    for count in at_once:
        with ExitStack() as stack:
            mine = stack.enter_context(ours(path, threads=threads))
            shared = {"ESPALIER_KV_UNIFIED": "true", "ESPALIER_KV_SIZE": str(max(4, count) * CONTEXT)}
            together = stack.enter_context(ours(path, threads=threads, **shared))
            asks = {"ours": _ask(mine, count, tokens), "ours, no schema": _ask(mine, count, tokens, is_free=True)}
            asks["--kv-unified"] = _ask(together, count, tokens)
            servers = {OURS: mine}
            asks["  no schema"] = _ask(together, count, tokens, is_free=True)
            for name in ("llama-server", "llama_cpp.server"):
                if why := missing(name):
                    print(f"{count:<9}{name:<24}left out: {why}")
                elif name == "llama-server":
                    servers[name] = stack.enter_context(llama_server(path, slots=count, threads=threads))
                    asks[name] = _ask(servers[name], count, tokens)
                    asks[f"{name}, no schema"] = _ask(servers[name], count, tokens, is_free=True)
                elif is_slow and count > SLOW:
                    print(f"{count:<9}{name:<24}left out: one after the other, it is as fast as at {SLOW}")
                else:
                    servers[name] = stack.enter_context(llama_cpp_python(path, threads=threads))
                    asks[name] = _ask(servers[name], count, tokens)
            found = in_turns(asks, rounds)
            held = {name: resident_megabytes(server.process) for name, server in servers.items()}
        _note_bursts(title, count, found, held)
        bars = {"ours, no schema": FREE if count == 8 else None}
        bars["llama-server"] = LEVEL if is_slow else None
        bars["llama_cpp.server"] = THRICE if count == 8 else None
        for name, bursts in found.items():
            _row(table, count, name, bursts, found["ours"], bars.get(name))


def transformers(folder: Path, *, threads: int, rounds: int) -> None:
    """The transformers engine, 8 requests at once against one."""
    print("\ndemo model, transformers: 64 tokens a request")
    table = _table("8 / it")
    with ours(folder, threads=threads) as server:
        found = in_turns(
            {"8": _ask(server, 8, 64), "8, no schema": _ask(server, 8, 64, is_free=True), "1": _ask(server, 1, 64)},
            rounds,
        )
    for name, bursts in found.items():
        bar = {"1": THRICE, "8, no schema": FREE}.get(name)
        _row(table, int(name[0]), f"ours{name[1:]}", bursts, found["8"], bar)


def traces(path: Path, *, threads: int, rounds: int, at_once: Sequence[int]) -> None:
    """What it costs to keep the trace of every answer. `cpu` is the server's CPU time for a token, beside that without
    traces: unlike the speed, it does not depend on what else the machine does."""
    print("\ndemo model, llama.cpp: 64 tokens a request, traces kept")
    table = Table(
        {
            "at once": "<9",
            "traces": "<10",
            "tok/s": ">9.0f",
            "it / off": ">10.3f",
            "cpu µs": ">9.0f",
            "off / it": ">10.3f",
        }
    )
    for count in at_once:
        with ExitStack() as stack:
            size = {"ESPALIER_KV_SIZE": str(max(4, count) * CONTEXT)}
            servers = {
                level: stack.enter_context(ours(path, threads=threads, TRACE_LEVEL=level, **size)) for level in LEVELS
            }
            asks = {level: _with_cpu(server, _ask(server, count, 64)) for level, server in servers.items()}
            measured_bursts = in_turns(asks, rounds)
        speeds = {level: [one.speed for one, _ in those] for level, those in measured_bursts.items()}
        spent = {level: [cpu / count / 64 for _, cpu in those] for level, those in measured_bursts.items()}
        for level in LEVELS:
            speed, cpu = statistics.median(speeds[level]), statistics.median(spent[level])
            table.row(count, level, speed, ratio(speeds[level], speeds["off"]), cpu, ratio(spent["off"], spent[level]))
        costs = {f"traces {level}": statistics.median(spent[level]) for level in reversed(LEVELS)}
        note("The server's traces", f"{count} at once", "µs of CPU a token", costs)


def _with_cpu(server: Server, ask: Ask) -> Callable[[int], tuple[Burst, float]]:
    """The burst, and the microseconds of CPU time that the server spent on it."""

    def asked(turn: int) -> tuple[Burst, float]:
        before = _cpu_seconds(server.process)
        sent = ask(turn)
        return sent, (_cpu_seconds(server.process) - before) * 1e6

    return asked


def _cpu_seconds(process: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overhead(folder: Path) -> None:
    """A round of the scheduler and its parts, on both engines."""
    print("\na round of the scheduler, demo model, µs of its thread")
    table = Table(
        {
            "engine": "<14",
            "lanes": ">6",
            "round": ">9.0f",
            "model": ">9.0f",
            "plans": ">9.0f",
            "scheduler": ">11.0f",
            "a lane": ">9.1f",
            "share": ">8.1%",
        }
    )
    size = {"context": CONTEXT, "kv_size": max(AT_ONCE) * CONTEXT, "threads": 1}
    for name, path, options in (("llama.cpp", folder / "demo.gguf", size), ("transformers", folder, {})):
        with espalier.load(str(path), **options) as engine:
            for lanes in AT_ONCE:
                asked = {**SAMPLING, "repetition_penalty": 1.0}
                one = measured(engine, lanes=lanes, tokens=64, schema=SCHEMA, options=asked)
                added = (one.added, one.added / lanes, one.added / one.whole)
                table.row(name, lanes, one.whole, one.model, one.plans, *added)


def _ask(server: Server, count: int, tokens: int, *, is_free: bool = False) -> Ask:
    more = {**SAMPLING, **({"ignore_eos": True} if is_free else {})}

    def ask(turn: int) -> Burst:
        # Prompts of its own: the same server must not find those of the other kind in its cache.
        messages = [prompt(turn, number + OTHERS * is_free) for number in range(count)]
        return burst(server, messages, tokens=tokens, schema=None if is_free else SCHEMA, more=more)

    return ask


def _note_bursts(title: str, count: int, found: Mapping[str, Sequence[Burst]], held: Mapping[str, float]) -> None:
    """What the page shows of one number of requests at once. held: megabytes by server."""
    table = f"Server, {title}"
    for kind, suffix in (("a schema", ""), ("no schema", ", no schema")):
        bursts = {OURS: found[f"ours{suffix}"]}
        bursts |= {name: found[f"{name}{suffix}"] for name in held if f"{name}{suffix}" in found}
        speeds = {name: statistics.median(one.speed for one in some) for name, some in bursts.items()}
        firsts = {name: statistics.median(one.median_first * 1e3 for one in some) for name, some in bursts.items()}
        note(table, f"{count} at once, {kind}", "tok/s", speeds, more_is_better=True)
        note(table, f"{count} at once, {kind}: first text", "ms", firsts)
    note(table, f"memory after {count} at once", "MB", held)


def _row(
    table: Table, count: int, name: str, bursts: Sequence[Burst], mine: Sequence[Burst], bar: float | None
) -> None:
    speed, first, late = medians((one.speed, one.median_first * 1e3, one.late_first * 1e3) for one in bursts)
    shown = [] if bursts is mine else [ratio([one.speed for one in mine], [one.speed for one in bursts])]
    table.row(count, name, speed, first, late, *shown, *([] if bar is None or bursts is mine else [bar]))


def _table(last: str) -> Table:
    return Table(
        {
            "at once": "<9",
            "server": "<24",
            "tok/s": ">9.0f",
            "first ms": ">10.0f",
            "p95 ms": ">9.0f",
            last: ">11.2f",
            "bar": ">6",
        }
    )


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, help="by default half the cores, as the engine does")
    parser.add_argument("--large", type=Path, help="a GGUF file instead of the random one")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--at-once", nargs="+", type=int, default=AT_ONCE)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.threads, arguments.large, arguments.only, arguments.at_once)
