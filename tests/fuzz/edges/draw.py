"""Draws requests: a prompt, a constraint of any kind and composition, samplers, a strategy, a trace level."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from espalier.constraints.after.spec import After
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.free import Free, Region
from espalier.constraints.safety.spec import Safety
from espalier.constraints.soft.spec import SoftJson
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.schema.patterns.cost import is_quick
from tests.fuzz.patterns import Patterns
from tests.fuzz.schema.schemas import HardMaker

PROMPTS = (
    "Generate user info",
    "Hello",
    "Read the file /etc/hosts",
    "List three words",
    "Tell me about foxes.",
    "é 你好",
    "Write a poem",
)
SCHEMAS: tuple[Any, ...] = (
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["a", "ab", "b", 1, None]}, "uniqueItems": True, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 30}, "uniqueItems": True, "minItems": 3},
    {"type": "object", "properties": {"a": {"enum": ["x", "xy"]}, "b": {"type": "boolean"}}, "required": ["b"]},
    {"anyOf": [{"type": "string", "pattern": "^[a-c]{1,3}$"}, {"type": "number", "multipleOf": 0.5}]},
    {"type": "string", "maxLength": 12},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}},
    {"type": "object", "patternProperties": {"^[a-z]+$": {"type": "integer"}}, "minProperties": 1, "maxProperties": 2},
    {"type": "string", "pattern": r"\bcat\b", "maxLength": 16},
    {"type": "string", "pattern": r"^(?=.*fox).{0,20}$"},
    {"not": {"type": "string"}, "type": ["string", "null", "boolean"]},
)
REGEXES = (
    r"[a-z ]{4,20}",
    r"(?i)yes|no",
    r"[^\n#]*",
    r"\d{3}-\d{4}",
    r"([a-z]+ ){2,4}[a-z]+[.]",
    r"[A-Z][a-z]+ [a-z]+[.]",
    r"(?:ab|a){0,6}c?",
    r"é?[a-zé]+",
)
GRAMMARS = (
    'root ::= "(" list ")"\nlist ::= item ("," item){1,3}\nitem ::= [a-c]{1,2} | "[" list "]"',
    'root ::= "the " ("cat" | "dog") " " [a-z]+ "."',
    "root ::= [^<]* ",
)
WORDS = ("a", "yes", "no", "name", "walk", "them", "all", "the", "is", "fox", "don't", "user")
PHRASES = ("zebra", "the", "name", "e", " a", "user info", "krump", "://", '"')
TOOLS: dict[str, Any] = {
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string", "maxLength": 20}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "add": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"enum": [1, 2]}},
        "required": ["x", "y"],
        "additionalProperties": False,
    },
}
STRATEGIES = (*("mask", "draft", "rejection") * 3, *("jump",) * 2, "smc", "best_of", "awrs", "beam")
STOPS = ("\n", "fox", "a", "}", " the", ". ", '",', "é")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request. engine: `transformers`, `llamacpp`, or `drafted`, which is the second with a smaller model of
    the first that drafts. sampling: fields of SamplingConfig, with a seed. decoding: the strategy and its options.
    top_k: candidates of each stage. is_soft: whether it is biased towards JSON too."""

    engine: str
    prompt: str
    raw: bool
    constraint: Spec | None
    tools: dict[str, Any] | None
    tool_choice: str
    sampling: dict[str, Any]
    decoding: dict[str, Any]
    level: str
    top_k: int
    is_soft: bool
    features: tuple[str, ...] = field(default=(), compare=False)

    def options(self) -> dict[str, Any]:
        """The arguments of `generate` but for trace and recorders."""
        tools = {} if self.tools is None else {"tools": self.tools, "tool_choice": self.tool_choice}
        soft = {"soft": SoftJson()} if self.is_soft else {}
        own = {"constraint": self.constraint, "raw": self.raw, "trace_top_k": self.top_k}
        return {**own, **soft, **tools, **self.sampling, **self.decoding}


