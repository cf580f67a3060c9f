"""What the proxy's x-ray says of many requests at once, against llama.cpp's own sampler on the same server's numbers.

    python -m benchmarks.proxy.acceptance                   400 requests of eight clients
    python -m benchmarks.proxy.acceptance --requests 40 --samplers typical dry
    python -m benchmarks.proxy.acceptance --resume FILE     what FILE has is not run again; each sampler is added to it

The truth of a request: the server is asked directly, with the same seed, for the probabilities of all tokens, and
llama.cpp's sampler in this process draws from them, with llama.cpp's grammar. Its draws must be the server's tokens, so
that the truth is checked too. Each step of the trace is held to it, and the bytes of the reply to the server's own.

A request that fails is made again (`asked again`), alone, before a new server if the old one is gone. If it fails
again, the server is asked without the proxy: a request that kills it there too is counted under `server died`, any
other as failed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

import espalier
from espalier import SamplingConfig
from espalier.decoding.ports import Extend
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
SILENCE = 60.0
"""Seconds after which a server that says nothing has lost a request."""
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
                sampler=sampler,
                path=path,
                is_stream=is_stream,
                grammar=grammar,
                seed=1 + place,
                count=COUNTS[(place // len(names) + turn) % len(COUNTS)],
            )
        )
    return found


def truth_of(server: LlamaServer, engine: Any, one: One, prompt: str) -> tuple[list[int], list[Truth]]:
    """The server's tokens, and the steps as far as they are known. Raises RuntimeError where the truth is not the
    server's."""
    ids = server.post("/tokenize", {"content": prompt, "add_special": False, "parse_special": True})["tokens"]
    width = engine.vocab.width
    fields = dict(SAMPLERS[one.sampler])
    said = server.post(
        "/completion",
        {
            "prompt": ids,
            "n_predict": TOKENS,
            "seed": one.seed,
            "grammar": GRAMMARS[one.grammar],
            "n_probs": width,
            "return_tokens": True,
            **fields,
        },
    )
    tokens = said["tokens"]
    rows = list(rows_of(server, said, ids, engine))
    if one.sampler == "repeat":
        rows = [row + level for row, level in zip(rows, _levels(engine, ids, tokens), strict=True)]
    ours = {NAMES.get(name, name): value for name, value in fields.items()}
    config = SamplingConfig(**(MIROSTAT if "mirostat" in fields else OURS) | ours)
    sampler = sampler_of(engine, config, GRAMMARS[one.grammar], seed=one.seed)
    sampler.accept_prompt(ids)
    found = []
    try:
        for token, row in zip(tokens, rows, strict=True):
            allowed = mask_of(sampler)
            choice = sampler.sample(row, full=False)
            if choice.taken.token != token:
                raise RuntimeError(f"{one}: the truth drew {choice.taken.token} where the server has {token}")
            rejected = None if choice.rejected is None else choice.rejected.token
            found.append(Truth(token, rejected, measure(row, allowed).removed_mass))
            sampler.accept(token)
    except DeadEnd as error:
        raise RuntimeError(f"{one}: {error}") from error
    finally:
        sampler.close()
    return tokens, found


def rows_of(server: LlamaServer, said: Mapping[str, Any], prompt: list[int], engine: Any) -> Iterator[np.ndarray]:
    """`(V,) float32` ln of probabilities for each token; the server is asked again where it gives none."""
    vocab, tokens = engine.vocab, said["tokens"]
    entries = iter(said["completion_probabilities"])
    has = with_entries([b"" if one in vocab.eos_ids else vocab.bytes_of(one) for one in tokens])
    for place, is_given in enumerate(has):
        entry = next(entries, None) if is_given else None
        if entry is None:
            entry = server.post(
                "/completion",
                {
                    "prompt": [*prompt, *tokens[:place]],
                    "n_predict": 1,
                    "n_probs": vocab.width,
                    "temperature": 0,
                    "grammar": 'root ::= "a"',
                },
            )["completion_probabilities"][0]
        elif entry["id"] != tokens[place]:
            raise RuntimeError(f"entry {place} is of token {entry['id']}, not {tokens[place]}")
        yield read_entry(entry_of(entry), vocab.width).row()


def _levels(engine: Any, prompt: list[int], tokens: list[int]) -> list[np.float32]:
    """For each token, ln of the sum of exp(logit) by the model in this process: the server does not tell it."""
    model = engine.engine.model
    sequence = model.new()
    try:
        work = [Extend(sequence=sequence, tokens=(*prompt, *tokens[:-1]), logits="all")]
        rows = np.asarray(model.extend(work)[0], dtype=np.float64)[-len(tokens) :]
    finally:
        model.free(sequence)
    tops = rows.max(axis=1)
    return list((tops + np.log(np.exp(rows - tops[:, None]).sum(axis=1))).astype(np.float32))


def mask_of(sampler: Any) -> np.ndarray:
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


Up = Callable[[], LlamaServer]
"""The server, started again if it has died."""


