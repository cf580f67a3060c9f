"""The whole path on GGUF files: the demo model, and models with random weights that tests make."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import espalier
from espalier.constraints.kinds import KINDS
from espalier.engines.base import FinishEvent, Request
from espalier.engines.options import EngineOptions
from espalier.errors import CapabilityError, InputError, TemplateError, UnknownModel
from espalier.settings import KernelSettings
from espalier.wiring import build_app, demo_model
from tests import gguf_models as made

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

DEMO = demo_model() / "demo.gguf"
USER = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}


@pytest.fixture(scope="module")
def eng():
    with espalier.load(DEMO, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def bpe_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    return made.write_llama(folder / "año.gguf", made.bpe_words(padded_to=400), chat_template=made.CHATML)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
GRAMMAR = 'root ::= [a-z]{2,8} (" " [a-z]{1,6}){0,3}'
EACH = {
    "json_schema": lambda: espalier.JsonSchema(USER),
    "json_object": espalier.JsonObject,
    "regex": lambda: espalier.Regex("[A-Z]{3}-[0-9]{4}"),
    "choice": lambda: espalier.Choice(["yes", "no"]),
    "gbnf": lambda: espalier.Gbnf(GRAMMAR),
    "ban": lambda: espalier.AllOf(espalier.Ban(["a", "e"]), espalier.Regex("[a-z ]{1,30}")),
    "safety": lambda: espalier.AllOf(espalier.Safety(patterns=["name"]), espalier.Regex("[a-z ]{1,30}")),
    "all_of": lambda: espalier.AllOf(espalier.JsonObject(), espalier.Ban(["@"])),
    "any_of": lambda: espalier.AnyOf(espalier.Choice(["maybe"]), espalier.Regex("[0-9]{3}")),
    "after": lambda: espalier.After(":", espalier.Regex("[0-9]{2}"), max_before=5),
    "free": lambda: espalier.AllOf(
        espalier.Free({"<x>": espalier.Region(espalier.Regex("[0-9]"), end="</x>")}), espalier.Ban(["zzz"])
    ),
    "thinking": lambda: espalier.Thinking(espalier.Choice(["yes"]), max_tokens=4),
    "channels": lambda: espalier.Channels(espalier.Choice(["yes"]), max_tokens=4),
    "tool_calls": lambda: espalier.ToolCalls([WEATHER], choice="required"),
    "wordlist": lambda: espalier.AllOf(
        espalier.Wordlist(["the", "dog", "is", "here"]), espalier.Regex("[A-Za-z ,.]{1,40}")
    ),
}


@pytest.mark.parametrize("kind", EACH)
def test_every_kind_of_constraint_holds(eng, kind):
    result = eng.generate("Generate user info", constraint=EACH[kind](), temperature=0, max_tokens=250)
    assert result.finish_reason in ("stop", "tool_calls"), result.text
    if kind == "gbnf":  # which has no judge beside the matcher
        assert espalier.compile(EACH[kind]()).accepts(result.text)
    else:
        assert result.verdict.valid is True, (result.text, result.verdict)


def test_no_kind_of_constraint_is_left_out():
    assert set(KINDS.names()) <= set(EACH)


def test_the_engine_says_what_it_can(eng):
    assert eng.name == "demo.gguf"
    found = eng.capabilities
    assert found.logits
    assert found.truncate
    assert found.fork
    assert found.chat_template
    assert found.max_context == 1024  # what it was trained for
    assert set(KINDS.names()) <= found.constraints


def test_soft_filters_nudge_and_calls_and_reasoning_are_read(eng):
    soft = eng.generate("Generate user info", soft=espalier.SoftJson(), temperature=0, max_tokens=40)
    assert soft.text
    called = eng.generate("Read the file /etc/hosts", tools=[WEATHER], tool_choice="required", seed=1, max_tokens=120)
    assert called.tool_calls[0].name == "get_weather"
    assert set(called.tool_calls[0].parsed) == {"city"}
    thought = eng.generate(
        "Generate user info",
        constraint=espalier.JsonObject(),
        reasoning="think",
        max_reasoning=8,
        seed=1,
        max_tokens=200,
    )
    assert isinstance(thought.parsed, dict)


def test_outputs_are_as_many_as_asked_for_repeatable_and_as_in_a_batch(eng):
    options = {"constraint": espalier.JsonObject(), "seed": 5, "max_tokens": 60}
    three = eng.generate("Generate user info", n=3, **options)
    assert [r.token_ids for r in three] == [r.token_ids for r in eng.generate("Generate user info", n=3, **options)]
    assert three[0].token_ids == eng.generate("Generate user info", **options).token_ids
    assert len({r.text for r in three}) > 1


def test_a_stop_text_ends_the_answer_and_the_stream_is_the_text(eng):
    result = eng.generate("Generate user info", constraint=espalier.JsonSchema(USER), temperature=0)
    events = list(eng.stream("Generate user info", constraint=espalier.JsonSchema(USER), temperature=0))
    assert "".join(event.text for event in events) == result.text
    assert isinstance(events[-1], FinishEvent)
    assert events[-1].result.token_ids == result.token_ids
    stopped = eng.generate("Generate user info", temperature=0, stop=['"name"'], max_tokens=60)
    assert stopped.stop_reason == '"name"'


def test_a_trace_is_saved(eng, tmp_path):
    result = eng.generate("Generate user info", constraint=espalier.JsonObject(), seed=1, max_tokens=60)
    result.trace.save(tmp_path / "t.html")
    assert "<html" in (tmp_path / "t.html").read_text(encoding="utf-8")
    assert len(result.trace.steps) == len(result.token_ids)


def test_threads_get_what_they_get_alone(eng):
    """Lists and several outputs a call: each has many rows at once, which another thread's pass would write over."""
    options = {"constraint": espalier.JsonObject(), "n": 3, "seed": 4, "max_tokens": 24}
    calls = [["Generate user info", "Describe a server"], ["Hello", "Write a list", "Generate user info"]]

    def texts(prompts):
        return [result.text for result in eng.generate(prompts, **options)]

    alone = [texts(prompts) for prompts in calls]
    assert [len(found) for found in alone] == [6, 9]
    assert len(set(alone[1])) > 3
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(texts, calls * 3))
    assert found == alone * 3