def simple_spec(random: Random) -> Spec:
    """A constraint without members."""
    kind = random.randrange(11)
    if kind <= 1:
        schema = random.choice(SCHEMAS)
        if random.random() < 0.25:
            schema = HardMaker(random, depth=random.randint(1, 2)).objects(0)
        style: Any = random.choice(("natural", "compact", "flexible", "indented"))
        return JsonSchema(schema, whitespace=style)
    if kind == 2:
        return JsonObject(max_depth=random.randint(1, 3))
    if kind <= 4:
        pattern = random.choice(REGEXES) if random.random() < 0.7 else Patterns(random).pattern()
        return Regex(pattern if is_quick(pattern, 60) else REGEXES[0])  # others are judged in a process of their own
    if kind == 5:
        return Choice(random.sample(('{"name": "Ada"}', "yes", "a zebra", "7;", "yes and no", "é"), 3))
    if kind == 6:
        return Gbnf(random.choice(GRAMMARS))
    if kind == 7:
        return Wordlist(words=WORDS, capitals=random.choice(("never", "sentence")), digits=random.random() < 0.5)
    if kind == 8:
        return Ban(random.sample(PHRASES, random.randint(1, 3)))
    return safety_spec(random)


def safety_spec(random: Random) -> Spec:
    """A safety filter: a preset, or patterns of one's own."""
    if random.random() < 0.5:
        return Safety(random.choice(("minimal",) * 9 + ("standard", "strict")))
    mode: Any = random.choice(("mask", "mask", "rewind"))
    customs = random.sample(("the", "user", "fox", "ab"), random.randint(1, 2))
    return Safety(patterns=[*customs, {"regex": "[a-d]e+r"}], mode=mode)


def drawn_spec(random: Random) -> Spec | None:
    """Any constraint, or none."""
    draw = random.random()
    if draw < 0.08:
        return None
    if draw < 0.55:
        return simple_spec(random)
    if draw < 0.75:
        second = random.choice((Ban(random.sample(PHRASES, 2)), safety_spec(random), simple_spec(random)))
        ends: Any = random.choice(("auto", "auto", "refuse", "rewind"))
        return AllOf(simple_spec(random), second, dead_ends=ends)
    if draw < 0.85:
        return AnyOf(simple_spec(random), simple_spec(random))
    if draw < 0.91:
        return After(random.choice((" ", "</think>", "\n")), simple_spec(random), max_before=random.randint(1, 5))
    if draw < 0.96:
        return Free({"$": Region(Regex("[0-9]{1,3}"), end=";"), "the": Region(Regex(" [a-z]+"), end=".")})
    return Thinking(simple_spec(random))


def drawn_sampling(random: Random) -> dict[str, Any]:
    """Fields of SamplingConfig: one family of truncations, and penalties, biases and bans beside it."""
    found: dict[str, Any] = {"seed": random.randrange(2**31), "max_tokens": random.choice((1, 3, 8, 16, 16, 32))}

    def maybe(share: float, name: str, *values: Any) -> None:
        if random.random() < share:
            found[name] = random.choice(values)

    maybe(0.7, "temperature", 0.0, 0.0, 0.3, 1.0, 1.0, 1.5, 2.0)
    maybe(0.5, "repetition_penalty", 1.0, 1.0, 1.3, 0.8)
    maybe(0.2, "repetition_window", -1, 0, 4, 300)
    maybe(0.2, "frequency_penalty", 0.5, -0.5, 1.9)
    maybe(0.2, "presence_penalty", 0.4, -0.6)
    maybe(0.15, "dry_multiplier", 0.8, 2.0)
    maybe(0.15, "min_tokens", 1, min(3, found["max_tokens"]))
    if random.random() < 0.1:
        found |= {"mirostat": random.choice((1, 2)), "mirostat_tau": random.choice((1.0, 3.0, 5.0))}
        return found | _biases(random)
    maybe(0.5, "top_k", 0, 0, 1, 5, 200)
    maybe(0.5, "top_p", 1.0, 1.0, 0.5, 0.9)
    maybe(0.5, "min_p", 0.0, 0.0, 0.1, 0.3)
    maybe(0.15, "typical_p", 0.3, 0.9)
    maybe(0.1, "top_n_sigma", 1.0, 2.5)
    maybe(0.1, "min_keep", 1, 3)
    if random.random() < 0.15:
        found |= {"xtc_probability": random.choice((0.5, 1.0)), "xtc_threshold": random.choice((0.05, 0.2))}
    if random.random() < 0.07 and found.get("temperature") != 0.0:
        found |= {"dynatemp_range": 0.4, "dynatemp_exponent": random.choice((1.0, 2.0))}
    if random.random() < 0.35:
        order = list(random.choice((DEFAULT_ORDER, OPENAI_ORDER)))
        if random.random() < 0.5:
            random.shuffle(order)
        found["sampler_order"] = tuple(order)
    return found | _biases(random)


