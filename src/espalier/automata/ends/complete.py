"""Ways to the end of the text: a shortest one in tokens, and what every way begins with.

It knows a machine and a vocabulary, and nothing of EOS.
"""

from __future__ import annotations

from espalier.automata.languages.nfa import bytes_in
from espalier.automata.masks.machine import Machine, State
from espalier.errors import LimitExceeded, VocabError
from espalier.time_limit import check as check_time
from espalier.tokens.trie import TokenTrie

MAX_LENGTH = 100_000
"""Bytes and named tokens in a completion."""
MAX_WALKS = 300
"""States whose successors are looked at. Past that the way that is shortest in bytes stands."""
FORCED_BYTES = 512


def shortest(machine: Machine, trie: TokenTrie, state: State, *, max_walks: int = MAX_WALKS) -> tuple[int, ...]:
    """A sequence of tokens to acceptance, `()` if it is reached already.

    The shortest there is, found level by level, unless `max_walks` is met first: then the fewest tokens that spell
    the fewest bytes. Raises LimitExceeded, or VocabError if neither finds one.
    """
    if machine.accepts(state):
        return ()
    best = spelled(machine, trie, state)
    seen = {state}
    level: list[tuple[State, tuple[int, ...]]] = [(state, ())]
    walks = 0
    longest = trie.max_depth
    while level:
        following: list[tuple[State, tuple[int, ...]]] = []
        for current, taken in level:
            # One more token must lead to the end, or leave room for it below the best way known.
            if best is not None and len(taken) + max(1, -(-machine.least(current) // longest)) >= len(best):
                continue
            if walks == max_walks:
                if best is None:
                    raise LimitExceeded("no completion was found within the limit on states")
                return best
            walks += 1
            check_time()
            for token, after in machine.successors(current):
                if after in seen:
                    continue
                seen.add(after)
                if machine.accepts(after):
                    return (*taken, token)
                following.append((after, (*taken, token)))
        level = following
    if best is None:
        raise VocabError("no sequence of tokens completes the text")
    return best


def spelled(machine: Machine, trie: TokenTrie, state: State) -> tuple[int, ...] | None:
    """The completion of fewest bytes and named tokens, spelled with the fewest tokens; None if none spell it."""
    if machine.least(state) > MAX_LENGTH:
        raise LimitExceeded(f"the shortest completion has more than {MAX_LENGTH} bytes")
    found: list[int] = []
    data = bytearray()
    at = state
    while machine.least(at) > 0:
        check_time()
        members, refs = machine.options(at)
        wanted = machine.least(at) - 1
        for byte in bytes_in(members):
            after = machine.step(at, byte)
            if after is not None and machine.least(after) == wanted:
                data.append(byte)
                at = after
                break
        else:
            tokens = trie.segment(bytes(data))
            if tokens is None:
                return None
            found += tokens
            data.clear()
            token, at = named(machine, at, refs, wanted)
            found.append(token)
    tokens = trie.segment(bytes(data))
    if tokens is None:
        return None
    found += tokens
    # The spelling must be allowed as it stands: where bytes are missing, not every token may end where it does.
    at = state
    for token in found:
        at = machine.advance(at, token)
        if at is None:
            return None
    return tuple(found)


def named(machine: Machine, state: State, refs: tuple[int, ...], wanted: int) -> tuple[int, State]:
    """A token that is taken by its name and leads to where at most `wanted` bytes and named tokens are left."""
    for ref in refs:
        for token in machine.reference(ref)[1].tolist():
            after = machine.advance(state, token)
            if after is not None and machine.least(after) <= wanted:
                return token, after
    raise AssertionError("a state is further from the end than all that follow it")


def forced(machine: Machine, trie: TokenTrie, state: State) -> tuple[int, ...]:
    """Tokens that spell what every completion goes on with; `()` if there is a choice, or no spelling."""
    found: list[int] = []
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
            found += [*head, token]
            data.clear()
        else:
            break
        at = after
    found += trie.segment(bytes(data)) or ()
    at = state
    for count, token in enumerate(found):
        at = machine.advance(at, token)
        if at is None:
            return tuple(found[:count])
    return tuple(found)
