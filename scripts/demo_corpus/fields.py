"""JSON fields by name: a plausible value for `port`, `email` or `tags`, and which entities have them.

A key means the same in every object, so the model can follow key orders it never saw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from demo_corpus import words as w


@dataclass(frozen=True, kw_only=True)
class Person:
    """What ties the fields of one object together: a name and a place."""

    first: str
    last: str
    city: str
    country: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    def email(self, rng: Random) -> str:
        local = f"{self.first}.{self.last}" if rng.random() < 0.85 else self.first
        return f"{local.lower()}@{rng.choices(w.DOMAINS, (70, 20, 10))[0]}"


def person(rng: Random) -> Person:
    country = rng.choice(w.COUNTRIES)
    return Person(first=rng.choice(w.FIRST_NAMES), last=rng.choice(w.LAST_NAMES), city=country[1], country=country[0])


def date(rng: Random) -> str:
    return f"20{rng.randint(20, 26)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def clock(rng: Random) -> str:
    return f"{rng.randint(7, 21):02d}:{rng.choice((0, 15, 30, 45)):02d}"


def phone(rng: Random) -> str:
    return f"555-01{rng.randint(0, 99):02d}"


def version(rng: Random) -> str:
    return f"{rng.randint(0, 4)}.{rng.randint(0, 9)}.{rng.randint(0, 9)}"


def ip(rng: Random) -> str:
    return rng.choice((f"10.0.0.{rng.randint(1, 9)}", f"192.168.0.{rng.randint(1, 9)}", "127.0.0.1"))


def host(rng: Random) -> str:
    name = f"{rng.choice(('web', 'db', 'api', 'app', 'mail'))}{rng.randint(1, 3)}"
    return rng.choices((f"{name}.example.com", "localhost", ip(rng)), (60, 25, 15))[0]


def code(rng: Random) -> str:
    return "".join(rng.choice("ABCDEX") for _ in range(2)) + f"-{rng.randint(100, 999)}"


def hex_color(rng: Random) -> str:
    return "#" + "".join(rng.choice("0123456789abcdef") for _ in range(6))


def price(rng: Random) -> float:
    return rng.randint(1, 99) + rng.choice((0.5, 0.99, 0.25, 0.95))


def title(rng: Random) -> str:
    return f"{rng.choice(w.TITLES_A)} {rng.choice(w.TITLES_B)}"


def url(rng: Random) -> str:
    return f"https://{rng.choice(('www.', ''))}example.{rng.choice(('com', 'org'))}/{rng.choice(w.TAGS)}"


def _street(rng: Random) -> str:
    return f"{rng.randint(1, 99)} {rng.choice(w.STREETS)} Street"


def some(rng: Random, pool: list[str], most: int = 3) -> list[str]:
    return rng.sample(pool, rng.randint(1, most))


def _pick(pool: list[str]) -> Callable[[Random, Person], Any]:
    return lambda rng, _: rng.choice(pool)


def _flag(yes: float) -> Callable[[Random, Person], Any]:
    return lambda rng, _: rng.random() < yes


def _number(low: int, high: int) -> Callable[[Random, Person], Any]:
    return lambda rng, _: rng.randint(low, high)


def _of(make: Callable[[Random], Any]) -> Callable[[Random, Person], Any]:
    return lambda rng, _: make(rng)


FIELDS: dict[str, Callable[[Random, Person], Any]] = {
    "name": lambda _, p: p.name,
    "first_name": lambda _, p: p.first,
    "last_name": lambda _, p: p.last,
    "email": lambda rng, p: p.email(rng),
    "username": lambda _, p: f"{p.first}_{p.last}".lower(),
    "city": lambda _, p: p.city,
    "country": lambda _, p: p.country,
    "author": lambda _, p: p.name,
    "age": _number(18, 80),
    "id": _number(1, 999),
    "active": _flag(0.7),
    "level": _pick(w.LEVELS),
    "role": _pick(w.ROLES),
    "hobbies": lambda rng, _: some(rng, w.HOBBIES),
    "job": _pick(w.JOBS),
    "company": _pick(w.COMPANIES),
    "phone": _of(phone),
    "password": lambda rng, _: f"{rng.choice(w.COPY_WORDS[10:40])}{rng.randint(10, 99)}",
    "created": _of(date),
    "date": _of(date),
    "time": _of(clock),
    "street": lambda rng, _: _street(rng),
    "host": _of(host),
    "port": lambda rng, _: rng.choice((80, 443, 8080, 8000, 3000, 5432)),
    "enabled": _flag(0.75),
    "tags": lambda rng, _: some(rng, w.TAGS),
    "region": _pick(w.REGIONS),
    "os": _pick(w.SYSTEMS),
    "ip": _of(ip),
    "debug": _flag(0.3),
    "log_level": _pick(w.LOG_LEVELS),
    "timeout": lambda rng, _: rng.choice((5, 10, 30, 60)),
    "retries": _number(1, 5),
    "language": lambda rng, _: rng.choice(("en", "es", "fr", "de")),
    "theme": lambda rng, _: rng.choice(("light", "dark")),
    "version": _of(version),
    "title": _of(title),
    "year": _number(1990, 2026),
    "pages": lambda rng, _: rng.randint(8, 50) * 10,
    "genre": _pick(w.GENRES),
    "rating": _number(1, 5),
    "price": _of(price),
    "in_stock": _flag(0.7),
    "category": lambda rng, _: rng.choice(("home", "garden", "sports", "music", "books", "food")),
    "product": _pick(w.PRODUCTS),
    "quantity": _number(1, 9),
    "color": _pick(w.CATEGORIES["colors"]),
    "size": _pick(w.SIZES),
    "status": _pick(w.STATUSES),
    "message": _pick(w.MESSAGES),
    "code": lambda rng, _: rng.choice((200, 201, 400, 404, 500)),
    "task": _pick(w.TASKS),
    "done": _flag(0.4),
    "priority": _pick(w.LEVELS),
    "event": _pick(w.EVENTS),
    "place": lambda _, p: p.city,
    "temperature": _number(0, 35),
    "sky": _pick(w.SKIES),
    "species": _pick(w.CATEGORIES["animals"]),
    "score": _number(0, 10),
    "count": _number(0, 20),
    "url": _of(url),
    "path": _pick(w.PATHS),
    "food": _pick(w.FOODS),
    "drink": _pick(w.CATEGORIES["drinks"]),
    "sport": _pick(w.CATEGORIES["sports"]),
    "day": _pick(w.DAYS),
    "month": _pick(w.MONTHS),
    "ingredients": lambda rng, _: some(rng, w.CATEGORIES["vegetables"]),
    "members": lambda rng, _: some(rng, w.FIRST_NAMES),
    "address": lambda rng, p: {"street": _street(rng), "city": p.city, "country": p.country},
    "user": lambda rng, p: {"name": p.name, "email": p.email(rng)},
    "items": lambda rng, _: [
        {"product": product, "quantity": rng.randint(1, 9)} for product in some(rng, w.PRODUCTS, 2)
    ],
}
"""Each value is drawn with the object's Person, so `email` agrees with `name` and `country` with `city`."""

