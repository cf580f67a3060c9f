"""Tries each extra alone, in a fresh environment: `python scripts/try_extras.py --python python3.12 server mcp`.

It builds the wheel, makes one virtual environment for each interpreter and extra, installs the wheel with the extra and
the pinned versions, and runs every command in `PROBES`. A command must do its work where its extras are installed, and
otherwise name the missing one in a line. It needs a package index; `tests/acceptance/test_extras.py` runs the same
commands without one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 600
"""Seconds for one command on a busy machine."""
GGUF = str(ROOT / "models" / "demo" / "demo.gguf")
LOAD = "import espalier; print(espalier.load({!r}).generate('hi', max_tokens=4).text)"
OPEN_STORE = "from espalier.activations.store.base import ActivationStore as A; A('store', write=True).close()"
CASES = '{"cases": [{"name": "a", "prompt": "Generate user info", "iterations": 1}]}'
PROMPTS = '{"prompt": "Generate user info"}\n'
INITIALIZE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
    '"capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}}}\n'
)


class Probe(NamedTuple):
    """One command. `python` runs the interpreter with `-c`; everything else is a command of `espalier`."""

    arguments: tuple[str, ...]
    #: The extras it needs.
    needs: tuple[str, ...] = ()
    stdin: str = ""
    #: A text on stderr at which a command that serves is ended: it serves.
    serves: str | None = None
    environment: Mapping[str, str] = {}


SERVER, HUGGING, LLAMA = "server", "transformers", "llamacpp"
SHORT = ("--max-tokens", "4")
PROBES = {
    "generate": Probe(("generate", *SHORT, "hi"), (HUGGING,)),
    "generate GGUF": Probe(("generate", "-m", GGUF, *SHORT, "hi"), (LLAMA,)),
    "generate fake": Probe(("generate", "-m", "fake", *SHORT, "--trace", "fake.json", "hi")),
    "explain": Probe(("explain", "hi", "--json-object", "--max-tokens", "40"), (HUGGING,)),
    "chat": Probe(("chat", *SHORT), (HUGGING,), "hi\n"),
    "test": Probe(("test", "cases.json"), (HUGGING,)),
    "tax-card": Probe(("tax-card", "--seeds", "1", "--max-tokens", "4"), (HUGGING,)),
    "load": Probe(("python", LOAD.format(None)), (HUGGING,)),
    "load GGUF": Probe(("python", LOAD.format(GGUF)), (LLAMA,)),
    "LogitsProcessor": Probe(("python", "import espalier.integrations.transformers"), (HUGGING,)),
    "trace": Probe(("trace", "show", "fake.json")),
    "trace html": Probe(("trace", "html", "fake.json", "page.html")),
    "check": Probe(("check", "examples/user.schema.json")),
    "grammar": Probe(("grammar", "check", "examples/arithmetic.gbnf")),
    "wordlist list": Probe(("wordlist", "list")),
    "wordlist build": Probe(("wordlist", "build", "de", "-n", "100", "-o", "de.txt"), ("wordlists",)),
    "safety": Probe(("safety", "check", "echo hello", "--preset", "minimal")),
    "vocab": Probe(("vocab", str(ROOT / "models" / "demo")), (HUGGING,)),
    "presets": Probe(("presets", "list")),
    "plugins": Probe(("plugins",)),
    "doctor": Probe(("doctor",)),
    "config": Probe(("config", "show"), (SERVER,)),
    "logs": Probe(("logs", "list"), (SERVER,)),
    "costs": Probe(("costs", "list"), (SERVER,)),
    "batch": Probe(("batch", "run", "-i", "prompts.jsonl", "-o", "out.jsonl"), (SERVER, HUGGING)),
    "batch to Parquet": Probe(
        ("batch", "run", "-i", "prompts.jsonl", "-o", "out.parquet"), (SERVER, HUGGING, "parquet")
    ),
    "serve": Probe(("serve", "--port", "0"), (SERVER, HUGGING), serves='"ready"'),
    "serve GGUF": Probe(("serve", "-m", GGUF, "--port", "0"), (SERVER, LLAMA), serves='"ready"'),
    "serve, PostgreSQL": Probe(
        ("serve", "-m", "fake", "--port", "0"),
        (SERVER, "postgres"),
        serves="cannot be reached",
        environment={"DATABASE_URL": "postgresql://127.0.0.1:9/none"},
    ),
    "serve, spans": Probe(
        ("serve", "-m", "fake", "--port", "0"),
        (SERVER, "otel"),
        serves='"ready"',
        environment={"OTEL": "true", "OTEL_TRACES_EXPORTER": "console"},
    ),
    "serve --ray": Probe(
        ("serve", "-m", "fake", "--ray", "--address", "127.0.0.1:9"), (SERVER, "ray"), serves="127.0.0.1:9"
    ),
    "proxy": Probe(
        ("proxy", "--llama-url", "http://127.0.0.1:9", "--port", "0", "--no-save"),
        (SERVER,),
        serves="Application startup complete",
    ),
    "mcp": Probe(("mcp",), (SERVER, "mcp", HUGGING), INITIALIZE),
    "activations capture": Probe(
        ("activations", "capture", "hi", "--store", "states", *SHORT), ("activations", HUGGING)
    ),
    "activations list": Probe(("python", OPEN_STORE), ("activations",)),
}
INCLUDED = {"postgres": (SERVER,), "mcp": (SERVER,), "ray": (SERVER, "otel")}
"""Extras that bring another one. Ray itself brings what `otel` imports."""


def run(probe: Probe, programs: Path, folder: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command; a command that serves has 0 if it came so far, and is ended then."""
    first, *rest = probe.arguments
    command = [programs / "python", "-c", *rest] if first == "python" else [programs / "espalier", first, *rest]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, **probe.environment},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            text=True,
        )
        if probe.serves is None:
            process.communicate(probe.stdin, timeout=LIMIT)
            code = process.returncode
        else:
            assert process.stdin is not None
            process.stdin.close()
            code = _watch(process, Path(f"/proc/self/fd/{err.fileno()}"), probe.serves)
        for stream in (out, err):
            stream.seek(0)
        return code, out.read(), err.read()


