"""Commands that start fast: a process that has imported Espalier and torch forks one child for each command.

`WarmShell` gives a folder with the programs `espalier` and `python` for the PATH of a shell. Each sends its arguments,
its folder, its environment and its three streams to the process, and ends with the child's exit code. So a script runs
as written, in a real shell, and a command costs what it does, not what importing costs, nor what taking apart all that
was imported costs at the end: four times as much as most commands. `python` does this for script files; any other use
of it starts Python anew.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from tests.server_process import ROOT, clean_environment

READY = b"ready\n"
CLIENT = """#!{python} -IS
import json, os, socket, sys
program = {program!r}
if program == "python" and not (len(sys.argv) > 1 and sys.argv[1].endswith(".py")):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
asked = {{"program": program, "arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
data = json.dumps(asked).encode()
socket.send_fds(link, [len(data).to_bytes(8, "big")], [0, 1, 2])
link.sendall(data)
code = link.recv(1)
sys.exit(code[0] if code else 70)
"""


@contextlib.contextmanager
def warm_shell(folder: Path) -> Iterator[Path]:
    """The folder of the programs; the process ends when the context does. folder: an empty one, with a short path."""
    address = str(folder / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm_shell", address],
        cwd=ROOT,
        env=clean_environment(),
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


def main(address: str) -> None:
    """Listens, and forks twice for each command: the first child waits for the second, which runs it."""
    warm()
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
                _, status = os.waitpid(child, 0)
                code = os.waitstatus_to_exitcode(status)
                link.sendall(bytes([code if code >= 0 else 128 - code]))
                os._exit(0)
            link.close()
            answer(asked, streams)


def warm() -> None:
    """Imports what commands import, and loads the kernels. No model runs here: its threads would not survive a fork."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM  # noqa: F401

    import espalier.api
    import espalier.cli.generate
    import espalier.engines.huggingface
    import espalier.store.open  # noqa: F401
    from espalier.cli.doctor import GROUPS

    assert torch.get_num_threads() == 1
    assert transformers.__version__
    for group in GROUPS:
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
    main(sys.argv[1])
