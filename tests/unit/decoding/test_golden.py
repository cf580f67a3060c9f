"""Tokens, numbers and candidate lists that stay as they were written down, seed for seed.

    python -m tests.unit.decoding.test_golden    writes golden.json anew: only where outputs are meant to change

Rows of noise through `decide`, `decide_late` and `record_forced`; the fake engine; the bundled demo model. Tokens are
compared exactly, numbers to 1e-7 (of the demo model to 1e-3: its floats depend on the processor).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import espalier
from espalier import AllOf, Ban, Gbnf, JsonSchema, Regex, SamplingConfig
from espalier.decoding.step.decide import decide, decide_late, record_forced
from espalier.decoding.step.record import Watch
from espalier.sampling.chain import Chain
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext, LogitBias, TokenBan
from espalier.sampling.fit import fit
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord
from espalier.wiring import demo_model

FILE = Path(__file__).with_name("golden.json")
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
BACKWARDS = tuple(reversed(DEFAULT_ORDER))

CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "greedy": {"temperature": 0.0},
    "greedy, no penalty": {"temperature": 0.0, "repetition_penalty": 1.0},
    "greedy, dry": {"temperature": 0.0, "dry_multiplier": 2.0, "dry_allowed_length": 1},
    "neutral": NEUTRAL,
    "hot": NEUTRAL | {"temperature": 1.7},
    "OpenAI's order": {"sampler_order": OPENAI_ORDER},
    "backwards": {"sampler_order": BACKWARDS, "typical_p": 0.9},
    "temperature between": {"sampler_order": ("top_k", "temperature", "top_p", "min_p", "penalties")},
    "all penalties": {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": -0.2},
    "top_p alone": NEUTRAL | {"top_p": 0.8},
    "min_p alone, min_keep": NEUTRAL | {"min_p": 0.3, "min_keep": 4},
    "typical": NEUTRAL | {"typical_p": 0.6},
    "sigma": NEUTRAL | {"top_n_sigma": 1.2},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1},
    "dynamic temperature": {"dynatemp_range": 0.5, "temperature": 0.9},
    "biased": {"logit_bias": ((5, 2.5), (6, -1.0), (7, -math.inf))},
    "allowed ids": {"allowed_ids": tuple(range(0, 70, 2))},
    "early": {"min_tokens": 5},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.0},
}
WIDTHS = {75: 60, 2304: 2304, 9000: 9000}
"""Widths of rows, with how many of them are tokens."""


def numbers_of(record: StepRecord) -> dict[str, Any]:
    """A record in few words: the lists as ids and one sum each."""
    lists = (record.pre_masking, record.post_grammar, record.post_chain)
    return {
        "token": record.token_id,
        "numbers": [
            record.logprob,
            record.removed_mass,
            record.tax_nats,
            record.z_sampled,
            record.entropy_before,
            record.entropy_after,
            record.resampled.prob,
            record.resampled.logit,
            record.allowed_count,
        ],
        "flags": [record.was_changed, record.was_rejected, record.was_forced],
        "rejected": None if record.rejected is None else [record.rejected.id, record.rejected.prob],
        "blame": None if record.blame is None else [record.blame.member, record.blame.reason],
        "removed_by": [[name, mass] for name, mass in record.removed_by],
        "lists": [[[c.id for c in part][:5], len(part), [c.allowed for c in part].count(True)] for part in lists],
        "sums": [sum((n + 1) * c.prob for n, c in enumerate(part)) for part in lists],
    }


def cases_of_rows() -> Iterator[tuple[str, list[Any]]]:
    """Name, and what two steps in a row came to."""
    for width, tokens in WIDTHS.items():
        words = [b"%d." % i for i in range(tokens - 1)]
        vocab = Vocab.from_tokens([*words, b""], eos_ids=[tokens - 1], width=width)
        for index, (name, fields) in enumerate(CONFIGS.items()):
            config = SamplingConfig(**fields)
            fitted = fit(config, vocab, lambda text: [ord(letter) % 50 for letter in text])
            for level in ("off", "summary", "steps"):
                for number, way in enumerate(("free", "mask", "late", "forced", "filters")):
                    if (index + number) % 5 not in ((0, 2) if width == 75 else (width % 5,)):
                        continue
                    if way != "forced" or level != "off":
                        yield (
                            f"{width} {name} {level} {way}",
                            steps_of(vocab, config, fitted, level, way, index + number),
                        )


def steps_of(vocab: Vocab, config: SamplingConfig, fitted: Any, level: Any, way: str, seed: int) -> list[Any]:
    filters = [LogitBias({1: 1.0, 2: -2.0}), TokenBan([3, 4])] if way == "filters" else []
    chain, stream = Chain(config, filters, fitted=fitted), RandomStream(seed, 1)
    chain.start([1, 2, 3, 1, 2, 9, 1, 2])
    rng, outputs = np.random.default_rng([seed, vocab.width]), []
    for step in range(2):
        row = rng.normal(0.0, (0.5, 3.0, 8.0)[(seed + step) % 3], vocab.width).astype(np.float32)
        row[rng.integers(0, vocab.width, 5)] = -np.inf
        row[10] = 1.0
        ids = rng.choice(len(vocab.tokens), size=max(3, len(vocab.tokens) // (2, 30)[(seed + step) % 2]), replace=False)
        mask = masks.from_ids(np.append(ids, 10), vocab.width)
        context = FilterContext(step, tuple(chain.history[:8]), tuple(chain.history[8:]))
        more: dict[str, Any] = {"vocab": vocab, "chain": chain, "context": context, "watch": Watch(level, 4)}
        if way == "forced":
            record = record_forced(row, 10, mask, **more)
            decision = None
        elif way == "late":
            decision = decide_late(row, partial(mask.copy), partial(masks.test, mask), stream=stream, **more)
        else:
            decision = decide(row, None if way == "free" else mask, stream=stream, **more)
        token, prob = (10, None) if decision is None else decision[:2]
        record = record if decision is None else decision.record
        outputs.append([token, prob, stream.count, None if record is None else numbers_of(record)])
        chain.on_token(token, prob)
    return outputs


RECORD = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
RUNS: dict[str, dict[str, Any]] = {
    "free": {},
    "greedy schema": {"temperature": 0, "constraint": JsonSchema(RECORD), "trace": "steps"},
    "schema": {"constraint": JsonSchema(RECORD), "trace": "steps"},
    "schema, full": {"constraint": JsonSchema(RECORD), "trace": "full", "xtc_probability": 0.5},
    "schema, summary": {"constraint": JsonSchema(RECORD), "trace": "summary"},
    "schema, rejection": {"constraint": JsonSchema(RECORD), "strategy": "rejection", "trace": "steps"},
    "schema, rejection, off": {"constraint": JsonSchema(RECORD), "strategy": "rejection"},
    "schema, jump": {"constraint": JsonSchema(RECORD), "strategy": "jump", "trace": "steps"},
    "grammar": {"constraint": Gbnf('root ::= "[" [a-z]{2,5} ("," [0-9]+){1,4} "]"'), "trace": "steps", "top_k": 3},
    "several": {"constraint": AllOf([Regex("[a-z ]{4,20}"), Ban(["e"])]), "trace": "steps", "n": 3},
    "beams": {
        "constraint": Regex("[a-z ]{4,9}"),
        "strategy": "beam",
        "num_beams": 3,
        "num_return_sequences": 2,
        "temperature": 0,
        "trace": "steps",
    },
    "mirostat": {"mirostat": 2, "trace": "steps"},
    "dry and penalties": {"dry_multiplier": 0.8, "frequency_penalty": 0.4, "trace": "summary"},
    "biased": {"logit_bias": {"e": -100.0, " ": 2.0}, "trace": "steps"},
    "smc": {
        "constraint": Regex("[a-z ]{4,9}"),
        "strategy": "smc",
        "particles": 4,
        "trace": "steps",
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
    },
    "awrs": {
        "constraint": Regex("[a-z ]{4,9}"),
        "strategy": "awrs",
        "particles": 3,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
    },
}


def cases_of_engine(model: str, tokens: int) -> Iterator[tuple[str, list[Any]]]:
    with espalier.load(model) as engine:
        for name, options in RUNS.items():
            results = engine.generate("Generate a list of users.", seed=11, max_tokens=tokens, **options)
            outputs: list[Any] = []
            for result in results if isinstance(results, list) else [results]:
                steps = () if result.trace is None else result.trace.steps
                sums = None if result.trace is None else result.trace.total_tax_nats
                more = [list(other.token_ids) for other in result.others]
                outputs.append([list(result.token_ids), result.finish_reason, sums, more, [*map(numbers_of, steps)]])
            yield name, outputs


def alike(now: Any, then: Any, tolerance: float, where: str) -> None:
    """Raises AssertionError naming the first difference."""
    if isinstance(then, dict):
        assert now.keys() == then.keys(), where
        for key, value in then.items():
            alike(now[key], value, tolerance, f"{where} {key}")
    elif isinstance(then, list):
        assert len(now) == len(then), where
        for index, value in enumerate(then):
            alike(now[index], value, tolerance, f"{where} {index}")
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=tolerance, abs=tolerance), where
    else:
        assert now == then, where


SOURCES = {"rows": cases_of_rows, "fake": partial(cases_of_engine, "fake", 24)}


@pytest.fixture(scope="module")
def golden():
    return json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("source", SOURCES)
def test_outputs_are_those_written_down(golden, source):
    names = []
    for name, outputs in SOURCES[source]():
        alike(json.loads(json.dumps(outputs)), golden[source][name], 1e-7, f"{source}: {name}")
        names.append(name)
    assert names == [*golden[source]]


def test_outputs_of_the_demo_model_are_those_written_down(golden):
    for name, outputs in cases_of_engine(str(demo_model()), 10):
        alike(json.loads(json.dumps(outputs)), golden["demo"][name], 1e-3, f"demo: {name}")


def shortened(value: Any) -> Any:
    """Floats with eight digits."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {key: shortened(each) for key, each in value.items()}
    return [shortened(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    cases = {source: dict(make()) for source, make in SOURCES.items()}
    cases["demo"] = dict(cases_of_engine(str(demo_model()), 10))
    FILE.write_text(json.dumps(shortened(json.loads(json.dumps(cases))), separators=(",", ":")) + "\n", "utf-8")
