"""Rebuild an inference file from a QA file and a store of logged requests, with the arguments of the original script.

python scripts/reconstruct_inference.py --qa_output_path qa.jsonl --lmdb_path activations.lmdb --output_path out.jsonl

`espalier reconstruct` is the same command: see docs/activations.md.
"""

from __future__ import annotations

import sys

from espalier.cli.main import main_code

if __name__ == "__main__":
    raise SystemExit(main_code(["reconstruct", *sys.argv[1:]]))
