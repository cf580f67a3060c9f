"""Write the demo corpus as JSON lines: `python scripts/make_demo_corpus.py --out corpus.jsonl`.

Every word comes from `scripts/demo_corpus/`; the same seed gives the same lines on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from demo_corpus import corpus

DEFAULT_SEED = 7
DEFAULT_SAMPLES = 160_000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--samples", type=int, default=DEFAULT_SAMPLES)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file")
    options = parser.parse_args(argv)
    kinds: Counter[str] = Counter()
    with options.out.open("w", encoding="utf-8") as lines:
        for sample in corpus(options.seed, options.samples):
            lines.write(json.dumps(sample.as_json(), ensure_ascii=False) + "\n")
            kinds[sample.kind] += 1
    print(f"{options.out}: {kinds.total()} samples ({', '.join(f'{k} {n}' for k, n in sorted(kinds.items()))})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
