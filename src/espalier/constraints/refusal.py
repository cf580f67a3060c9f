"""What every matcher raises when it is advanced by a token that it forbids."""

from __future__ import annotations

from espalier.errors import TokenRefused
from espalier.tokens.vocab import Vocab


def refusal(vocab: Vocab, token: int, kind: str, *, is_finished: bool) -> TokenRefused:
    """kind: of the constraint. is_finished: the text has ended already. The token may be outside the vocabulary."""
    shown = vocab.text_of(token) if 0 <= token < vocab.width else "?"
    reason = "the text has ended" if is_finished else f"{kind} forbids it here"
    return TokenRefused(f"token {token} ({shown!r}) is refused: {reason}")
