"""Forced tokens: what every completion of the text so far starts with.

It knows a machine and a vocabulary, and nothing of EOS.
"""

from __future__ import annotations

from espalier.automata.masks.machine import Machine, State
from espalier.tokens.trie import TokenTrie

FORCED_BYTES = 512
"""The longest forced run that is looked for, in bytes and named tokens."""


def forced(machine: Machine, trie: TokenTrie, state: State) -> tuple[int, ...]:
    """Tokens that spell the bytes with which every completion continues; `()` if there is a choice, or no spelling."""
    tokens: list[int] = []
    data = bytearray()
    at = state
    for _ in range(FORCED_BYTES):
        if machine.accepts(at):
            break
        members, refs = machine.options(at)
        if members and not refs and not members & (members - 1):
            byte = members.bit_length() - 1
            data.append(byte)
            after = machine.step(at, byte)
        elif not members and len(refs) == 1 and len(ids := machine.reference(refs[0])[1]) == 1:
            token = int(ids[0])
            head = trie.segment(bytes(data))
            after = machine.advance(at, token)
            if head is None or after is None:
                break
            tokens += [*head, token]
            data.clear()
        else:
            break
        at = after
    tokens += trie.segment(bytes(data)) or ()
    at = state
    for count, token in enumerate(tokens):
        at = machine.advance(at, token)
        if at is None:
            return tuple(tokens[:count])
    return tuple(tokens)
