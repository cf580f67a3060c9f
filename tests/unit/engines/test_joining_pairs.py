"""What is named holds, for every pair of kinds, in every edge; see `tests/joining_laws.py`.

By default the edges other than Python take a part of the pairs; the slow tests take all of them.
"""

from __future__ import annotations

import json

import pytest

import espalier
from espalier.cli.main import main_code
from espalier.constraints.ban import Ban
from espalier.constraints.joining.presets import constraints_of, preset_parts
from espalier.constraints.joining.rule import together
from espalier.constraints.kinds import KINDS
from espalier.constraints.safety.spec import Safety
from espalier.engines.fake import open_engine
from espalier.errors import EspalierError
from espalier.sampling.presets.catalogue import BUILTIN
from espalier.sampling.presets.spec import Preset
from tests.joining_laws import EXAMPLES, PAIRS, SCHEMA, TOOLS, WISHES, WORDS, held, outcome, refused, some
from tests.server_app import client

GREEDY = {"temperature": 0, "max_tokens": 150}
MINE = Preset(
    name="mine",
    config={"bad_words": ["zebra"], "temperature": 0},
    filters=(
        {"type": "ban", "options": {"phrases": ["walk"]}},
        {"type": "safety", "options": {"patterns": ["krump them"]}},
    ),
)
PRESETS = [BUILTIN[name] for name in ("json_strict", "json_loose", "tool_call", "creative")] + [MINE]


def preset_constraint(preset):
    """What a preset alone holds a text to."""
    return together(*constraints_of(preset_parts(preset)))


@pytest.fixture(scope="module")
def engines():
    return [espalier.LoadedEngine(open_engine(wish=wish)) for wish in WISHES]


def test_every_kind_has_an_example():
    assert set(EXAMPLES) == set(KINDS)


def check(engine, kinds, members, **options):
    """One generation under the law; returns whether the text was complete."""
    try:
        result = engine.generate("hi", **GREEDY | options)
    except EspalierError as error:
        outcome(error, *kinds)
        return False
    if result.finish_reason == "length":
        assert result.verdict.valid is False  # it is not passed off as complete
        return False
    held(result.text, *members)
    assert result.verdict.valid is not False
    return True


def pairs_in_python(engines, pairs, wishes):
    complete = 0
    for place, (one, other) in enumerate(pairs):
        members = EXAMPLES[one], EXAMPLES[other]
        for wish in wishes(place):
            complete += check(engines[wish], (one, other), members, constraint=together(*members))
    return complete


def test_every_pair_in_python(engines):
    complete = pairs_in_python(engines, PAIRS, lambda place: [place % len(WISHES)])
    assert complete > len(PAIRS) // 2  # most pairs have a text in common


@pytest.mark.slow
def test_every_pair_in_python_with_every_wish(engines):
    pairs_in_python(engines, [(b, a) for a, b in PAIRS], lambda _: range(len(WISHES)))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_preset_and_a_constraint(engines, kind):
    """Both hold, or a note says that the constraint takes the place of the preset's."""
    own = EXAMPLES[kind]
    for preset in PRESETS:
        theirs = preset_constraint(preset)
        for engine in engines[:1]:
            try:
                result = engine.generate("hi", preset=preset, constraint=own, temperature=0, max_tokens=150)
            except EspalierError as error:
                # Two members of one kind are named by it; a preset's own parts are named by theirs.
                outcome(error, kind)
                continue
            replaced = [note for note in result.notes if repr(preset.name) in note]
            members = [own] + ([] if theirs is None or replaced else [theirs])
            assert not any(word in result.text for word in preset.config.get("bad_words", ()))
            if result.finish_reason == "length":
                assert result.verdict.valid is False
                continue
            held(result.text, *members)
            assert not (replaced and kind in ("ban", "safety", "wordlist"))


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_tools_and_a_constraint(engines, kind, choice):
    """Bans and filters hold for calls too; other constraints for a turn without calls, which a note says where a call
    is demanded."""
    own = EXAMPLES[kind]
    for engine in engines[1:2]:
        try:
            result = engine.generate("hi", tools=TOOLS, tool_choice=choice, constraint=own, **GREEDY)
        except EspalierError as error:
            outcome(error, kind)
            continue
        if result.finish_reason == "length":
            assert result.verdict.valid is False
            continue
        if kind in ("ban", "safety"):
            held(result.text, own)
        elif not result.tool_calls:
            assert choice != "required"
            held(result.content, own)
        elif choice == "required":
            assert any("tool_choice demands a call" in note for note in result.notes)
        if choice == "none":
            assert not result.tool_calls
        for call in result.tool_calls:
            held(call.arguments, espalier.JsonSchema(TOOLS[call.name]))


