"""llama.cpp's own sampler as a NativeSampler: its sampler chain, random generator and grammar, in its own order.

The chain is built as in llama.cpp's `common_sampler_init`, and a token is drawn as in `common_sampler_sample`: from the
chain over all tokens; if the grammar refuses it, again from fresh logits with the grammar applied first, by the same
chain, whose random generator has advanced. It knows no matcher and no request.

llama.cpp ends the process if it is misused. So it is never given a NaN logit, a token that its grammar has not allowed,
or a call after `close`.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.native import NativeChoice
from espalier.engines.llamacpp.library import library, reasons
from espalier.errors import BadLogits, CapabilityError, DeadEnd, GenerationError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import LLAMA_SAMPLERS
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fit import FittedConfig
from espalier.tokens.mask import Logits

TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
INT32 = 2**31 - 1
MIROSTAT_M = 100  # candidates that mirostat 1 looks at
LARGEST_LOGIT = 1e30
"""Above it a sum or quotient may leave float32's range, and NaN cannot be sorted."""
NOTHING: tuple[NDArray[Any], ...] = (np.empty(0, np.intp), np.empty(0, np.float64), np.empty(0, np.float32))


class LlamaSampler:
    """A NativeSampler over a file's vocabulary. Freed once: by `close`, or with its last user."""

    def __init__(
        self,
        vocab: Any,
        config: SamplingConfig,
        fitted: FittedConfig,
        *,
        owner: object,
        seed: int,
        grammar: str | None,
        context: int,
    ) -> None:
        """vocab: a handle. owner: kept alive as long as the handle is used. fitted: the config's biases for this
        vocabulary. seed: below 2**32 - 1. grammar: well-formed GBNF with the start rule `root`. context: positions of a
        sequence, for windows that cover all of it. Raises CapabilityError for a grammar that llama.cpp refuses."""
        lib = library()
        self._lib = lib
        self._width = int(lib.llama_vocab_n_tokens(vocab))
        handles: list[Any] = []  # to be freed
        self._free: Callable[[], object] = weakref.finalize(self, _free, lib, handles, owner)
        self._grammar = _grammar(lib, vocab, grammar, handles)
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        handles.append(self._chain)
        for sampler in _samplers(lib, vocab, config, fitted, seed=seed, window=context + 1):
            lib.llama_sampler_chain_add(self._chain, sampler)  # the chain owns it from here on
        self._all = np.empty(0, dtype=TOKEN_DATA)  # (V,), allocated on first use
        self._ids = np.empty(0, dtype=np.int32)  # (V,)
        self._one = np.zeros(1, dtype=TOKEN_DATA)
        self._given: int | None = None
        self._closed = False

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        chain = self._open()
        for token in tokens:
            self._lib.llama_sampler_accept(chain, self._check_token(token))

    def sample(self, raw: Logits, *, full: bool) -> NativeChoice:
        chain = self._open()
        if raw.shape != (self._width,):
            raise GenerationError(f"there are {raw.shape[0]} logits for {self._width} tokens")
        top = float(raw.max())
        if not abs(top) <= LARGEST_LOGIT:
            raise BadLogits(f"llama.cpp cannot sample where the largest logit is {top}")
        first = self._select(chain, self._fresh(raw), full)
        if self._grammar is None or self._allows(first.token):
            self._given = first.token
            return NativeChoice(_allowed_one(first))
        array = self._fresh(raw)
        self._lib.llama_sampler_apply(self._grammar, ctypes.byref(array))
        if float(self._all["logit"].max()) == -math.inf:
            raise DeadEnd("llama.cpp's grammar allows no token here")
        second = _allowed_one(self._select(chain, array, full))
        # Only a token of weight 0 can be one that the grammar refuses.
        if not self._allows(second.token):
            raise DeadEnd("llama.cpp's chain leaves no token that its grammar allows")
        self._given = second.token
        return NativeChoice(second, first)

    def accept(self, token: int) -> None:
        chain = self._open()
        if token != self._given:
            raise GenerationError(f"token {token} is not the one that was drawn ({self._given})")
        self._given = None
        if self._grammar is not None:
            self._lib.llama_sampler_accept(self._grammar, token)
        self._lib.llama_sampler_accept(chain, token)

    def close(self) -> None:
        self._closed = True
        self._free()

    def _open(self) -> Any:
        if self._closed:
            raise GenerationError("this sampler is closed")
        return self._chain

    def _check_token(self, token: int) -> int:
        if not 0 <= token < self._width:
            raise GenerationError(f"token {token} is outside 0..{self._width - 1}")
        return token

    def _fresh(self, raw: Logits) -> Any:
        """All tokens in order with their logits, as a `llama_token_data_array`."""
        if not self._ids.size:
            self._ids = np.arange(self._width, dtype=np.int32)
            self._all = np.empty(self._width, dtype=TOKEN_DATA)
        self._all["id"], self._all["logit"], self._all["p"] = self._ids, raw, 0.0
        return self._array(self._all)

    def _array(self, rows: NDArray[Any]) -> Any:
        data = ctypes.cast(rows.ctypes.data, self._lib.llama_token_data_p)
        return self._lib.llama_token_data_array(data, rows.shape[0], -1, False)

    def _allows(self, token: int) -> bool:
        """Apply the grammar to this token alone, as llama.cpp does."""
        self._one[0] = (token, 1.0, 0.0)
        self._lib.llama_sampler_apply(self._grammar, ctypes.byref(self._array(self._one)))
        return bool(self._one["logit"][0] > -np.inf)

    def _select(self, chain: Any, array: Any, full: bool) -> DrawnToken:
        """What the chain selects from the array, which is a view of `_all`."""
        self._lib.llama_sampler_apply(chain, ctypes.byref(array))
        address = ctypes.cast(array.data, ctypes.c_void_p).value or 0
        start = (address - self._all.ctypes.data) // TOKEN_DATA.itemsize  # xtc moves the start of the array
        entries = self._all[start : start + array.size]
        if not 0 <= array.selected < entries.shape[0]:
            raise GenerationError("llama.cpp's chain selected no token")
        _, logit, prob = entries[array.selected].item()
        token = int(entries["id"][array.selected])
        if not full:
            return DrawnToken(token, prob, logit, *NOTHING)
        alive = entries[(entries["p"] > 0.0) | (entries["id"] == token)]
        alive = alive[np.argsort(alive["id"])]
        ids, probs = alive["id"].astype(np.intp), alive["p"].astype(np.float64)
        return DrawnToken(token, prob, logit, ids, probs, alive["logit"].copy())


