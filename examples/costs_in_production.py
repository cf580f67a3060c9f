"""Find the schema that fights the model, where, since when, and what helps: a server, its answers, `espalier costs`.

Four schemas are asked for, half of the requests before a change of the system prompt and half after it. `Capital` calls
a property otherwise than the model does, all the time; `User` begins to cost when its prompt changes. Sums are kept by
hour, so the first half is moved a day back in the store, as if the prompt had changed today.

    python examples/costs_in_production.py [how many requests, 2000] [folder that the store and the patch stay in]
"""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STREAMS = 8
MODEL = "models/demo/demo.gguf"
DAY = 86_400


def record(title: str, **properties: object) -> dict[str, object]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


TEXT = {"type": "string", "maxLength": 40}
USER = record("User", name=TEXT, email=TEXT, age={"type": "integer", "minimum": 0, "maximum": 120})
CAPITAL = record("Capital", result=TEXT)
CITY = record("City", answer=TEXT)
WEATHER = record("Weather", name={"const": "get_weather"}, args=record("Arguments", city=TEXT))
PLACES = ["France", "Japan", "Norway", "Spain", "Italy", "Peru", "Chile", "Kenya"]
CAPITALS = [f"What is the capital of {place}? Answer in JSON." for place in PLACES]
TRAFFIC = [
    (USER, ["Generate user info"], ("", "Think before you answer.")),
    (CAPITAL, CAPITALS, ("", "")),
    (CITY, CAPITALS, ("", "")),
    (WEATHER, [f"What is the weather in {place}?" for place in PLACES], ("", "")),
]
"""Of each schema the prompts, and the system prompt before the change and after it."""


def main(requests: int, folder: Path) -> None:
    database = folder / "costs.db"
    port = free_port()
    command = [sys.executable, "-m", "espalier", "serve", "--model", MODEL, "--port", str(port), "--trace", "steps"]
    settings = os.environ | {"DATABASE_URL": f"sqlite:///{database}"}
    with (folder / "server.log").open("w") as log, subprocess.Popen(command, stderr=log, env=settings) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_ready(server, address)
            ask_all(address, requests // 2, 0)
            move_back(database, DAY)
            ask_all(address, requests - requests // 2, 1)
        finally:
            server.terminate()
    run = CommandLine(database)
    listed = json.loads(run.read("list", "--since", "2d", "--json"))
    prints = {row["title"]: row["fingerprint"] for row in listed if row["fingerprint"]}
    run.show("list", "--since", "2d")
    run.show("show", prints["Capital"], "--since", "2d")
    run.show("diff", prints["User"], "--before", "2d..12h", "--after", "12h..now", "--limit", "20")
    patch = folder / "edits.json"
    run.show("try", prints["Capital"], "--n", "8", "--model", MODEL, "--patch", str(patch))
    print(f"\n$ head {patch.name}\n{patch.read_text(encoding='utf-8')[:400]}")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_until_ready(server: "subprocess.Popen[bytes]", address: str) -> None:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health"):
                return
        except OSError:  # it reads the model
            time.sleep(0.2)
    raise SystemExit("the server did not start: see server.log")


def ask_all(address: str, count: int, phase: int) -> None:
    """Send so many requests, each schema as often as the others."""
    with ThreadPoolExecutor(STREAMS) as pool:
        answers = list(pool.map(lambda number: ask(address, number, phase), range(count)))
    print(f"{len(answers)} answers, {sum(answers)} tokens")


def ask(address: str, number: int, phase: int) -> int:
    schema, prompts, systems = TRAFFIC[number % len(TRAFFIC)]
    prompt = prompts[number // len(TRAFFIC) % len(prompts)]
    messages = [{"role": "system", "content": systems[phase]}] if systems[phase] else []
    body = {
        "messages": [*messages, {"role": "user", "content": prompt}],
        "response_format": {"type": "json_schema", "json_schema": {"name": str(schema["title"]), "schema": schema}},
        "max_tokens": 100,
        "seed": number,
    }
    url, headers = f"{address}/v1/chat/completions", {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
        return int(json.load(reply)["usage"]["completion_tokens"])


def move_back(database: Path, seconds: int) -> None:
    """Make all sums and traces so much older."""
    with sqlite3.connect(database) as connection:
        for table, moment in (
            ("cost_sums", "hour"),
            ("tax_bins", "hour"),
            ("path_sums", "hour"),
            ("wanted_tokens", "day"),
        ):
            connection.execute(f"UPDATE {table} SET {moment} = {moment} - {seconds}")
        connection.execute(f"UPDATE traces SET created = created - {seconds}")


class CommandLine:
    """`espalier costs` over one store, at 80 columns."""

    def __init__(self, database: Path) -> None:
        self._database = f"sqlite:///{database}"

    def read(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "espalier", "costs", *arguments, "--database", self._database]
        settings = os.environ | {"COLUMNS": "80"}
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=settings).stdout

    def show(self, *arguments: str) -> None:
        print(f"\n$ espalier costs {' '.join(arguments)}")
        print(self.read(*arguments), end="")


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    if len(sys.argv) > 2:
        Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
        main(wanted, Path(sys.argv[2]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(wanted, Path(temporary))
