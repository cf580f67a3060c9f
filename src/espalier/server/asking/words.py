"""Reads the word-list server's fields: `vocab_lang`, `vocab_n_words` and their details.

The pair constrains the text to the most frequent words of a list (hard), or biases all other words down (soft).
As in that server, beam search is the default under a hard list. Whether the list exists is found when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from espalier.constraints.compiler import Compiler
from espalier.constraints.joining.rule import together
from espalier.constraints.soft.spec import SoftWordlist
from espalier.constraints.spec import JsonObject, JsonSchema, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import EspalierError
from espalier.lexicon.files import check_code
from espalier.sampling.config_names import DRAWING_NAMES
from espalier.server.asking.draft import RequestDraft
from espalier.server.asking.naming import field_names
from espalier.server.bodies.openai import SharedBody
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings

PAIR = ("vocab_lang", "vocab_n_words")
MODE = "vocab_constraint_mode"
TIERS = ("tier2_max_rank_multiplier", "tier2_penalty", "tier3_penalty")
SOFT = "vocab_soft_"
FIELDS = (*PAIR, MODE, *(SOFT + name for name in TIERS), "enable_thinking")
NAMES = {"lang": "vocab_lang", "top": "vocab_n_words"} | {name: SOFT + name for name in TIERS}
"""From the field that an error of a word list names to the field of the body."""
DEFAULT_BEAMS = 10


def word_lists(body: SharedBody, draft: RequestDraft, process: Process) -> RequestDraft:
    """The draft with the constraint and the soft constraint that these fields ask for.

    Raises BadRequest for half of the pair and for details without the pair, SpecError, and UnsupportedParameter for a
    word list combined with a JSON constraint."""
    if process.settings.wordlist_server_compat and draft.is_chat:  # that server sampled only on request
        draft = replace(draft, defaults={**draft.defaults, "temperature": 0.0})
    given = [name for name in PAIR if getattr(body, name) is not None]
    if (
        not given and process.settings.wordlist_server_compat and draft.is_chat
    ):  # its beams were the default of every chat
        draft = replace(draft, default_beams=_default_beams(body, draft, process))
    if not given:
        _refuse_alone(body, [MODE, *(SOFT + name for name in TIERS)], "vocab_lang and vocab_n_words")
        return draft
    if len(given) == 1:
        missing = next(name for name in PAIR if name not in given)
        raise BadRequest(f"{given[0]} needs {missing}", hint="give both, or neither", field=missing)
    draft = replace(draft, names={**draft.names, **NAMES})
    top, warnings = known_words(
        body.vocab_lang,
        body.vocab_n_words,
        process.engine.engine.compiler,
        as_there=process.settings.wordlist_server_compat,
    )
    draft = replace(draft, warnings=(*draft.warnings, *warnings))
    mode = body.vocab_constraint_mode or process.settings.vocab_constraint_mode
    with field_names(NAMES):
        check_code(body.vocab_lang)
        words = Wordlist(lang=body.vocab_lang, top=top)
        if mode == "soft":
            return replace(draft, soft=(*draft.soft, SoftWordlist(words, **_tiers(body, process.settings))))
    if not process.settings.wordlist_server_compat:  # whose clients always send all fields
        _refuse_alone(body, [SOFT + name for name in TIERS], f'{MODE} "soft"')
    return replace(
        draft, constraint=_join_words(draft.constraint, words), default_beams=_default_beams(body, draft, process)
    )


def known_words(
    lang: str | None, asked: int | None, compiler: Compiler | None, *, as_there: bool
) -> tuple[int | None, tuple[str, ...]]:
    """How many words of the list are meant, and a warning. A list that is shorter is used whole, as in the word-list
    server. as_there: whether comments and duplicates count too, so that a number means the same words as there."""
    if compiler is None or asked is None or asked < 1 or lang is None:
        return asked, ()
    try:
        count = len(compiler.words.words(lang))
        if as_there and asked <= count:
            return max(1, compiler.words.words_within(lang, asked)), ()
    except EspalierError:
        return asked, ()  # raised, with the field's name, when the list is compiled
    if asked <= count:
        return asked, ()
    return count, (f"vocab_n_words: the list {lang} has {count} words, and all of them are used",)


def _default_beams(body: SharedBody, draft: RequestDraft, process: Process) -> tuple[int, str] | None:
    """The default number of beams: ten, or as many as the model holds; None if the body asks for something else."""
    ours = body.espalier
    has_own_sampling = ours is not None and (ours.sampler == "native" or ours.preset is not None)
    most = process.engine.capabilities.max_sequences
    beams = DEFAULT_BEAMS if most is None else min(DEFAULT_BEAMS, most)
    if has_own_sampling or beams < 2 or any(getattr(body, name) is not None for name in DRAWING_NAMES):
        return None
    return beams, "vocab_lang"


def _tiers(body: SharedBody, settings: ServerSettings) -> Mapping[str, Any]:
    """The tiers of the body, with the settings for those that it does not give."""
    given = {name: getattr(body, SOFT + name) for name in TIERS}
    return {name: getattr(settings, SOFT + name) if value is None else value for name, value in given.items()}


def _join_words(other: Spec | None, words: Wordlist) -> Spec:
    if other is None:
        return words
    if isinstance(other, JsonSchema | JsonObject):
        raise UnsupportedParameter(
            "a word list cannot be combined with a JSON constraint",
            hint=f'leave one of the two out, or set {MODE} to "soft"',
            field="vocab_lang",
        )
    joined = together(other, words)
    assert joined is not None
    return joined


def _refuse_alone(body: SharedBody, names: list[str], wanted: str) -> None:
    """Refuse fields that have no effect alone."""
    for name in names:
        if getattr(body, name) is not None:
            raise BadRequest(f"{name} needs {wanted}", hint="without it, the field has no effect", field=name)
