"""`Channels`: turns of gpt-oss, held token by token: laws, headers, answers, calls, limits, and what OpenAI's own
parser makes of random walks through the mask."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from espalier import AllOf, Ban, Channels, JsonSchema, Regex, ToolCalls, Vocab
from espalier.chat.tools import ToolChoice
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import portable
from espalier.constraints.verdict import judge, parse
from espalier.errors import CapabilityError, InputError, SpecError, UnsupportedError
from espalier.tokens import mask as masks
from tests.examples import examples
from tests.gpt_oss import (
    CALL,
    FINAL,
    NEXT,
    PREAMBLE,
    RETURN,
    THOUGHT,
    TYPES,
    VOCAB,
    call,
    encode,
    read_by_openai,
    spell,
)
from tests.laws import check_completion, check_matcher
from tests.tool_texts import TOOLS, random_call

BYTES, SPECIAL = Compiler(Vocab.bytes()), Compiler(VOCAB)
A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FIVE = '{"a": 5}'
READ = '{"path": "a"}'
PROMPT = "<|start|>assistant"


def calls(choice: Any = "auto", **options: Any) -> ToolCalls:
    return ToolCalls(TOOLS, format="harmony", choice=choice, **options)


ANSWERS = [f"{before}{FINAL}" for before in ("", THOUGHT, THOUGHT + THOUGHT)]
CALLED = [
    before + call("read", READ, kind, in_role=in_role).removesuffix("<|call|>")
    for before in ("", THOUGHT, PREAMBLE, THOUGHT + PREAMBLE + THOUGHT)
    for kind in TYPES
    for in_role in (False, True)
]
BUILT_IN = THOUGHT + '<|channel|>analysis to=browser.search code<|message|>{"q": 1}'
FORGOTTEN = [THOUGHT.replace(NEXT, end) + FINAL + "x" for end in ("<|end|>", "<|start|>assistant", "")]
"""Without a part of what stands between two messages."""
SPECS: dict[str, tuple[Channels, list[str], list[str]]] = {
    "free": (
        Channels(),
        [f"{text}x" for text in ANSWERS] + [PREAMBLE + FINAL],
        [THOUGHT, CALLED[0], BUILT_IN, "x", *FORGOTTEN],
    ),
    "answer": (
        Channels(JsonSchema(A)),
        [text + FIVE for text in ANSWERS] + [f"{THOUGHT}<|channel|>final{kind}<|message|>{FIVE}" for kind in TYPES[2:]],
        [f"{THOUGHT}{FINAL}x", f"{PREAMBLE}{FINAL}{FIVE}", FIVE, *CALLED[:2]],
    ),
    "auto": (Channels(calls=calls()), [f"{ANSWERS[1]}x", *CALLED], [BUILT_IN, call("nope", "{}"), call("read", "{}")]),
    "required": (Channels(calls=calls("required")), CALLED, [f"{text}x" for text in ANSWERS]),
    "none": (Channels(calls=calls("none")), [f"{text}x" for text in ANSWERS], CALLED),
    "both": (Channels(JsonSchema(A), calls()), [ANSWERS[1] + FIVE, *CALLED], [f"{ANSWERS[1]}x"]),
    "short": (Channels(thinks=False), [FINAL + "x", PREAMBLE + FINAL], [f"{THOUGHT}{FINAL}x"]),
}  # fmt: skip


def follow(compiled: Any, text: str) -> bool:
    """Whether the mask lets the special tokens and bytes of a text be written, and the turn end there."""
    matcher = compiled.matcher(before=PROMPT)
    for token in encode(text):
        if not matcher.allows(token):
            return False
        matcher.advance(token)
    return matcher.is_accepting and matcher.allows(RETURN) and matcher.allows(CALL)


@pytest.mark.parametrize("name", SPECS)
def test_turns_are_accepted_as_text_and_as_special_tokens(name: str) -> None:
    spec, good, bad = SPECS[name]
    for text in good:
        assert BYTES.compile(spec).accepts(text), text
        assert follow(SPECIAL.compile(spec), text), text
        assert judge(spec, text).valid is True, text
    for text in bad:
        assert not BYTES.compile(spec).accepts(text), text
        assert not follow(SPECIAL.compile(spec), text), text


@pytest.mark.parametrize("vocab", ["bytes", "special"])
@pytest.mark.parametrize("name", SPECS)
def test_laws(name: str, vocab: str) -> None:
    spec, good, bad = SPECS[name]
    compiler = BYTES if vocab == "bytes" else SPECIAL
    check_matcher(compiler.compile(spec), trie=compiler.trie, accepted=good[:3], rejected=bad[:2], walks=1)


def test_a_turn_in_tool_calls_is_a_turn_in_channels() -> None:
    spec = calls(content=JsonSchema(A))
    for text in (ANSWERS[1] + FIVE, *CALLED):
        assert BYTES.compile(spec).accepts(text), text
        assert judge(spec, text).valid is True
    assert parse(spec, ANSWERS[1] + FIVE) == {"a": 5}
    assert parse(spec, CALLED[-1]) == [{"name": "read", "arguments": {"path": "a"}}]
    assert not BYTES.compile(spec).accepts("x")
    with pytest.raises(UnsupportedError, match="'harmony' have no automaton"):
        BYTES.language(spec, wanted_by="AnyOf")


def test_random_calls_are_accepted_and_come_back() -> None:
    rng = random.Random(3)
    spec = Channels(calls=calls())
    compiled = SPECIAL.compile(spec)
    for _ in range(examples(60)):
        name, arguments = random_call(rng)
        text = THOUGHT + call(
            name, json.dumps(arguments, ensure_ascii=False), rng.choice(TYPES), in_role=rng.random() < 0.5
        )
        text = text.removesuffix("<|call|>")
        assert follow(compiled, text), text
        assert parse(spec, text) == [{"name": name, "arguments": arguments}]


def test_several_calls_where_the_marker_behind_one_does_not_end_the_turn() -> None:
    text = f"{call('now', '{}')}<|start|>assistant{call('read', READ)}"
    assert BYTES.compile(Channels(calls=calls())).accepts(text)
    assert not BYTES.compile(Channels(calls=calls(max_calls=1))).accepts(text)
    assert not follow(SPECIAL.compile(Channels(calls=calls())), text)
    single = Channels(calls=calls(ToolChoice(mode="required", names=("read",), single=True)))
    assert BYTES.compile(single).accepts(call("read", READ))
    assert not BYTES.compile(single).accepts(call("now", "{}"))


def walk(compiled: Any, rng: random.Random) -> str:
    """A random text of the language. Special tokens are likely, and so is what closes things."""
    matcher, tokens = compiled.matcher(before=PROMPT), []
    for _ in range(rng.randint(0, 90)):
        ids = [int(token) for token in masks.allowed_ids(matcher.mask(), VOCAB.width) if token not in VOCAB.eos_ids]
        if not ids:
            break
        special = [token for token in ids if token > 255]
        closing = [token for token in ids if token < 128 and chr(token) in '"}]']
        likely = special if special and rng.random() < 0.5 else closing if closing and rng.random() < 0.3 else ids
        token = rng.choice(likely)
        matcher.advance(token)
        tokens.append(token)
    check_completion(matcher)
    return spell([*tokens, *matcher.shortest_completion()[:-1]])


@pytest.mark.parametrize("name", ["answer", "auto", "required", "both"])
def test_openai_reads_every_turn_that_the_mask_lets_be_written(name: str) -> None:
    spec = SPECS[name][0]
    compiled, rng = SPECIAL.compile(spec), random.Random(name)
    kinds = set()
    for _ in range(examples(60)):
        text = walk(compiled, rng)
        verdict = judge(spec, text)
        assert verdict.valid is True, (text, verdict.errors)
        read = read_by_openai(text)
        for called, arguments in read.calls:
            jsonschema.validate(json.loads(arguments), TOOLS[called])
        if not read.calls and spec.final is not None:
            jsonschema.validate(json.loads(read.content[-1]), A)
        kinds.add((bool(read.calls), bool(read.reasoning)))
    assert len(kinds) > 1


# What the prompt holds, limits, other constraints


def test_the_text_goes_on_where_the_prompt_has_begun_a_message() -> None:
    compiled = SPECIAL.compile(Channels(JsonSchema(A), calls()))
    for before, rest in (
        (PROMPT, ANSWERS[1] + FIVE),
        ("", PROMPT + ANSWERS[1] + FIVE),
        ("", ANSWERS[0] + FIVE),
        (f"{PROMPT}<|channel|>analysis<|message|>hm", f" so{NEXT}{FINAL}{FIVE}"),
        (f"{PROMPT}{FINAL}{{", '"a": 5}'),
        (f"{PROMPT}{THOUGHT}<|channel|>commentary", f" to=functions.read<|message|>{READ}"),
    ):
        matcher = compiled.matcher(before=before)
        for token in encode(rest):
            matcher.advance(token)
        assert matcher.is_accepting, (before, rest)
        assert judge(compiled.spec, compiled.spec.begun(before) + rest).valid is True
    with pytest.raises(InputError, match="the prompt has begun a message of the model's that is no"):
        compiled.matcher(before=f"{PROMPT}<|channel|>other<|message|>")


@pytest.mark.parametrize("most", [0, 3, 40])
def test_a_limit_on_the_reasoning_leads_to_the_answer(most: int) -> None:
    compiled = SPECIAL.compile(Channels(JsonSchema(A), max_tokens=most))
    matcher = compiled.matcher(before=PROMPT)
    header = encode("<|channel|>analysis<|message|>")
    text = header + encode("x" * 200)
    count = 0
    while count < len(text) and matcher.allows(text[count]):
        matcher.advance(text[count])
        count += 1
    assert count <= max(most, len(header))
    way = matcher.shortest_completion()
    assert spell([*text[:count], *way[:-1]]).endswith(f'{FINAL}{{"a":0}}')
    with pytest.raises(CapabilityError, match="counts no tokens"):
        portable(compiled.spec, BYTES)


def test_a_ban_beside_it_holds_for_the_whole_turn() -> None:
    compiled = SPECIAL.compile(AllOf(Channels(calls=calls()), Ban(("bad",))))
    assert follow(compiled, f"{THOUGHT}{FINAL}x")
    assert not follow(compiled, f"{THOUGHT}{FINAL}bad")
    assert not follow(compiled, THOUGHT + call("read", '{"path": "bad"}').removesuffix("<|call|>"))
    held = SPECIAL.compile(Channels(Ban(("bad",))))
    assert follow(held, f"{THOUGHT.replace('hm', 'bad')}{FINAL}x")
    assert not follow(held, f"{THOUGHT}{FINAL}bad")


def test_why_a_call_of_a_built_in_tool_is_refused() -> None:
    matcher = SPECIAL.compile(Channels(calls=calls())).matcher(before=PROMPT)
    for token in encode("<|channel|>analysis to="):
        matcher.advance(token)
    blame = matcher.explain(ord("b"))
    assert (blame.member, blame.reason) == ("channels", 'here the constraint requires "f", not "b"')


def test_the_grammar_for_llama_cpp_accepts_the_same_texts() -> None:
    from espalier import Gbnf

    for name in ("answer", "auto", "both"):
        spec, good, bad = SPECS[name]
        grammar = BYTES.compile(Gbnf(portable(spec, BYTES, before=PROMPT)))
        assert all(grammar.accepts(text) for text in good)
        assert not any(grammar.accepts(text) for text in bad)


def test_it_round_trips_and_names_wrong_fields() -> None:
    spec = Channels(JsonSchema(A), calls(), thinks=False, max_tokens=5)
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    hermes = ToolCalls(TOOLS, format="hermes")
    for field, values in (
        ("calls", {"calls": hermes}),
        ("calls", {"calls": calls(content=Regex("a"))}),
        ("calls", {"calls": 3}),
        ("final", {"final": 3}),
        ("thinks", {"thinks": 1}),
        ("max_tokens", {"max_tokens": -1}),
    ):
        with pytest.raises(SpecError) as error:
            Channels(**values)
        assert error.value.field == field