def _biases(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if random.random() < 0.12:
        tokens = random.sample(range(300, 2000), 4)
        found["logit_bias"] = tuple((one, random.choice((5.0, -3.0, 80.0, float("-inf")))) for one in tokens)
    if random.random() < 0.06:
        found["bad_words"] = tuple(random.sample(PHRASES, 2))
    if random.random() < 0.25:
        found["stop"] = tuple(random.sample(STOPS, random.randint(1, 2)))
    if random.random() < 0.08:
        found["stop_ids"] = tuple(random.sample(range(260, 1500), 3))
    if random.random() < 0.2:
        found["n"] = random.choice((2, 2, 3))
    return found


def drawn_decoding(random: Random, *, has_constraint: bool, has_sibling: bool) -> dict[str, Any]:
    """A strategy with options of its own. has_sibling: whether a smaller model drafts."""
    name = "draft" if has_sibling else random.choice(STRATEGIES)
    found: dict[str, Any] = {"strategy": name}
    if has_constraint and random.random() < 0.35:
        found["on_budget"] = random.choice(("close", "close", "truncate", "error"))
    if name == "draft" and random.random() < 0.5:
        names = ("forced", "grammar", "lookup", *(("model",) if has_sibling else ()))
        found["drafts"] = tuple(random.sample(names, random.randint(1, len(names))))
    if name in ("smc", "best_of", "awrs"):
        found["particles"] = random.choice((2, 3))
        found["target"] = random.choice(("full", "truncated", "truncated"))
    if name == "beam":
        found["num_beams"] = random.choice((2, 3))
        found["num_return_sequences"] = random.choice((1, 2))
    return found


def drawn(random: Random) -> Asked:
    """A request. What does not go together is refused by every edge alike, which is compared too."""
    engine = random.choice(("transformers", "llamacpp", "llamacpp", "drafted"))
    constraint = drawn_spec(random)
    has_tools = random.random() < 0.07
    raw = not has_tools and random.random() < 0.35
    is_held = constraint is not None or has_tools
    decoding = drawn_decoding(random, has_constraint=is_held, has_sibling=engine == "drafted")
    sampling = drawn_sampling(random)
    if decoding["strategy"] == "beam":
        kept = ("seed", "max_tokens", "stop", "repetition_penalty", "min_tokens", "logit_bias")
        sampling = {name: sampling[name] for name in kept if name in sampling} | {"temperature": 1.0}
    if decoding["strategy"] in ("smc", "best_of", "awrs"):
        # Who names no truncation means none with the target `full`, and the defaults with the other.
        off = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        whole = decoding["target"] == "full"
        sampling = {**sampling, **off} if whole else {**off, **sampling}
    if has_tools:
        sampling["max_tokens"] = 60
    level = random.choice(("summary", "steps", "steps", "full", "off"))
    kinds = () if constraint is None else tuple(sorted(_kinds(constraint.to_json())))
    return Asked(
        engine=engine,
        prompt=random.choice(PROMPTS),
        raw=raw,
        constraint=constraint,
        tools=TOOLS if has_tools else None,
        tool_choice=random.choice(("auto", "required")) if has_tools else "auto",
        sampling=sampling,
        decoding=decoding,
        level=level,
        top_k=random.choice((10, 10, 10, 1, 70)),
        is_soft=random.random() < 0.06,
        features=(engine, str(decoding["strategy"]), level, *kinds, *(("tools",) if has_tools else ())),
    )


def _kinds(data: Any) -> set[str]:
    if isinstance(data, dict):
        inner = {data["kind"]} if isinstance(data.get("kind"), str) else set()
        return inner.union(*(_kinds(one) for one in data.values()))
    return set().union(*(_kinds(one) for one in data)) if isinstance(data, list) else set()
