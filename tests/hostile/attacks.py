"""The table of attacks: requests that are costly, large, malformed or badly behaved, each sent by several clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.hostile import bodies
from tests.hostile.bodies import GRAMMARS, LARGE, REGEXES, SCHEMAS, bias, text_of
from tests.hostile.neighbours import INITIALIZE, endless_upstream, mcp_sessions, parquet_bomb
from tests.hostile.sockets import (
    Behaviour,
    idlers,
    leaves,
    locked_store,
    new_schemas,
    plain,
    raw,
    reads_own_traces,
    slow_reader,
)

PLAIN = {"prompt": "Once upon a time", "max_tokens": 40}
CHAT = {"messages": [{"role": "user", "content": "Generate user info"}], "max_tokens": 60}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """body: what each of `count` clients sends to `path`, as bytes or as JSON; made when it is needed. behaves: how a
    client sends it and what it does then. times: how often each client does so. lasts: seconds that it takes at least,
    where attackers of others leave earlier."""

    name: str
    path: str = "/v1/completions"
    method: str = "POST"
    body: Callable[[], Any] = lambda: None
    count: int = 6
    times: int = 1
    behaves: Behaviour = plain
    headers: dict[str, str] = field(default_factory=dict)
    lasts: float = 0.0


def _of(family: str, cases: dict[str, Any], wrap: Callable[[Any], Any], **more: Any) -> Iterator[Attack]:
    for name, case in cases.items():
        yield Attack(name=f"{family}: {name}", body=lambda case=case: wrap(case), **more)


def _constraint(**spec: Any) -> Callable[[], Any]:
    return lambda: PLAIN | {"espalier": {"constraint": spec}}


def _asked(**more: Any) -> Callable[[], Any]:
    return lambda: PLAIN | more


def _espalier(**more: Any) -> Callable[[], Any]:
    return lambda: CHAT | {"response_format": {"type": "json_object"}, "espalier": more}


def _head(extra: bytes, path: bytes = b"/version") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\n" + extra + b"connection: close\r\n\r\n"


PAGE = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
DOUBLING = bodies.doubling(20)
HEAVY = [{"kind": "regex", "pattern": f"(?:[a-z]{{{n}}})*(a|b)*a(a|b){{12}}"} for n in (31, 37, 41)]
TOOLS = [
    {"type": "function", "function": {"name": f"tool{i}", "parameters": bodies.many_properties(30)}} for i in range(128)
]

ATTACKS: tuple[Attack, ...] = (
    *_of("schema", SCHEMAS, lambda schema: PLAIN | {"json_schema": schema, "espalier": {"allow": "checked"}}),
    *_of("regex", REGEXES, lambda pattern: PLAIN | {"structured_outputs": {"regex": pattern}}),
    *_of("grammar", GRAMMARS, lambda text: PLAIN | {"grammar": text}),
    Attack(name="schema: distinct ones", body=_asked(max_tokens=8), behaves=new_schemas(), count=9, times=200),
    # The same costs by other ways.
    Attack(
        name="way: doubling references in a chat",
        path="/v1/chat/completions",
        body=lambda: (
            CHAT | {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": DOUBLING}}}
        ),
    ),
    Attack(
        name="way: doubling references in a tool",
        path="/v1/chat/completions",
        body=lambda: (
            CHAT
            | {
                "tool_choice": "required",
                "tools": [{"type": "function", "function": {"name": "t", "parameters": DOUBLING}}],
            }
        ),
    ),
    Attack(
        name="way: doubling references in all of",
        body=_constraint(kind="all_of", members=[{"kind": "json_schema", "schema": DOUBLING}, {"kind": "json_object"}]),
    ),
    Attack(
        name="way: doubling references on llama.cpp's route",
        path="/completion",
        body=lambda: {"prompt": "a", "n_predict": 20, "json_schema": DOUBLING},
    ),
    Attack(name="way: 128 tools", path="/v1/chat/completions", body=lambda: CHAT | {"tools": TOOLS}),
    Attack(name="way: all of three heavy ones", body=_constraint(kind="all_of", members=HEAVY)),
    Attack(
        name="way: any of fifty",
        body=_constraint(
            kind="any_of", members=[{"kind": "regex", "pattern": f"[a-z]{{1,{i + 200}}}x{i}"} for i in range(50)]
        ),
    ),
    Attack(
        name="way: a closing budget on a heavy grammar",
        body=lambda: PLAIN | {"grammar": GRAMMARS["9000 rules"], "espalier": {"on_budget": "close"}},
    ),
    Attack(
        name="way: schema in the prompt",
        path="/v1/chat/completions",
        body=lambda: (
            CHAT
            | {
                "espalier": {
                    "schema_in_prompt": True,
                    "constraint": {"kind": "json_schema", "schema": bodies.objects(3000)},
                }
            }
        ),
    ),
    Attack(
        name="verdict: sixteen outputs of doubling references",
        body=lambda: PLAIN | {"json_schema": bodies.doubling(17), "n": 16, "max_tokens": 150},
        count=2,
    ),
    Attack(
        name="verdict: clients leave before it",
        body=lambda: PLAIN | {"json_schema": bodies.doubling(19), "max_tokens": 200},
        count=8,
        behaves=leaves(1.0),
    ),
    # Words, bans and filters.
    Attack(
        name="words: a language of 5000 letters",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"vocab_lang": "x" * 5000, "vocab_n_words": 100},
    ),
    Attack(
        name="words: hard lists of every size",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"vocab_lang": "es", "vocab_n_words": 20000, "num_beams": 1},
    ),
    Attack(
        name="words: soft lists",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"vocab_lang": "de", "vocab_n_words": 20000, "vocab_constraint_mode": "soft"},
    ),
    Attack(
        name="words: 20000 given words", body=_constraint(kind="wordlist", words=[f"w{i * 31}" for i in range(20000)])
    ),
    Attack(name="ban: 5000 phrases", body=_constraint(kind="ban", phrases=[f"phrase {i}" for i in range(5000)])),
    Attack(name="ban: one phrase of 900 letters", body=_constraint(kind="ban", phrases=["ab" * 450])),
    Attack(
        name="bad words of 1.9 MB",
        path="/v1/completions",
        body=lambda: PLAIN | {"bad_words": [f"bad {i}" for i in range(LARGE // 14)]},
    ),
    Attack(
        name="safety: an expression of 2500 letters",
        path="/v1/chat/completions",
        body=_espalier(safety={"patterns": [{"regex": "[a-z]" * 500}]}),
    ),
    Attack(
        name="safety: a phrase of 1500 letters",
        path="/v1/chat/completions",
        body=_espalier(safety={"patterns": ["a" * 1500]}),
    ),
    Attack(
        name="safety: a costly expression",
        path="/v1/chat/completions",
        body=_espalier(safety={"patterns": [{"regex": "(?:[a-z]{1,30}[0-9]{1,30}){1,30}"}]}),
    ),
    Attack(name="safety: the strictest preset", path="/v1/chat/completions", body=_espalier(safety="strict")),
    Attack(
        name="safety: of another kind",
        path="/v1/chat/completions",
        body=_espalier(safety={"kind": "regex", "pattern": "a"}),
    ),
    # Bodies.
    Attack(name="body: logit_bias of 1.9 MB", body=lambda: PLAIN | {"logit_bias": bias(LARGE)}),
    Attack(name="body: a prompt of 1.9 MB", body=lambda: PLAIN | {"prompt": text_of(LARGE)}),
    Attack(
        name="body: a message of 1.9 MB",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"messages": [{"role": "user", "content": text_of(LARGE)}]},
    ),
    Attack(
        name="body: a thousand messages",
        path="/v1/chat/completions",
        body=lambda: (
            CHAT | {"messages": [{"role": ("user", "assistant")[i % 2], "content": text_of(1500)} for i in range(999)]}
        ),
    ),
    Attack(
        name="body: stop strings of 1.9 MB", body=lambda: PLAIN | {"stop": [f"stop{i}" for i in range(LARGE // 14)]}
    ),
    Attack(name="body: stop strings of 100 kB each", body=lambda: PLAIN | {"stop": ["ab" * 50_000] * 4}),
    Attack(name="body: token ids of 1.9 MB", body=lambda: PLAIN | {"prompt": [5] * (LARGE // 3)}),
    Attack(name="body: nested 127 times", body=lambda: b'{"a":' * 126 + b"1" + b"}" * 126),
    Attack(name="body: nested 600000 times", body=lambda: b"[" * 600_000),
    Attack(name="body: NaN and infinities", body=lambda: b'{"prompt": NaN, "temperature": Infinity}'),
    Attack(name="body: keys twice", body=lambda: b"{" + b",".join([b'"prompt":"a"'] * 100_000) + b"}"),
    Attack(name="body: 100000 unknown fields", body=lambda: PLAIN | {f"f{i}": i for i in range(100_000)}),
    Attack(name="body: a number of 1.9 MB", body=lambda: b'{"prompt":' + b"9" * LARGE + b"}"),
    Attack(name="body: escapes of 1.9 MB", body=lambda: b'{"prompt":"' + b"\\u0000" * (LARGE // 6) + b'"}'),
    Attack(name="body: quotes of 1.9 MB", body=lambda: b'{"prompt":"' + b'\\"' * (LARGE // 2) + b'"}'),
    Attack(name="body: a string without an end", body=lambda: b'{"prompt":"' + b"\\\\" * (LARGE // 2 - 10)),
    Attack(name="body: no UTF-8", body=lambda: b'{"prompt":"' + b"\xff" * LARGE + b'"}'),
    Attack(name="body: another media type", body=lambda: b"x" * LARGE, headers={"content-type": "text/plain"}),
    Attack(name="body: too large", body=lambda: b"x" * (2 * LARGE)),
    Attack(
        name="body: chat_template_kwargs of 1.9 MB",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"chat_template_kwargs": {f"v{i}": "x" * 20 for i in range(LARGE // 34)}},
    ),
    Attack(
        name="body: metadata of 1.9 MB",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"metadata": {f"v{i}": "x" * 20 for i in range(LARGE // 34)}},
    ),
    # Tokens and templates.
    Attack(
        name="tokens: 1.9 MB with pieces",
        path="/tokenize",
        body=lambda: {"content": text_of(LARGE), "with_pieces": True},
    ),
    Attack(name="tokens: 1.9 MB", path="/tokenize", body=lambda: {"content": text_of(LARGE)}),
    Attack(name="tokens: one letter 1.9 million times", path="/tokenize", body=lambda: {"content": "a" * LARGE}),
    Attack(name="tokens: spaces", path="/tokenize", body=lambda: {"content": " " * LARGE}),
    Attack(name="tokens: emoji", path="/tokenize", body=lambda: {"content": "👩‍👩‍👧‍👦" * (LARGE // 100)}),
    Attack(name="tokens: special tokens", path="/tokenize", body=lambda: {"content": "<s></s>" * (LARGE // 7)}),
    Attack(
        name="tokens: strings in vLLM's form",
        path="/tokenize",
        body=lambda: {"prompt": text_of(LARGE), "return_token_strs": True},
    ),
    Attack(name="tokens: back to text", path="/detokenize", body=lambda: {"tokens": [300] * (LARGE // 5)}),
    Attack(
        name="tokens: a template of 1.9 MB",
        path="/apply-template",
        body=lambda: CHAT | {"messages": [{"role": "user", "content": text_of(LARGE)}]},
    ),
    # Generating.
    Attack(name="generating: sixteen long outputs", body=_asked(n=16, max_tokens=300, ignore_eos=True), count=4),
    Attack(name="generating: beams", path="/v1/chat/completions", body=_espalier(strategy="beam", num_beams=8)),
    Attack(name="generating: smc", path="/v1/chat/completions", body=_espalier(strategy="smc", particles=8)),
    Attack(name="generating: best_of", path="/v1/chat/completions", body=_espalier(strategy="best_of", particles=8)),
    Attack(name="generating: awrs", path="/v1/chat/completions", body=_espalier(strategy="awrs", particles=4)),
    Attack(name="generating: jump", path="/v1/chat/completions", body=_espalier(strategy="jump")),
    Attack(
        name="generating: rejection of what is improbable",
        body=lambda: PLAIN | {"structured_outputs": {"regex": "[ﬀ-ﬆ]{30}"}, "espalier": {"strategy": "rejection"}},
    ),
    # Sequences, not requests, are what one key takes: four requests of 64 each.
    Attack(
        name="generating: smc with 64 particles",
        path="/v1/chat/completions",
        body=_espalier(strategy="smc", particles=64),
        count=4,
        times=3,
    ),
    Attack(
        name="generating: best_of with 64 particles",
        path="/v1/chat/completions",
        body=_espalier(strategy="best_of", particles=64),
        count=4,
        times=3,
    ),
    Attack(
        name="generating: 64 beams",
        path="/v1/chat/completions",
        body=_espalier(strategy="beam", num_beams=64),
        count=4,
        times=3,
    ),
    Attack(name="generating: 64 beams of vLLM's field", body=_asked(use_beam_search=True, n=16), count=4, times=3),
    Attack(name="generating: log probabilities", body=_asked(logprobs=5, max_tokens=300, ignore_eos=True)),
    Attack(
        name="generating: penalties",
        body=_asked(frequency_penalty=2, presence_penalty=2, repetition_penalty=1.9, max_tokens=300, ignore_eos=True),
    ),
    Attack(
        name="generating: JSON mode, deep",
        path="/v1/chat/completions",
        body=lambda: CHAT | {"response_format": {"type": "json_object"}, "max_tokens": 400, "temperature": 2},
    ),
    Attack(name="generating: a flood of small requests", body=_asked(max_tokens=2), count=12, times=20),
    Attack(name="generating: full context", body=lambda: PLAIN | {"prompt": text_of(2500), "max_tokens": 300}),
    Attack(
        name="generating: mixed texts and ids",
        path="/completion",
        body=lambda: {"prompt": ["a", 5] * 20_000, "n_predict": 5},
    ),
    # Traces.
    Attack(
        name="traces: eight with steps",
        body=_asked(max_tokens=300, ignore_eos=True, espalier={"trace": "steps"}),
        count=8,
    ),
    Attack(name="traces: sixty readers of one's own", behaves=reads_own_traces("", 60), count=1),
    Attack(name="traces: twenty readers of a page", behaves=reads_own_traces("/page", 20), count=1),
    Attack(name="traces: lists", path="/traces?limit=100", method="GET", count=12, times=10),
    Attack(name="traces: what is not there", path="/traces/trc_0000000ygj0a98ctdkh7f8bdpdw", method="DELETE", times=20),
    Attack(
        name="traces: into a locked store", body=_asked(espalier={"trace": "steps"}), behaves=locked_store(2.5), count=8
    ),
    # Connections.
    Attack(name="connection: two hundred that say nothing", behaves=raw(b"", waits=1.5), count=200),
    Attack(
        name="connection: a head that drips",
        behaves=raw(b"POST / HTTP/1.1\r\nhost: a\r\nx: ", drips=b"a", waits=1.5),
        count=50,
    ),
    Attack(
        name="connection: a body that drips",
        behaves=raw(
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 900\r\n\r\n{",
            drips=b" ",
            waits=1.5,
        ),
        count=50,
    ),
    Attack(name="connection: opened and closed", behaves=raw(b"", waits=0), count=10, times=40),
    Attack(name="connection: half closed", behaves=raw(_head(b""), closes=True), count=10, times=10),
    Attack(name="connection: two hosts", behaves=raw(_head(b"host: evil\r\n")), count=10, times=5),
    Attack(name="connection: a head of 60 kB", behaves=raw(_head(b"x: " + b"a" * 60_000 + b"\r\n")), count=10, times=5),
    Attack(name="connection: a head of 600 kB", behaves=raw(_head(b"x: " + b"a" * 600_000 + b"\r\n")), count=6),
    Attack(
        name="connection: 5000 headers", behaves=raw(_head(b"".join(b"x%d: a\r\n" % i for i in range(5000)))), count=6
    ),
    Attack(
        name="connection: a hundred pipelined",
        behaves=raw(_head(b"").replace(b"connection: close\r\n", b"") * 100 + _head(b"")),
        count=4,
    ),
    Attack(name="connection: random bytes", behaves=raw(bytes(range(256)) * 2000), count=10),
    Attack(
        name="connection: leaves while compiling",
        body=lambda: PLAIN | {"structured_outputs": {"regex": REGEXES["900 of two classes"]}},
        behaves=leaves(0.2),
        count=20,
        times=3,
    ),
    Attack(
        name="connection: leaves while generating",
        body=_asked(max_tokens=900, ignore_eos=True, stream=True),
        behaves=leaves(0.2),
        count=20,
        times=3,
    ),
    Attack(
        name="connection: leaves at once",
        body=_asked(max_tokens=900, ignore_eos=True),
        behaves=leaves(0.0),
        count=20,
        times=5,
    ),
    Attack(
        name="connection: streams that nobody reads",
        body=_asked(n=8, max_tokens=300, ignore_eos=True, stream=True, logprobs=5),
        behaves=slow_reader(2.0),
        count=6,
    ),
    Attack(
        name="connection: large replies that nobody reads",
        path="/tokenize",
        body=lambda: {"content": text_of(600_000), "with_pieces": True},
        behaves=slow_reader(2.0),
        count=4,
    ),
    Attack(name="connection: 1,500 that say nothing", behaves=idlers(250, waits=2.5), count=6),
    # Outsiders: pages of other origins, and names that lead here.
    Attack(
        name="origin: a page that uploads",
        path="/v1/files",
        body=lambda: bodies.form(b'{"custom_id": "a"}'),
        headers=PAGE | {"content-type": "multipart/form-data; boundary=x"},
        count=10,
        times=20,
    ),
    Attack(
        name="origin: a page that asks as text",
        body=_asked(max_tokens=400),
        headers=PAGE | {"content-type": "text/plain"},
        count=10,
        times=20,
    ),
    Attack(
        name="origin: a name without a dot",
        path="/v1/models",
        method="GET",
        headers={"host": "evil"},
        count=10,
        times=20,
    ),
    Attack(
        name="origin: a page that calls tools",
        path="/mcp",
        body=lambda: INITIALIZE,
        headers=PAGE | {"content-type": "text/plain"},
        count=10,
        times=20,
    ),
    # Beside the server: what other commands of ours do under attack, on the same machine.
    Attack(name="mcp: one key takes all sessions", behaves=mcp_sessions(105), count=1, lasts=150),
    Attack(name="proxy: a server that sends one endless line", behaves=endless_upstream(clients=4), count=1, lasts=150),
    Attack(name="batch: a Parquet file of 600 bytes", behaves=parquet_bomb(40_000, 1_000_000), count=1, lasts=150),
    # Uploads: what is over the quota of a key, and forms that are none.
    *_of(
        "upload",
        {"files of 10 MB": 10_000_000, "files of nothing": 1},
        lambda size: bodies.form(b"x" * size),
        path="/v1/files",
        headers={"content-type": "multipart/form-data; boundary=x"},
        count=6,
        times=20,
    ),
    Attack(
        name="upload: a boundary of 60,000 bytes",
        path="/v1/files",
        body=lambda: b"--b",
        headers={"content-type": "multipart/form-data; boundary=" + "b" * 60_000},
        count=6,
        times=20,
    ),
    # Other routes.
    Attack(name="route: slots", path="/slots", method="GET", count=10, times=20),
    Attack(name="route: metrics", path="/metrics", method="GET", count=10, times=20),
    Attack(name="route: the OpenAPI document", path="/openapi.json", method="GET", count=10, times=10),
    Attack(name="route: the playground", path="/", method="GET", count=10, times=20),
    Attack(name="route: presets", path="/espalier/presets", method="GET", count=10, times=20),
    Attack(name="route: paths of 30 kB", path="/" + "a/" * 15_000, method="GET", count=10, times=5),
    Attack(
        name="route: queries of 30 kB",
        path="/traces?" + "&".join(f"a{i}={i}" for i in range(3000)),
        method="GET",
        times=5,
    ),
    Attack(
        name="route: wrong keys",
        path="/v1/models",
        method="GET",
        headers={"authorization": "Bearer " + "x" * 30_000},
        count=10,
        times=20,
    ),
)
