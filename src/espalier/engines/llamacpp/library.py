"""Opens llama.cpp's C library through the ctypes bindings of llama-cpp-python, checks it, and captures its log.

It knows the library and how its failures become our errors; it knows no vocabulary, no sequences and no sampling. The
structs of llama.h are passed by value and change between versions, so library and bindings must be of one version: a
mismatch is refused here, before it can corrupt memory.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from espalier.errors import CapabilityError

try:
    import llama_cpp
    from llama_cpp import llama_cpp as low
except (OSError, RuntimeError, AttributeError) as error:  # no library, one that cannot be opened, or a different one
    raise CapabilityError(
        f"llama-cpp-python cannot open its llama.cpp library: {error}",
        hint="install llama-cpp-python again, and do not set LLAMA_CPP_LIB_PATH",
    ) from error

WARN, ERROR, CONTINUED = 3, 4, 5  # of enum ggml_log_level
NO_REASON = "llama.cpp gave no reason"
_KEPT = 1000  # lines of one block
_FUNCTION = re.compile(r"^[A-Za-z_]\w*: +")
"""Most lines of the log start with the name of the function that wrote them."""
_OUTER = ("error loading model: ", "failed to apply lora adapter: ", "failed to initialize the context: ")
# Defaults of the pinned header: other values mean that a field has moved.
_EXPECTED = {
    "n_batch": 2048,
    "n_ubatch": 512,
    "type_k": 1,
    "type_v": 1,
    "offload_kqv": True,
    "swa_full": True,
    "kv_unified": False,
    "embeddings": False,
    "n_samplers": 0,
}
_EXPECTED_MODEL = {"vocab_only": False, "check_tensors": False, "use_extra_bufts": True, "no_alloc": False}


class Reasons:
    """What the library logged in this thread during a `reasons()` block."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []

    def hear(self, level: int, text: str) -> None:
        """Add one piece of the log. A continuation is appended to the last line."""
        if level == CONTINUED and self._lines:
            last, start = self._lines[-1]
            self._lines[-1] = last, start + text
        elif len(self._lines) < _KEPT or level == ERROR:
            self._lines.append((level, text))

    def first(self) -> str:
        """Why a call failed: the first error, which is the innermost, without the function's name."""
        for level, text in self._lines:
            line = _plain(text)
            if level == ERROR and line:
                return line
        return NO_REASON

    def all(self) -> list[str]:
        """Every warning and error, in order."""
        return [text.strip() for level, text in self._lines if level in (WARN, ERROR) and text.strip()]


class _Listeners(threading.local):
    """The open `reasons()` blocks of this thread, innermost last. Other threads may decode while one loads."""

    def __init__(self) -> None:
        self.open: list[Reasons] = []


_LISTENERS = _Listeners()


@low.llama_log_callback  # type: ignore[untyped-decorator]
def _hear(level: int, text: bytes, _: Any) -> None:
    for listener in _LISTENERS.open:
        listener.hear(level, text.decode("utf-8", "replace"))


@cache
def library() -> Any:
    """The low-level module, ready for calls. Raises CapabilityError if library and bindings do not match."""
    low.llama_log_set(_hear, ctypes.c_void_p(0))  # `_hear` lives as long as this module
    low.llama_backend_init()
    check_defaults(low.llama_context_default_params(), low.llama_model_default_params())
    return low


def check_defaults(context: Any, model: Any) -> None:
    """Raises CapabilityError if the defaults of both structs are not those of the header."""
    wrong = [name for name, value in _EXPECTED.items() if getattr(context, name) != value]
    wrong += [name for name, value in _EXPECTED_MODEL.items() if getattr(model, name) != value]
    if wrong:
        raise misfit(f"the defaults of {', '.join(wrong)} are not what they should be")


def misfit(what: str) -> CapabilityError:
    """The error for library and bindings of different versions."""
    return CapabilityError(
        f"llama-cpp-python {llama_cpp.__version__} and its llama.cpp library do not match: {what}",
        hint="install llama-cpp-python again, and do not set LLAMA_CPP_LIB_PATH",
    )


def version() -> str:
    """The version of the bindings, and of the library that was built with them."""
    return str(llama_cpp.__version__)


@contextmanager
def reasons() -> Iterator[Reasons]:
    """Collects what the library logs in this thread until the end of the block."""
    listener = Reasons()
    _LISTENERS.open.append(listener)
    try:
        yield listener
    finally:
        _LISTENERS.open.remove(listener)


def address_of(name: str, *, of: type) -> Any:
    """A function of one pointer that returns an address as an int: 1 µs faster than a typed pointer. of: its argument's
    type. A function object of its own, so that the one of the bindings is not changed."""
    function = low._lib[name]
    function.restype, function.argtypes = ctypes.c_void_p, [of]
    return function


def _plain(text: str) -> str:
    """A log line as a reason: its first line, without the function's name and outer error prefixes."""
    line = _FUNCTION.sub("", text.strip())
    for outer in _OUTER:
        line = _FUNCTION.sub("", line.removeprefix(outer))
    return " ".join(line.split())
