"""Calls llama.cpp's own converter from JSON Schema to GBNF, in the C++ library inside the `xllamacpp` wheel.

The wheel's Python function gives `%llguidance` text, since the library is built with llguidance; the C++ function
behind it has a flag for GBNF. It throws a C++ exception for a refusal, which Python cannot catch, so each schema is
converted in a forked process that may die. Linux on x86-64 only: results are returned in memory that we provide.

`python -m benchmarks.schema.llama_converter` reads a JSON list of schemas and writes a list of `{"gbnf"}` or
`{"error"}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import struct
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PARSE = "_ZN11common_json5parseERKSs"
CONVERT = "_Z22json_schema_to_grammarRK11common_jsonb"
HEAD = struct.Struct("<QQq")


class Unreachable(Exception):
    """llama.cpp's converter cannot be called here; the message says why."""


def converted(schemas: Iterable[Any]) -> list[dict[str, str]]:
    """`{"gbnf": text}` or `{"error": message}` for each schema. Raises Unreachable."""
    _library_path()
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(list(schemas)),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    if done.returncode:
        raise Unreachable(f"the converter did not run: {done.stderr.strip()[-300:]}")
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def _library_path() -> Path:
    spec = find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise Unreachable("xllamacpp (llama.cpp itself) is not installed")
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        raise Unreachable(f"it is called by the conventions of Linux on x86-64, and this is {platform.machine()}")
    return next(Path(spec.origin).parent.glob("xllamacpp*.so"))


def _convert(library: ctypes.CDLL, schema: Any) -> str:
    parse, convert = getattr(library, PARSE), getattr(library, CONVERT)
    # A class is returned in memory whose address is the hidden first argument.
    parse.argtypes, parse.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    convert.argtypes, convert.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool], ctypes.c_void_p
    data = json.dumps(schema).encode()
    # The wheel is built with the `std::string` from before C++11: a pointer to characters, after length, capacity and
    # reference count.
    held = ctypes.create_string_buffer(HEAD.pack(len(data), len(data), 1000) + data)
    text = ctypes.c_void_p(ctypes.addressof(held) + HEAD.size)
    document = ctypes.create_string_buffer(512)
    parse(document, ctypes.byref(text))
    out = ctypes.c_void_p()
    convert(ctypes.byref(out), document, True)
    assert out.value is not None
    size = HEAD.unpack(ctypes.string_at(out.value - HEAD.size, HEAD.size))[0]
    return ctypes.string_at(out.value, size).decode()


def _in_a_child(library: ctypes.CDLL, schema: Any) -> dict[str, str]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(write, 2)  # stderr of the dying process
        text = json.dumps({"gbnf": _convert(library, schema)})
        os.write(2, b"\0")
        with os.fdopen(write, "w") as file:
            file.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    if status == 0:
        found: dict[str, str] = json.loads(data.rpartition(b"\0")[2])
        return found
    said = data.decode(errors="replace")
    what = re.search(r"what\(\):\s*(.*)", said, re.DOTALL)
    return {"error": " ".join((what.group(1) if what else said or f"signal {status}").split())[:300]}


def main() -> None:
    library = ctypes.CDLL(str(_library_path()))
    check = _in_a_child(library, {"type": "null"})
    if "root ::=" not in check.get("gbnf", ""):
        raise SystemExit(f"not the converter that this was written for: {check}")
    json.dump([_in_a_child(library, schema) for schema in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
