"""Ordinary text and code by templates, for what a safety filter sets off where there is nothing to catch.

Nobody wrote it before, so nobody's licence is on it: seeded templates give prose, mail, tables of numbers, logs, shell
sessions, configuration and code of several languages, with numbers, paths, options and keys as they stand in ordinary
work. It knows no pattern. Equal seeds give equal texts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

WHO = ("Amina", "Jonas", "the reviewer", "our neighbour", "Dr. Okafor", "the team", "Li Wei", "somebody", "the caller")
DID = ("repaired", "described", "measured", "sold", "returned", "printed", "translated", "counted", "photographed")
WHAT = (
    "the old bicycle",
    "a report on rainfall",
    "two maps",
    "the harbour lights",
    "bath bombs",
    "the password rules",
    "an account of the trial",
    "the secret garden",
    "a card game",
    "the index",
    "a bank of clouds",
)
WHERE = ("in the library", "near the station", "before lunch", "at 14:30", "on page 212", "in March 2024", "by hand")
NOUN = ("order", "user", "invoice", "token", "session", "branch", "image", "queue", "record", "sample", "card", "key")
VERB = ("load", "save", "parse", "count", "remove", "merge", "render", "check", "send", "build")
FILES = ("main.py", "notes.txt", "build/output.log", "src/lib.rs", "data/2024-03-01.csv", "Makefile", "~/.profile")
HOW = (
    "bread",
    "a paper boat",
    "a bookshelf",
    "good coffee",
    "a small database",
    "friends abroad",
    "a quilt",
    "methods",
)


def corpus(size: int, seed: int = 0) -> dict[str, str]:
    """By kind, texts of at least `size` bytes together, in equal parts."""
    stream = random.Random(seed)
    part = -(-size // len(KINDS))
    found = {}
    for name, write in KINDS.items():
        pieces, length = [], 0
        while length < part:
            pieces.append(write(stream))
            length += len(pieces[-1].encode())
        found[name] = "".join(pieces)
    return found


def _number(stream: random.Random, digits: int) -> str:
    return str(stream.randrange(10 ** (digits - 1), 10**digits))


def _prose(stream: random.Random) -> str:
    said = [
        f"{stream.choice(WHO)} {stream.choice(DID)} {stream.choice(WHAT)} {stream.choice(WHERE)}.",
        f"It took {stream.randrange(2, 90)} minutes, and the bill came to ${stream.uniform(5, 900):.2f}.",
        f"If you ask how to make {stream.choice(HOW)}, {stream.choice(WHO)} will know.",
        f"Use sudo with care, they wrote; the {stream.choice(NOUN)} of {_number(stream, 4)} was lost that way.",
        f'"Keep the {stream.choice(NOUN)} secret," said {stream.choice(WHO)}, "and remember the password."',
        f"Call extension {_number(stream, 4)} or write to room {_number(stream, 3)}, {_number(stream, 5)} Springfield.",
        f"Between 19{_number(stream, 2)} and 20{_number(stream, 2)} some {_number(stream, 7)} people moved there.",
    ]
    stream.shuffle(said)
    return " ".join(said[: stream.randrange(3, 7)]).capitalize() + "\n\n"


def _numbers(stream: random.Random) -> str:
    rows = []
    for _ in range(8):
        date = f"20{_number(stream, 2)}-{stream.randrange(1, 13):02}-{stream.randrange(1, 29):02}"
        columns = [
            date,
            _number(stream, 6),
            f"{stream.uniform(-99, 99):.4f}",
            f"{stream.randrange(10**6):,}",
            f"{stream.randrange(256)}.{stream.randrange(256)}.0.{stream.randrange(256)}",
            _number(stream, stream.randint(1, 12)),
            f"#{_number(stream, 5)}",
            f"{stream.random()}",
        ]
        rows.append((" | " if stream.random() < 0.5 else ",").join(columns))
    return "\n".join(rows) + "\n"


def _log(stream: random.Random) -> str:
    stamp = f"2024-0{stream.randrange(1, 10)}-1{stream.randrange(10)}T{stream.randrange(10, 24)}:07:17"
    return stream.choice(
        (
            f"{stamp}Z INFO {stream.choice(NOUN)} id={_number(stream, 8)} took {stream.random() * 9:.3f}s\n",
            f"{stamp}Z WARN retry {stream.randrange(9)} of 9 for {stream.getrandbits(128):032x}\n",
            f"{stamp}Z DEBUG {stream.choice(VERB)} {stream.choice(FILES)}: {_number(stream, 10)} bytes\n",
            f"{stamp}Z ERROR no such {stream.choice(NOUN)}: {_number(stream, 13)}\n",
        )
    )


def _shell(stream: random.Random) -> str:
    return stream.choice(
        (
            f"$ ls -la {stream.choice(FILES)} | sort -k{stream.randrange(1, 9)} | head -n {_number(stream, 2)}\n",
            f"$ rm {stream.choice(FILES)}\n",
            f"$ rm -r build && mkdir -p build/{stream.choice(NOUN)}\n",
            f"$ chmod +x {stream.choice(FILES)}; chmod 644 {stream.choice(FILES)}\n",
            'for f in $(ls *.txt); do echo "$f: $(wc -l < "$f")"; done\n',
            f"$ curl -sS https://example.org/{stream.choice(NOUN)}/{_number(stream, 6)} -o {stream.choice(FILES)}\n",
            f"$ git log --oneline | grep {stream.choice(VERB)} | wc -l\n",
            f"```bash\ntar -xzf {stream.choice(NOUN)}-{_number(stream, 2)}.tar.gz && make -j4\n```\n",
            f"$ export {stream.choice(NOUN).upper()}_URL=https://example.org PASSWORD=$(cat secret.txt)\n",
        )
    )


def _config(stream: random.Random) -> str:
    name = stream.choice(NOUN)
    return stream.choice(
        (
            json.dumps({name: {"id": stream.randrange(10**9), "password": None, "api_key": "", "on": True}}) + "\n",
            json.dumps({"type": "object", "properties": {"password": {"type": "string"}, name: {}}}) + "\n",
            f"{name}:\n  password: ${{{name.upper()}_PASSWORD}}\n  port: {_number(stream, 4)}\n  retries: 3\n",
            f'[{name}]\napi_key = "{{{{ api_key }}}}"\ntimeout = {stream.randrange(90)}\nsecret = "<yours>"\n',
            f"{name.upper()}_SECRET=$SECRET\n{name.upper()}_TOKEN_COUNT={_number(stream, 3)}\npasswd=\n",
        )
    )


def _python(stream: random.Random) -> str:
    verb, noun = stream.choice(VERB), stream.choice(NOUN)
    return (
        f"def {verb}_{noun}({noun}s, limit={_number(stream, 3)}, password=None, api_key=''):\n"
        f'    """{verb.capitalize()} every {noun}; see `{stream.choice(VERB)}_{stream.choice(NOUN)}` too."""\n'
        f"    found = [one for one in {noun}s if one.id != {_number(stream, 9)} and not one.is_{stream.choice(NOUN)}]\n"
        f"    connect(user=config.user, password=config.password, secret_key=settings.SECRET_KEY)\n"
        f"    if not password or len(password) < {stream.randrange(6, 16)}:\n"
        f"        raise ValueError(f'the password of {{{noun}s}} is too short')\n"
        f"    return eval_{noun}(found[:limit]) or pattern.exec_all(found)\n\n"
    )


def _script(stream: random.Random) -> str:
    verb, noun = stream.choice(VERB), stream.choice(NOUN)
    return (
        f"async function {verb}{noun.title()}(id = {_number(stream, 6)}) {{\n"
        f"  const {noun} = await fetch(`/api/{noun}s/${{id}}`, {{ headers: {{ 'X-Token': token }} }});\n"
        f"  const match = /{noun}-([0-9]+)/.exec({noun}.url);\n"
        f"  $('#{noun}').text(`${{match[1]}} of ${{total || {_number(stream, 2)}}}`);\n"
        f"  return {noun}.ok ? {noun}.json() : null; // {stream.choice(WHO)} {stream.choice(DID)} it\n}}\n\n"
    )


def _query(stream: random.Random) -> str:
    noun, other = stream.choice(NOUN), stream.choice(NOUN)
    return (
        f"SELECT {noun}_id, count(*) FROM {other}s WHERE name = '{stream.choice(WHO)}' OR n > {_number(stream, 3)}\n"
        f"  AND day BETWEEN '2024-01-0{stream.randrange(1, 10)}' AND '2024-12-31' GROUP BY {noun}_id;\n"
        f"INSERT INTO {noun}s VALUES ({_number(stream, 8)}, 'x', NULL); -- drop the table by hand later\n"
    )


KINDS: dict[str, Callable[[random.Random], str]] = {
    "prose": _prose,
    "numbers": _numbers,
    "logs": _log,
    "shell": _shell,
    "configuration": _config,
    "Python": _python,
    "JavaScript": _script,
    "SQL": _query,
}
