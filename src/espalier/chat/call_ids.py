"""The ids of calls: how they are made, and which are of our making."""

from __future__ import annotations

import hashlib
import re

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
ID_LENGTH = 9
"""Mistral's templates accept exactly nine letters or digits; the others accept anything."""
_OWN_ID = re.compile(rf"[A-Za-z0-9]{{{ID_LENGTH}}}")


def call_id(prompt: str, seed: int, index: int) -> str:
    """The id of a call: equal for equal runs, different for another prompt, seed or index."""
    digest = hashlib.blake2b(f"{seed} {index} {prompt}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(ID_LENGTH):
        number, place = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[place])
    return "".join(letters)


def is_own_id(value: object) -> bool:
    """Whether a call with this id may be one of ours. One without an id may be: some APIs have none."""
    return value is None or (isinstance(value, str) and _OWN_ID.fullmatch(value) is not None)
