"""Headers of messages in channels, as gpt-oss writes them: what stands between `<|start|>` and `<|message|>`."""

from __future__ import annotations

import re
from typing import NamedTuple

START, CHANNEL, CONSTRAIN, MESSAGE, END = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END)
"""The special tokens that are part of a turn's text."""
OPENING = f"{START}assistant"
"""Begins each message of the model's; the prompt holds the first one."""
BORDER = f"{END}{START}"
"""Between two messages."""
ANALYSIS, COMMENTARY, FINAL = "analysis", "commentary", "final"
"""Channels: reasoning, calls and messages about them to the user, the answer."""
ANSWER = f"{CHANNEL}{FINAL}{MESSAGE}"
"""The header of an answer."""
MAX_HEADER = 500
"""Characters of a header; a longer text is none."""
_ROLE = re.compile(r"\s*(?!to=)([\w.]*)")
_CHANNEL = re.compile(r"<\|channel\|>\s*([^\s<]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class MessageHeader(NamedTuple):
    """Whose message it is, where it goes, and to which tool; "" for what the header does not say."""

    role: str
    channel: str
    recipient: str

    @property
    def is_thought(self) -> bool:
        return self.channel == ANALYSIS and not self.recipient

    @property
    def is_last(self) -> bool:
        """Whether it is an answer, behind which no message follows: its text may quote the format."""
        return self.channel not in (ANALYSIS, COMMENTARY) and not self.recipient


def read_header(text: str) -> MessageHeader:
    """The header as a value. text: up to `<|message|>`."""
    header = text.removeprefix(START)
    matches = (_ROLE.match(header), _CHANNEL.search(header), _RECIPIENT.search(header))
    return MessageHeader(*("" if match is None else match[1] for match in matches))


def begins_header(text: str) -> bool | None:
    """Whether the first text of a turn begins with a header; None while that is open."""
    bare = text.lstrip()
    for beginning in ("<|", "to="):
        if bare.startswith(beginning):
            return True
        if beginning.startswith(bare):
            return None
    return False


def message_begun(before: str) -> str:
    """What a prompt holds of a message behind its opening; "" for a prompt that holds no opening."""
    _, opening, rest = before.rpartition(OPENING)
    return rest if opening else ""


def header_begun(before: str) -> str:
    """What a prompt holds of the header of the model's message, complete or not."""
    header, message, _ = message_begun(before).partition(MESSAGE)
    return header + message


def opens_message(text: str) -> bool:
    """Whether a prompt ends within a message of the model's."""
    _, opening, rest = text.rpartition(OPENING)
    return bool(opening) and END not in rest
