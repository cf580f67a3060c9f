"""What the proxy's x-ray says of many requests at once, against llama.cpp's own sampler on the same server's numbers.

    python -m benchmarks.proxy.acceptance                   400 requests of eight clients
    python -m benchmarks.proxy.acceptance --requests 40

The truth of a request: the server is asked directly, with the same seed, for the probabilities of all tokens, and
llama.cpp's sampler in this process draws from them, with llama.cpp's grammar. Its draws must be the server's tokens, so
that the truth is checked too. Each step of the trace is held to it, and the bytes of the reply to the server's own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

import espalier
from espalier import SamplingConfig
from espalier.errors import DeadEnd
from espalier.trace.measure import measure
from espalier.trace.records import Trace
from espalier.trace.steps import StepRecord
from espalier.upstream.xray.distribution import entry_of, read_entry
from espalier.upstream.xray.wire.alignment import with_entries
from espalier.wiring import demo_model
from tests.llama_server import LlamaServer, llama_server
from tests.proxies import files_of, proxied, proxy_settings
from tests.xray import sampler_of

GRAMMARS = {
    "letters": "root ::= [a-z ]{4,30}",
    "object": 'root ::= "{" "\\"name\\": \\"" [A-Za-z ]+ "\\"}"',
    "scripts": "root ::= [éàñ一-龥 a-z]{3,9}",
    "not quotes": 'root ::= [^"{}a-m]{5,20}',
}
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "greedy": {"temperature": 0.0},
    "hot, no top_k": {"temperature": 1.3, "top_k": 0},
    "min_p": {"top_k": 0, "top_p": 1.0, "min_p": 0.1},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.3},
    "typical": {"typical_p": 0.9},
    "sigma": {"top_n_sigma": 2.0},
    "dry": {"dry_multiplier": 1.0, "dry_allowed_length": 1},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    "mirostat": {"mirostat": 2, "mirostat_tau": 4.0},
    "repeat": {"repeat_penalty": 1.3},
}
COUNTS = (None, 0)
"""Probabilities asked for: as the proxy chooses, and all."""
PATHS = ("/completion", "/v1/chat/completions", "/v1/completions")
OURS = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.0}
MIROSTAT = {"temperature": 0.8, "repetition_penalty": 1.0}
NAMES = {"repeat_penalty": "repetition_penalty"}
PROMPT, TOKENS, CLIENTS, NEAR = "Generate user info", 16, 8, 1e-5
CHANGES = re.compile(rb'"(?:id|created|timings)":(?:"[^"]*"|\d+|\{[^{}]*\})|"id_slot":-?\d+')
"""What differs from one request to the next without a proxy too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """A request. count: as in `--n-probs`."""

    sampler: str
    path: str
    is_stream: bool
    grammar: str
    seed: int
    count: int | None

    @property
    def body(self) -> dict[str, Any]:
        body = {"grammar": GRAMMARS[self.grammar], "seed": self.seed, "stream": self.is_stream}
        body |= SAMPLERS[self.sampler]
        if "chat" in self.path:
            return body | {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS}
        return body | {"prompt": PROMPT, "n_predict": TOKENS, "max_tokens": TOKENS}


@dataclass(frozen=True, slots=True)
class Truth:
    """Of one step. rejected: the token that was drawn first and refused, None if there is none."""

    token: int
    rejected: int | None
    removed_mass: float


