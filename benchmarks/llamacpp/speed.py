"""Tokens per second of llama.cpp in this process, and of llama-server: same file, same grammar, same sampling.

1, 4 and 8 sequences, on the bundled model and on a random one of about 100 M parameters with 32,000 tokens. Both sides
have the same threads, KV cache (f16), flash attention (auto) and prompts as ids; nothing is streamed, no prompt cached.
Rounds interleave; ratios are medians of rounds, each against its neighbour. Ours is all of `engine.run`, theirs what
clients over HTTP see. Glue: what of our step is not `llama_decode`, measured in the same run.
`python -m benchmarks.llamacpp.speed [--threads N] [--rounds N] [--large FILE]`
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import espalier
from benchmarks.llamacpp.server import Server
from espalier.engines import llama_lib
from espalier.engines.base import Finished, Request
from espalier.schema.expand import expand
from espalier.schema.to_gbnf import to_gbnf
from espalier.wiring import demo_model
from tests.gguf_models import write_large

ROUNDS = 7
CONTEXT = 512
SEQUENCES = (1, 4, 8)
PROMPTS = (
    "Generate user info", "What is 7 + 5?", "Write a long list of numbers, please.", "Extract the names: Ada, Bo",
    "List three colors", "Tell me a story about a cat.", "¿Cuál es la capital de España?", "Hello!",
)  # fmt: skip
SCHEMA = {
    "type": "array",
    "minItems": 50,  # so that no text ends early
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "name": {"type": "string", "maxLength": 12},
            "kind": {"enum": ["user", "group", "service"]},
            "on": {"type": "boolean"},
        },
        "required": ["id", "name", "kind", "on"],
        "additionalProperties": False,
    },
}
GRAMMAR = to_gbnf(expand(SCHEMA, format="annotate"))
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}  # llama.cpp's own


@dataclass
class Decodes:
    """Counts `llama_decode` and times it, with the wait for its logits."""

    calls: int = 0
    seconds: float = 0.0
    _kept: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Decodes:
        lib = llama_lib.library()
        for name in ("llama_decode", "llama_get_logits"):
            self._kept[name] = getattr(lib, name)
            setattr(lib, name, self._timed(self._kept[name], is_step=name == "llama_decode"))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._kept.items():
            setattr(llama_lib.library(), name, function)

    def _timed(self, function: Callable[..., Any], *, is_step: bool) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            found = function(*args)
            self.seconds += time.perf_counter() - start
            self.calls += is_step
            return found

        return timed


@dataclass
class Row:
    """One line of the table: tokens per second by round, and µs a step outside of `llama_decode`, where known."""

    speeds: list[float] = field(default_factory=list)
    glue: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


def main(threads: int | None = None, rounds: int = ROUNDS, large: Path | None = None) -> None:
    threads = threads or max(1, (os.cpu_count() or 2) // 2)
    print(f"{threads} threads, medians of {rounds} rounds; llama.cpp of ours: {llama_lib.version()}")
    print(f"ours: {llama_lib.library().llama_print_system_info().decode()}")
    print(f"llama-server: xllamacpp {version('xllamacpp')}")
    compare("demo model", demo_model() / "demo.gguf", new=128, threads=threads, rounds=rounds)
    if large is not None:
        compare("random Llama", large, new=64, threads=threads, rounds=rounds)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = write_large(Path(scratch) / "large.gguf")
        compare("random Llama", path, new=64, threads=threads, rounds=rounds)


def compare(title: str, path: Path, *, new: int, threads: int, rounds: int) -> None:
    print(f"\n{title} ({path.stat().st_size / 1e6:.0f} MB), {new} tokens a sequence")
    head = ("ours tok/s", "theirs tok/s", "ratio", "glue µs", "our step µs")
    print(f"{'sequences':<33}" + "{:>14}{:>14}{:>10}{:>14}{:>14}".format(*head))
    for count in SEQUENCES:
        with Decodes() as decodes, Server(path, sequences=count, context=CONTEXT, threads=threads) as server:
            if count == SEQUENCES[0]:
                print(f"llama-server: {server.build}")
            engine = espalier.load(
                str(path), context=CONTEXT, sequences=count, kv_size=CONTEXT * count, threads=threads, kv_type="f16",
                flash_attention="auto",
            )  # fmt: skip
            with engine:
                show(count, measured(engine, server, decodes, count=count, new=new, rounds=rounds))


def measured(
    engine: espalier.LoadedEngine, server: Server, decodes: Decodes, *, count: int, new: int, rounds: int
) -> dict[str, Row]:
    prompts = [engine.engine._encode(prompt, add_special=True) for prompt in PROMPTS[:count]]
    spec = espalier.Gbnf(GRAMMAR)

    def ours(**options: Any) -> Callable[[int], int]:
        def run(seed: int) -> int:
            usual = {"raw": True, "max_tokens": new, "repetition_penalty": 1.0, "seed": seed, "trace": "off"}
            requests = [espalier.api.make_request(p, **usual | SAMPLING | options) for p in PROMPTS[:count]]
            return generated(engine, requests)

        return run

    def theirs(**options: Any) -> Callable[[int], int]:
        def run(seed: int) -> int:
            usual = {"n_predict": new, "seed": seed, "cache_prompt": False, "stream": False, "repeat_penalty": 1.0}
            answers = server.complete([{"prompt": ids} | usual | SAMPLING | options for ids in prompts])
            return sum(answer["tokens_predicted"] for answer in answers)

        return run

    runs = {
        "grammar": ours(constraint=spec),
        "grammar, llama-server": theirs(grammar=GRAMMAR),
        "no grammar": ours(ignore_eos=True),
        "no grammar, llama-server": theirs(ignore_eos=True),
        "grammar, measures": ours(constraint=spec, trace="measures"),
        "grammar, full trace": ours(constraint=spec, trace="full"),
    }
    rows = {name: Row() for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items() if turn % 2 else reversed(runs.items()):
            calls, inside, start = decodes.calls, decodes.seconds, time.perf_counter()
            tokens = run(turn)
            took = time.perf_counter() - start
            if tokens != count * new:
                raise AssertionError(f"{name}: {tokens} tokens, not {count * new}")
            if turn:  # the first round compiles and warms caches
                rows[name].speeds.append(tokens / took)
                if steps := decodes.calls - calls:
                    rows[name].glue.append((took - (decodes.seconds - inside)) / steps * 1e6)
                    rows[name].steps.append(took / steps * 1e6)
    return rows


def generated(engine: espalier.LoadedEngine, requests: Sequence[Request]) -> int:
    return sum(len(e.result.token_ids) for e in engine.engine.run(requests) if isinstance(e, Finished))


def show(count: int, rows: dict[str, Row]) -> None:
    for name in ("grammar", "grammar, measures", "grammar, full trace", "no grammar"):
        mine, theirs = rows[name], rows[f"{name.split(',')[0]}, llama-server"]
        ratio = statistics.median(a / b for a, b in zip(mine.speeds, theirs.speeds, strict=True))
        speeds = f"{statistics.median(mine.speeds):>14.1f}{statistics.median(theirs.speeds):>14.1f}{ratio:>10.2f}"
        glue, step = statistics.median(mine.glue), statistics.median(mine.steps)
        print(f"{count:<11}{name:<22}{speeds}{glue:>14.0f}{step:>14.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, help="by default half the cores, as the engine does")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--large", type=Path, help="a GGUF file instead of the random one")
    arguments = parser.parse_args()
    main(arguments.threads, arguments.rounds, arguments.large)
