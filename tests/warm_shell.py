"""Commands that start fast: a process that has imported Espalier and torch forks one child for each command.

`warm_shell` gives a folder with the programs `espalier` and `python` for the PATH of a shell. Each sends its
arguments, its folder, its environment and its three streams to the process, hands on the signals that ask it to end,
and ends as the child does. So a script runs as written, in a real shell, and a command costs what it does, not what
importing costs, nor what taking apart all that was imported costs at the end: four times as much as most commands.
`python` does this for script files and for `-c`; any other use of it starts Python anew.

What is not installed, or hidden from the process by its environment, is not imported: a command fails by it as it would
in a process of its own. So this module imports nothing but the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("torch", "transformers", "transformers.models.llama.modeling_llama", "llama_cpp", "fastapi", "uvicorn")
"""What commands import of others: most of the time that they take to start."""
OURS = ("espalier.api", "espalier.engines.huggingface", "espalier.store.open", "espalier.server.apps")
READY = b"ready\n"
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
program = {program!r}
if program == "python" and not (len(sys.argv) > 1 and (sys.argv[1] == "-c" or sys.argv[1].endswith(".py"))):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
asked = {{"program": program, "arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
data = json.dumps(asked).encode()
socket.send_fds(link, [len(data).to_bytes(8, "big")], [0, 1, 2])
link.sendall(data)
child = int.from_bytes(link.recv(8), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(child, number))
said = link.recv(2)
code = int.from_bytes(said, "big", signed=True) if said else 70
if code < 0:  # of a signal: this process ends by the same one
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def warm_shell(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Path]:
    """The folder of the programs; the process ends when the context does. folder: an empty one, with a short path.
    environment: of the process that imports, where not the usual one of tests; its commands load the kernels that they
    run, which may have to be compiled there."""
    from tests.server_process import clean_environment

    address = str(folder / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm_shell", address, "kernels" if environment is None else ""],
        cwd=ROOT,
        # With more threads torch would not survive a fork.
        env={**(clean_environment() if environment is None else environment), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        if process.stdout.readline() != READY:
            raise AssertionError(f"the process that runs commands ended with {process.wait()}")
        programs = folder / "bin"
        programs.mkdir()
        for program, name in (("espalier", "espalier"), ("python", "python"), ("python", "python3")):
            path = programs / name
            path.write_text(CLIENT.format(python=sys.executable, program=program, address=address), encoding="utf-8")
            path.chmod(0o755)
        yield programs
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def main(address: str, kernels: str) -> None:
    """Listens, and forks twice for each command: the first child waits for the second, which runs it."""
    warm(with_kernels=bool(kernels))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, READY)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the first children
        while True:
            link, _ = listening.accept()
            if os.fork():
                link.close()
                continue
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked, streams = read(link)
            child = os.fork()
            if child:
                link.sendall(child.to_bytes(8, "big"))
                _, status = os.waitpid(child, 0)
                link.sendall(os.waitstatus_to_exitcode(status).to_bytes(2, "big", signed=True))
                os._exit(0)
            link.close()
            answer(asked, streams)


def warm(*, with_kernels: bool) -> None:
    """Imports what commands import, and loads the kernels where asked. No model runs here: its threads would not
    survive a fork."""
    sys.path.remove(str(ROOT))  # the folder where this process began, which is no command's
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from espalier.cli.doctor import GROUPS
    from espalier.cli.table import COMMANDS

    for name in (*OURS, *(f"espalier.cli.{entry.target.partition(':')[0]}" for entry in COMMANDS.values())):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "torch" not in sys.modules or sys.modules["torch"].get_num_threads() == 1
    for group in GROUPS if with_kernels else ():
        group.load()
    gc.collect()
    gc.freeze()  # no collection of a child looks at it again, which would copy all of its pages


def read(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(link, 8, 3)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += link.recv(size - len(data))
    return json.loads(data), list(streams)


def answer(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """Becomes the command: its streams, folder, environment and arguments. Ends the process as Python does, after what
    it does at its end, but leaves what was imported to the operating system."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    code = 1
    try:
        run(asked["program"], asked["arguments"])
        code = 0
    except SystemExit as ended:
        code = code_of(ended)
    except BaseException:  # noqa: BLE001  # shown, as Python would
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120
    os._exit(code)


def run(program: str, arguments: list[str]) -> None:
    if program == "python":
        sys.argv = arguments
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            sys.path.insert(0, "")
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
            return
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")
        return
    from espalier.cli.main import run as espalier

    sys.argv = ["espalier", *arguments]
    espalier()


def code_of(ended: SystemExit) -> int:
    """The exit code that Python makes of it."""
    if ended.code is None or isinstance(ended.code, int):
        return (ended.code or 0) & 0xFF
    sys.stderr.write(f"{ended.code}\n")
    return 1


if __name__ == "__main__":
    main(*sys.argv[1:])
