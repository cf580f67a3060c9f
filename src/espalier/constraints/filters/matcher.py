"""LogitFilters that mask with a constraint: refused tokens get -inf. They know no model and no sampler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.rewinding import check_only_masks
from espalier.constraints.spec import Gbnf, JsonSchema, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import DeadEnd, InputError, NotAvailable, SchemaError, VocabError
from espalier.grammar.json_mode import JsonWhitespace
from espalier.sampling.filters import FilterContext, Priority, as_row
from espalier.schema.order import read_order
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits
from espalier.tokens.vocab import Vocab


class MatcherFilter:
    """A LogitFilter for any compiled constraint: `MatcherFilter(espalier.compile(spec, vocab=vocab), "dates")`.

    It has high priority: a truncation that ran first could remove every allowed token.
    """

    priority = Priority.HIGH

    def __init__(self, compiled: Compiled, name: str | None = None) -> None:
        if not isinstance(compiled, Compiled):
            raise InputError(
                f"a MatcherFilter is of a compiled constraint, not of {type(compiled).__name__}",
                hint="espalier.compile(spec, vocab=vocab)",
                field="compiled",
            )
        check_only_masks(compiled.spec, "a filter", field="compiled")
        self.compiled = compiled
        self.name = compiled.spec.kind if name is None else name
        self._matcher = compiled.matcher()
        self._taken = 0

    @property
    def is_fresh(self) -> bool:
        """Whether no token was taken since the start of the text."""
        return not self._taken

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here, or has ended."""
        return self._matcher.is_accepting or self._matcher.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether EOS was taken."""
        return self._matcher.is_finished

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """`(V,) float32` in, `(V,) float32` out: refused tokens are -inf, as is each EOS unless the text is complete.

        Raises DeadEnd where no token is left, saying why the token with the highest logit is refused; InputError for
        logits of another shape or width.
        """
        logits, width = as_row(logits), self.compiled.vocab.width
        if logits.shape[0] != width:
            raise InputError(
                f"{self.name}: there are {logits.shape[0]} logits, and the vocabulary has {width} tokens",
                hint="a vocabulary has the width of its model's logits: width=",
                field="logits",
            )
        out = logits.copy()  # (V,)
        masks.apply_inplace(out, self._matcher.mask())
        if not bool((out > -np.inf).any()):
            raise DeadEnd(self._blame(logits))
        return out

    def on_token(self, token: int) -> None:
        """Advance by the sampled token. Raises TokenRefused, and changes nothing, for a token that is not allowed."""
        self._matcher.advance(token)
        self._taken += 1

    def rollback(self, count: int) -> None:
        """Undo the last tokens. Raises ValueError for more tokens than were taken."""
        self._matcher.rollback(count)
        self._taken -= count

    def reset(self) -> None:
        """Back to the start of a text."""
        self._matcher = self.compiled.matcher()
        self._taken = 0

    def fork(self) -> MatcherFilter:
        other = copy(self)
        other._matcher = self._matcher.fork()
        return other

    def _blame(self, logits: Logits) -> str:
        if self._matcher.is_finished:
            return f"{self.name}: the text has ended, no token can follow"
        wanted = int(np.argmax(logits))
        shown = self.compiled.vocab.text_of(wanted)
        left = f"{self.name}: no token is left; the top choice {wanted} ({shown!r})"
        if not logits[wanted] > -np.inf:
            return f"{self.name}: no token is left, nor was any before"
        try:
            blame = self._matcher.explain(wanted)
        except NotAvailable:
            return f"{left} is refused"
        place = f" in {blame.rule}" if blame.rule else ""
        return f"{left} is refused{place}: {blame.reason}" + (f"; expected {blame.expected}" if blame.expected else "")


class GrammarFilter(MatcherFilter):
    """A llama.cpp grammar: GBNF, `@NAME` for a built-in one, or a Gbnf. vocab: pass a Compiler to share its token trie
    and compiled specs between filters; a tokenizer is read.

    Raises GrammarError with line and column, UnknownName, VocabError, LimitExceeded.
    """

    def __init__(self, grammar: str | Gbnf, vocab: Any, *, root: str = "root", name: str = "grammar") -> None:
        spec = grammar if isinstance(grammar, Gbnf) else Gbnf(grammar, root=root)
        super().__init__(_compile_spec(spec, vocab), name)


class JsonSchemaFilter(MatcherFilter):
    """A JSON Schema: a dict, a Python type, JSON text, or a JsonSchema with its options.

    Raises SchemaError, UnsupportedError for what would not be enforced, LimitExceeded, VocabError.
    """

    def __init__(self, schema: Any, vocab: Any, *, name: str = "json_schema") -> None:
        super().__init__(_compile_spec(schema_spec(schema), vocab), name)


class ToolCallFilter(MatcherFilter):
    """One call of one of the tools: `{"name": NAME, "args": {...}}`, the arguments valid under its schema.

    tools: schemas by name. order: as in JsonSchema. Raises InputError for no tools, and as JsonSchemaFilter.
    """

    def __init__(
        self,
        tools: Mapping[str, Any],
        vocab: Any,
        *,
        whitespace: JsonWhitespace = "natural",
        order: str | Sequence[str] | None = None,
        name: str = "tool_call",
    ) -> None:
        super().__init__(_compile_spec(tool_calls(tools, whitespace=whitespace, order=order), vocab), name)


def schema_spec(schema: Any, *, order: str | Sequence[str] | None = None, **options: Any) -> JsonSchema:
    """The spec of a schema in any form that `JsonSchemaFilter` takes. options: further ones of JsonSchema. Raises
    SchemaError, and SpecError for an unknown order."""
    if isinstance(schema, JsonSchema):
        return schema if order is None else schema.ordered(read_order(order))
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the schema is not JSON: {error}") from error
    return JsonSchema(schema, order=order, **options)


def tool_calls(
    tools: Mapping[str, Any], *, whitespace: JsonWhitespace = "natural", order: str | Sequence[str] | None = None
) -> Spec:
    """The constraint of exactly one call. Raises InputError, SchemaError, and SpecError for an unknown order."""
    if not isinstance(tools, Mapping) or not tools:
        raise InputError("tools are a mapping of names to schemas, with at least one", field="tools")
    return ToolCalls(tools, choice="required", max_calls=1, whitespace=whitespace, order=order)


def compiler_of(vocab: Any) -> Compiler:
    """The compiler of a Compiler, a Vocab, or a tokenizer that `Vocab.from_tokenizer` reads. Raises InputError."""
    if isinstance(vocab, Compiler):
        return vocab
    if isinstance(vocab, Vocab):
        return Compiler(vocab)
    try:
        return Compiler(Vocab.from_tokenizer(vocab))
    except VocabError as error:
        raise InputError(
            f"a filter wants a Vocab, a Compiler or a tokenizer, not {type(vocab).__name__}",
            hint=error.message,
            field="vocab",
        ) from error


def _compile_spec(spec: Spec, vocab: Any) -> Compiled:
    return compiler_of(vocab).compile(spec)
