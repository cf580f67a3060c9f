"""What the x-ray remembers of a server."""

from __future__ import annotations

from espalier.tokens.vocab import Vocab
from espalier.upstream.xray import known
from espalier.upstream.xray.known import KEPT, ServerTokens


def test_a_grammar_in_steady_use_was_read_again_after_many_others(monkeypatch) -> None:
    read: list[str] = []
    compiled = known.compile_program
    monkeypatch.setattr(known, "compile_program", lambda grammar, **more: read.append("") or compiled(grammar, **more))
    here = ServerTokens(Vocab.bytes())
    for number in range(2 * KEPT):
        here.borrow('root ::= "a"')  # and not given back: another request has it still
        here.borrow(f'root ::= "{number}"')
    assert len(read) == 2 * KEPT + 1
