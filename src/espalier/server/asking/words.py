"""The word-list server's fields: `vocab_lang` with `vocab_n_words` hold a text to the first words of a list, or make
all others dearer; `enable_thinking` lets the model reason first. Whether there is such a list is found by compiling it.
As that server did, beams search such a text where nothing is said of how to decode or to sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.soft.spec import SoftWordlist
from espalier.constraints.spec import JsonObject, JsonSchema, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.lexicon.files import check_code
from espalier.sampling.config_names import DRAWING_NAMES
from espalier.server.asking.draft import Draft
from espalier.server.asking.naming import field_names
from espalier.server.bodies.openai import SharedBody
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings

PAIR = ("vocab_lang", "vocab_n_words")
MODE = "vocab_constraint_mode"
TIERS = ("tier2_max_rank_multiplier", "tier2_penalty", "tier3_penalty")
SOFT = "vocab_soft_"
OPENED = (*PAIR, MODE, *(SOFT + name for name in TIERS), "enable_thinking")
NAMES = {"lang": "vocab_lang", "top": "vocab_n_words"} | {name: SOFT + name for name in TIERS}
"""By what an error of a word list names, the field of the body."""
SWITCH = "enable_thinking"
DEFAULT_BEAMS = 10


def word_lists(body: SharedBody, draft: Draft, process: Process) -> Draft:
    """Add the constraint, the soft constraint and the thinking that these fields ask for.

    Raises BadRequest for half of the pair and for details of what is not asked
    for; SpecError; UnsupportedParameter for JSON made of words."""
    draft = _thinking(body, draft, process)
    if process.settings.seed_compat and draft.is_chat:  # it never sampled unless it was told to
        draft = replace(draft, defaults={**draft.defaults, "temperature": 0.0})
    given = [name for name in PAIR if getattr(body, name) is not None]
    if not given:
        _refuse_alone(body, [MODE, *(SOFT + name for name in TIERS)], "vocab_lang and vocab_n_words")
        return draft
    if len(given) == 1:
        missing = next(name for name in PAIR if name not in given)
        raise BadRequest(f"{given[0]} wants {missing}", hint="give both, or neither", field=missing)
    draft = replace(draft, names={**draft.names, **NAMES})
    mode = body.vocab_constraint_mode or process.settings.vocab_constraint_mode
    with field_names(NAMES):
        check_code(body.vocab_lang)
        words = Wordlist(lang=body.vocab_lang, top=body.vocab_n_words)
        if mode == "soft":
            return replace(draft, soft=(*draft.soft, SoftWordlist(words, **_tiers(body, process.settings))))
    if not process.settings.seed_compat:  # whose clients send all fields always
        _refuse_alone(body, [SOFT + name for name in TIERS], f'{MODE} "soft"')
    return replace(
        draft, constraint=_joined(draft.constraint, words), default_beams=_default_beams(body, draft, process)
    )


def _default_beams(body: SharedBody, draft: Draft, process: Process) -> tuple[int, str] | None:
    """How many search where nothing is said: ten, or as many as the model holds."""
    ours = body.espalier
    says_sampler = ours is not None and (ours.sampler == "native" or ours.preset is not None)
    most = process.engine.capabilities.max_sequences
    beams = DEFAULT_BEAMS if most is None else min(DEFAULT_BEAMS, most)
    if says_sampler or beams < 2 or any(getattr(body, name) is not None for name in DRAWING_NAMES):
        return None
    return beams, "vocab_lang"


def _tiers(body: SharedBody, settings: ServerSettings) -> Mapping[str, Any]:
    """What the body says of the tiers, and the settings for the rest."""
    said = {name: getattr(body, SOFT + name) for name in TIERS}
    return {name: getattr(settings, SOFT + name) if value is None else value for name, value in said.items()}


def _joined(other: Spec | None, words: Wordlist) -> Spec:
    if other is None:
        return words
    if isinstance(other, JsonSchema | JsonObject):
        raise UnsupportedParameter(
            "a JSON document is not made of the words of a list",
            hint=f'leave one of the two out, or say {MODE} "soft"',
            field="vocab_lang",
        )
    return AllOf(other, words)


def _refuse_alone(body: SharedBody, names: list[str], wanted: str) -> None:
    """Fields that would change nothing."""
    for name in names:
        if getattr(body, name) is not None:
            raise BadRequest(f"{name} wants {wanted}", hint="without it, it would change nothing", field=name)


def _thinking(body: SharedBody, draft: Draft, process: Process) -> Draft:
    """With thinking, the model may reason before the text that the constraint holds. Where the template has a switch it
    is set; without one there is nothing to switch off. Raises UnsupportedParameter where there is no template."""
    wanted = body.enable_thinking
    if wanted is None:
        return draft
    template = process.engine.engine.template
    if wanted and (template is None or not draft.is_chat):
        raise UnsupportedParameter(
            f"{SWITCH}: only a chat template can open the reasoning", hint="say `espalier.reasoning`", field=SWITCH
        )
    if template is not None and SWITCH in template.source:
        draft = replace(draft, request={**draft.request, SWITCH: wanted})
    if wanted and "reasoning" not in draft.options:
        names = {**draft.names, "reasoning": SWITCH}
        draft = replace(draft, options={**draft.options, "reasoning": "auto"}, names=names)
    return draft
