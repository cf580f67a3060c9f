"""An engine over a scripted model that thinks: markers as special tokens, as single tokens of text, or as letters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import espalier
from espalier.chat.prompt.template import ChatTemplate
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.tokens.mask import Logits
from espalier.tokens.vocab import Vocab

TURN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]"
MODEL_OPENS = TURN + "{% endif %}"
PROMPT_OPENS = TURN + "<think>\n{% endif %}"
SWITCHED = (
    TURN + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
MARKERS = ("<think>", "</think>")
EOS, BORDER = "<|end|>", "<|border|>"


def thinking_engine(
    wish: str, template: str = PROMPT_OPENS, *, specials: Sequence[str] = (), pieces: Sequence[str] = ()
) -> espalier.LoadedEngine:
    """A model that writes `wish`, then EOS. specials: special tokens. pieces: further tokens of text."""
    spellings = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in pieces]
    special_ids = {len(spellings) + place: text for place, text in enumerate([EOS, BORDER, *specials])}
    tokens = [*spellings, *(b"" for _ in special_ids)]
    eos, border = len(spellings), len(spellings) + 1
    longest = sorted(
        [(text.encode(), token) for token, text in special_ids.items()]
        + [(text, token) for token, text in enumerate(spellings)],
        key=lambda entry: -len(entry[0]),
    )

    def encode_bytes(data: bytes) -> list[int]:
        ids: list[int] = []
        while data:
            text, token = next(entry for entry in longest if data.startswith(entry[0]))
            ids.append(token)
            data = data[len(text) :]
        return ids

    vocab = Vocab.from_tokens(
        tokens, eos_ids=[eos], special_ids=special_ids, encoder=lambda text: encode_bytes(text.encode())
    )
    spelled = {token: text.encode() for token, text in special_ids.items()}
    target = wish.encode()

    def logits_of(ids: tuple[int, ...]) -> Logits:
        written = b"".join(spelled.get(token) or tokens[token] for token in ids[ids.index(border) + 1 :])
        place = 0
        for byte in written:
            at = target.find(bytes([byte]), place, place + 12)
            place = at + 1 if at >= 0 else place
        row = noise(ids, vocab.width, 0.01)
        row[eos] += 6
        row[encode_bytes(target[place:])[0] if target[place:] else eos] += np.float32(20.0)
        if target[place:]:
            row[target[place]] += np.float32(10.0)
        return row

    engine = LocalEngine(
        name="thinker",
        model=FakeStepModel(logits_of, width=vocab.width, max_positions=4096),
        vocab=vocab,
        encode=lambda text, *, add_special: [*encode_bytes(text.encode()), border],
        template=ChatTemplate(template),
    )
    return espalier.LoadedEngine(engine)
