"""Random requests through every edge: texts, tokens, reasons to finish and every number of every record must be the
same at each of them, be those of the oracle, and be the same whenever and wherever a record is read."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import espalier
from espalier.constraints.spec import Spec
from espalier.engines.base import Result
from espalier.errors import EspalierError
from espalier.time_limit import time_limit
from espalier.wiring import demo_model
from tests.fuzz.edges import ask, steps, verdicts
from tests.fuzz.edges.draw import Asked, drawn
from tests.fuzz.edges.same import EXACT, NEARLY, difference, unlike
from tests.fuzz.session import Finding, Totals
from tests.server_app import client, settings

COMPILE_SECONDS = 2.0
STEPWISE = ("mask", "rejection")
"""Strategies whose forward passes are those of the oracle."""
DRAWN_AGAIN = ("mask", "draft", "rejection")


class EdgeFuzzer:
    """Each case is one request. The engines are opened at the first case."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._engines: dict[str, _Opened] = {}

    def close(self) -> None:
        """Close the engines."""
        self._engines.clear()
        self._stack.close()

    def one(self, seed: int, totals: Totals) -> None:
        random = Random(seed)
        try:
            asked = drawn(random)
        except EspalierError as error:
            totals.counts[f"not drawn: {error.code}"] += 1
            return
        if asked.engine not in self._engines:
            self._engines[asked.engine] = self._stack.enter_context(opened(asked.engine))
        self.asked(asked, seed, random, totals)

    def asked(self, asked: Asked, seed: int, random: Random, totals: Totals) -> None:
        if asked.engine not in self._engines:
            self._engines[asked.engine] = self._stack.enter_context(opened(asked.engine))
        opened_one = self._engines[asked.engine]
        if asked.constraint is not None:
            try:
                with time_limit(COMPILE_SECONDS):
                    opened_one.alone.engine.compiler.compile(asked.constraint).matcher().mask()  # type: ignore[attr-defined]
            except EspalierError as error:
                totals.counts[f"not compiled: {error.code}"] += 1
                if error.code in ("limit_exceeded", "out_of_time"):
                    return
        totals.features.update(asked.features)
        with _without_warnings():
            _Case(opened_one, asked, seed, random, totals).run()