@contextmanager
def servers(model: Path) -> Iterator[Up]:
    with ExitStack() as stack:
        running: list[LlamaServer] = []

        def up() -> LlamaServer:
            if not running or not is_there(running[0]):
                stack.close()
                running[:] = [stack.enter_context(llama_server(model))]
            return running[0]

        yield up


def is_there(server: LlamaServer) -> bool:
    try:
        return httpx2.get(server.address + "/health", timeout=60).status_code == 200
    except httpx2.HTTPError:
        return False


def run(up: Up, engine: Any, asked: list[One], folder: Path, *, near: float = NEAR) -> dict[str, Counter[str]]:
    """By sampler: counts of steps, of replies, and of what is wrong with them. near: of removed masses."""
    found: dict[str, Counter[str]] = {}
    for count in COUNTS:
        mine = [one for one in asked if one.count == count]
        where = folder / f"n_probs_{count}"
        replies = through(up(), mine, range(len(mine)), where)
        failed = [place for place in range(len(mine)) if place not in replies]
        for place in failed:
            replies |= through(up(), mine, [place], where)
        files = {int(re.findall(r"ask-(\d+)", one.name)[0]): one for one in files_of(where)}
        for place, one in enumerate(mine):
            found[one.sampler] = found.get(one.sampler, Counter()) + Counter(
                judged(up, engine, one, replies.get(place), files.get(place), near=near)
            )
            found[one.sampler]["asked again"] += place in failed
    return found


def through(server: LlamaServer, mine: list[One], places: Sequence[int], folder: Path) -> dict[int, bytes]:
    """The replies that eight clients at once get from a proxy; none for those that failed."""
    found: dict[int, bytes] = {}
    count = mine[places[0]].count if places else None
    settings = proxy_settings(
        server.address, mode="xray", n_probs=count, output_dir=folder, self_test=True, read_seconds=SILENCE
    )
    with proxied(settings) as url, ThreadPoolExecutor(CLIENTS) as clients:

        def ask(place: int) -> None:
            one = mine[place]
            headers = {"x-request-id": f"ask-{place}"}
            try:
                reply = httpx2.post(url + one.path, json=one.body, timeout=600, headers=headers)
                reply.raise_for_status()
            except httpx2.HTTPError as error:
                print(f"{one}: {error!r}", file=sys.stderr, flush=True)
            else:
                found[place] = reply.content

        list(clients.map(ask, places))
    return found


def judged(up: Up, engine: Any, one: One, reply: bytes | None, file: Path | None, *, near: float) -> Counter[str]:
    """The counts of one reply. reply, file: None if there is none."""
    server = up()
    counts = Counter(replies=1)
    try:
        direct = httpx2.post(server.address + one.path, json=one.body, timeout=600).content
        if reply is None or file is None:
            return counts + Counter({"failed": 1})
        trace = Trace.from_json(json.loads(file.read_text())["espalier"])
        counts += held(trace.steps, *truth_of(server, engine, one, trace.prompt), near=near)
        counts["bytes differ"] += CHANGES.sub(b"_", reply) != CHANGES.sub(b"_", direct)
    except (httpx2.HTTPError, HTTPException, OSError) as error:
        if is_there(server):
            raise
        print(f"{one}: the server died: {error!r}", file=sys.stderr, flush=True)
        counts["server died"] += 1
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        counts["no truth"] += 1
    return counts


COLUMNS = ("replies", "exact", "bounded", "untraceable", "rejected", "unknown", "asked again", "server died")
WRONG = ("wrong verdict", "wrong mass", "tokens differ", "bytes differ", "failed", "no truth")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--samplers", nargs="*", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args(arguments or [])
    model = demo_model() / "demo.gguf"
    loaded = espalier.load(model, kv_type="f32", flash_attention="off", threads=1, context=1024)
    each = -(-given.requests // len(given.samplers))
    done = _done(given.resume, each)
    _row("", {name: name for name in (*COLUMNS, *WRONG)})
    total: Counter[str] = Counter()
    try:
        with servers(model) as up, loaded as engine:
            for sampler in given.samplers:
                if (counts := done.get(sampler)) is None:
                    with tempfile.TemporaryDirectory() as folder:
                        counts = run(up, engine, requests(each, [sampler]), Path(folder))[sampler]
                    if given.resume is not None:
                        with given.resume.open("a") as file:
                            file.write(json.dumps({"sampler": sampler, "requests": each, "counts": counts}) + "\n")
                total += counts
                _row(sampler, counts)
    finally:
        _row("all", total)
    return 1 if any(total[name] for name in WRONG) else 0


def _done(file: Path | None, each: int) -> dict[str, Counter[str]]:
    """The counts that a file has, by sampler, of runs of so many requests."""
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    kept = [one for one in map(json.loads, lines) if one["requests"] == each]
    return {one["sampler"]: Counter(one["counts"]) for one in kept}


def _row(name: str, values: Mapping[str, Any]) -> None:
    print(f"{name:14}" + "".join(f"{values.get(one, 0):>14}" for one in (*COLUMNS, *WRONG)), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
