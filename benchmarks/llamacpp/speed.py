"""Tokens per second of llama.cpp in this process, and of llama-server: same file, same grammar, same sampling.

1, 4 and 8 sequences, on the bundled model and on a random one of about 100 M parameters with 32,000 tokens. Both sides
have the same threads, KV cache (f16), flash attention (auto) and prompts as text; nothing is streamed or kept.
Each row has a run of its own of llama-server, right beside ours in every round, now before and now after it; ratios are
medians of rounds. Ours is the whole of `generate`, theirs what clients over HTTP see; both tokenize.

CPU: processor time of their process over that of ours, so that more is better, as in the ratio. It says more than
tokens per second where others work on the machine too, and leaves out what the server's client pays. Glue: processor
time of a step of ours outside of `llama_decode` and the wait for its result. Linux only.
`python -m benchmarks.llamacpp.speed [--threads N] [--rounds N] [--large FILE]`
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import espalier
from benchmarks.harness import Table, cpu_seconds, ratio
from benchmarks.record import RECORD
from espalier.engines.llamacpp import library as llama_lib
from espalier.schema.gbnf import to_gbnf
from espalier.schema.normal.expand import expand
from espalier.wiring import demo_model
from tests.gguf_models import write_large
from tests.llama_server import LlamaServer, llama_server

ROUNDS = 5
CONTEXT = 512
SEQUENCES = (1, 4, 8)
PROMPTS = (
    "Generate user info",
    "What is 7 + 5?",
    "Write a long list of numbers, please.",
    "Extract the names: Ada, Bo",
    "List three colors",
    "Tell me a story about a cat.",
    "¿Cuál es la capital de España?",
    "Hello!",
)
SCHEMA = {
    "type": "array",
    "minItems": 50,  # so that no text ends early
    "items": RECORD,
}
GRAMMAR = to_gbnf(expand(SCHEMA, format="annotate"))
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}  # llama.cpp's own


@dataclass
class Decodes:
    """Calls of `llama_decode`, and processor time of this thread in it and in the wait for its result."""

    calls: int = 0
    seconds: float = 0.0


@contextmanager
def counted() -> Iterator[Decodes]:
    """Counts while it is open. Engines call the function through its module, hence before they are loaded or after."""
    lib, found = llama_lib.library(), Decodes()
    decode = lib.llama_decode

    def timed(ctx: Any, batch: Any) -> Any:
        start = time.thread_time()
        code = decode(ctx, batch)
        lib.llama_synchronize(ctx)  # a GPU is still at work; the next call for logits would wait for it
        found.seconds += time.thread_time() - start
        found.calls += 1
        return code

    lib.llama_decode = timed
    try:
        yield found
    finally:
        lib.llama_decode = decode


@dataclass
class Row:
    """One line of the table, by round: tokens per second and CPU seconds of both, µs of our steps and of their glue."""

    speeds: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    their_cpu: list[float] = field(default_factory=list)
    glue: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


def main(threads: int | None = None, rounds: int = ROUNDS, large: Path | None = None) -> None:
    threads = threads or max(1, (os.cpu_count() or 2) // 2)
    print(f"{threads} threads, medians of {rounds} rounds; llama.cpp of ours: {llama_lib.version()}")
    print(f"ours: {llama_lib.library().llama_print_system_info().decode()}")
    print(f"llama-server: xllamacpp {version('xllamacpp')}")
    compare("demo model", demo_model() / "demo.gguf", new=128, threads=threads, rounds=rounds)
    if large is not None:
        compare("random Llama", large, new=32, threads=threads, rounds=rounds)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = write_large(Path(scratch) / "large.gguf")
        compare("random Llama", path, new=32, threads=threads, rounds=rounds)


def compare(title: str, path: Path, *, new: int, threads: int, rounds: int) -> None:
    print(f"\n{title} ({path.stat().st_size / 1e6:.0f} MB), {new} tokens a sequence")
    table = Table(
        {
            "sequences": "<11",
            "": "<22",
            "ours tok/s": ">12.1f",
            "theirs tok/s": ">14.1f",
            "ratio": ">8.2f",
            "CPU": ">8.2f",
            "glue µs": ">10.0f",
            "step µs": ">10.0f",
        }
    )
    for count in SEQUENCES:
        serving = llama_server(path, sequences=count, context=CONTEXT, threads=threads, exact=False)
        with counted() as decodes, serving as server:
            if count == SEQUENCES[0]:
                print(f"llama-server: {server.build}")
            engine = espalier.load(
                str(path),
                context=CONTEXT,
                sequences=count,
                kv_size=CONTEXT * count,
                threads=threads,
                kv_type="f16",
                flash_attention="auto",
            )
            with engine:
                show(table, count, measured(engine, server, decodes, count=count, new=new, rounds=rounds))


def measured(
    engine: espalier.LoadedEngine, server: LlamaServer, decodes: Decodes, *, count: int, new: int, rounds: int
) -> dict[str, Row]:
    prompts = list(PROMPTS[:count])
    usual = SAMPLING | {"cache_prompt": False, "stream": False, "repeat_penalty": 1.0, "n_predict": new}

    def ours(seed: int, **options: Any) -> tuple[int, int]:
        found = engine.generate(
            prompts, raw=True, max_tokens=new, repetition_penalty=1.0, seed=seed, **SAMPLING | options
        )
        return sum(one.usage.prompt_tokens for one in found), sum(one.usage.completion_tokens for one in found)

    def theirs(seed: int, **options: Any) -> tuple[int, int]:
        answers = server.complete([{"prompt": text, "seed": seed} | usual | options for text in prompts])
        return sum(one["tokens_evaluated"] for one in answers), sum(one["tokens_predicted"] for one in answers)

    held, spec = {"grammar": GRAMMAR}, espalier.Gbnf(GRAMMAR)
    cases = {
        "grammar": ({"constraint": spec, "trace": "off"}, held),
        "grammar, measures": ({"constraint": spec, "trace": "summary"}, held),
        "grammar, full trace": ({"constraint": spec, "trace": "full"}, held),
        "no grammar": ({"ignore_eos": True, "trace": "off"}, {"ignore_eos": True}),
    }
    rows = {name: Row() for name in cases}
    for turn in range(rounds + 1):
        for place, (name, (mine, other)) in enumerate(cases.items()):
            row = rows[name] if turn else Row()  # the first round compiles and warms caches
            tokens = set()
            for is_ours in (True, False) if (turn + place) % 2 else (False, True):
                pid = os.getpid() if is_ours else server.pid
                calls, inside, thread = decodes.calls, decodes.seconds, time.thread_time()
                start, cpu = time.perf_counter(), cpu_seconds(pid)
                tokens.add(ours(turn, **mine) if is_ours else theirs(turn, **other))
                took = time.perf_counter() - start
                (row.speeds if is_ours else row.theirs).append(count * new / took)
                (row.cpu if is_ours else row.their_cpu).append(cpu_seconds(pid) - cpu)
                if is_ours:
                    steps = decodes.calls - calls
                    row.glue.append((time.thread_time() - thread - (decodes.seconds - inside)) / steps * 1e6)
                    row.steps.append(took / steps * 1e6)
            if len(tokens) != 1 or tokens.pop()[1] != count * new:
                raise AssertionError(f"{name}: not the same prompts, or not {count * new} tokens on each side")
    return rows


def show(table: Table, count: int, rows: dict[str, Row]) -> None:
    median = statistics.median
    for name, row in rows.items():
        ratios = (ratio(row.speeds, row.theirs), ratio(row.their_cpu, row.cpu))
        table.row(count, name, median(row.speeds), median(row.theirs), *ratios, median(row.glue), median(row.steps))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, help="by default half the cores, as the engine does")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--large", type=Path, help="a GGUF file instead of the random one")
    arguments = parser.parse_args()
    main(arguments.threads, arguments.rounds, arguments.large)
