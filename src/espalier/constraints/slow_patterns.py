"""Python's `re` with a time limit, for judges: patterns that may not finish are run in a process of their own.

`re` cannot be interrupted, and some patterns take longer than a lifetime. It does not know what is judged.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from espalier.schema.patterns.cost import is_quick

JUDGE_SECONDS = 5.0
"""The time limit of that process."""
_CAN_BE_ENDED: ContextVar[bool] = ContextVar("can_be_ended", default=False)
MATCHER = """import json, re, sys
print(json.dumps([getattr(re, how)(p, t) is not None for how, p, t in json.load(sys.stdin)]))"""


@contextmanager
def in_place() -> Iterator[None]:
    """For a process that something else ends where a pattern does not: inside, no process is started for a pattern."""
    token = _CAN_BE_ENDED.set(True)
    try:
        yield
    finally:
        _CAN_BE_ENDED.reset(token)


def full_match(pattern: str, text: str) -> bool:
    """Whether `re.fullmatch` matches. Raises re.error, subprocess.SubprocessError."""
    compiled = re.compile(pattern)
    if is_quick(pattern, len(text)):
        return compiled.fullmatch(text) is not None
    return run_limited([("fullmatch", pattern, text)])[0]


def run_limited(asked: list[tuple[str, str, str]]) -> list[bool]:
    """Whether each pattern matches, found by a process with a time limit. asked: for each a function of `re`, the
    pattern and the text. Raises subprocess.SubprocessError."""
    if _CAN_BE_ENDED.get():
        return [getattr(re, how)(pattern, text) is not None for how, pattern, text in asked]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "ignore", "-c", MATCHER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=JUDGE_SECONDS,
        check=True,
    )
    answers: list[bool] = json.loads(done.stdout)
    return answers
