"""What every client program does: it runs its checks against the server of `BASE_URL`, and tells each by name.

It runs in the environment of the clients, so it imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

BASE = os.environ["BASE_URL"]
V1 = f"{BASE}/v1"
MODEL = os.environ.get("MODEL", "demo")
ASK = [{"role": "user", "content": "Generate user info"}]
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"type": "string", "enum": ["calm", "glad"]}, "age": {"type": "integer"}},
    "required": ["mood", "age"],
    "additionalProperties": False,
}
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Finds a place.", "parameters": PLACE}}


def expect(holds: Any, *shown: Any) -> None:
    if not holds:
        raise AssertionError(" ".join(repr(one)[:400] for one in shown))


def run(*checks: Callable[[], Any]) -> None:
    """Run the checks; print `{"check", "fault"}` for each."""
    for check in checks:
        fault = None
        try:
            found = check()
            if inspect.isawaitable(found):
                asyncio.run(found)
        except Exception:  # noqa: BLE001  # told to the test
            fault = traceback.format_exc()[-1500:]
        sys.stdout.write(json.dumps({"check": check.__name__, "fault": fault}) + "\n")
        sys.stdout.flush()