@contextmanager
def _without_warnings() -> Iterator[None]:
    """The server logs every request that it refuses."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


class _Opened:
    """One model: alone, and served over HTTP."""

    def __init__(self, name: str, alone: espalier.LoadedEngine, served: espalier.LoadedEngine, http: Any) -> None:
        self.name, self.alone, self.served, self.http = name, alone, served, http

    def afresh(self) -> espalier.LoadedEngine:
        return load(self.name)

    @property
    def flags(self) -> list[str]:
        if self.name == "transformers":
            return []
        sibling = ["--draft-model", str(draft_model())] if self.name == "drafted" else []
        return ["--kv-type", "f32", "--flash-attn", "off", *sibling]


def path_of(name: str) -> str:
    folder = demo_model()
    return str(folder if name == "transformers" else folder / "demo.gguf")


def draft_model() -> Path:
    return demo_model().with_name("demo-draft")


def load(name: str) -> espalier.LoadedEngine:
    options: dict[str, Any] = {} if name == "transformers" else {"kv_type": "f32", "flash_attention": "off"}
    options |= {"draft_model": draft_model()} if name == "drafted" else {}
    return espalier.load(path_of(name), **options)


@contextmanager
def opened(name: str) -> Iterator[_Opened]:
    with load(name) as alone, load(name) as served, client(engine=served, config=settings()) as http:
        yield _Opened(name, alone, served, http)


class _Case:
    def __init__(self, where: _Opened, asked: Asked, seed: int, random: Random, totals: Totals) -> None:
        self._where, self._asked, self._seed = where, asked, seed
        self._random, self._totals = random, totals

    def _found(self, fault: str, text: str = "") -> None:
        self._totals.findings.append(Finding(seed=self._seed, fault=fault, spec=self._asked, text=text))

    def _try(self, edge: str, make: Callable[[], ask.Answer]) -> ask.Answer | None:
        self._totals.counts[f"asked: {edge}"] += 1
        try:
            return ask.asked_of(make)
        except AssertionError as error:
            self._found(f"{edge}: {error}")
        except Exception as error:  # noqa: BLE001  # any other error is a fault
            self._found(f"{edge}: {type(error).__name__}: {error}")
        return None

    def run(self) -> None:
        """Ask everywhere and compare."""
        asked, alone = self._asked, self._where.alone
        results: list[Result] = []

        def eager() -> ask.Answer:
            level: Any = "steps" if asked.level == "off" else asked.level  # a level changes no token
            results[:] = ask.flat(ask.python(alone, asked, trace=level, recorders=ask.Eager(level)))
            found = [ask.output_of(one) for one in results]
            if asked.level == "off":
                for one in found:
                    one.steps = one.summary = None
            return found

        wanted = self._try("python, records at once", eager)
        if wanted is None:
            return
        if isinstance(wanted, str):
            self._totals.counts[f"refused: {wanted}"] += 1
        for edge, make in self._edges():
            found = self._try(edge, make)
            if found is None:
                continue
            distance = self._distance(edge)
            if "http" in edge and found == "error stranded":
                found = "error dead_end"  # which ends a request there as one that asks for too much
            if isinstance(found, list) and asked.level == "off":
                for one in found:
                    one.steps = None
            told = difference(found, wanted, distance)
            if told and not (isinstance(found, str) and isinstance(wanted, str) and edge == "command line"):
                self._found(f"{edge}: {told}")
            if isinstance(found, list) and results:
                self._logprobs(edge, found, results, distance)
        if isinstance(wanted, list):
            if asked.level != "off" and self._random.random() < 0.3:
                self._leave(wanted)
            self._again(results)

    def _leave(self, wanted: Sequence[ask.Output]) -> None:
        (found,) = ask.left(self._where.alone, self._asked, self._random)
        told = unlike(found, (wanted[0].steps or [])[: len(found)], self._distance("stream"), "steps")
        self._totals.counts["asked: a stream that was left"] += 1
        if told:
            self._found(f"a stream that was left: {told}")

    def _distance(self, edge: str) -> float:
        return EXACT if edge.startswith("python") and self._asked.decoding["strategy"] != "draft" else NEARLY

    def _edges(self) -> Iterator[tuple[str, Callable[[], ask.Answer]]]:
        asked, where, random = self._asked, self._where, self._random
        how = random.choice(ask.READERS)
        yield (
            f"python, read {how}",
            lambda: [ask.output_of(one, how) for one in ask.flat(ask.python(where.alone, asked))],
        )
        if random.random() < 0.4:
            yield "python, another level", self._other_level
        yield "stream", lambda: ask.streamed(where.alone, asked, random)
        draw = random.random()
        if draw < 0.15:
            yield "python, read after the engine was closed", self._closed
        if 0.15 <= draw < 0.45:
            yield "served python", lambda: ask.streamed(where.served, asked, random)
        if ask.can_ask_http(asked):
            if random.random() < 0.75:
                yield "http", lambda: ask.http(where.http, asked, random)
            else:
                yield from self._together()
        if random.random() < 0.15 and ask.can_ask_command(asked):
            yield "command line", self._command

    def _other_level(self) -> ask.Answer:
        """Sums are the same at every level."""
        level = self._random.choice([one for one in ("summary", "steps", "full") if one != self._asked.level])
        found = [ask.output_of(one) for one in ask.flat(ask.python(self._where.alone, self._asked, trace=level))]
        for one in found:
            one.steps = None
        return found

    def _closed(self) -> ask.Answer:
        with self._where.afresh() as engine:
            results = ask.flat(ask.python(engine, self._asked))
        return [ask.output_of(one) for one in results]

    def _command(self) -> ask.Answer:
        with ask.folder() as folder:
            return ask.command_line(self._asked, path_of(self._where.name), self._where.flags, folder)

    def _together(self) -> Iterator[tuple[str, Callable[[], ask.Answer]]]:
        """The same request several times at once, among others."""
        seeds = [self._random.random() for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(ask.http, self._where.http, self._asked, Random(seed)) for seed in seeds]
        for run in runs:
            yield "http, together", run.result

    def _logprobs(self, edge: str, found: Sequence[ask.Output], results: Sequence[Result], distance: float) -> None:
        """The log probabilities of a reply are those of the records."""
        for one, result in zip(found, results, strict=False):
            if one.logprobs is None:
                continue
            vocab = self._where.alone.vocab
            ends = {*vocab.eos_ids, *self._asked.sampling.get("stop_ids", ())}
            wanted = [max(step.logprob, -9999.0) for step in result.records if step.token_id not in ends]
            told = unlike([entry["logprob"] for entry in one.logprobs], wanted, distance, "logprobs")
            if told:
                self._found(f"{edge}: {told}")

    def _again(self, results: Sequence[Result]) -> None:
        """The oracle, the verdicts, and what was saved."""
        asked, random = self._asked, self._random
        strategy = asked.decoding["strategy"]
        for place, result in enumerate(results):
            self._ends(result)
            self._drafts(result)
            trace = result.trace
            if trace is None:
                continue
            if asked.is_soft:
                self._totals.counts["not worked out again: biased by a filter"] += 1
            elif trace.rewinds or '"rewind"' in json.dumps(trace.constraint):
                # Tokens that would take text back are tried too, so another set is allowed.
                self._totals.counts["not worked out again: text may be taken back"] += 1
            else:
                run = steps.Run(
                    engine=self._where.alone,
                    trace=trace,
                    records=result.records,
                    tokens=result.token_ids,
                    stream=place,
                    draws=strategy in DRAWN_AGAIN,
                    is_late=strategy == "rejection",
                    top_k=asked.top_k,
                    closes=asked.decoding.get("on_budget") == "close",
                    distance=steps.STRICT if strategy in STEPWISE and asked.sampling.get("n", 1) == 1 else steps.LOOSE,
                )
                try:
                    steps.check(run)
                    self._totals.counts["worked out again"] += 1
                except steps.Wrong as error:
                    self._found(f"oracle, output {place}: {error}", result.text)
                except EspalierError as error:
                    self._found(f"oracle, output {place}: {type(error).__name__}: {error}", result.text)
            if random.random() < 0.1:
                trace.as_page()
            if random.random() < 0.3:
                with ask.folder() as folder:
                    told = unlike(ask.saved(trace, folder).to_json(), trace.to_json(), 0.0, "saved")
                if told:
                    self._found(f"saved and loaded: {told}")

    def _drafts(self, result: Result) -> None:
        """Proposals follow one another, and what was taken of them is in the text."""
        if result.trace is None or result.drafting is None:
            return
        end, tokens = 0, len(result.token_ids)
        for one in result.trace.drafts:
            if not (end <= one.step and 0 <= one.accepted <= one.drafted and one.step + one.accepted <= tokens):
                self._found(f"the proposal {one} of {tokens} tokens, after {end}", result.text)
            end = one.step + one.accepted
        if result.drafting.tokens != tokens or result.drafting.passes < 1:
            self._found(f"drafting {result.drafting.tokens} of {tokens} tokens", result.text)

    def _ends(self, result: Result) -> None:
        """Why the text ended, and whether it satisfies its constraint."""
        asked, vocab = self._asked, self._where.alone.vocab
        most, ids = asked.sampling["max_tokens"], result.token_ids
        if len(ids) > most:
            self._found(f"{len(ids)} tokens, and max_tokens is {most}", result.text)
        is_end = bool(ids) and ids[-1] in (*vocab.eos_ids, *asked.sampling.get("stop_ids", ()))
        stops = asked.sampling.get("stop", ())
        text = result.text
        if any(one in text for one in stops) and result.stop_reason is not None:
            self._found(f"the text holds a stop text of {stops}", text)
        if (
            result.finish_reason == "length"
            and not result.closed_by_budget
            and (is_end or len(ids) < min(most, 900))
            and asked.tools is None
        ):
            self._found(f"length after {len(ids)} of {most} tokens, ended {is_end}", text)
        if result.finish_reason == "stop" and not is_end and result.stop_reason not in stops:
            self._found(f"stop without an end, because of {result.stop_reason!r}", text)
        spec = (
            None if result.trace is None or result.trace.constraint is None else Spec.from_json(result.trace.constraint)
        )
        if spec is None or not (is_end and result.stop_reason is None and result.finish_reason == "stop"):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = verdicts.holds(spec, text)
        self._totals.counts[f"verdict: {verdict}"] += 1
        if verdict is False:
            self._found("a complete text breaks its constraint", text)
        if result.verdict is not None and result.verdict.valid is False and verdict is True:
            self._found(f"a right text is judged wrong: {result.verdict.errors}", text)
