"""The proxy against the server alone, in turns: time per token of one client, tokens per second of four, memory.

    python -m benchmarks proxy                 the demo model
    python -m benchmarks.proxy.report FILE     another GGUF file
    python -m benchmarks.proxy.report --requests 1000    memory over so many requests

The proxy is a process of its own, as its users run it. Its CPU time is counted too: on a machine of few cores the
server, the proxy and the clients share them, so that shares of tokens per second are upper bounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx2

from benchmarks.figures import note
from benchmarks.harness import Table, cpu_seconds, resident_megabytes
from espalier.wiring import demo_model
from tests.llama_server import llama_server
from tests.proxies import address_of
from tests.server_process import start

GRAMMAR = 'root ::= "[" item ("," item){40,} "]"\nitem ::= "\\"" [a-z ]{3,12} "\\""\n'
TOKENS, CLIENTS, ROUNDS = 64, 4, 3
MODES = {
    "passed on": ["--mode", "off"],
    "x-ray": [],
    "x-ray, 40": ["--n-probs", "40"],
    "x-ray, all": ["--n-probs", "0"],
}


@contextmanager
def proxy(url: str, folder: str, flags: list[str]) -> Iterator[tuple[str, int]]:
    """The address of `espalier proxy`, and its process."""
    command = [sys.executable, "-m", "espalier", "proxy", "--llama-url", url, "--proxy-port", "0"]
    settings = {"DATABASE_URL": f"sqlite:///{folder}/traces.db", "LOG_LEVEL": "WARNING"}
    process = start("--output-dir", folder, *flags, cwd=Path(folder), env=settings, command=command)
    try:
        yield address_of(process), process.pid
    finally:
        process.kill()


def body(seed: int, *, stream: bool) -> dict[str, object]:
    return {"prompt": "Generate user info", "n_predict": TOKENS, "grammar": GRAMMAR, "seed": seed, "stream": stream}


def ask(url: str, seed: int, *, stream: bool) -> tuple[float, int]:
    """Seconds and tokens of one request."""
    began = time.perf_counter()
    reply = httpx2.post(url + "/completion", json=body(seed, stream=stream), timeout=600)
    seconds = time.perf_counter() - began
    reply.raise_for_status()
    last = [one for one in reply.text.splitlines() if "tokens_predicted" in one][-1]
    return seconds, int(last.split('"tokens_predicted":')[1].split(",")[0])


def per_token(url: str, *, stream: bool) -> float:
    """Milliseconds per token of one client, the median."""
    return 1000 * median(seconds / tokens for seconds, tokens in (ask(url, seed, stream=stream) for seed in range(5)))


def per_second(url: str, *, stream: bool) -> float:
    """Tokens per second of several clients."""
    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        tokens = sum(tokens for _, tokens in pool.map(lambda seed: ask(url, seed, stream=stream), range(2 * CLIENTS)))
    return tokens / (time.perf_counter() - began)


def soak(url: str, pid: int, requests: int) -> None:
    found = []
    for count in range(requests):
        ask(url, count, stream=bool(count % 2))
        if count % max(1, requests // 10) == 0 or count + 1 == requests:
            found.append(f"{count + 1}: {resident_megabytes(pid):.0f}")
    print("MB after so many requests:", ", ".join(found))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", type=Path, default=demo_model() / "demo.gguf")
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments or [])
    with llama_server(given.model, sequences=CLIENTS, exact=False) as server, tempfile.TemporaryDirectory() as folder:
        if given.requests:
            with proxy(server.address, folder, []) as (url, pid):
                soak(url, pid, given.requests)
            return
        table = Table(
            {
                " ": "12",
                "  ": "11",
                "ms a token": ">11.2f",
                "added": ">8.2f",
                "tokens/s": ">10.0f",
                "share": ">7.2f",
                "CPU ms a token": ">16.2f",
            }
        )
        for stream in (False, True):
            how = "stream" if stream else "whole"
            for name in given.modes:
                with proxy(server.address, folder, MODES[name]) as (url, pid):
                    ask(url, 0, stream=stream)  # the server's tokens are read once
                    alone, through, fast, shared, spent = [], [], [], [], []
                    for _ in range(given.rounds):
                        alone.append(per_token(server.address, stream=stream))
                        through.append(per_token(url, stream=stream))
                        fast.append(per_second(server.address, stream=stream))
                        before = cpu_seconds(pid)
                        shared.append(per_second(url, stream=stream))
                        spent.append(1000 * (cpu_seconds(pid) - before) / (2 * CLIENTS * TOKENS))
                added, rate = median(through) - median(alone), median(shared)
                note("Proxy", f"{name}, {how}", "ms a token", {"proxy": median(through), "server alone": median(alone)})
                table.row(name, how, median(through), added, rate, rate / median(fast), median(spent))


if __name__ == "__main__":
    main(sys.argv[1:])
