"""Compiles the kernels that numba keeps on disk, once for an installation, so that no first request waits for it."""

from __future__ import annotations

from espalier.constraints.compiler import Compiler
from espalier.constraints.safety.compile import load_kernels
from espalier.decoding.step.warming import warm_masks, warm_steps
from espalier.tokens.vocab import Vocab

LONG = 12_000
"""Ids of a vocabulary whose rows are too long for what is done with short ones."""


def main() -> None:
    short = Vocab.bytes()
    warm_masks(Compiler(short))
    load_kernels()
    warm_steps(short)
    more = [b"%d" % one for one in range(LONG)]  # tokens, since padding is never drawn
    warm_steps(Vocab.from_tokens([*short.tokens, *more], eos_ids=short.eos_ids))


if __name__ == "__main__":
    main()
