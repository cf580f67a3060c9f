"""Compiles the kernels that numba keeps on disk, once for an installation, so that no first request waits for it."""

from __future__ import annotations

from typing import Any

import numpy as np

import espalier
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import AutomatonCompiled
from espalier.constraints.safety.compile import load_kernels
from espalier.constraints.spec import Gbnf, JsonSchema, Regex
from espalier.decoding.step.stages import top
from espalier.engines.fake import open_engine
from espalier.tokens.vocab import Vocab

SAMPLERS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.1, "frequency_penalty": 0.1},
    {"temperature": 0.8, "top_p": 0.9, "typical_p": 0.9, "repeat_penalty": 1.1, "dry_multiplier": 0.8},
)
OBJECT = JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}})


def main() -> None:
    compiler = Compiler(Vocab.bytes())
    for spec in (OBJECT, Regex("[a-z]{1,9}")):
        compiler.compile(spec).matcher().mask()
    nested = compiler.compile(Gbnf('root ::= "(" root ")" | "a"'))
    assert isinstance(nested, AutomatonCompiled)
    nested.machine.landings(nested.machine.start)
    load_kernels()
    engine = espalier.LoadedEngine(open_engine(wish="hello"))
    for sampler in SAMPLERS:
        for constraint in (None, Regex("[a-z]{1,9}"), OBJECT):
            for trace in ("off", "summary", "steps"):
                engine.generate("a", constraint=constraint, max_tokens=4, seed=1, trace=trace, **sampler)
    for kind in (np.float32, np.float64):  # rows of candidates, which this vocabulary has too few of
        top(np.zeros(64, dtype=kind), 4)


if __name__ == "__main__":
    main()
