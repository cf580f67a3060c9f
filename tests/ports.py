"""Free ports of this machine, for programs that have to be told one.

A port that the kernel chooses lies where it also takes those of outgoing connections from, and tests make hundreds a
second: another one has it before the program listens.
"""

from __future__ import annotations

import contextlib
import random
import socket

CHOSEN_FROM = range(20_000, 30_000)
"""Below those that Linux gives to outgoing connections, and none that a program of ours takes by itself."""


def free_port() -> int:
    """One where nobody listens, and where nobody will but by chance."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(CHOSEN_FROM)
        with socket.socket() as bound, contextlib.suppress(OSError):
            bound.bind(("127.0.0.1", port))
            return port
