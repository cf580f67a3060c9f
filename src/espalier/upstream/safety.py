"""What of a safety filter can be had from an engine without logits, and the notes for the user about the rest.

A grammar holds the patterns that fit into it (`constraints/safety/written.py`), where the form of the text, if it has
one, is regular. Where the tokens are known, those that complete a match by themselves get a bias. The finished text is
judged by the whole filter in any case. With `must_mask` such an engine is refused. It knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.automata.languages.dfa import Dfa
from espalier.constraints.compiler import Compiler
from espalier.constraints.joining.rule import filters_in, without_filters
from espalier.constraints.safety.spec import Safety, merged_safety
from espalier.constraints.safety.written import held_patterns
from espalier.constraints.spec import Gbnf, Spec
from espalier.errors import GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.llama_limits import within_limits
from espalier.grammar.printer import print_grammar
from espalier.grammar.rewrite import portable as rewritten
from espalier.grammar.rewrite import trim
from espalier.owners import owned_cache
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab

CONTEXTS = (b"", b"a", b" ", b'"', b"\n", b"-", b"/", b"1")
"""Beginnings of texts: a token that a filter refuses after each of them is refused anywhere."""
MAX_BIASED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SentConstraint:
    """What an engine is asked to hold."""

    #: the constraint without filters, None for none
    spec: Spec | None = None
    #: GBNF that holds the spec and a part of the filters, None where it is to be written from the spec
    grammar: str | None = None
    #: ids of tokens
    banned: tuple[int, ...] = ()
    #: on each category
    notes: tuple[str, ...] = ()
    #: whether that is all of the constraint: of filters, patterns may be left to the verdict
    is_whole: bool = True

    @property
    def follows(self) -> Spec | None:
        """What the text satisfies while it comes."""
        return self.spec if self.grammar is None else Gbnf(self.grammar)


def sent_constraint(
    spec: Spec | None, compiler: Compiler, *, vocab: Vocab | None = None, takes_grammar: bool = True
) -> SentConstraint:
    """vocab: the engine's, where its tokens can get a bias. takes_grammar: whether it takes GBNF. Raises as
    `without_filters`, and what compiling the filter raises."""
    form = without_filters(spec)
    filters = filters_in(spec)
    if not filters:
        return SentConstraint(spec=form)
    whole = filters[0] if len(filters) == 1 else merged_safety(filters)
    plain = _masking(whole)
    compiler.compile(plain)  # what is wrong with a user's own patterns is told here
    grammar, held = _grammar(plain, form, compiler) if takes_grammar else (None, frozenset[str]())
    banned = () if vocab is None else _list_banned_tokens(plain, vocab)
    return SentConstraint(
        spec=form, grammar=grammar, banned=banned, notes=tuple(_notes(whole, held, len(banned))), is_whole=False
    )


def _masking(spec: Safety) -> Safety:
    fields = {name: value for name, value in spec.to_json().items() if name not in ("kind", "mode", "must_mask")}
    masking = Safety.from_fields(fields)
    assert isinstance(masking, Safety)
    return masking


@owned_cache(16)
def _grammar(spec: Safety, form: Spec | None, compiler: Compiler) -> tuple[str | None, frozenset[str]]:
    try:
        language = None if form is None else compiler.language(form, wanted_by="a grammar for llama.cpp")
        if language is not None and not isinstance(language, Dfa):
            return None, frozenset()
        held = held_patterns(spec, language)
        if held.grammar is None:
            return None, frozenset()
        return print_grammar(within_limits(rewritten(trim(held.grammar)))), held.held
    except (UnsupportedError, LimitExceeded, GrammarError):  # the form has no such automaton, or a large one
        return None, frozenset()


@owned_cache(8)
def _list_banned_tokens(spec: Safety, vocab: Vocab) -> tuple[int, ...]:
    """The tokens that complete a match whatever stands before them."""
    compiled = Compiler(vocab).compile(spec)
    whole: Any = None
    for context in CONTEXTS:
        matcher = compiled.matcher()
        if context:
            token = next((i for i, token in enumerate(vocab.tokens) if token == context), None)
            if token is None or not matcher.allows(token):
                continue
            matcher.advance(token)
        refused = ~matcher.mask()
        whole = refused if whole is None else whole & refused
    tokens = (int(allowed_id) for allowed_id in masks.allowed_ids(whole, vocab.width))
    return tuple(token for token in tokens if token not in vocab.eos_ids and _is_text(vocab.bytes_of(token)))[
        :MAX_BIASED
    ]


def _is_text(data: bytes | None) -> bool:
    """Whether a token is whole characters: half ones are refused for what they follow."""
    try:
        return bool(data and data.decode())
    except UnicodeDecodeError:
        return False


def _notes(spec: Safety, held: frozenset[str], banned: int) -> Iterator[str]:
    """One for each category that has patterns, and one on what a judged text means."""
    for category, names in _by_category(spec):
        mine = [name for name in names if f"{category}/{name}" in held]
        if len(mine) == len(names):
            yield f"safety: {category}: banned by the grammar, and judged when the text is complete"
        elif mine:
            yield (
                f"safety: {category}: {len(mine)} of {len(names)} patterns are banned by the grammar "
                f"({', '.join(mine)}); the text is judged by all when it is complete"
            )
        else:
            yield f"safety: {category}: judged only, when the text is complete"
    if banned:
        yield f"safety: {banned} tokens that complete a match by themselves are banned by logit_bias"
    if spec.rewinds:
        yield "safety: nothing is taken back: this engine gives no logits (mode=rewind)"


def _by_category(spec: Safety) -> Iterator[tuple[str, Sequence[str]]]:
    listed = {name for name, _ in spec.lists}
    for category in spec.categories:
        names = [pattern.name for pattern in spec.built_in() if pattern.category == category]
        names += ["list"] if category in listed else []
        if names:
            yield category, names
    if spec.patterns:
        yield "custom", [pattern.text for pattern in spec.patterns]
