"""Commands that start fast: a process that has imported Espalier and torch forks one child for each command.

`WarmShell` gives a folder with the programs `espalier` and `python` for the PATH of a shell. Each sends its arguments,
its folder, its environment and its three streams to the process, and ends with the child's exit code. So a script runs
as written, in a real shell, and a command costs what it does, not what importing costs. `python` does this for script
files; any other use of it starts Python anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
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
    from scripts.compile_kernels import main as load_kernels

    assert torch.get_num_threads() == 1
    assert transformers.__version__
    load_kernels()


def read(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(link, 8, 3)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += link.recv(size - len(data))
    return json.loads(data), list(streams)


def answer(asked: dict[str, Any], streams: list[int]) -> None:
    """Becomes the command: its streams, folder, environment and arguments. Ends the process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if asked["program"] == "python":
        sys.argv = asked["arguments"]
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit(0)
    from espalier.cli.main import run

    sys.argv = ["espalier", *asked["arguments"]]
    run()


if __name__ == "__main__":
    main(sys.argv[1])
