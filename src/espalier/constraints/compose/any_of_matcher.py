"""The matcher of `AnyOf`: members in parallel, of which one is enough. It knows no kind of constraint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.matching.parallel import CompiledParallel, ParallelMatcher
from espalier.constraints.spec import Spec
from espalier.errors import InputError
from espalier.tokens.trie import TokenTrie


class CompiledAnyOf(CompiledParallel):
    """Members of which one is enough, in their order."""

    def __init__(self, spec: Spec, names: Sequence[str], members: Sequence[Compiled], trie: TokenTrie) -> None:
        super().__init__(spec, names, members)
        self.trie = trie

    def matcher(self, *, before: str = "") -> AnyOfMatcher:
        """See `Compiled.matcher`. Members that refuse what the prompt holds are left out. Raises InputError if every
        member does."""
        matchers: list[Matcher | None] = []
        faults: list[InputError] = []
        for member in self.members:
            try:
                matchers.append(member.matcher(before=before))
            except InputError as error:
                matchers.append(None)
                faults.append(error)
        if len(faults) == len(matchers):
            raise faults[0]
        return AnyOfMatcher(self, matchers)

    def accepts(self, text: str | bytes) -> bool:
        return any(member.accepts(text) for member in self.members)


class AnyOfMatcher(ParallelMatcher[CompiledAnyOf]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ()

    def forced(self) -> tuple[int, ...]:
        """The common prefix of the members' forced tokens: first as tokens, then as bytes."""
        first, *rest = [member.forced() for member in self._living()]
        if not rest or not first:
            return first
        same = _shared_length([first, *rest])
        texts = [self._text(tokens[same:]) for tokens in (first, *rest)]
        spelled = self._compiled.trie.segment(texts[0][: _shared_length(texts)])
        return self._viable((*first[:same], *(spelled or ())))

    def _viable(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens up to the first that a member refuses: where bytes are missing, not every spelling is allowed."""
        probe = self.fork()
        for count, token in enumerate(tokens):
            if not all(member.allows(token) for member in probe._living()):
                return tokens[:count]
            probe.advance(token)
        return tokens

    def _text(self, tokens: Sequence[int]) -> bytes:
        """The bytes up to the first token that has none."""
        text = bytearray()
        for token in tokens:
            data = self._vocab.bytes_of(token)
            if not data:
                break
            text += data
        return bytes(text)


def _shared_length(sequences: Sequence[Sequence[int]]) -> int:
    """The length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda items: len(set(items)) == 1, zip(*sequences, strict=False)))