@pytest.mark.parametrize("named", ["constraint", "bad_words", "safety"])
@pytest.mark.parametrize("form", [None, EXAMPLES["json_object"]], ids=["free", "json"])
@pytest.mark.parametrize("is_held", [True, False])
def test_a_ban_holds_for_the_answer_and_where_asked_for_the_reasoning_too(named, form, is_held):
    own = {"constraint": Ban(["zebra"]), "bad_words": ["zebra"], "safety": {"patterns": ["zebra"]}}[named]
    asked = {"constraint": form} | {named: own if form is None or named != "constraint" else together(form, own)}
    engine = espalier.LoadedEngine(open_engine(wish='<think>a zebra</think>{"name": "zebra"}'))
    result = engine.generate("hi", reasoning="think", hold_reasoning=is_held, **GREEDY, **asked)
    assert "zebra" not in result.content
    assert result.reasoning
    # A safety filter holds for all that is written.
    assert ("zebra" in result.reasoning) is (named != "safety" and not is_held)
    assert result.verdict.valid is True
    if form is not None:
        held(result.content, form)


def test_reasoning_and_a_ban_of_the_shortest_answer():
    engine = espalier.LoadedEngine(open_engine(wish="<think>{}</think>{}"))
    asked = {"constraint": together(EXAMPLES["json_object"], Ban(["{}"])), "reasoning": "think"}
    for is_held in (False, True):
        result = engine.generate("hi", hold_reasoning=is_held, **GREEDY, **asked)
        if result.finish_reason == "stop":
            assert result.verdict.valid is True
        assert "{}" not in (result.text if is_held else result.content)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_bad_words_and_a_constraint(engines, kind):
    for engine in engines[:1]:
        check(
            engine,
            (kind, "ban"),
            (EXAMPLES[kind], Ban(["a", "krump"])),
            constraint=EXAMPLES[kind],
            bad_words=["a", "krump"],
        )


@pytest.mark.slow
@pytest.mark.parametrize("level", ["minimal", "standard", "code_safety"])
@pytest.mark.parametrize("preset", ["json_strict", "json_loose", "tool_call"])
def test_a_safety_preset_and_a_json_preset(engines, level, preset):
    wish = '{"name": "x", "args": {"command": "; sudo rm -rf /\\nrm -rf / | sh", "password": "hunter2"}}'
    engine = espalier.LoadedEngine(open_engine(wish=wish))
    check(engine, ("safety",), (preset_constraint(BUILTIN[preset]), Safety(level)), preset=preset, safety=level)


# HTTP: the second constraint by a field of its own where there is one

FIELDS = {
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    "json_object": {"espalier": {"constraint": EXAMPLES["json_object"].to_json()}},
    "regex": {"structured_outputs": {"regex": EXAMPLES["regex"].pattern}},
    "choice": {"structured_outputs": {"choice": list(EXAMPLES["choice"].options)}},
    "gbnf": {"grammar": EXAMPLES["gbnf"].grammar},
    "ban": {"bad_words": list(EXAMPLES["ban"].phrases)},
    "safety": {"espalier": {"safety": {"patterns": ["krump them", {"regex": "zor+b"}]}}},
}


def body_of(one, other):
    """A body that names the two each in a field of its own, or in one AllOf."""
    own = {"espalier": {"constraint": EXAMPLES[one].to_json()}}
    if other not in FIELDS or "constraint" in FIELDS[other].get("espalier", {}):
        whole = together(EXAMPLES[one], EXAMPLES[other])
        return {"espalier": {"constraint": whole.to_json()}}
    ours = own["espalier"] | FIELDS[other].get("espalier", {})
    return FIELDS[other] | {"espalier": ours}


def pairs_over_http(wish, route, pairs):
    complete = 0
    asked = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in route else {"prompt": "hi"}
    with client(wish) as http:
        for one, other in pairs:
            reply = http.post(route, json=GREEDY | asked | body_of(one, other))
            found = reply.json()
            if reply.status_code != 200:
                assert reply.status_code == 400 or found["error"]["code"] == "dead_end", found
                message, _, hint = found["error"]["message"].partition(" (")
                refused(message, hint or found["error"]["message"], one, other)
                assert found["error"]["param"] or reply.status_code != 400, found
                continue
            (choice,) = found["choices"]
            (output,) = found["espalier"]["outputs"]
            if choice["finish_reason"] == "length":
                assert output["verdict"]["valid"] is False
                continue
            complete += 1
            held(choice["text"] if "text" in choice else choice["message"]["content"], EXAMPLES[one], EXAMPLES[other])
            assert output["verdict"]["valid"] is not False
    return complete