ENTITIES: dict[str, tuple[str, ...]] = {
    "server": ("host", "port", "enabled", "level", "tags", "region", "os", "ip", "status"),
    "config": ("debug", "port", "host", "log_level", "timeout", "retries", "language", "theme"),
    "product": ("name", "price", "in_stock", "tags", "category", "color", "size", "rating"),
    "book": ("title", "author", "year", "pages", "genre", "rating"),
    "movie": ("title", "year", "genre", "rating"),
    "pet": ("name", "species", "age", "color"),
    "event": ("event", "date", "time", "place"),
    "task": ("task", "done", "priority", "date"),
    "order": ("id", "product", "quantity", "price", "status", "user", "items"),
    "log entry": ("level", "message", "time", "code"),
    "weather report": ("city", "temperature", "sky", "day"),
    "team": ("name", "members", "city", "sport"),
    "recipe": ("food", "ingredients", "drink"),
}
ENTITY_DEFAULT: dict[str, tuple[str, ...]] = {
    "server": ("host", "port", "enabled"),
    "config": ("host", "port", "debug"),
    "product": ("name", "price", "in_stock"),
    "book": ("title", "author", "year"),
}


def record(rng: Random, keys: list[str], who: Person | None = None, *, noun: str = "") -> dict[str, Any]:
    """An object with these keys in this order."""
    owner = who or person(rng)
    made = {key: FIELDS[key](rng, owner) for key in keys}
    if "name" in made and noun in NOUN_NAMES:
        made["name"] = NOUN_NAMES[noun](rng)
    if noun == "pet" and "age" in made:
        made["age"] = rng.randint(1, 15)
    if noun == "log entry" and "level" in made:
        made["level"] = rng.choice(w.LOG_LEVELS)
    return made


# A pet is not called Ana Silva: for these nouns `name` is no person's.
NOUN_NAMES: dict[str, Callable[[Random], str]] = {
    "product": lambda rng: rng.choice(w.PRODUCTS),
    "pet": lambda rng: rng.choice(w.STORY_NAMES),
    "team": lambda rng: f"{rng.choice(('Red', 'Blue', 'Green', 'Black'))} {rng.choice(('Lions', 'Bears', 'Foxes'))}",
}
