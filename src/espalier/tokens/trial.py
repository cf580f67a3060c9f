"""Tries the regular expressions of a tokenizer in a process of its own, with limits of CPU time and memory.

An expression such as `(a+)+$` needs exponential time, and the library that runs it cannot be interrupted. So before a
tokenizer splits its first text here, a small one with the same normalizer and pre-tokenizer splits texts made to be
hard for it, where it can be ended. What passes is remembered. Vocabularies are not known here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from espalier.errors import VocabError
from espalier.tokens.tokenizer_json import expressions

CPU_SECONDS = 5
WALL_SECONDS = 60.0
"""For a machine on which others take the time."""
MEMORY = 2 << 30
LENGTH = 2_000
"""Characters of a text that is tried."""
MAX_PATTERN = 20_000
"""The longest expression, in characters."""
WORKER = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1]) + 1))
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from tokenizers import Tokenizer
asked = json.load(sys.stdin)
tokenizer = Tokenizer.from_str(json.dumps(asked["tokenizer"]))
try:
    for text in asked["texts"]:
        tokenizer.encode(text)
except BaseException as error:
    sys.exit("%s: %s" % (type(error).__name__, error))
"""
_WORDS = ("a", "1", " ", "\n", "\t", "'", ".", "é", "中", "🌳", "aA", "a ", " \n", "1a", "a'", "ab1 ")


def try_expressions(spec: Mapping[str, Any]) -> None:
    """spec: a checked `tokenizer.json`. Raises VocabError if its expressions take too long or too much memory, or fail.

    Without expressions nothing is started.
    """
    patterns = expressions(spec)
    if not patterns:
        return
    if max(map(len, patterns)) > MAX_PATTERN:
        raise VocabError(
            f"the tokenizer has an expression of more than {MAX_PATTERN:,} characters", field="pre_tokenizer"
        )
    parts = {name: spec.get(name) for name in ("normalizer", "pre_tokenizer")}
    fault = _fault(json.dumps(parts, sort_keys=True), tuple(patterns))
    if fault:
        raise VocabError(f"the tokenizer's expressions {fault}", hint="it cannot be used safely", field="pre_tokenizer")


@lru_cache(maxsize=256)
def _fault(parts: str, patterns: tuple[str, ...]) -> str:
    """What is wrong, "" if nothing is."""
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": model, **json.loads(parts)}
    task = json.dumps({"tokenizer": tokenizer, "texts": hard_texts(patterns)})
    command = [sys.executable, "-I", "-c", WORKER, str(CPU_SECONDS), str(MEMORY)]
    try:
        done = subprocess.run(command, input=task.encode(), capture_output=True, timeout=WALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"take longer than {WALL_SECONDS:g} s for {LENGTH:,} characters"
    if done.returncode in (-24, -9):  # SIGXCPU, SIGKILL
        return f"take longer than {CPU_SECONDS} s for {LENGTH:,} characters"
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"fail: {lines[-1][:200] if lines else f'exit code {done.returncode}'}"
    return ""


def hard_texts(patterns: tuple[str, ...]) -> list[str]:
    """Long texts of one short piece, with an end that does not fit: what makes an expression go back the most. The
    pieces are usual ones and those that the expressions name."""
    named = dict.fromkeys(character for pattern in patterns for character in re.findall(r"\w|[^\w\s\\]", pattern))
    pieces = [*_WORDS, *list(named)[:64]]
    return [piece * (LENGTH // len(piece)) + end for piece in pieces for end in ("", "\x01")]