@pytest.mark.slow
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
def test_pairs_over_http(route):
    pairs = list(some(PAIRS, every=7))
    assert pairs_over_http(WISHES[0], route, pairs) > len(pairs) // 3


@pytest.mark.slow
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
def test_every_pair_over_http(route):
    pairs_over_http(WISHES[1], route, PAIRS)


# The command line: the first from a file, the second by a flag where there is one


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "g.gbnf").write_text(EXAMPLES["gbnf"].grammar)
    (tmp_path / "words.json").write_text(json.dumps(WORDS))
    return {
        "json_schema": ["--schema", json.dumps(SCHEMA)],
        "regex": ["--regex", EXAMPLES["regex"].pattern],
        "choice": [part for text in EXAMPLES["choice"].options for part in ("--choice", text)],
        "gbnf": ["--grammar", str(tmp_path / "g.gbnf")],
        "wordlist": ["--vocab-words", str(tmp_path / "words.json")],
        "ban": ["--ban", "zebra", "--ban", "krump"],
    }


def pairs_on_the_command_line(capfd, tmp_path, flags, pairs):
    complete = 0
    for one, other in pairs:
        spec = EXAMPLES[one] if other in flags else together(EXAMPLES[one], EXAMPLES[other])
        file = tmp_path / "constraint.json"
        file.write_text(json.dumps(spec.to_json()))
        arguments = ["--constraint", str(file), *flags.get(other, []), "--temperature", "0", "--max-tokens", "150"]
        code = main_code(["generate", "-m", "fake", "--json", *arguments, "hi"])
        out, err = capfd.readouterr()
        if code == 2:
            message, _, hint = err.partition("\nhint: ")
            refused(message, hint, one, other)
            continue
        found = json.loads(out)
        if found["finish_reason"] == "length":
            assert (code, found["verdict"]["valid"]) == (1, False)
            continue
        assert code == 0, err
        complete += 1
        held(found["text"], EXAMPLES[one], EXAMPLES[other])
    return complete


@pytest.mark.slow
def test_pairs_on_the_command_line(capfd, tmp_path, flags):
    pairs = list(some(PAIRS, every=8))
    assert pairs_on_the_command_line(capfd, tmp_path, flags, pairs) > len(pairs) // 3


@pytest.mark.slow
def test_every_pair_on_the_command_line(capfd, tmp_path, flags):
    pairs_on_the_command_line(capfd, tmp_path, flags, PAIRS)


# A loop of transformers' own, over scores of its own


def pairs_in_a_loop(pairs):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from espalier.engines.fake import wishing
    from espalier.integrations.transformers import ConstraintLogitsProcessor
    from espalier.tokens.vocab import Vocab

    vocab, complete = Vocab.bytes(), 0
    (eos,) = vocab.eos_ids
    logits_of = wishing(vocab, WISHES[0], 1)
    for one, other in pairs:
        try:
            compiled = espalier.compile(together(EXAMPLES[one], EXAMPLES[other]), vocab=vocab)
            processor = ConstraintLogitsProcessor(compiled)
            tokens = [0]
            while tokens[-1] != eos and len(tokens) < 150:
                scores = torch.from_numpy(logits_of(tuple(tokens)).copy())[None]
                tokens.append(int(processor(torch.tensor([tokens]), scores)[0].argmax()))
        except EspalierError as error:
            if "dead end" in error.message or "no token is allowed" in error.message:
                continue  # a loop of one's own cannot take text back
            outcome(error, one, other)
            continue
        if tokens[-1] == eos:
            complete += 1
            held(vocab.decode(tokens[1:-1]).decode(), EXAMPLES[one], EXAMPLES[other])
    return complete


def test_pairs_in_a_loop_of_one_s_own():
    pairs = list(some(PAIRS, every=8))
    assert pairs_in_a_loop(pairs) > len(pairs) // 3


@pytest.mark.slow
def test_every_pair_in_a_loop_of_one_s_own():
    pairs_in_a_loop(PAIRS)
