"""Compares two converters from JSON Schema to GBNF, ours and llama.cpp's, on the test suite and on schemas from the
wild.

Every grammar is judged by our exact GBNF automata over bytes, so it accepts what llama.cpp would let a model write.
"Converted" by llama.cpp means that its converter returned a grammar; keywords that it drops, it drops silently.
`format` is an annotation in the test suite, and is asserted for the schemas from the wild.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.schema.cases import Case, Missing, real, suite
from benchmarks.schema.judging import measure
from benchmarks.schema.llama_converter import Unreachable, converted
from benchmarks.schema.peers import CompileSchema
from benchmarks.schema.suite import table
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf
from espalier.errors import UnsupportedError
from espalier.schema.gbnf import to_gbnf
from espalier.schema.normal.expand import expand
from espalier.tokens.vocab import Vocab


def ours(formats: str) -> CompileSchema:
    """Compile with our converter. formats: `annotate` or `assert`."""
    compiler = Compiler(Vocab.bytes())
    return lambda schema: compiler.compile(Gbnf(to_gbnf(expand(schema, format=formats))))


def llama(cases: Sequence[Case]) -> CompileSchema:
    """Compile with llama.cpp's converter, called once for all schemas. Raises Unreachable."""
    grammars = dict(zip((id(c.schema) for c in cases), converted(c.schema for c in cases), strict=True))
    compiler = Compiler(Vocab.bytes())

    def compile_schema(schema: Any) -> Compiled:
        found = grammars[id(schema)]
        if "error" in found:
            raise UnsupportedError(found["error"])
        return compiler.compile(Gbnf(found["gbnf"]))

    return compile_schema


def show(name: str, cases: list[Case], formats: str) -> None:
    print(f"-- {name}: ours, which {formats}s `format` --", flush=True)
    table(measure(cases, ours(formats), seconds=20), kinds=False)
    print(f"\n-- {name}: llama.cpp's converter --", flush=True)
    try:
        peer = llama(cases)
    except Unreachable as error:
        print(f"left out: {error}")
        return
    table(measure(cases, peer, seconds=20), kinds=False, listed=False)


def main(argv: list[str] | None = None) -> None:
    for name, read, formats in (("test suite", suite, "annotate"), ("from the wild", real, "assert")):
        try:
            show(name, read(), formats)
        except Missing as missing:
            print(f"{name} left out: {missing}")


if __name__ == "__main__":
    main(sys.argv[1:])
