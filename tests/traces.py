"""A made-up trace whose numbers agree with one another: a model that would rather write prose, held to user records.

Every step has a small distribution over named tokens plus a rest that is not listed; the masses, taxes, entropies and
stages are computed from it, as a step of a real decoder would.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from espalier.automata.reasons.blame import Blame
from espalier.trace.candidates import CandidateList
from espalier.trace.records import Candidate, StepRecord, Trace

EOS_ID = 2
TOP_K = 10
TEMPERATURE = 0.7
VOCAB_SIZE = 32_000

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "active": {"type": "boolean"},
        "bio": {"type": "string"},
    },
    "required": ["name", "age", "email", "active", "bio"],
    "additionalProperties": False,
}

PEOPLE = (
    ("Ada", " Love", "lace", "36", "ada", "engine"),
    ("Grace", " Hop", "per", "85", "grace", "navy"),
    ("Alan", " Tur", "ing", "41", "alan", "logic"),
    ("Mary", " Som", "erville", "91", "mary", "stars"),
)
FILLER = (" builds", " small", " looms", " and", " keeps", " pear", " trees", " in", " a", " walled", " garden")
PROSE = ("Sure", "Here", " Here", "Of", "Certainly", "The", "I", "```", "Okay", " is")
WORDS = (" a", " the", " and", " of", " in", " to", " with", " her", " very", " old")


@dataclass(frozen=True)
class Wish:
    """One step before it is drawn: the token to take, its share, and what competes with it."""

    token: bytes
    share: float
    rivals: tuple[tuple[str, float], ...] = ()
    forbid_rivals: bool = False
    forced: bool = False
    special: bool = False
    blame: Blame | None = field(default=None)


def sample_trace(n: int = 40, seed: int = 0) -> Trace:
    """A trace of n steps: valid JSON ended by EOS, or, where n is too small for one record, cut at the limit."""
    rng = random.Random(seed)
    wishes = _plan(n)
    steps = tuple(_step(i, wish, rng) for i, wish in enumerate(wishes))
    text = b"".join(w.token for w in wishes if not w.special).decode("utf-8", "replace")
    is_whole = bool(wishes) and wishes[-1].special
    return Trace(
        steps=steps,
        text=text,
        finish_reason="stop" if is_whole else "length",
        model="demo-24m",
        prompt="Generate user info",
        constraint={"kind": "json_schema", "schema": SCHEMA, "whitespace": "flexible"},
        sampling={"temperature": TEMPERATURE, "top_k": 4, "top_p": 0.95, "seed": 2**62 + 1, "stop": []},
        strategy="rejection",
        verdict={"valid": True, "judge": "jsonschema", "errors": []} if is_whole else None,
    )


def _plan(n: int) -> list[Wish]:
    """n wishes: one record if it fits exactly, with a biography as long as needed; more of them in an array."""
    single = len(list(_record(0, "", 0)))
    if n < single + 2:
        return [_start("{"), *_record(0, "", 4)][:n]
    if n < 2 * single + 20:
        return [_start("{"), *_record(0, "", n - single - 2), _eos()]
    wishes, count = [_start("["), _space("\n")], 0
    while n - len(wishes) > 3 * single + 30:
        wishes += [_plain("  "), _plain("{"), *_record(count, "  ", 6), _plain(","), _space("\n")]
        count += 1
    wishes += [_plain("  "), _plain("{"), *_record(count, "  ", 0)]
    room = n - len(wishes) - 3
    bio = list(_record(count, "  ", room))
    return [*wishes[: len(wishes) - single], *bio, _space("\n"), _plain("]"), _eos()]


def _record(i: int, indent: str, filler: int) -> Iterator[Wish]:
    """The tokens of a record after its `{`, with `filler` more of them in its last text."""
    first, second, third, age, mail, word = PEOPLE[i % len(PEOPLE)]
    inner = f'\n{indent}  "'
    yield Wish(inner.encode(), 0.71, ((" ", 0.2), ("}", 0.03)))
    yield from _key("name", '": "', rivals=(("firstName", 0.48), ("user", 0.2), ("id", 0.12)))
    yield from (_free(first, ("John", "Jane", "Alice")), _free(second), _free(third))
    yield from (_plain('",'), _space(inner), *_key("age", '":'))
    prose = (("thirty", 0.55), ('"', 0.31), ("unknown", 0.06))
    blame = Blame(
        member="json_schema",
        rule="/properties/age",
        reason="an integer starts with a digit or `-`",
        offset=0,
        expected="a digit or `-`",
    )
    yield _plain(" ")
    yield Wish(age.encode(), 0.04, prose, forbid_rivals=True, blame=blame)
    yield from (_plain(","), _space(inner), *_key("email", '": "', rivals=(("e", 0.3), ("mail", 0.11))))
    yield from (_free(mail), _plain("@"), _free(word), _plain(".org"))
    yield from (_plain('",'), _space(inner), *_key("active", '":', rivals=(("phone", 0.61), ("address", 0.22))))
    yield Wish(b" true", 0.31, ((' "', 0.42), (" false", 0.1), (" yes", 0.08)))
    yield from (_plain(","), _space(inner), *_key("bio", '": "'))
    yield from (Wish(b"\xf0\x9f", 0.12, _some(WORDS)), Wish(b"\x8c\xbf", 0.97), _free("\u00a0caf\u00e9"))
    yield from (_free(FILLER[j % len(FILLER)]) for j in range(filler))
    stop = Blame(
        member="json_schema",
        rule="/additionalProperties",
        reason="no further property is allowed",
        offset=1,
        expected="`}`",
    )
    yield Wish(b'"', 0.4, (('",', 0.44), (" and", 0.05)), forbid_rivals=True, blame=stop)
    yield from (_space(f"\n{indent}"), _plain("}"))


def _start(token: str) -> Wish:
    blame = Blame(
        member="json_schema",
        rule="/",
        reason="the output starts with an object or an array",
        offset=0,
        expected=f"`{token}`",
    )
    return Wish(token.encode(), 0.0021, _some(PROSE, 0.62), forbid_rivals=True, blame=blame)


def _key(name: str, end: str, rivals: tuple[tuple[str, float], ...] = ()) -> tuple[Wish, Wish]:
    blame = Blame(
        member="json_schema",
        rule="/required",
        reason=f"the next property is {name!r}",
        offset=0,
        expected=f"`{name}`",
        position="properties, in their order",
    )
    if not rivals:
        return Wish(name.encode(), 0.88, (("id", 0.05),), forbid_rivals=True), _plain(end)
    return Wish(name.encode(), 0.13, rivals, forbid_rivals=True, blame=blame, forced=True), _plain(end)


def _plain(token: str) -> Wish:
    return Wish(token.encode(), 0.964, ((" ", 0.01), ("\n", 0.006)))


def _space(token: str) -> Wish:
    return Wish(token.encode(), 0.7, ((" ", 0.22), ("\t", 0.02)))


def _free(token: str, rivals: tuple[str, ...] = WORDS) -> Wish:
    return Wish(token.encode(), 0.23, _some(rivals, 0.19))


def _eos() -> Wish:
    rivals = (("\n\n", 0.41), (" Let", 0.2), ("```", 0.08), (" I", 0.02))
    blame = Blame(member="json_schema", rule="/", reason="the text is complete", expected="the end")
    return Wish(b"", 0.17, rivals, forbid_rivals=True, special=True, blame=blame)


def _some(words: tuple[str, ...], first: float = 0.2) -> tuple[tuple[str, float], ...]:
    return tuple((word, first * 0.45**i) for i, word in enumerate(words))


def _id(token: bytes) -> int:
    return 3 + int.from_bytes(token, "big") % (VOCAB_SIZE - 3)


def _step(i: int, wish: Wish, rng: random.Random) -> StepRecord:
    shares: dict[bytes, float] = {wish.token: wish.share * rng.uniform(0.9, 1.0)}
    for text, share in wish.rivals:
        shares.setdefault(text.encode(), share * rng.uniform(0.85, 1.0))
    total = math.fsum(shares.values())
    if total >= 1:
        shares = {token: 0.999 * share / total for token, share in shares.items()}
    allowed = {token for token in shares if token == wish.token or not wish.forbid_rivals}
    rest = 1.0 - math.fsum(shares.values())
    is_rest_allowed = not wish.forbid_rivals and not wish.forced
    z = math.fsum(shares[t] for t in allowed) + (rest * 0.6 if is_rest_allowed else 0.0)
    # The unlisted rest: many tokens of one size, so that the entropies are those of a whole distribution.
    rest_count = 400

    def candidate(token: bytes, prob: float) -> Candidate:
        is_eos = wish.special and token == b""
        return Candidate(
            id=EOS_ID if is_eos else _id(token),
            text="<|end|>" if is_eos else token.decode("utf-8", "replace"),
            bytes=token,
            prob=prob,
            logit=math.log(shares[token]) + 12.5,
            allowed=token in allowed,
        )

    ranked = sorted(shares, key=lambda t: -shares[t])
    after = {t: shares[t] / z for t in ranked if t in allowed}
    heated = {t: p ** (1 / TEMPERATURE) for t, p in list(after.items())[:4]}
    if wish.token not in heated:
        heated[wish.token] = after[wish.token] ** (1 / TEMPERATURE)
    heat = math.fsum(heated.values())
    kept = [t for t in ranked[:TOP_K] if t != wish.token]
    is_rejected = not wish.forced and bool(set(kept) - allowed) and rng.random() > z
    refused = next((t for t in kept if t not in allowed), None) if is_rejected else None
    heated_all = {t: p ** (1 / TEMPERATURE) for t, p in shares.items()}
    blame = wish.blame if ranked[0] not in allowed or refused is not None else None
    taken = candidate(wish.token, heated[wish.token] / heat)
    return StepRecord(
        step=i,
        token_id=taken.id,
        text=taken.text,
        bytes=wish.token,
        logprob=math.log(shares[wish.token]),
        pre_masking=tuple(candidate(t, shares[t]) for t in ranked if t in kept or t == wish.token),
        post_grammar=tuple(candidate(t, p) for t, p in after.items()),
        post_chain=tuple(candidate(t, p / heat) for t, p in heated.items()),
        resampled=taken,
        allowed_count=len(allowed) + (round(0.6 * VOCAB_SIZE) if is_rest_allowed else 0),
        removed_mass=1.0 - z,
        tax_nats=-math.log(z),
        z_sampled=math.fsum(heated_all[t] for t in allowed) / math.fsum(heated_all.values()),
        entropy_before=_entropy(shares.values(), rest, rest_count),
        entropy_after=_entropy(after.values(), rest * 0.6 / z if is_rest_allowed else 0.0, rest_count),
        was_rejected=refused is not None,
        rejected=None if refused is None else candidate(refused, shares[refused]),
        was_forced=wish.forced,
        is_special=wish.special,
        blame=blame,
    )


def _entropy(listed: Any, rest: float, rest_count: int) -> float:
    """Nats of listed probabilities and a rest spread evenly over rest_count tokens."""
    spread = rest * math.log(rest / rest_count) if rest > 0 else 0.0
    return -math.fsum([*(p * math.log(p) for p in listed if p > 0), spread])


def as_json(trace: Trace) -> Mapping[str, Any]:
    """What a reader of a saved trace sees: the JSON, parsed."""
    parsed: Mapping[str, Any] = json.loads(json.dumps(trace.to_json()))
    return parsed


def alike(one: StepRecord, other: StepRecord) -> None:
    """Equal, numbers up to 1e-6."""
    for name in (one_field.name for one_field in fields(StepRecord) if one_field.compare):
        _same(getattr(one, name), getattr(other, name), name)
    assert (one.distribution is None) == (other.distribution is None)


def _same(one: Any, other: Any, name: str) -> None:
    if isinstance(one, float) and isinstance(other, float):
        assert one == other or math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6), name
    elif isinstance(one, tuple | list | CandidateList):
        assert len(one) == len(other), name
        for mine, theirs in zip(one, other, strict=True):
            _same(mine, theirs, name)
    elif hasattr(one, "to_json"):
        _same(sorted(one.to_json().items()), sorted(other.to_json().items()), name)
    else:
        assert one == other, name