def requests(count: int, samplers: Iterable[str] = SAMPLERS) -> list[One]:
    """The first so many of all combinations, again and again with other seeds."""
    names = list(samplers)
    every = list(product(PATHS, (False, True), GRAMMARS, names))
    found = []
    for place, (path, is_stream, grammar, sampler) in enumerate(islice(cycle(every), count)):
        turn = place // len(every)
        found.append(
            One(
                sampler=sampler, path=path, is_stream=is_stream, grammar=grammar, seed=1 + place,
                count=COUNTS[(place // len(names) + turn) % len(COUNTS)],
            )
        )  # fmt: skip
    return found


def truth_of(server: LlamaServer, engine: Any, one: One, prompt: str) -> tuple[list[int], list[Truth]]:
    """The server's tokens, and the steps as far as they are known. Raises RuntimeError where the truth is not the
    server's."""
    ids = server.post("/tokenize", {"content": prompt, "add_special": False, "parse_special": True})["tokens"]
    width = engine.vocab.width
    fields = dict(SAMPLERS[one.sampler])
    said = server.post(
        "/completion",
        {"prompt": ids, "n_predict": TOKENS, "seed": one.seed, "grammar": GRAMMARS[one.grammar], "n_probs": width,
         "return_tokens": True, **fields},
    )  # fmt: skip
    tokens = said["tokens"]
    rows = list(_rows(server, said, ids, engine))
    ours = {NAMES.get(name, name): value for name, value in fields.items()}
    config = SamplingConfig(**(MIROSTAT if "mirostat" in fields else OURS) | ours)
    sampler = sampler_of(engine, config, GRAMMARS[one.grammar], seed=one.seed)
    sampler.accept_prompt(ids)
    found = []
    try:
        for token, row in zip(tokens, rows, strict=True):
            allowed = _mask(sampler)
            choice = sampler.sample(row, full=False)
            if choice.taken.token != token:
                if one.sampler == "repeat":  # by logits up to a constant, as the truth has them too, it cannot be told
                    break
                raise RuntimeError(f"{one}: the truth drew {choice.taken.token} where the server has {token}")
            rejected = None if choice.rejected is None else choice.rejected.token
            found.append(Truth(token, rejected, measure(row, allowed).removed_mass))
            sampler.accept(token)
    except DeadEnd as error:
        raise RuntimeError(f"{one}: {error}") from error
    finally:
        sampler.close()
    return tokens, found


def _rows(server: LlamaServer, said: Mapping[str, Any], prompt: list[int], engine: Any) -> Iterator[np.ndarray]:
    """`(V,) float32` ln of probabilities for each token; the server is asked again where it gives none."""
    vocab, tokens = engine.vocab, said["tokens"]
    entries = iter(said["completion_probabilities"])
    has = with_entries([b"" if one in vocab.eos_ids else vocab.bytes_of(one) for one in tokens])
    for place, is_given in enumerate(has):
        entry = next(entries, None) if is_given else None
        if entry is None:
            entry = server.post(
                "/completion",
                {"prompt": [*prompt, *tokens[:place]], "n_predict": 1, "n_probs": vocab.width, "temperature": 0,
                 "grammar": 'root ::= "a"'},
            )["completion_probabilities"][0]  # fmt: skip
        elif entry["id"] != tokens[place]:
            raise RuntimeError(f"entry {place} is of token {entry['id']}, not {tokens[place]}")
        yield read_entry(entry_of(entry), vocab.width).row()


def _mask(sampler: Any) -> np.ndarray:
    """`(V,) bool`, all that llama.cpp's grammar allows here."""
    array = sampler._fresh(np.zeros(sampler._width, dtype=np.float32))
    sampler._lib.llama_sampler_apply(sampler._grammar, ctypes.byref(array))
    return np.asarray(sampler._all["logit"] > -np.inf)


def held(steps: Iterable[StepRecord], tokens: list[int], truth: list[Truth], *, near: float = NEAR) -> Counter[str]:
    """Counts of the steps, and of those that are `wrong`. near: of removed masses."""
    counts: Counter[str] = Counter()
    steps = list(steps)
    # A chat stream does not name the token that ends it, and the replay may not tell which of several it was.
    named = [one.token_id for one in steps]
    if named[-1:] == [-1] and steps[-1].is_unknown:
        named[-1:] = tokens[-1:]
    counts["tokens differ"] += named != tokens
    for step, true in zip(steps, truth, strict=False):
        counts["rejected"] += true.rejected is not None
        if not step.is_unknown:
            refused = step.rejected.id if step.rejected is not None and step.was_rejected else None
            counts["wrong verdict"] += refused != true.rejected
        low, high = step.bounds or (step.removed_mass, step.removed_mass)
        counts["wrong mass"] += not low - near <= true.removed_mass <= high + near
    for step in steps:
        counts[step.exactness] += 1
        counts["unknown"] += step.is_unknown
    return counts


def run(
    server: LlamaServer, engine: Any, asked: list[One], folder: Path, *, near: float = NEAR
) -> dict[str, Counter[str]]:
    """By sampler: counts of steps, of replies, and of what is wrong with them. near: of removed masses."""
    found: dict[str, Counter[str]] = {}
    for count in COUNTS:
        mine = [one for one in asked if one.count == count]
        where = folder / f"n_probs_{count}"
        settings = proxy_settings(server.address, mode="xray", n_probs=count, output_dir=where, self_test=True)
        with proxied(settings) as url:

            def ask(place: int, mine: list[One] = mine, url: str = url) -> bytes:
                one = mine[place]
                reply = httpx2.post(
                    url + one.path, json=one.body, timeout=600, headers={"x-request-id": f"ask-{place}"}
                )
                reply.raise_for_status()
                return reply.content

            with ThreadPoolExecutor(CLIENTS) as clients:
                replies = list(clients.map(ask, range(len(mine))))
        files = {int(re.findall(r"ask-(\d+)", one.name)[0]): one for one in files_of(where)}
        for place, one in enumerate(mine):
            trace = Trace.from_json(json.loads(files[place].read_text())["espalier"])
            direct = httpx2.post(server.address + one.path, json=one.body, timeout=600).content
            counts = held(trace.steps, *truth_of(server, engine, one, trace.prompt), near=near)
            counts["bytes differ"] += CHANGES.sub(b"_", replies[place]) != CHANGES.sub(b"_", direct)
            counts["replies"] += 1
            found[one.sampler] = found.get(one.sampler, Counter()) + counts
    return found


COLUMNS = ("replies", "exact", "bounded", "untraceable", "rejected", "unknown")
WRONG = ("wrong verdict", "wrong mass", "tokens differ", "bytes differ")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--samplers", nargs="*", default=list(SAMPLERS), choices=list(SAMPLERS))
    given = parser.parse_args(arguments or [])
    model = demo_model() / "demo.gguf"
    loaded = espalier.load(model, kv_type="f32", flash_attention="off", threads=1, context=1024)
    columns = (*COLUMNS, *WRONG)
    print(f"{'':14}" + "".join(f"{name:>15}" for name in columns), flush=True)
    total: Counter[str] = Counter()
    each = -(-given.requests // len(given.samplers))
    with llama_server(model) as server, loaded as engine:
        for sampler in given.samplers:
            with tempfile.TemporaryDirectory() as folder:
                counts = run(server, engine, requests(each, [sampler]), Path(folder))[sampler]
            total += counts
            print(f"{sampler:14}" + "".join(f"{counts[name]:15}" for name in columns), flush=True)
    print(f"{'all':14}" + "".join(f"{total[name]:15}" for name in columns))
    return 1 if any(total[name] for name in WRONG) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