def test_two_engines_on_one_file_do_not_disturb_one_another():
    options = {"constraint": espalier.JsonObject(), "temperature": 0, "max_tokens": 40}
    with espalier.load(DEMO, threads=1) as first, espalier.load(str(DEMO), threads=1) as second:
        one = first.stream("Generate user info", **options)
        begun = [next(one) for _ in range(5)]
        text = second.generate("Generate user info", **options).text
        first.generate("something else", **options)
        assert "".join(e.text for e in [*begun, *one]) == text


def test_an_engine_that_is_closed_within_a_run_finishes_it_and_takes_no_other():
    engine = espalier.load(DEMO, threads=1)
    whole = engine.generate("Generate user info", temperature=0, max_tokens=20).text
    events = engine.stream("Generate user info", temperature=0, max_tokens=20)
    text = next(events).text
    engine.close()
    engine.close()
    assert text + "".join(event.text for event in events) == whole
    with pytest.raises(InputError, match="closed"):
        engine.generate("Generate user info")


def test_a_run_that_is_dropped_gives_its_memory_back(eng):
    events = eng.stream("Generate user info", max_tokens=20)
    next(events)
    events.close()
    free = [eng.engine.model.new() for _ in range(eng.engine.model.max_sequences)]
    for sequence in free:
        eng.engine.model.free(sequence)


def test_a_path_may_be_from_home_not_ascii_and_in_capitals(tmp_path, monkeypatch, bpe_file):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MODELO.GGUF", "modèle 東.gguf", "model.bin"):
        shutil.copy(bpe_file, tmp_path / name)
        with espalier.load(f"~/{name}", context=64) as engine:
            assert engine.name == name
            assert engine.capabilities.max_context == 64


@pytest.mark.parametrize("words", [made.bpe_words(padded_to=400), made.spm_words(padded_to=480)], ids=["bpe", "spm"])
def test_a_model_of_random_weights_satisfies_constraints(tmp_path, words):
    path = made.write_llama(tmp_path / "m.gguf", words)
    with espalier.load(path, threads=1) as engine:
        for seed in range(4):
            result = engine.generate(
                "Hello",
                constraint=espalier.JsonSchema(
                    {
                        "type": "object",
                        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}},
                        "required": ["a"],
                        "additionalProperties": False,
                    }
                ),
                seed=seed,
                temperature=2,
                top_k=0,
                top_p=1,
                min_p=0,
            )
            assert result.verdict.valid is True, result.text
        free = engine.generate("Hello", seed=1, temperature=5, top_k=0, top_p=1, min_p=0, max_tokens=100)
        assert max(free.token_ids) < words.width - 8  # never padding


def test_a_model_without_a_template_takes_plain_prompts_alone(tmp_path):
    path = made.write_llama(tmp_path / "m.gguf", made.bpe_words())
    with espalier.load(path) as engine:
        assert not engine.capabilities.chat_template
        assert engine.generate("Hello", max_tokens=3, temperature=0).usage.prompt_tokens > 0
        with pytest.raises(InputError, match=r"m\.gguf has no chat template"):
            engine.generate([{"role": "user", "content": "Hi"}])


