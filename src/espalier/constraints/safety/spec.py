"""`Safety`: forbids texts that match patterns of given categories, in any tokenisation. `SafetyBuilder` builds one
step by step.

It filters what is written, not what is meant; docs/safety.md says what it does not stop. This module does not know how
patterns are matched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

from espalier.constraints.safety.catalogue import BY_NAME, CATEGORIES, NEEDS_LIST, PATTERNS, PRESET_TEXTS, PRESETS
from espalier.constraints.safety.lists import MAX_PHRASES, check_phrases, read_list
from espalier.constraints.safety.patterns.pattern import SafetyPattern
from espalier.constraints.spec import Spec, check_text
from espalier.errors import InputError, LimitExceeded, SpecError, UnknownName
from espalier.nearest import did_you_mean

SafetyMode: TypeAlias = Literal["mask", "rewind"]
MAX_REGEXES = 200
MAX_REGEX = 2_000
"""The longest regular expression, in characters."""


@dataclass(frozen=True, slots=True, order=True)
class Custom:
    """A custom text or regular expression, matched anywhere. Case and width are ignored."""

    text: str
    is_regex: bool = False

    def to_json(self) -> str | dict[str, str]:
        return {"regex": self.text} if self.is_regex else self.text


@dataclass(frozen=True, slots=True, init=False)
class Safety(Spec):
    """Any text without a match of the enabled categories' patterns, of their phrase lists, or of custom patterns.

    preset: `minimal`, `standard`, `strict`, `maximum`, `code_safety`. categories: categories to add; without:
    categories to remove. include: patterns that are off unless named, such as `email`; exclude: patterns to switch off.
    patterns: custom texts, or `{"regex": "..."}` in the dialect of `Regex`, matched anywhere. lists: phrases by
    category, matched as whole words. mode: `mask` forbids the token that would complete a match; `rewind` lets the
    model sample it and then takes the text back to where the match began. must_mask: an engine without logits is
    refused; otherwise it bans what it can, the finished text is judged, and a note says which of the two each category
    got. `describe` says what is enforced. Raises SpecError, UnknownName, InputError, LimitExceeded.
    """

    kind: ClassVar[str] = "safety"
    categories: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    patterns: tuple[Custom, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    mode: SafetyMode
    must_mask: bool

    def __init__(
        self,
        preset: str | None = None,
        *,
        categories: Sequence[str] = (),
        without: Sequence[str] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        patterns: Sequence[str | Mapping[str, str] | Custom] = (),
        lists: Mapping[str, Sequence[str]] | Sequence[tuple[str, Sequence[str]]] = (),
        mode: SafetyMode = "mask",
        must_mask: bool = False,
    ) -> None:
        enabled = {*(preset_categories(preset) if preset is not None else ())}
        enabled |= set(_names(categories, "categories", check_category))
        enabled -= set(_names(without, "without", check_category))
        if mode not in get_args(SafetyMode):
            raise SpecError(f"unknown mode {mode!r}", hint=", ".join(get_args(SafetyMode)), field="mode")
        if not isinstance(must_mask, bool):
            raise SpecError(f"must_mask: {must_mask!r} is neither true nor false", field="must_mask")
        phrase_lists = _lists(lists)
        for name, _ in phrase_lists:
            if name not in enabled:
                raise SpecError(f"there is a list for {name}, which is not enabled", field="lists")
        values = {
            "categories": tuple(name for name in CATEGORIES if name in enabled),
            "include": tuple(sorted(set(_names(include, "include", check_pattern)))),
            "exclude": tuple(sorted(set(_names(exclude, "exclude", check_pattern)))),
            "patterns": _customs(_with_texts(patterns, preset)),
            "lists": phrase_lists,
            "mode": mode,
            "must_mask": must_mask,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        for name in self.include:
            if BY_NAME[name].category not in enabled:
                raise SpecError(
                    f"the pattern {name!r} belongs to {BY_NAME[name].category}, which is not enabled", field="include"
                )
        if not (self.built_in() or self.lists or self.patterns):
            missing = " and ".join(self.unenforced())
            raise SpecError(
                f"nothing would be enforced: {missing} needs a list" if missing else "there is nothing to enforce",
                hint="no lists are shipped: give one as lists={category: [...]}"
                if missing
                else f"a preset ({', '.join(PRESETS)}), categories or patterns",
                field="safety",
            )

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        return ("preset", "categories", "without", "include", "exclude", "patterns", "lists", "mode", "must_mask")

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {"kind": self.kind, "categories": list(self.categories)}
        for name in ("include", "exclude"):
            if getattr(self, name):
                values[name] = list(getattr(self, name))
        if self.patterns:
            values["patterns"] = [pattern.to_json() for pattern in self.patterns]
        if self.lists:
            values["lists"] = {name: list(phrases) for name, phrases in self.lists}
        if self.mode != "mask":
            values["mode"] = self.mode
        return values | {"must_mask": True} if self.must_mask else values

    @property
    def rewinds(self) -> bool:
        return self.mode == "rewind"

    def built_in(self) -> tuple[SafetyPattern, ...]:
        """The built-in patterns that are enabled."""
        return tuple(
            pattern
            for pattern in PATTERNS
            if pattern.category in self.categories
            and pattern.name not in self.exclude
            and (not pattern.is_option or pattern.name in self.include)
        )

    def unenforced(self) -> tuple[str, ...]:
        """The enabled categories for which nothing is enforced, because they have no patterns and no list."""
        enforced = {pattern.category for pattern in self.built_in()} | {name for name, _ in self.lists}
        return tuple(name for name in self.categories if name not in enforced)

    def describe(self) -> tuple[dict[str, Any], ...]:
        """What is enforced: one entry for each enabled category, and one, `custom`, for custom patterns. Keys:
        `category`, `enforced`, `patterns` (names), `phrases` (the size of the list), and `note` if nothing is
        enforced."""
        sizes = {name: len(phrases) for name, phrases in self.lists}
        entries = []
        for name in self.categories:
            names = [pattern.name for pattern in self.built_in() if pattern.category == name]
            entry: dict[str, Any] = {"category": name, "enforced": bool(names) or name in sizes}
            entry |= {"patterns": names, "phrases": sizes.get(name, 0)}
            if not entry["enforced"]:
                entry["note"] = (
                    "nothing is enforced: it needs a list, and there is none"
                    if name in NEEDS_LIST
                    else "nothing is enforced: all of its patterns are excluded"
                )
            entries.append(entry)
        if self.patterns:
            shown = [pattern.text for pattern in self.patterns]
            entries.append({"category": "custom", "enforced": True, "patterns": shown, "phrases": 0})
        return tuple(entries)


class SafetyBuilder:
    """Builds a `Safety` step by step. Each method changes the filter and returns it; `spec()` returns the `Safety`."""

    def __init__(self, preset: str | None = None, *, mode: SafetyMode = "mask", must_mask: bool = False) -> None:
        self._enabled: set[str] = set()
        self._lists: dict[str, tuple[str, ...]] = {}
        self._customs: list[Custom] = []
        self._include: set[str] = set()
        self._mode: SafetyMode = mode
        self._must_mask = must_mask
        if preset is not None:
            self.apply_preset(preset)

    def enable_category(self, category: str) -> Self:
        """Enable a category. Raises UnknownName."""
        self._enabled.add(check_category(category))
        return self

    def disable_category(self, category: str) -> Self:
        """Disable a category; its list is kept for when it is enabled again. Raises UnknownName."""
        self._enabled.discard(check_category(category))
        return self

    def apply_preset(self, preset: str) -> Self:
        """Enable exactly the preset's categories; lists and custom patterns stay. Raises UnknownName."""
        self._enabled = set(preset_categories(preset))
        self._customs = [
            *self._customs,
            *(custom for custom in _customs(preset_texts(preset)) if custom not in self._customs),
        ]
        return self

    def add_custom_banned_pattern(self, pattern: str, *, regex: bool = False) -> Self:
        """Add a custom text, or a regular expression. Raises SpecError."""
        (custom,) = _customs([Custom(pattern, regex)])
        self._customs.append(custom)
        return self

    def include(self, pattern: str) -> Self:
        """Switch on a pattern that is off unless named, such as `email`. Raises UnknownName."""
        self._include.add(check_pattern(pattern))
        return self

    def load_list(self, category: str, source: str | Path | Iterable[str]) -> Self:
        """Set the list of a category, from a file or from phrases. It applies whenever the category is enabled, before
        or after this call. Raises UnknownName, InputError, LimitExceeded."""
        check_category(category)
        is_file = isinstance(source, str | Path)
        self._lists[category] = read_list(Path(source)) if is_file else check_phrases(source, category)  # type: ignore[arg-type]
        return self

    def spec(self) -> Safety:
        """The `Safety` of the settings so far. Raises SpecError if nothing would be enforced."""
        return Safety(
            categories=tuple(self._enabled),
            include=tuple(name for name in self._include if BY_NAME[name].category in self._enabled),
            patterns=self._customs,
            lists={name: phrases for name, phrases in self._lists.items() if name in self._enabled},
            mode=self._mode,
            must_mask=self._must_mask,
        )


