"""What was seen under attack, each fault by the requests that caused it, against one server with the demo model."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi")

from espalier.store.open import open_store
from tests.hostile.bodies import LARGE, doubling, text_of
from tests.hostile.report import ATTACKER, KEYS, VICTIM, children_of
from tests.server_process import DEMO, PATIENT, ServerProcess, resident_bytes, serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="CPU time is read from /proc")]
PLAIN = {"prompt": "Once upon a time", "max_tokens": 40}
STREAM = PLAIN | {"stream": True, "ignore_eos": True}
ITEMS = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 300}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    (folder / "keys.toml").write_text(KEYS, encoding="utf-8")
    env = {"API_KEYS_FILE": str(folder / "keys.toml"), "LOG_LEVEL": "WARNING", "DRAIN_SECONDS": "2"}
    with serving("-m", str(DEMO), cwd=folder, env=env) as found:
        yield found


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def attack(server: ServerProcess, body: Any, path: str = "/v1/completions") -> httpx2.Response:
    # Ten seconds of CPU time at most: minutes on a machine that many share.
    return server.post(path, body, headers=bearer(ATTACKER), timeout=600)


def streamed(server: ServerProcess, body: Any, key: str, path: str = "/v1/completions") -> list[str]:
    """The data of all events."""
    with httpx2.stream("POST", server.url + path, json=body, headers=bearer(key), timeout=600) as reply:
        assert reply.status_code == 200, reply.read()
        return [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]


def check_victim(server: ServerProcess) -> None:
    """A stream of another key has its end, and is not told of a limit."""
    found = streamed(server, STREAM, VICTIM)
    assert found[-1] == "[DONE]"
    assert not any(line.startswith('{"error"') for line in found)


@contextlib.contextmanager
def clients_that_leave(server: ServerProcess, body: Any, *, count: int) -> Iterator[None]:
    """Send, wait for the first bytes of a stream, or a while, and hang up."""

    def act() -> None:
        with contextlib.suppress(httpx2.HTTPError):
            httpx2.post(f"{server.url}/v1/completions", json=body, headers=bearer(ATTACKER), timeout=1.5)

    threads = [threading.Thread(target=act, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(60)


def cpu_of(server: ServerProcess) -> float:
    """CPU seconds of the server and of its worker processes, those that have ended among them: what one has used before
    is not to count for the request at which it ends."""
    left, ticks = [server.pid], 0
    while left:
        pid = left.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            left += children_of(pid)
    return ticks / 100


def test_a_long_array_of_unique_items_is_no_dead_end(server: ServerProcess) -> None:
    body = PLAIN | {"json_schema": ITEMS, "temperature": 0.8, "seed": 3}
    reply = attack(server, body)
    assert reply.status_code == 200, reply.text
    text = reply.json()["choices"][0]["text"]
    done = text.lstrip("[ ").split(",")[:-1]
    assert len(set(map(int, done))) == len(done) > 1
    assert streamed(server, body | {"stream": True}, ATTACKER)[-1] == "[DONE]"


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_bans_leave_nothing_of_is_an_error_of_the_request(server: ServerProcess, is_stream: bool) -> None:
    """Bans of another field than the constraint's, known only while the text is made."""
    body = PLAIN | {
        "espalier": {
            "constraint": {
                "kind": "all_of",
                "members": [{"kind": "regex", "pattern": "(ab)*c"}, {"kind": "ban", "phrases": ["a", "c"]}],
            }
        }
    }
    if not is_stream:
        reply = attack(server, body)
        assert 400 <= reply.status_code < 500, reply.text
        return
    with httpx2.stream(
        "POST", f"{server.url}/v1/completions", json=body | {"stream": True}, headers=bearer(ATTACKER), timeout=600
    ) as reply:
        text = reply.read().decode()
    assert '"error"' in text
    assert "server_error" not in text