BROKEN = {
    "{% for m in messages %}{{ m.content }}": "does not parse",
    "{{ messages | no_such_filter }}": "no_such_filter",
    "chatml": "'chatml', which is no Jinja template",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_model_with_a_broken_template_works_with_raw_prompts_and_says_why_not_otherwise(tmp_path, source):
    path = made.write_llama(tmp_path / "m.gguf", made.bpe_words(), chat_template=source)
    with espalier.load(path) as engine:
        assert engine.generate("Hello", raw=True, max_tokens=3, temperature=0).usage.prompt_tokens > 0
        for prompt in ("Hello", [{"role": "user", "content": "Hi"}]):
            with pytest.raises(TemplateError, match=BROKEN[source]) as caught:
                engine.generate(prompt)
            assert "raw" in caught.value.hint


def test_a_template_sees_bos_and_eos_and_tools_have_their_own(tmp_path):
    template = "{{ bos_token }}|{{ messages[0].content }}|{{ eos_token }}"
    tools = "TOOLS {{ tools | tojson }} <tool_call> {{ messages[0].content }}"
    path = made.write_llama(
        tmp_path / "m.gguf", made.bpe_words(), chat_template=template, keys={"tokenizer.chat_template.tool_use": tools}
    )
    with espalier.load(path, tool_format="hermes") as engine:
        assert engine.engine.prompt_text(Request(prompt="Hi")) == "<|endoftext|>|Hi|<|im_end|>"
        trace = engine.generate("Hi", tools=[WEATHER], tool_choice="required", max_tokens=200, seed=1).trace
        assert trace.prompt.startswith("TOOLS ")
        assert "get_weather" in trace.prompt


def test_options_reach_the_model_and_settings_stand_behind_them(tmp_path, bpe_file):
    app = build_app(KernelSettings(options=EngineOptions(context=32, sequences=2, dtype="float16")))
    with espalier.load(bpe_file, app=app) as engine:
        assert engine.capabilities.max_context == 32
        assert engine.engine.model.max_sequences == 2
    with espalier.load(bpe_file, app=app, context=48) as engine:
        assert engine.capabilities.max_context == 48


def test_an_adapter_changes_what_the_model_says(tmp_path, bpe_file):
    adapter = made.write_lora(tmp_path / "a.gguf", scale=2.0)
    options = {"temperature": 0, "max_tokens": 24, "raw": True}
    texts = []
    for lora in (None, (adapter, 0.0), adapter, [(adapter, 1.0)]):
        with espalier.load(bpe_file, lora=lora, threads=1) as engine:
            texts.append(engine.generate("Hello", **options).token_ids)
    assert texts[0] == texts[1]
    assert texts[2] == texts[3] != texts[0]


FAULTS = {
    "a file that is not there": (lambda d: d / "nope.gguf", {}, UnknownModel, "nope.gguf"),
    "a folder of that name": (lambda d: _folder(d / "f.gguf"), {}, UnknownModel, "holds no model"),
    "a file of another kind": (lambda d: _file(d / "x.gguf", b"PK\3\4" + bytes(40)), {}, InputError, "x.gguf"),
    "an empty file": (lambda d: _file(d / "x.gguf", b""), {}, InputError, "empty"),
    "a dtype": (lambda d: DEMO, {"dtype": "float16"}, InputError, "takes no dtype"),
    "a context beyond the training": (lambda d: DEMO, {"context": 4096}, InputError, "4096"),
    "a missing adapter": (lambda d: DEMO, {"lora": "no/such.gguf"}, UnknownModel, "such.gguf"),
    "an embedding model": (lambda d: made.write_bert(d / "b.gguf"), {}, CapabilityError, "embedding"),
    "a vocabulary alone": (
        lambda d: made.write_vocab_only(d / "v.gguf", made.bpe_words()),
        {},
        InputError,
        "no weights",
    ),
}


def _folder(path):
    path.mkdir()
    return path


def _file(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_typed_error_and_nothing_of_the_library_is_printed(tmp_path, capfd, fault):
    make, options, error, words = FAULTS[fault]
    with pytest.raises(error, match=words):
        espalier.load(make(tmp_path), **options)
    assert capfd.readouterr() == ("", "")


def test_a_prompt_that_cannot_be_is_refused(eng):
    for prompt, words in (("\ud800", "Unicode"), ("", "empty")):
        with pytest.raises(InputError, match=words):
            eng.generate(prompt, raw=True)
    with pytest.raises(InputError, match="maximum context length is 1024 tokens"):
        eng.generate("a b " * 250_000)
    assert eng.generate("a\0b", raw=True, max_tokens=2).usage.prompt_tokens == 3


def test_without_the_bindings_the_error_has_the_pip_line():
    code = (
        "import sys; sys.modules['llama_cpp'] = None\n"
        "import espalier\n"
        "try:\n    espalier.load(sys.argv[1])\n"
        "except espalier.EspalierError as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(DEMO)], capture_output=True, text=True, check=True)
    assert "MissingDependency" in done.stdout
    assert "[llamacpp]'" in done.stdout


def test_a_vocabulary_of_several_ends_stops_at_each_of_them(tmp_path):
    words = made.bpe_words()
    path = made.write_llama(tmp_path / "m.gguf", replace(words, eot=0))
    with espalier.load(path, threads=1) as engine:
        assert len(engine.vocab.eos_ids) == 2
        ends = {
            engine.generate("Hello", constraint=espalier.Choice(["a"]), seed=seed, temperature=3).token_ids[-1]
            for seed in range(12)
        }
        assert ends <= set(engine.vocab.eos_ids)