def safety_of(value: Any, *, field: str = "safety") -> Safety:
    """The filter of a request's field: the name of a preset, or an object with the fields of `Safety`. Raises
    InputError and its subclasses, naming the field."""
    if isinstance(value, Safety):
        return value
    if isinstance(value, str):
        return Safety(value)
    if not isinstance(value, Mapping):
        raise InputError(
            f"{field} is the name of a preset or an object", hint=f"one of: {', '.join(PRESETS)}", field=field
        )
    if value.get("kind", Safety.kind) != Safety.kind:
        raise SpecError(f"a filter is of kind {Safety.kind!r}, not {value['kind']!r}", field="kind")
    spec = Spec.from_json({**value, "kind": Safety.kind})
    assert isinstance(spec, Safety)
    return spec


def merged_safety(filters: Sequence[Safety]) -> Safety:
    """One filter that enforces everything that the given ones enforce. Its mode is `rewind` if one of them has it."""
    lists: dict[str, list[str]] = {}
    for member in filters:
        for name, phrases in member.lists:
            lists.setdefault(name, []).extend(phrases)
    enforced = {pattern.name for member in filters for pattern in member.built_in()}
    enabled = {name for member in filters for name in member.categories}
    return Safety(
        categories=tuple(enabled),
        include=tuple(sorted({name for member in filters for name in member.include})),
        exclude=[name for member in filters for name in member.exclude if name not in enforced],
        patterns=[custom for member in filters for custom in member.patterns],
        lists=lists,
        mode="rewind" if any(member.rewinds for member in filters) else "mask",
        must_mask=any(member.must_mask for member in filters),
    )


