#!/usr/bin/env python3
"""A program with the arguments, stdout and exit codes of llama.cpp's llama-completion, and Espalier inside.

scripts/llama_cli.py -m MODEL.gguf -p PROMPT --grammar-file FILE --temp 0.0 --top-k 1

Name it where a program wants the path of llama-cli, such as PedroCLI's `llamacpp_path`.
docs/how-to/coming-from/pedrocli.md lists the flags, and what differs.
"""

from __future__ import annotations

import sys

from espalier.cli.llama.completion import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