def _watch(process: subprocess.Popen[str], log: Path, text: str) -> int:
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        code = process.poll()
        if text in log.read_text(encoding="utf-8"):
            if code is None:
                process.terminate()
                process.wait(LIMIT)
            return 0
        if code is not None:
            return code
        time.sleep(0.02)
    process.kill()
    process.wait()
    return -1


def judge(probe: Probe, installed: set[str], done: tuple[int, str, str]) -> str:
    """`works`, `names EXTRA`, or `FAULT: …`."""
    code, _, err = done
    missing = [extra for extra in probe.needs if extra not in installed]
    lines = [line for line in err.splitlines() if not line.startswith(("compiling ", "using "))]
    if not missing:
        return "works" if code == 0 and "Traceback" not in err else f"FAULT: exit {code}: {err[-300:]}"
    if "serves at" in err or ("Traceback" in err and probe.arguments[0] != "python") or code == 0:
        return f"FAULT: exit {code}: {err[-300:]}"
    text = lines[-1] if probe.arguments[0] == "python" else "\n".join(lines)
    named = re.search(r"is not installed: it comes with the extra `(\w+)`", text)
    if named is None or named[1] not in missing or "pip install " not in text or text.count("\n") > 1:
        return f"FAULT: {text[-300:]}"
    return f"names {named[1]}"


def prepare(folder: Path) -> None:
    """The files that the commands read, in the folder where they run."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "cases.json").write_text(CASES)
    (folder / "prompts.jsonl").write_text(PROMPTS)


def environment_for(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """An environment in which nothing leads to the source tree, a model hub, or the user's files."""
    kept = {name: text for name, text in inherited.items() if not name.startswith(("PYTHON", "ESPALIER_", "OTEL_"))}
    return {**kept, "HF_HUB_OFFLINE": "1", "HOME": str(folder), "NO_COLOR": "1", "DO_NOT_TRACK": "1"}


def main() -> int:
    import os  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("extras", nargs="*", help="extras to try; none: `base` (no extra) and each of them")
    parser.add_argument("--python", action="append", help="interpreters [default: the one that runs this]")
    asked = parser.parse_args()
    from espalier.distribution import EXTRAS  # noqa: PLC0415

    faults = 0
    with tempfile.TemporaryDirectory(prefix="espalier-extras-") as name:
        top = Path(name)
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", top, ROOT], check=True, stdout=subprocess.DEVNULL
        )
        (wheel,) = top.glob("*.whl")
        for python in asked.python or [sys.executable]:
            for extra in asked.extras or ["base", *EXTRAS]:
                faults += try_extra(python, extra, wheel, top, os.environ)
    return min(faults, 1)


def try_extra(python: str, extra: str, wheel: Path, top: Path, inherited: Mapping[str, str]) -> int:
    """Print a line for each command; returns how many had a fault."""
    folder = Path(tempfile.mkdtemp(dir=top))
    environment = folder / "venv"
    subprocess.run([python, "-m", "venv", environment], check=True)
    pip: Sequence[str | Path] = [environment / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    what = str(wheel) if extra == "base" else f"espalier-llm[{extra}] @ {wheel.as_uri()}"
    done = subprocess.run([*pip, what], capture_output=True, text=True, check=False)
    title = f"{Path(python).name} {extra}"
    if done.returncode:
        print(f"{title}: FAULT: it cannot be installed: {done.stderr[-600:]}", flush=True)
        return 1
    prepare(folder)
    installed = {extra, *INCLUDED.get(extra, ())}
    faults = 0
    for name, probe in PROBES.items():
        verdict = judge(probe, installed, run(probe, environment / "bin", folder, environment_for(folder, inherited)))
        faults += verdict.startswith("FAULT")
        print(f"{title:<28}{name:<20}{verdict}", flush=True)
    shutil.rmtree(folder)
    return faults


if __name__ == "__main__":
    sys.exit(main())
