"""The decorator of kernels, over numba's: a kernel that Python calls names the types that it takes, and its compiled
code is kept in the folder of its module.

A kernel that names no types is called by other kernels alone. It is compiled with each, and not kept by itself.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.dispatcher import Dispatcher

from espalier.kernels.folder import COMPLETE, folder_of

# compiled with: 135ea9cb

log = logging.getLogger(__name__)
Function = TypeVar("Function", bound=Callable[..., Any])
Types = tuple[Any, ...]

I32, I64 = numba.int32[::1], numba.int64[::1]
I16, U8, U32, F32, F64, BOOLS = (
    kind[::1] for kind in (numba.int16, numba.uint8, numba.uint32, numba.float32, numba.float64, numba.boolean)
)
I16_ROWS, I32_ROWS, I64_ROWS, F64_ROWS = (
    kind[:, ::1] for kind in (numba.int16, numba.int32, numba.int64, numba.float64)
)
BYTES = numba.types.Array(numba.uint8, 1, "C", readonly=True)
"""Types of arrays, contiguous: by elements, `..._ROWS` with two axes. BYTES: of Python's bytes, read-only."""
INT, FLOAT, FLOAT32, BOOL = numba.int64, numba.float64, numba.float32, numba.boolean


def tuple_of(types: Types) -> Any:
    """The type of a tuple of arrays."""
    return numba.types.Tuple(types)  # type: ignore[no-untyped-call]


_DECLARED: dict[str, list[tuple[Any, Types]]] = {}
"""What each module declares: its kernels and the types they take."""


class _Locator(_CacheLocator):
    """The folder of a module's kernels. Its name changes with the source, so that the code in it is never outdated."""

    def __init__(self, line: int, folder: Path) -> None:
        self._line, self._folder = line, folder

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, _: str) -> _Locator | None:
        folder = folder_of(py_func.__module__)
        return None if folder is None else cls(py_func.__code__.co_firstlineno, folder)


class _Files(CompileResultCacheImpl):
    _locator_classes = (_Locator,)  # type: ignore[assignment]  # numba's is a list


class _CheckedFiles(IndexDataCacheFile):
    """numba's two kinds of files of a kernel, each behind a digest of its bytes. A file that is not what was written
    counts as one that is not there: numba would run whatever machine code stands in it."""

    def _load_index(self) -> Any:
        data = _read_checked(Path(self._index_path))
        return {} if data is None else pickle.loads(data)

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, overloads)

    def _load_data(self, name: str) -> Any:
        data = _read_checked(Path(self._data_path(name)))  # type: ignore[no-untyped-call]
        return None if data is None else pickle.loads(data)

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)  # type: ignore[no-untyped-call]

    def _write(self, path: str, value: Any) -> None:
        data = self._dump(value)  # type: ignore[no-untyped-call]
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


def _read_checked(path: Path) -> bytes | None:
    """What was written to a file; None without the file, and with a warning where it is damaged or cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("a compiled kernel cannot be read and is compiled again: %s: %s", path, error.strerror or error)
        return None
    digest, data = content[:32], content[32:]
    if hashlib.sha256(data).digest() != digest:
        log.warning("a compiled kernel is damaged and is compiled again: %s", path)
        return None
    return data


class _Cache(FunctionCache):
    _impl_class = _Files

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        locator = self._impl.locator
        self._cache_file = _CheckedFiles(  # type: ignore[no-untyped-call]
            cache_path=self.cache_path, filename_base=self._impl.filename_base, source_stamp=locator.get_source_stamp()
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code. Where that cannot be done, the process has it all the same."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            log.warning("a compiled kernel cannot be kept in %s: %s", self.cache_path, error.strerror or error)


def kernel(*types: Types, **options: Any) -> Callable[[Function], Function]:
    """Declare a kernel. types: one tuple for each combination of types with which Python calls it. options: numba's."""

    def declare(function: Function) -> Function:
        dispatcher = numba.njit(nogil=True, boundscheck=False, **options)(function)
        if types and isinstance(dispatcher, Dispatcher):  # not where numba is switched off
            if folder_of(function.__module__) is not None:
                dispatcher._cache = _Cache(function)  # type: ignore[attr-defined]
            _DECLARED.setdefault(function.__module__, []).extend((dispatcher, each) for each in types)
        return dispatcher  # type: ignore[no-any-return]

    return declare


def count_of(module: str) -> int:
    """How many kernels a module, which is imported, declares for Python to call; with several types, each counts."""
    return len(_DECLARED.get(module, ()))


def load_kernels(module: str) -> None:
    """Load the kernels of a module that is imported, or compile them, and mark the folder that has all."""
    for dispatcher, types in _DECLARED.get(module, ()):
        dispatcher.compile(types)
    folder = folder_of(module)
    if folder is not None and not (folder / COMPLETE).exists():
        (folder / COMPLETE).touch()
