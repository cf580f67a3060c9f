"""`JsonModeProcessor`: JSON mode as logit biases, for a user's own sampling loop.

Nothing is forbidden: a JSON document is made likely, not certain. For a certain one, use
`MatcherFilter(espalier.compile(JsonObject(), vocab=vocab))`. It knows no model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.filters.matcher import compiler_of
from espalier.constraints.soft.json_bias import JsonBiases, JsonFilter, Weights
from espalier.constraints.soft.spec import SoftJson
from espalier.errors import InputError
from espalier.grammar.json_position import JsonState
from espalier.tokens.mask import Logits
from espalier.tokens.vocab import Vocab


class JsonModeProcessor(JsonFilter):
    """A LogitFilter that boosts the tokens that may come next in a JSON text, and EOS after it.

    vocab: a Vocab, a Compiler or a tokenizer; None for `Vocab.bytes()`, whose token ids are the byte values and whose
    EOS is 256. The other arguments are those of `SoftJson`. `tracker` is the position in the document. Raises SpecError
    naming the field, VocabError.

    Follow the text in one of two ways: in a chain, `apply` and `on_token` see each token; in a loop that has only the
    text, `apply_biases(logits, text)` does both, and `update_state(text)` follows it alone.
    """

    def __init__(
        self,
        vocab: Any = None,
        *,
        structural_bias: float = 5.0,
        empty_bias: float = 2.5,
        done_penalty: float = 3.0,
        name: str = "json_mode",
    ) -> None:
        spec = SoftJson(structural_bias=structural_bias, empty_bias=empty_bias, done_penalty=done_penalty)
        weights = Weights(spec.structural_bias, spec.empty_bias, spec.done_penalty)
        compiler = compiler_of(Vocab.bytes() if vocab is None else vocab)
        super().__init__(compiler.part(JsonBiases), weights, name)

    def current_state(self) -> JsonState:
        """The state of the JSON text so far."""
        return self.tracker.state

    def update_state(self, text: str) -> JsonState:
        """Follow more text, any part of it; returns the state after it. `rollback(1)` takes back one call. Raises
        InputError for what is no text."""
        if not isinstance(text, str):
            raise InputError(f"update_state takes a text, not {type(text).__name__}", field="text")
        if text:
            self._places.append(self.tracker.feed(text.encode("utf-8", "surrogatepass")))
        return self.current_state()

    def apply_biases(self, logits: Logits, text: str) -> Logits:
        """Follow the text that was generated since the last call, "" for none, and add the biases of the next token to
        the logits: in place, and they are returned too.

        logits: `(V,)` floats, a NumPy array or a list. Biases of token ids that the row does not have are left out.
        Raises InputError for anything else; then nothing has changed.
        """
        row = _writable_row(logits)
        self.update_state(text)
        bias = self._biases.at(self.tracker, self._weights)
        if bias is None:
            return logits
        if isinstance(bias.where, slice):
            width = min(len(row), len(bias.amounts))
            row[:width] += bias.amounts[:width]  # (V,)
        else:
            here = bias.where < len(row)
            row[bias.where[here]] += bias.amounts[here]
        if row is not logits:
            logits[:] = row.tolist()
        return logits


def _writable_row(logits: Any) -> NDArray[Any]:
    """The array itself, or a copy of a list. Raises InputError for what is no row of floats that can be written."""
    is_list = isinstance(logits, list)
    try:
        row = np.array(logits, dtype=np.float64) if is_list else logits
    except (TypeError, ValueError) as error:
        raise InputError(f"logits must be numbers: {error}", field="logits") from error
    if not isinstance(row, np.ndarray) or row.dtype.kind != "f":
        type_name = f"an array of {row.dtype}" if isinstance(row, np.ndarray) else type(row).__name__
        raise InputError(f"logits must be a NumPy array of floats, or a list, not {type_name}", field="logits")
    if row.ndim != 1:
        raise InputError(f"logits must be of shape (V,), not {row.shape}", field="logits")
    if not row.flags.writeable:
        raise InputError("apply_biases writes into the logits, and this array is read-only", field="logits")
    return row
