"""Compiles the kernels that numba keeps on disk, once for an installation, so that no first request waits for it."""

from __future__ import annotations

from espalier.constraints.compiler import Compiler
from espalier.constraints.safety.compile import load_kernels
from espalier.constraints.spec import JsonSchema, Regex
from espalier.tokens.vocab import Vocab


def main() -> None:
    compiler = Compiler(Vocab.bytes())
    for spec in (JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}}), Regex("[a-z]{1,9}")):
        compiler.compile(spec).matcher().mask()
    load_kernels()


if __name__ == "__main__":
    main()
