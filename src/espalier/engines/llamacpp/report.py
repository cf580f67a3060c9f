"""Reports on the llama.cpp library: version, build options, devices; or why it cannot be used.

Runs in a process of its own (`python -m espalier.engines.llamacpp.report`), since a library built for another machine
may end the process that opens it. It knows no model.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import Any

from espalier.errors import EspalierError

SECONDS = 120.0  # the first start of a GPU driver may be slow


def examine() -> dict[str, Any]:
    """The report, from another process. `can_run` and `fault` are always there; `fault` is None if all is well."""
    # -P: modules in the current folder must not shadow Python's own.
    command = [sys.executable, "-P", "-m", "espalier.engines.llamacpp.report"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _fault(f"it could not be tried: {error}")
    try:
        report = json.loads(done.stdout)
    except ValueError:
        if not done.returncode:
            return _fault(f"the process that opens the library ended without a report{_show_output(done.stdout)}")
        logged = done.stderr.decode("utf-8", "replace").strip().splitlines()
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return _fault(f"opening the library ends the process with {ended}{f': {logged[-1]}' if logged else ''}")
    return dict(report)


def _show_output(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return f", and wrote: {lines[0][:80]}" if lines else ""


def report() -> dict[str, Any]:
    """The same report, from this process."""
    try:
        from espalier.engines.llamacpp.library import library, version  # noqa: PLC0415  # a broken library is a finding

        lib = library()
    except EspalierError as error:
        return _fault(str(error))
    return {
        "can_run": True,
        "fault": None,
        "version": version(),
        "built_with": _built_with(bytes(lib.llama_print_system_info()).decode("utf-8", "replace")),
        "gpu_offload": bool(lib.llama_supports_gpu_offload()),
        "devices": _devices(lib),
    }


def _fault(message: str) -> dict[str, Any]:
    return {"can_run": False, "fault": message}


def _built_with(text: str) -> list[str]:
    """The names in `CPU : AVX2 = 1 | F16C = 1 | ` whose value is not 0."""
    names = []
    for part in text.replace(" : ", " | ").split("|"):
        name, equals, value = part.strip().partition(" = ")
        if name and (not equals or value != "0"):
            names.append(name if value in ("", "1") else f"{name}={value}")
    return names


def _devices(lib: Any) -> list[str]:
    """The devices that the library can compute on. These ggml functions are not declared by the bindings."""
    try:
        inside = lib._lib
        count, get = inside.ggml_backend_dev_count, inside.ggml_backend_dev_get
        describe = inside.ggml_backend_dev_description
    except AttributeError:
        return []
    count.restype, get.restype, describe.restype = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    get.argtypes, describe.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    return [(describe(get(i)) or b"").decode("utf-8", "replace") for i in range(count())]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report()))