@pytest.mark.parametrize("levels", [18, 20, 22, 30])
def test_schemas_whose_references_double_take_no_threads(server: ServerProcess, levels: int) -> None:
    """Line 1, three at once: llguidance took 3.6, 14 and over 40 s for the first ones, and 6 GB for the last, without
    a limit."""
    before, held = cpu_of(server), resident_bytes(server.pid)
    replies: list[httpx2.Response] = []

    def act() -> None:
        replies.append(attack(server, PLAIN | {"json_schema": doubling(levels), "espalier": {"allow": "checked"}}))

    threads = [threading.Thread(target=act, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    check_victim(server)
    for thread in threads:
        thread.join(600)
    assert [reply.status_code for reply in replies] == [200] * 3, replies[0].text[:300]
    assert cpu_of(server) - before < 20
    assert resident_bytes(server.pid) - held < 500_000_000
    check_victim(server)


def test_verdicts_whose_clients_left_keep_nobody(server: ServerProcess) -> None:
    """Line 2: eight requests with a schema whose verdict takes a lifetime."""
    body = PLAIN | {"json_schema": doubling(19), "max_tokens": 200}
    with clients_that_leave(server, body, count=8):
        check_victim(server)
    check_victim(server)


def saved_large_trace(server: ServerProcess, folder: Path) -> str:
    """The id of a trace of the attacker, of 900 steps: thirty are made, and these many times over. Making all would be
    half of the test's time."""
    made = attack(
        server, PLAIN | {"max_tokens": 30, "ignore_eos": True, "logprobs": 5, "espalier": {"trace": "steps"}}
    ).json()
    small = made["choices"][0].get("trace_id") or made["espalier"]["outputs"][0]["trace_id"]
    trace = server.get(f"/traces/{small}", headers=bearer(ATTACKER)).json()
    steps = [one | {"index": at} for at, one in enumerate(trace["steps"] * 30)]
    with contextlib.closing(open_store(f"sqlite:///{folder}/espalier.db")) as store:
        return store.save_trace(trace | {"steps": steps}, request_id="large", caller="attacker", index=0)


def test_readers_of_a_large_trace_end_nobody_else(server: ServerProcess, folder: Path) -> None:
    """Line 3: sixty parallel reads of one's own trace; the other key is neither ended nor refused nor charged.

    Each read takes most of a second of CPU time, so the victim has what it wanted long before all are answered: then
    all readers but one leave. None leaves and comes again before: on a busy machine reads would only ever begin."""
    trace = saved_large_trace(server, folder)
    host, _, port = server.url.removeprefix("http://").partition(":")
    asked = f"GET /traces/{trace} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ATTACKER}\r\nconnection: close\r\n\r\n"
    with contextlib.ExitStack() as readers:
        first, *others = [
            readers.enter_context(socket.create_connection((host, int(port)), timeout=600)) for _ in range(60)
        ]
        for reader in (first, *others):
            reader.sendall(asked.encode())
        check_victim(server)
        schema = {"type": "object", "properties": {"fresh": {"type": "string", "pattern": "^[a-q]{1,5}$"}}}
        reply = server.post("/v1/completions", PLAIN | {"json_schema": schema}, headers=bearer(VICTIM), timeout=600)
        assert reply.status_code == 200, reply.text
        for reader in others:
            reader.close()
        with first.makefile("rb") as answer:
            found = answer.read()
    assert found.startswith(b"HTTP/1.1 200 ")
    assert len(found) > 2_000_000


RARE = [chr(0x4E00 + i) for i in range(20_000)]
COSTLY: dict[str, tuple[str, Callable[[], Any]]] = {
    "line 1: multiples of 999983": (
        "/v1/completions",
        lambda: (
            PLAIN | {"json_schema": {"type": "integer", "multipleOf": 999983, "minimum": -(10**18), "maximum": 10**18}}
        ),
    ),
    "a filter of 1900 rare letters": (
        "/v1/chat/completions",
        lambda: {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 5,
            "espalier": {
                "safety": {"patterns": [{"regex": "".join(RARE[:1900])}, {"regex": "|".join(RARE[2000:2900])}]}
            },
        },
    ),
    "a filter of 4000 phrases of rare letters": (
        "/v1/chat/completions",
        lambda: {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 5,
            "espalier": {"safety": {"patterns": ["".join(RARE[5 * i : 5 * i + 5]) for i in range(4000)]}},
        },
    ),
    "line 4: a pattern of two classes": (
        "/v1/completions",
        lambda: PLAIN | {"structured_outputs": {"regex": r"\p{L}{900}.*\p{N}{500}"}},
    ),
    "line 4: pieces of 1.9 MB": ("/tokenize", lambda: {"content": text_of(LARGE), "with_pieces": True}),
    "line 6: a long safety expression": (
        "/v1/chat/completions",
        lambda: {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 5,
            "espalier": {"safety": {"patterns": [{"regex": "a" * 2001}]}},
        },
    ),
    "line 6: a long phrase": (
        "/v1/chat/completions",
        lambda: {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 5,
            "espalier": {"safety": {"patterns": ["a" * 1001]}},
        },
    ),
    "line 6: safety of another kind": (
        "/v1/chat/completions",
        lambda: {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 5,
            "espalier": {"safety": {"kind": "regex", "pattern": "a"}},
        },
    ),
    "line 6: a language of 5000 letters": (
        "/v1/chat/completions",
        lambda: {
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 5,
            "vocab_lang": "x" * 5000,
            "vocab_n_words": 100,
        },
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_request_has_its_answer_in_bounded_cpu_time(server: ServerProcess, name: str) -> None:
    path, body = COSTLY[name]
    before = cpu_of(server)
    reply = attack(server, body(), path)
    assert reply.status_code in (200, 400), reply.text[:300]
    if name.startswith("line 6") and reply.status_code != 200:
        assert reply.json()["error"]["param"]
    assert cpu_of(server) - before < 20
    check_victim(server)


def test_streams_that_the_drain_cuts_are_told_so(tmp_path: Path) -> None:
    """Line 6: past the drain a stream gets the promised event, and the process ends."""
    command = [sys.executable, "-c", PATIENT, "serve"]
    with serving("-m", str(DEMO), cwd=tmp_path, env={"DRAIN_SECONDS": "0.5"}, command=command) as server:
        body = STREAM | {"max_tokens": 1900, "n": 4}
        with httpx2.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as reply:
            lines = reply.iter_lines()
            seen = [next(lines)]
            server.process.terminate()
            seen += lines
        found = [line.removeprefix("data: ") for line in seen if line.startswith("data: ")]
        assert json.loads(found[-1])["error"]["code"] == "unavailable"
        server.wait()