def preset_categories(preset: Any) -> tuple[str, ...]:
    """The categories of a preset. Raises UnknownName."""
    return PRESETS[_check_name(preset, PRESETS, "safety preset", "preset")]


def preset_texts(preset: Any) -> tuple[str, ...]:
    """The texts that a preset forbids beside its categories. Raises UnknownName."""
    return PRESET_TEXTS.get(_check_name(preset, PRESETS, "safety preset", "preset"), ())


def check_category(category: Any) -> str:
    """The category's name, if there is such a category. Raises UnknownName."""
    return _check_name(category, CATEGORIES, "safety category", "categories")


def check_pattern(name: Any) -> str:
    """The name of a built-in pattern, if there is such a pattern. Raises UnknownName."""
    return _check_name(name, BY_NAME, "safety pattern", "include")


def _check_name(name: Any, names: Iterable[str], what: str, field: str) -> str:
    there = list(names)
    if isinstance(name, str) and name in there:
        return name
    near = did_you_mean(str(name), there)
    meant = f"{near} " if near else ""
    raise UnknownName(f"unknown {what} {name!r}", hint=f"{meant}known: {', '.join(there)}", field=field)


def _names(names: Any, field: str, check: Any) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise SpecError(f"{field} is a list of names", field=field)
    return [check(name) for name in names]


def _lists(lists: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    pairs = lists.items() if isinstance(lists, Mapping) else lists
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise SpecError("lists are phrases by category", hint='{"violence": ["..."]}', field="lists")
    phrase_lists = {}
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise SpecError("lists are phrases by category", hint='{"violence": ["..."]}', field="lists")
        phrase_lists[check_category(pair[0])] = check_phrases(pair[1], str(pair[0]))
    if sum(len(phrases) for phrases in phrase_lists.values()) > MAX_PHRASES:
        raise LimitExceeded(f"a filter holds at most {MAX_PHRASES} phrases")
    return tuple((name, phrase_lists[name]) for name in CATEGORIES if name in phrase_lists)


def _with_texts(patterns: Any, preset: str | None) -> Any:
    """Custom patterns and the texts of a preset; what is no list is left for `_customs` to refuse."""
    texts = () if preset is None else preset_texts(preset)
    return patterns if not texts or isinstance(patterns, str) else (*patterns, *texts)


def _customs(patterns: Any) -> tuple[Custom, ...]:
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        raise SpecError("patterns are a list", hint='["rm -rf /", {"regex": "..."}]', field="patterns")
    customs: dict[Custom, None] = {}
    for number, pattern in enumerate(patterns):
        custom = pattern if isinstance(pattern, Custom) else _custom(pattern, number)
        check_text(custom.text, f"pattern {number}", "patterns")
        if not custom.text:
            raise SpecError(f"pattern {number} is empty: it would be found everywhere", field="patterns")
        if custom.is_regex and len(custom.text) > MAX_REGEX:
            raise LimitExceeded(f"pattern {number} has more than {MAX_REGEX} characters")
        customs[custom] = None
    if sum(custom.is_regex for custom in customs) > MAX_REGEXES:
        raise LimitExceeded(f"a filter holds at most {MAX_REGEXES} regular expressions")
    if len(customs) > MAX_PHRASES:
        raise LimitExceeded(f"a filter holds at most {MAX_PHRASES} patterns")
    return tuple(customs)


def _custom(pattern: Any, number: int) -> Custom:
    if isinstance(pattern, str):
        return Custom(pattern)
    if isinstance(pattern, Mapping) and len(pattern) == 1 and next(iter(pattern)) in ("text", "regex"):
        ((how, text),) = pattern.items()
        return Custom(text, how == "regex")
    shown = json.dumps(pattern, default=str)[:80]
    raise SpecError(f"pattern {number} is a text, or an object with `regex` or `text`, not {shown}", field="patterns")
