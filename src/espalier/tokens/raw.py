"""`RawVocab`: the result of reading a tokenizer; and the rules for which of its tokens end a text.

The readers produce `RawVocab`, `Vocab` takes it. How tokenizers store tokens is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

CHAT_ENDS: Mapping[str, str | None] = {
    "<|im_end|>": None,  # ChatML: Qwen, SmolLM, Yi and many fine-tunes
    "<|eot_id|>": None,  # Llama 3
    "<|eom_id|>": None,  # Llama 3.1: ends a message that waits for a tool
    "<|eot|>": None,  # Llama 4
    "<|eom|>": None,  # Llama 4, as <|eom_id|>
    "<|end|>": "<|return|>",  # Phi 3 and 4; in Harmony it only ends a message, and the turn goes on
    "<|return|>": None,  # Harmony (gpt-oss): the turn ends
    "<|call|>": None,  # Harmony: the turn waits for a tool
    "<end_of_turn>": None,  # Gemma 2 and 3
    "<turn|>": None,  # Gemma 4
    "<|end_of_turn|>": None,  # OpenChat
    "<|END_OF_TURN_TOKEN|>": None,  # Command R
    "[|endofturn|]": None,  # EXAONE
    "<|assistant_end|>": None,  # nanochat
}
"""Markers that end an assistant's turn -> a marker; if the vocabulary has that one too, the first does not end the
turn.

`<|endoftext|>` is not in the list: chat models use it as padding or between documents; if it ends a text, the tokenizer
names it as its EOS.
"""

TEXT_ENDS = ("</s>", "<eos>", "<|end_of_text|>", "<|end▁of▁sentence|>", "<｜end▁of▁sentence｜>")
"""Spellings of EOS, used only if the tokenizer names none (a bare `tokenizer.json` cannot)."""

LAST_RESORT = "<|endoftext|>"
"""The EOS of a tokenizer that names none and has none of the spellings above, such as a bare GPT-2 tokenizer."""


class RawVocab(NamedTuple):
    """What can be read from a tokenizer. tokens: the bytes of each id, `b""` for special and unused ids.

    special_texts: the spelling of each special id. eos_ids: empty if no EOS can be determined. encoder: text to ids as
    a continuation of other text: no dummy space in front, nothing added, no special tokens for text that looks like
    one. Its ids spell the text exactly, except where the tokenizer itself loses information: by its normaliser (NFKC,
    lower case), `▁` in a SentencePiece text, and the unknown token for text without a token.
    """

    tokens: list[bytes]
    special_texts: dict[int, str]
    eos_ids: list[int]
    encoder: Callable[[str], list[int]] | None
    name: str


def find_eos(named: Iterable[int], id_of: Mapping[str, int]) -> list[int]:
    """EOS ids in order: those the tokenizer names, its chat-end markers, and if it names none, the known spellings.

    id_of: spelling to id of the tokens that may be markers.
    """
    eos = list(named)
    names_none = not eos
    eos += [
        id_of[marker]
        for marker, unless in CHAT_ENDS.items()
        if marker in id_of and (unless is None or unless not in id_of)
    ]
    if names_none:
        eos += [id_of[text] for text in TEXT_ENDS if text in id_of]
        if not eos and LAST_RESORT in id_of:
            eos.append(id_of[LAST_RESORT])
    return list(dict.fromkeys(eos))


def named_eos(owner: Any) -> list[int]:
    """The EOS ids that an object names: its own first, then those of its generation config."""
    config = getattr(owner, "generation_config", None)
    named = (getattr(owner, "eos_token_id", None), getattr(config, "eos_token_id", None))
    return list(dict.fromkeys(token for value in named for token in ids_in(value)))


def ids_in(value: Any) -> list[int]:
    """An EOS setting as a list: it may be None, one id, or several."""
    several = value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]
    return [int(token) for token in several if token is not None]


def name_of(owner: Any) -> str:
    """A name for people. From a path only the last part, since a vocabulary's name ends up in traces."""
    name = str(getattr(owner, "name_or_path", "") or "")
    return PurePath(name).name if PurePath(name).is_absolute() else name
