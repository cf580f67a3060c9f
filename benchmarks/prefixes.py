"""`python -m benchmarks.prefixes [--model PATH] [--rounds N]`: whether the time to a first token tells what another key
has sent. Each round makes one long prompt of its own for each of three cases; the second key asks in all of them:

    own      the second key has sent the prompt before
    other    the first key has
    nobody   nobody has

Times are of the CPU that the server used until the reply was there, and of the clock; the 10th percentile and the
median of the rounds. If `other` is as fast as `own`, the prefix cache is shared; if it is as slow as `nobody`, it tells
nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.hostile.report import ATTACKER, KEYS, VICTIM
from tests.server_process import DEMO, ServerProcess, serving

CASES = {"own": VICTIM, "other": ATTACKER, "nobody": None}
WORDS = ("time", "house", "water", "light", "name", "year", "city", "story", "river", "garden", "letter", "window")
NANOSECONDS = 1e9


def cpu_seconds(pid: int) -> float:
    """Of all threads that a process has now, to the nanosecond. Linux."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / NANOSECONDS


def ask(server: ServerProcess, key: str, prompt: str) -> tuple[float, float, int]:
    """CPU and clock seconds to a reply of one token, and how many tokens of the prompt the server says were cached."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    cpu, began = cpu_seconds(server.pid), time.perf_counter()
    reply = server.post("/v1/completions", body, headers={"authorization": f"Bearer {key}"})
    times = cpu_seconds(server.pid) - cpu, time.perf_counter() - began
    reply.raise_for_status()
    return *times, (reply.json()["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def measure(model: str, *, rounds: int, words: int, seed: int = 0) -> dict[str, list[tuple[float, float, int]]]:
    draw, results = random.Random(seed), {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "keys.toml"
        keys.write_text(KEYS, encoding="utf-8")
        with serving("-m", model, cwd=Path(name), env={"API_KEYS_FILE": str(keys), "LOG_LEVEL": "ERROR"}) as server:
            for _ in range(3):
                ask(server, VICTIM, " ".join(draw.choices(WORDS, k=words)))  # what a server does once
            for _ in range(rounds):
                for case in draw.sample([*CASES], len(CASES)):
                    prompt, before = " ".join(draw.choices(WORDS, k=words)), CASES[case]
                    if before is not None:
                        ask(server, before, prompt)
                    results[case].append(ask(server, VICTIM, prompt))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefixes", description=__doc__)
    parser.add_argument("--model", default=str(DEMO))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--words", type=int, default=600, help="of a prompt")
    options = parser.parse_args()
    results = measure(str(Path(options.model).absolute()), rounds=options.rounds, words=options.words)
    print(f"{options.model}, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print("prompt sent before by    CPU ms p10   median  clock ms p10   median  cached tokens")
    for case, measured in results.items():
        cpu, clock = (sorted(1e3 * entry[index] for entry in measured) for index in (0, 1))
        tenth = len(measured) // 10
        print(
            f"{case:24} {cpu[tenth]:10.1f} {median(cpu):8.1f} {clock[tenth]:13.1f} {median(clock):8.1f} "
            f"{max(entry[2] for entry in measured):14}"
        )


if __name__ == "__main__":
    main()
