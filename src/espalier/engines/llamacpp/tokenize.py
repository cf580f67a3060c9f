"""Tokenizes text as llama.cpp does: prompts, and text that continues other text.

It is given the library and a handle. It knows no model, nor how a vocabulary's bytes are read. Text that would end the
process inside the library is refused: a character without a token, a text too long for its recursion.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from espalier.engines.local.ports import EncodePrompt
from espalier.errors import CapabilityError, InputError, LimitExceeded
from espalier.time_limit import OutOfTime, left, spend

SPM, BPE, RWKV, PLAMO2 = 1, 2, 5, 6  # of enum llama_vocab_type
KINDS = (SPM, BPE, RWKV, PLAMO2)
"""Vocabularies whose tokens have bytes of their own. WordPiece and Unigram belong to encoders."""
# A pre-tokenizer made of std::regex recurses once per character, with up to 512 bytes of stack (measured: a run of
# 200,000 characters ends the process on a stack of 8 MiB). Longer texts get a thread with four times that.
DEEP = 4096  # bytes of text
STACK = 2048  # bytes of stack for each
LONGEST = 4 << 20  # bytes of text
SLOWEST = 500_000
"""Bytes of text for each second of CPU time: 760,000 were measured for line ends, 2 to 17 million for other texts."""
_STACK_SIZE = threading.Lock()  # the size of a thread's stack is a setting of the process


class Tokenizer:
    """The tokenizer of one vocabulary. Safe across threads.

    keeper: returns the owner of the handle, None once that is freed; then every call raises InputError. tokens: bytes
    by id. specials: spellings of special tokens, by id. own: ids of user-defined tokens by their text, which llama.cpp
    finds in any text. stripping: texts of tokens that swallow the spaces next to them.
    """

    def __init__(
        self,
        lib: Any,
        handle: Any,
        *,
        keeper: Callable[[], object],
        tokens: Sequence[bytes] = (),
        specials: Mapping[int, str] = {},
        own: Mapping[str, int] = {},
        stripping: Collection[str] = (),
    ) -> None:
        self._lib, self._handle, self._keeper = lib, handle, keeper
        self._kind = int(lib.llama_vocab_type(handle))
        self._tokens, self._specials = tokens, specials
        self._spellable = _Spellable(lib, handle) if self._kind == SPM else None
        self._own = {text: token for text, token in own.items() if text and text not in stripping}
        # Longest first, the order in which llama.cpp searches.
        names = sorted(map(re.escape, self._own), key=len, reverse=True)
        self._owned = re.compile(f"({'|'.join(names)})") if names and self._kind == SPM else None
        cut = {text for text in (*specials.values(), *stripping) if len(text) > 1}
        self._cut = re.compile("|".join(f"(?<={re.escape(t[0])})(?={re.escape(t[1:])})" for t in sorted(cut)) or "(?!)")
        self._always_cut = re.compile("|".join(map(re.escape, sorted(stripping))) or "(?!)")
        self._lead = self._find_lead() if self._kind == SPM else ""
        self._skip = len(self._split(self._lead, markers=False)) if self._lead else 0

    def prompt(self, text: str) -> list[int]:
        """Token ids of a prompt; special tokens spelled in it become their ids. Raises InputError for text that is not
        Unicode or has no tokens."""
        return self._split(text, markers=True)

    def continuation(self, text: str) -> list[int]:
        """Token ids of text in the middle of a text: no dummy space in front, and text that looks like a special token
        stays text. Raises InputError as `prompt` does."""
        if self._always_cut.search(text):
            return self._in_parts(text)
        ids = self._plain(text)
        return ids if self._specials.keys().isdisjoint(ids) else self._in_parts(text)

    def _in_parts(self, text: str) -> list[int]:
        """Tokenize a special token's spelling as text by cutting it after its first character."""
        return [token for part in self._cut.split(text) for token in self._plain(part)]

    def _plain(self, text: str) -> list[int]:
        if self._owned is None:
            return self._after_lead(text)
        # llama.cpp would add a dummy space after each user-defined token.
        ids: list[int] = []
        for index, part in enumerate(self._owned.split(text)):
            ids += [self._own[part]] if index % 2 else self._after_lead(part)
        return ids

    def _after_lead(self, text: str) -> list[int]:
        if self._kind == SPM and not self._lead:
            raise CapabilityError("the model's tokenizer cannot tokenize text that continues other text")
        return self._split(self._lead + text, markers=False)[self._skip :] if text else []

    def _find_lead(self) -> str:
        """A character that no token spans, after which text is tokenized as in the middle; "" if there is none."""
        used = {byte for token in self._tokens if len(token) > 1 for byte in token if byte < 128}
        spelled = self._spellable
        return next((chr(b) for b in range(128) if b not in used and spelled and spelled.has(chr(b))), "")

    def _split(self, text: str, *, markers: bool) -> list[int]:
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the text is not valid Unicode at character {error.start}", field="prompt") from error
        if self._spellable is not None:
            self._spellable.check(text)
        ids = self._call(data, markers) if self._kind != BPE or len(data) <= DEEP else self._call_deep(data, markers)
        if ids and min(ids) < 0:
            raise self._no_token(text)
        return ids

    def _no_token(self, text: str) -> InputError:
        """The error for a text that has no token for some part, which the library returns as -1."""
        alone = (c for c in sorted(set(text)) if min(self._call(c.encode(), False), default=0) < 0)
        what = next((repr(c) for c in alone), "a part of the text")
        return InputError(
            f"the model's tokenizer has no token for {what}", hint="nor one for each byte", field="prompt"
        )

    def _call(self, data: bytes, markers: bool) -> list[int]:
        owner = self._keeper()  # keeps the owner alive during the call
        if owner is None:
            raise InputError("the model of this vocabulary is closed", hint="load it again")
        room = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            count = int(self._lib.llama_tokenize(self._handle, data, len(data), ids, room, False, markers))
            if count >= 0:
                return ids[:count]
            room = -count

    def _call_deep(self, data: bytes, markers: bool) -> list[int]:
        if len(data) > LONGEST:
            raise LimitExceeded(f"a text of {len(data):,} bytes is too long to split", hint=f"at most {LONGEST:,}")
        if len(data) > SLOWEST * left():  # the library cannot be ended
            raise OutOfTime(f"a text of {len(data):,} bytes may take longer to encode than is left")
        ids: list[int] = []
        used: list[float] = []
        faults: list[InputError] = []

        def work() -> None:
            try:
                ids.extend(self._call(data, markers))
            except InputError as error:
                faults.append(error)
            finally:
                used.append(time.thread_time())

        worker = threading.Thread(target=work, daemon=True)
        try:
            with _STACK_SIZE:
                before = threading.stack_size(len(data) * STACK // 4096 * 4096)
                try:
                    worker.start()
                finally:
                    threading.stack_size(before)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise LimitExceeded(
                f"a text of {len(data):,} bytes is too long to split here", hint="there is no memory for its stack"
            ) from error
        worker.join()
        spend(sum(used))
        for fault in faults:
            raise fault
        return ids


class _Spellable:
    """The characters that a SentencePiece vocabulary has tokens for. The library ends the process on any other."""

    def __init__(self, lib: Any, handle: Any) -> None:
        width = lib.llama_vocab_n_tokens(handle)
        texts = [bytes(lib.llama_vocab_get_text(handle, token) or b"") for token in range(width)]
        named = {b"<0x%02X>" % byte: byte for byte in range(256)}
        self._bytes = {named[text] for text in texts if text in named} | {text[0] for text in texts if len(text) == 1}
        # Characters matter only if some bytes have no token.
        self._chars: set[str] = set()
        if not self.is_whole:
            self._chars = {c for c in (text.decode("utf-8", "replace") for text in texts) if len(c) == 1}

    @property
    def is_whole(self) -> bool:
        return len(self._bytes) == 256

    def has(self, char: str) -> bool:
        return char in self._chars or self._bytes.issuperset(char.encode())

    def check(self, text: str) -> None:
        """Raises InputError for a character without a token."""
        if self.is_whole or not text:
            return
        # The library adds a space in front of a text, and replaces every space by U+2581.
        for char in sorted({"▁", *text.replace(" ", "▁")}):
            if not self.has(char):
                raise InputError(
                    f"the model's tokenizer has no token for {char!r}", hint="nor one for each byte", field="prompt"
                )


def make_encode(lib: Any, handle: Any, *, keeper: Callable[[], object]) -> EncodePrompt:
    """The engine's `EncodePrompt`, as llama-server tokenizes a prompt: special tokens spelled in the text become their
    ids, a BOS is added if the file asks for one and the text has none, and no EOS is added."""
    tokenizer = Tokenizer(lib, handle, keeper=keeper)
    bos = int(lib.llama_vocab_bos(handle))
    adds = bool(lib.llama_vocab_get_add_bos(handle)) and bos >= 0 and lib.llama_vocab_type(handle) in (SPM, BPE)

    def encode(text: str, *, add_special: bool) -> list[int]:
        ids = tokenizer.prompt(text)
        return [bos, *ids] if add_special and adds and ids[:1] != [bos] else ids

    return encode