def _allowed_one(drawn: DrawnToken) -> DrawnToken:
    """Raises DeadEnd if no token had any weight, BadLogits if weights are NaN: then nothing was drawn."""
    if drawn.logit == -math.inf:
        raise DeadEnd("llama.cpp's chain leaves no token")
    if not math.isfinite(drawn.prob):
        raise BadLogits("llama.cpp's chain has left the range of its numbers")
    return drawn


def _free(lib: Any, handles: list[Any], _owner: object) -> None:
    while handles:
        lib.llama_sampler_free(handles.pop())


def _grammar(lib: Any, vocab: Any, text: str | None, handles: list[Any]) -> Any:
    if text is None:
        return None
    with reasons() as logged:
        sampler = lib.llama_sampler_init_grammar(vocab, text.encode(), b"root")
        if not sampler:
            raise CapabilityError(f"llama.cpp refuses the grammar: {logged.first()}", field="constraint")
    handles.append(sampler)
    return sampler


def _samplers(
    lib: Any, vocab: Any, config: SamplingConfig, fitted: FittedConfig, *, seed: int, window: int
) -> Iterator[Any]:
    """The samplers in the order of `common_sampler_init`. window: the largest window that makes a difference."""
    width = int(lib.llama_vocab_n_tokens(vocab))
    biases = _biases(lib, vocab, config, fitted, width)
    if biases:
        several = (lib.llama_logit_bias * len(biases))(*biases)
        yield lib.llama_sampler_init_logit_bias(width, len(biases), several)
    tau, eta = config.mirostat_tau, config.mirostat_eta
    if config.mirostat:
        yield lib.llama_sampler_init_temp(config.temperature)
        if config.mirostat == 1:
            yield lib.llama_sampler_init_mirostat(width, seed, tau, eta, MIROSTAT_M)
        else:
            yield lib.llama_sampler_init_mirostat_v2(seed, tau, eta)
        return
    keep = config.min_keep
    by_name: dict[str, Callable[[], Any]] = {
        "penalties": lambda: lib.llama_sampler_init_penalties(
            width,
            _window(config.repetition_window, window),
            config.repetition_penalty,
            config.frequency_penalty,
            config.presence_penalty,
        ),
        "dry": lambda: _dry(lib, vocab, config, window),
        "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(config.top_n_sigma),
        "top_k": lambda: lib.llama_sampler_init_top_k(min(config.top_k, INT32)),
        # 0 means off here; in llama.cpp it would leave a single token.
        "typical_p": lambda: lib.llama_sampler_init_typical(config.typical_p or 1.0, keep),
        "xtc": lambda: lib.llama_sampler_init_xtc(config.xtc_probability, config.xtc_threshold, keep, seed),
        "temperature": lambda: lib.llama_sampler_init_temp_ext(
            config.temperature, config.dynatemp_range, config.dynatemp_exponent
        ),
    }
    for name in config.sampler_order:
        if name in by_name:
            yield by_name[name]()
        elif name in LLAMA_SAMPLERS:  # the others have one value each, and keep `min_keep` tokens
            yield getattr(lib, f"llama_sampler_init_{LLAMA_SAMPLERS[name]}")(getattr(config, name), keep)
        # Other active samplers were refused: see `decoding/native.py`.
    yield lib.llama_sampler_init_dist(seed)


def _biases(lib: Any, vocab: Any, config: SamplingConfig, fitted: FittedConfig, width: int) -> list[Any]:
    """The config's biases, then the bans of `ignore_eos` and of the model's file."""
    biases = [(int(token), float(bias)) for token, bias in zip(fitted.ids, fitted.biases, strict=True)]
    biases += [(int(token), -math.inf) for _, banned in fitted.bans for token in np.flatnonzero(banned)]
    if config.ignore_eos:
        biases += [(token, -math.inf) for token in range(width) if lib.llama_vocab_is_eog(vocab, token)]
    count = ctypes.c_int32(0)
    suppressed = lib.llama_vocab_get_suppress_tokens(vocab, ctypes.byref(count))
    biases += [(int(suppressed[i]), -math.inf) for i in range(count.value)]
    return [lib.llama_logit_bias(token, bias) for token, bias in biases]


def _window(tokens: int, most: int) -> int:
    return most if tokens < 0 else min(tokens, most)


def _dry(lib: Any, vocab: Any, config: SamplingConfig, window: int) -> Any:
    texts = [text.encode() for text in config.dry_breakers]
    several = (ctypes.c_char_p * len(texts))(*texts)
    return lib.llama_sampler_init_dry(
        vocab,
        config.dry_multiplier,
        config.dry_base,
        min(config.dry_allowed_length, INT32),
        _window(config.dry_window, window),
        several,
        len(texts),
    )
