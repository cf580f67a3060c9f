"""The one rule of joining, for every edge: every constraint that is named holds.

A *filter* only takes texts away: a ban, a safety filter, a word list. Filters always join. Any other constraint is a
*form*: it says what the whole answer is. Forms that stand side by side hold together. The only thing that is ever
replaced is the form of a preset, by a form of the request's own, and a note says so. Bans and safety filters hold for
all that the model writes, reasoning and tool calls included; forms and word lists hold for the content of a turn
without calls. What cannot be joined is an error that names both. It knows no request, no preset and no engine:
constraints go in, a constraint and notes come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf, DeadEnds
from espalier.constraints.safety.spec import Safety, merged_safety
from espalier.constraints.spec import Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import CapabilityError

STATED: tuple[DeadEnds, ...] = ("rewind", "refuse")
"""What an AllOf may say of dead ends, the one that counts first before the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What holds, None for nothing, and notes for the user: what was replaced, and what is not enforced."""

    spec: Spec | None = None
    notes: tuple[str, ...] = ()


def is_filter(spec: Spec) -> bool:
    """Whether a constraint only takes texts away, and says nothing of the form of the answer."""
    if isinstance(spec, AllOf):
        return all(is_filter(member) for member in spec.members)
    return isinstance(spec, Ban | Safety | Wordlist)


def together(*specs: Spec | None, like: Sequence[Spec] = ()) -> Spec | None:
    """One constraint in which all hold, in their order; None without any. Equal ones are kept once, and the safety
    filters become one, which comes last. What an AllOf among them, or among `like`, says of dead ends holds for the
    whole. Raises SpecError."""
    stated = [spec for spec in specs if spec is not None]
    members = _members(stated)
    filters = [member for member in members if isinstance(member, Safety)]
    joined = [member for member in members if not isinstance(member, Safety)]
    if filters:
        joined.append(filters[0] if len(filters) == 1 else merged_safety(filters))
    if not joined:
        return None
    if len(joined) == 1:
        return joined[0]
    return _all_of(joined, [*stated, *like])


def over(preset: Sequence[Spec], own: Spec | None, *, name: str, with_tools: bool = False) -> Joining:
    """A preset's constraints under those of a request. Filters of both hold. The preset's forms hold unless the request
    has a form itself, or (with_tools) its answer must be calls of its own tools. name: the preset's. Raises as
    `together`."""
    forms = [member for member in _members(preset) if not is_filter(member)]
    filters = [member for member in _members(preset) if is_filter(member)]
    own_forms = [] if own is None else [member for member in _members([own]) if not is_filter(member)]
    if forms and (own_forms or with_tools):
        by = " and ".join(dict.fromkeys(form.kind for form in own_forms)) or "tools"
        note = (
            f"{_kinds(forms)} of the preset {name!r} is replaced by the request's {by}: both are the form of the answer"
        )
        return Joining(spec=together(own, *filters), notes=(note,))
    return Joining(spec=together(*forms, own, *filters, like=preset))


def split(constraint: Spec | None) -> tuple[Spec | None, tuple[Spec, ...]]:
    """What holds for the content of a turn without calls, and what holds for all that the model writes."""
    members = [] if constraint is None else _members([constraint])
    whole = tuple(member for member in members if isinstance(member, Ban | Safety))
    if not whole:
        return constraint, ()
    rest = [member for member in members if not isinstance(member, Ban | Safety)]
    if not rest:
        return None, whole
    assert constraint is not None
    return rest[0] if len(rest) == 1 else _all_of(rest, [constraint]), whole


def with_bad_words(constraint: Spec | None, words: Sequence[str]) -> Spec | None:
    """The constraint and a ban of a request's `bad_words`, exactly as written and across token boundaries. Raises
    SpecError."""
    return together(constraint, Ban(tuple(words)) if words else None)


def filters_in(constraint: Spec | None) -> tuple[Safety, ...]:
    """The safety filters that a constraint is made of, however deep."""
    return () if constraint is None else tuple(part for part in constraint.walk() if isinstance(part, Safety))


def without_filters(spec: Spec | None) -> Spec | None:
    """A constraint without its safety filters. Raises CapabilityError for one that must be held at every token."""
    filters = filters_in(spec)
    for part in filters:
        if part.must_mask:
            raise CapabilityError(
                "safety must be held at every token (must_mask), and this engine gives no logits",
                hint="leave must_mask out: what can be banned is, and the text is judged",
                field="safety",
            )
    if not filters:
        return spec
    if isinstance(spec, Safety):
        return None
    if isinstance(spec, AllOf):
        return together(*(without_filters(member) for member in spec.members), like=(spec,))
    raise CapabilityError(
        f"a safety filter inside {spec.kind if spec else 'a constraint'} cannot be judged alone",
        hint="put it beside the whole: AllOf(..., safety)",
        field="constraint",
    )


def unenforced(constraint: Spec | None) -> tuple[str, ...]:
    """A note for each category of a safety filter for which nothing is enforced."""
    return tuple(
        f"safety: {entry['category']}: {entry['note']}"
        for part in filters_in(constraint)
        for entry in part.describe()
        if not entry["enforced"]
    )


def _members(specs: Sequence[Spec]) -> list[Spec]:
    """The constraints, with the members of an AllOf in its place, and each only once."""
    members = [member for spec in specs for member in (spec.members if isinstance(spec, AllOf) else (spec,))]
    return members if len(members) < 2 else list({member.key(): member for member in members}.values())


def _all_of(members: Sequence[Spec], like: Sequence[Spec]) -> AllOf:
    """The members in one AllOf, with what those in `like` say of dead ends: taking text back before refusing to."""
    said = {member.dead_ends for member in like if isinstance(member, AllOf)}
    ends = next((choice for choice in STATED if choice in said), None)
    return AllOf(members) if ends is None else AllOf(members, dead_ends=ends)


def _kinds(specs: Sequence[Spec]) -> str:
    return " and ".join(dict.fromkeys(spec.kind for spec in specs))
