"""Our constraints as a grammar backend of SGLang: one grammar object for each request, masks packed as its own are.

    from espalier.integrations.sglang import register
    register()                                             # then: --grammar-backend espalier
    {"json_schema": "..."} | {"regex": "..."} | {"ebnf": "GBNF text"}      # in sampling_params
    {"ebnf": '{"espalier": {"json_schema": {...}, "safety": "minimal"}}'}  # all that espalier.generate can join

A constraint that cannot be compiled is an InvalidGrammarObject, with which SGLang ends the request and tells its client
why. A row whose constraint fails later may only end, and the log says why.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.errors import CapabilityError, EspalierError, InputError, MissingDependency
from espalier.integrations.asked import KEY, read_asked
from espalier.integrations.compiling import engine_compiler
from espalier.integrations.rows.device import forbid_inplace, spread_there
from espalier.integrations.rows.row import EngineRow
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.wiring import App, build_app

try:
    from sglang.srt.constrained.base_grammar_backend import (
        BaseGrammarBackend,
        BaseGrammarObject,
        InvalidGrammarObject,
        register_grammar_backend,
    )
except ModuleNotFoundError as error:
    if error.name != "sglang":
        raise  # it is there, and older than this adapter can serve
    raise MissingDependency("sglang") from error

log = logging.getLogger(__name__)
NAME = "espalier"
ANY_JSON = "$$ANY$$"
"""What SGLang writes for JSON mode."""


class ConstraintGrammar(BaseGrammarObject):
    """The state of one request."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__()
        self._compiled = compiled
        self._taken: list[int] = []
        self._row = EngineRow(compiled, self._taken)
        self._told = False

    @property
    def failure(self) -> EspalierError | None:
        """Why the request may only end, if it may."""
        return self._row.failure

    def accept_token(self, token: int) -> None:
        """Raises ValueError for a token that is not allowed: SGLang then ends the request."""
        self._taken.append(token)
        self._row.follow()
        if self._row.failure is not None and token not in self._compiled.vocab.eos_ids:
            self._tell()
            raise ValueError(f"espalier: {self._row.failure}")

    def rollback(self, k: int) -> None:
        """Undo the last k tokens."""
        del self._taken[len(self._taken) - k :]
        self._row.follow()

    def is_terminated(self) -> bool:
        return self._row.failure is None and self._row.is_over

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
        """`(B, W) int32` on the host that allows everything."""
        return torch.full((batch_size, masks.words(vocab_size)), -1, dtype=torch.int32)

    def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
        """Write the row's mask; EOS alone where the row may only end."""
        out = vocab_mask[idx].numpy()  # (W,), the same memory
        width = self._compiled.vocab.width
        if not self._row.fill(out, width):
            out[:] = masks.resized(masks.from_ids(self._compiled.vocab.eos_ids, width), 32 * out.shape[0])
            self._tell()

    @staticmethod
    def reset_vocab_mask(vocab_mask: torch.Tensor) -> None:
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: torch.Tensor, device: Any) -> torch.Tensor:
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        """`(B, V)` logits, in place."""
        if vocab_mask.device.type == "cpu":
            forbid_inplace(logits, list(range(vocab_mask.shape[0])), vocab_mask.numpy())
        else:
            allowed = spread_there(vocab_mask, int(logits.shape[1]), vocab_mask.device)
            logits.masked_fill_(~allowed, -torch.inf)

    def copy(self) -> ConstraintGrammar:
        """The same constraint at the start of a text."""
        return ConstraintGrammar(self._compiled)

    def try_jump_forward(self, tokenizer: Any) -> None:
        """None: no text is put in unsampled."""
        return

    def _tell(self) -> None:
        if self._row.failure is not None and not self._told:
            self._told = True
            log.error("a request was ended after %d tokens: %s", self._row.length, self._row.failure)


class ConstraintBackend(BaseGrammarBackend):
    """Makes grammar objects. SGLang calls it from the threads of its executor."""

    def __init__(self, vocab: Vocab, app: App | None = None) -> None:
        super().__init__()
        self._app = app or build_app()
        self._compiler: Compiler = engine_compiler(self._app, vocab)

    def dispatch_json(self, key_string: str) -> BaseGrammarObject:
        if key_string == ANY_JSON:
            return self._build_grammar(JsonObject)
        return self._build_grammar(lambda: JsonSchema(_parse_json(key_string)))

    def dispatch_regex(self, key_string: str) -> BaseGrammarObject:
        return self._build_grammar(lambda: Regex(key_string))

    def dispatch_ebnf(self, key_string: str) -> BaseGrammarObject:
        """GBNF, or a JSON object with the one key `espalier`."""
        if not key_string.lstrip().startswith("{"):  # no grammar begins like that
            return self._build_grammar(lambda: Gbnf(key_string))
        return self._build_grammar(lambda: self._read_constraint(key_string))

    def dispatch_structural_tag(self, key_string: str) -> BaseGrammarObject:
        return InvalidGrammarObject(
            "espalier: structural_tag is not supported: name a constraint `after` under espalier instead"
        )

    def _read_constraint(self, text: str) -> Spec:
        data = _parse_json(text)
        if not isinstance(data, dict) or set(data) != {KEY}:
            raise InputError(f"an ebnf that is JSON is an object with the one key {KEY!r}", field="ebnf")
        constraint = read_asked(data, self._app)
        if constraint is None:
            raise InputError("there is nothing to enforce", field=KEY)
        if constraint.report:
            raise InputError("SGLang shows a backend no logits, so there is no report", field="report")
        return constraint.spec

    def _build_grammar(self, make: Callable[[], Spec]) -> BaseGrammarObject:
        try:
            compiled = self._compiler.compile(make())
            compiled.matcher().mask()
        except EspalierError as error:
            return InvalidGrammarObject(f"espalier: {error}")
        return ConstraintGrammar(compiled)


def create(
    server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int] | None = None
) -> ConstraintBackend:
    """What SGLang calls for `--grammar-backend espalier`. Raises CapabilityError for settings under which a grammar
    object is not told what is text, VocabError."""
    if getattr(server_args, "speculative_algorithm", None) is not None:
        raise CapabilityError(
            "speculative decoding has not been tested with this backend",
            field="speculative_algorithm",
            hint="serve without it, or with another grammar backend",
        )
    if getattr(server_args, "reasoning_parser", None):
        raise CapabilityError(
            "SGLang tells a registered backend no end of the reasoning",
            field="reasoning_parser",
            hint="leave the parser out, and name a constraint `after` under espalier",
        )
    ends = sorted(eos_token_ids) if eos_token_ids else None
    return ConstraintBackend(Vocab.from_tokenizer(tokenizer, eos_ids=ends, width=vocab_size))


def register() -> None:
    """Make the backend known to SGLang in this process."""
    register_grammar_backend(NAME, create)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not JSON: {error}") from error
