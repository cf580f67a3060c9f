"""`JsonModeProcessor`: JSON mode as logit biases, for a user's own sampling loop.

Nothing is forbidden: a JSON document is made likely, not certain. For a certain one, use
`MatcherFilter(espalier.compile(JsonObject(), vocab=vocab))`. It knows no model.
"""

from __future__ import annotations

from typing import Any

from espalier.constraints.filters.matcher import compiler_of
from espalier.constraints.soft.json_bias import JsonBiases, JsonFilter, Weights
from espalier.constraints.soft.spec import SoftJson


class JsonModeProcessor(JsonFilter):
    """A LogitFilter that boosts the tokens that may come next in a JSON text, and EOS after it.

    vocab: a Vocab, a Compiler or a tokenizer. The other arguments are those of `SoftJson`. `tracker` is the position in
    the document. Raises SpecError naming the field, VocabError.
    """

    def __init__(
        self,
        vocab: Any,
        *,
        structural_bias: float = 5.0,
        empty_bias: float = 2.5,
        done_penalty: float = 3.0,
        name: str = "json_mode",
    ) -> None:
        spec = SoftJson(structural_bias=structural_bias, empty_bias=empty_bias, done_penalty=done_penalty)
        weights = Weights(spec.structural_bias, spec.empty_bias, spec.done_penalty)
        super().__init__(compiler_of(vocab).part(JsonBiases), weights, name)
