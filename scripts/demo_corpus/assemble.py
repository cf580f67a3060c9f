"""Turns into samples: system prompts, thinking, `{"answer": ...}`, conversations and plain documents.

Sample i depends on the seed and on i alone (copies apart): a shorter corpus begins a longer one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from demo_corpus import fields, structured, talk
from demo_corpus import words as w
from demo_corpus.turns import Generator, Turn, dump

# Shares of the chat samples, chosen by what a first run was bad at: copying most of all.
WEIGHTS: tuple[tuple[int, Generator], ...] = (
    (180, structured.user_record),
    (150, structured.tool_call),
    (150, talk.copy),
    (85, talk.fact),
    (70, talk.chat),
    (60, structured.entity),
    (55, structured.random_keys),
    (55, talk.spanish),
    (50, structured.shell),
    (45, structured.extraction),
    (45, talk.arithmetic),
    (45, talk.yes_no),
    (40, structured.value),
    (35, talk.sentiment),
    (30, talk.lists),
    (30, talk.story),
)
PLAIN_SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are Espalier's demo model.",
    "Answer briefly.",
    "Be kind and brief.",
)
THINK_SYSTEMS = ("Think before you answer.", "Think step by step.")
THINK_CUES = (" Think first.", " Think before you answer.", " Think step by step.")
JSON_SYSTEMS = ("Answer in JSON with the key", "Always answer in JSON with the key")
JSON_CUES = (" Answer in JSON.", " Answer in JSON with the key answer.", " Use JSON.")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Either a conversation or a plain document."""

    kind: str
    messages: tuple[tuple[str, str], ...] = ()
    text: str = ""

    def as_json(self) -> dict[str, Any]:
        if self.text:
            return {"kind": self.kind, "text": self.text}
        return {"kind": self.kind, "messages": [{"role": role, "content": content} for role, content in self.messages]}


def draw_turn(rng: Random) -> Turn:
    return rng.choices([make for _, make in WEIGHTS], [share for share, _ in WEIGHTS])[0](rng)


def _with_thought(turn: Turn) -> str:
    return f"<think>\n{turn.thought}\n</think>\n\n{turn.reply}"


def _answer_key(rng: Random, turn: Turn) -> str:
    """Mostly `answer`; a label, a capital or a sum may carry its own name."""
    own = {"sentiment": "sentiment", "arithmetic": "result"}.get(turn.kind, "answer")
    if turn.kind == "fact" and "capital" in turn.user:
        own = "capital"
    return own if rng.random() < 0.35 else "answer"


def _answer_json(rng: Random, turn: Turn, key: str) -> Turn:
    """The same question, answered as `{"answer": ...}`."""
    body = dump({key: turn.short})
    reply = body if rng.random() < 0.8 else f"Sure! Here is the JSON:\n```json\n{body}\n```"
    return replace(turn, kind="answer", reply=reply)


def _end_sentence(text: str) -> str:
    return text if text[-1] in ".?!" else text + "."


def single(rng: Random, *, first: bool = True) -> list[tuple[str, str]]:
    """One exchange, perhaps under a system prompt if it is the conversation's first.

    A wish (JSON, thinking) is nearly always asked for, by a system prompt or behind the question.
    """
    turn = draw_turn(rng)
    system = rng.choice(PLAIN_SYSTEMS) if rng.random() < 0.12 else ""
    user = turn.user
    cue_fits = turn.kind != "copy"  # behind a text to repeat, a cue would be part of the text
    if turn.short is not None and (cue_fits or first) and rng.random() < 0.14:
        key = _answer_key(rng, turn)
        turn = _answer_json(rng, turn, key)
        if rng.random() < 0.85:
            if first and (not cue_fits or rng.random() < 0.35):
                system = f"{rng.choice(JSON_SYSTEMS)} {key}."
            else:
                cue = rng.choice(JSON_CUES) if key == "answer" else f" Answer in JSON with the key {key}."
                user = _end_sentence(user) + cue
    elif first and turn.kind == "tool" and turn.reply[0] == "{" and rng.random() < 0.2:
        names = structured.tool_names(rng, json.loads(turn.reply)["name"])
        system = f"You can use these tools: {', '.join(names)}."
    reply = turn.reply
    if turn.thought is not None and (cue_fits or first) and rng.random() < 0.13:
        reply = _with_thought(turn)
        if rng.random() < 0.97:
            if first and (not cue_fits or rng.random() < 0.5):
                system = f"{system} {rng.choice(THINK_SYSTEMS)}".strip()
            else:
                user = _end_sentence(user) + rng.choice(THINK_CUES)
    exchange = [("user", user), ("assistant", reply)]
    return [("system", system), *exchange] if first and system else exchange


def _weather_dialogue(rng: Random) -> list[tuple[str, str]]:
    """A call, its result and the answer in words."""
    city, sky = rng.choice(w.CITIES), rng.choice(w.SKIES)
    return [
        ("user", rng.choice((f"What is the weather in {city}?", f"How is the weather in {city}?"))),
        ("assistant", dump({"name": "get_weather", "args": {"city": city}})),
        ("tool", dump({"sky": sky})),
        ("assistant", f"It is {sky} in {city}."),
    ]


def conversation(rng: Random, turns: int) -> list[tuple[str, str]]:
    """`turns` exchanges, at most one system prompt, first."""
    made: list[tuple[str, str]] = []
    for index in range(turns):
        made += _weather_dialogue(rng) if rng.random() < 0.06 else single(rng, first=index == 0)
        if rng.random() < 0.1:
            made += [("user", rng.choice(("Thank you", "Thanks"))), ("assistant", "You are welcome!")]
    return made


def document(rng: Random) -> str:
    """Plain text: facts, stories, records, and repeated lines that teach copying."""
    roll = rng.random()
    if roll < 0.3:
        line = talk.copy_target(rng)
        return "\n".join([line] * rng.randint(2, 4))
    if roll < 0.55:
        return talk.story_text(rng, rng.choice(w.STORY_ANIMALS))
    if roll < 0.8:
        rows = rng.sample(w.COUNTRIES, rng.randint(2, 4))
        return " ".join(f"The capital of {row[0]} is {row[1]}." for row in rows)
    who = fields.person(rng)
    keys = rng.sample(["name", *w.USER_KEYS], rng.randint(2, 5))
    made = fields.record(rng, keys, who)
    return "\n".join(f"{key}: {item if isinstance(item, str) else dump(item)}" for key, item in made.items())


def draw(rng: Random) -> Sample:
    roll = rng.random()
    if roll < 0.05:
        return Sample(kind="document", text=document(rng))
    if roll < 0.056:
        # Long rows show positions up to about 1000; they cost no more per token than short ones.
        return Sample(kind="long", messages=tuple(conversation(rng, rng.randint(8, 20))))
    if roll < 0.17:
        return Sample(kind="dialogue", messages=tuple(conversation(rng, rng.randint(2, 3))))
    return Sample(kind="single", messages=tuple(single(rng)))


MOST_COPIES = 40
"""Short exchanges ("Hello") come up again and again; beyond this many copies they are drawn anew."""


def corpus(seed: int, samples: int) -> Iterator[Sample]:
    """Samples in a fixed order."""
    seen: Counter[Sample] = Counter()
    for index in range(samples):
        rng = Random(f"{seed}/{index}")
        made = draw(rng)
        while seen[made] >= MOST_COPIES:
            made = draw(rng)
        seen[made] += 1
        yield made
