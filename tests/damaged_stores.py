"""Uses damaged stores, each in a process of its own that is forked from this one:

    python damaged_stores.py KIND FOLDER [DAMAGE ...]

The folder holds `whole`, a store of activations or a SQLite database. One line for each damage: its name, and how its
process ended: `ok`, `error MESSAGE`, `signal N`, `hangs`, or `crash` with what was raised."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from espalier.errors import EspalierError

PAGE = 4096
SECONDS = 20


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file cut at every page and behind it; each page zeroed, filled, with a damaged header; flipped bits; another
    version."""
    draw = random.Random(7)
    for page in range(len(data) // PAGE):
        begin, end = page * PAGE, (page + 1) * PAGE
        yield f"cut at {page}", data[:begin]
        yield f"cut behind {page}", data[: begin + 100]
        yield f"zeros {page}", data[:begin] + bytes(PAGE) + data[end:]
        yield f"ones {page}", data[:begin] + b"\xff" * PAGE + data[end:]
        other = bytearray(data)
        for place in draw.sample(range(begin + 8, begin + 100), 3):
            other[place] ^= 1 << draw.randrange(8)
        yield f"header {page}", bytes(other)
    for number in range(40):
        other = bytearray(data)
        for _ in range(200):
            other[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        yield f"flips {number}", bytes(other)
    for page in range(2):
        other = bytearray(data)
        other[page * PAGE + 20] += 1  # LMDB's version in the first pages
        yield f"version {page}", bytes(other)


def use_activations(folder: Path) -> None:
    from espalier.activations.store.base import ActivationStore  # an extra
    from espalier.activations.store.care import verify

    with ActivationStore(folder, write=True) as store:
        keys = [*store.keys()]
        for _ in verify(store):
            pass
        store.size()
        captured = store.captured(keys[0]) if keys else None
        if captured is not None:
            store.put(captured, "another")
            store.remove(keys[-1])


def use_database(folder: Path) -> None:
    from espalier.store.open import open_store  # an extra
    from espalier.store.trace_filter import TraceFilter

    store = open_store(f"sqlite:///{folder / 'data.db'}")
    try:
        for row in store.traces(TraceFilter(), limit=100):
            store.trace(row["id"], caller=None)
        store.count_generations()
        store.save_preset({"name": "another", "version": 1})
        for name in store.preset_names():
            store.preset(name)
    finally:
        store.close()


def ended(use: object, folder: Path) -> str:
    """How a process that uses a store ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            use(folder)  # type: ignore[operator]
            text = "ok"
        except EspalierError as error:
            text = f"error {error}"
        except BaseException as error:  # noqa: BLE001  # the report of the child is all that is seen of it
            text = f"crash {type(error).__name__}: {error}"
        os.write(writer, text.replace("\n", " ").encode()[:2000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as report:
        text = report.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else f"signal {os.WTERMSIG(status)}"
    return text


def imported(use: object, folder: Path) -> None:
    """Use a whole store here, so that what that imports is imported once and not in each child."""
    whole = folder / "used"
    shutil.copytree(folder / "whole", whole)
    use(whole)  # type: ignore[operator]
    shutil.rmtree(whole)


def main(kind: str, folder: Path, *wanted: str) -> None:
    """wanted: how the names of the damages begin; all without them."""
    name, use = {"activations": ("data.mdb", use_activations), "database": ("data.db", use_database)}[kind]
    data = (folder / "whole" / name).read_bytes()
    imported(use, folder)
    for damage, changed in damages(data):
        if wanted and not damage.startswith(wanted):
            continue
        copy = folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / "whole", copy)
        (copy / name).write_bytes(changed)
        sys.stdout.write(f"{damage}\t{ended(use, copy)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
