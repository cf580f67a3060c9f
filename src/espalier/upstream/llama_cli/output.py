"""Reads what llama-completion leaves: the text on stdout, the token ids in its session file, counts on stderr.

Its log goes through a thread that is not waited for at exit (llama.cpp issue 22142), so that the end of stdout, or all
of it, may be lost although it exits with 0. Its last line, which names the session file, shows that nothing is missing.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from espalier.errors import UpstreamError
from espalier.upstream.llama_cli.pieces import Pieces

ENDED = b" [end of text]\n"
MAGIC = 0x6767736E  # "ggsn"
MOST_TOKENS = 2**24


class ProgramOutput(NamedTuple):
    """text: without a half character at its end. ended: whether the model ended it itself."""

    text: str
    ended: bool


def read_text(
    out: bytes, session: Path | None, ids: tuple[int, ...], ends: Collection[int], piece: Pieces
) -> ProgramOutput | None:
    """The text on stdout; None where part of it is lost. session: the file that it was told to save, whose name it
    prints last; None if it has no sessions. ids: of the whole session. ends: ids that the file names as ends of a
    text; llama.cpp knows others by their names. piece: the bytes of an id. Raises UpstreamError for a text that is not
    UTF-8."""
    if session is None:
        if not out.endswith(b"\n\n"):
            return None
        body = out[:-2]
    else:
        marker = rb"\n\w+: saving final output to session file '" + re.escape(str(session).encode()) + rb"'\n+\Z"
        match = re.search(marker, out)
        if match is None:
            return None
        body = out[: match.start()]
    # The text itself may end with these words: then the last token is a part of them, and no end.
    last = piece(ids[-1]) if ids and ids[-1] not in ends else None
    ended = body.endswith(ENDED) and not (last and body.endswith(last))
    if ended:
        body = body.removesuffix(ENDED)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return ProgramOutput(decoder.decode(body), ended)
    except UnicodeDecodeError as error:
        raise UpstreamError("the program wrote a text that is not UTF-8") from error


def read_session(path: Path) -> tuple[int, ...]:
    """Token ids of prompt and text from a session file; () where there is none, or one of another version."""
    try:
        with path.open("rb") as file:
            head = file.read(12)
            if len(head) < 12:
                return ()
            magic, _, count = struct.unpack("<III", head)
            if magic != MAGIC or count > MOST_TOKENS:
                return ()
            data = file.read(4 * count)
    except OSError:
        return ()
    return struct.unpack(f"<{count}i", data) if len(data) == 4 * count else ()


def generated(ids: tuple[int, ...], err: bytes) -> tuple[int, ...]:
    """The ids of the text among those of the session; () where the timings on stderr do not tell how many they are,
    since stderr may be lost too."""
    prompt = re.search(rb"prompt eval time\s*=.*?/\s*(\d+) tokens", err)
    runs = re.search(rb"(?<!prompt )eval time\s*=.*?/\s*(\d+) runs", err)
    if prompt is None or runs is None:
        return ()
    # With a session file the prompt's last token is run alone, as the first of these runs; the text's last is not run.
    count = int(runs[1])
    return ids[-count:] if count > 0 and int(prompt[1]) + count == len(ids) - 1 else ()


def reason(err: bytes) -> str:
    """What stderr says of a failure: the lines that speak of an error, or the last one."""
    lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"error|failed|what\(\)", line, re.IGNORECASE)]
    return "; ".join((told or lines)[-2:]) or "it says nothing"
