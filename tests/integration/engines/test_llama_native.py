"""llama.cpp's own sampler in our engine against a real llama-server: the same seed, the same tokens."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier
from espalier import AllOf, AnyOf, Choice, Gbnf, JsonObject, JsonSchema, Regex, SamplingConfig
from espalier.constraints.to_gbnf import portable
from espalier.errors import BadLogits, CapabilityError, DeadEnd, GenerationError, InputError
from espalier.sampling.fit import fit
from espalier.wiring import demo_model
from tests.llama_server import llama_server
from tests.xray import NAMES

VALUES = r"""value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
array ::= "[" ws (value ("," ws value)*)? "]"
string ::= "\"" [^"\\\x00-\x1f]* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
ws ::= [ \n]?
"""
OBJECT = "root ::= object\n" + VALUES
# None of them can end within TOKENS tokens.
GRAMMARS = {
    "json": """root ::= "[" item ("," ws item){5,} "]"
item ::= "{" ws string ":" ws value ("," ws string ":" ws value){2,} "}"
"""
    + VALUES,
    "list": 'root ::= ("- " [^\\n]+ "\\n"){24,}\n',
    "chess": """root ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n"){12,}
move ::= ([NBKQR]? [a-h]? [1-8]? "x"? [a-h] [1-8] | "O-O" "-O"?) [+#]?
""",
    "arithmetic": """root ::= (expr "=" term "\\n"){16,}
expr ::= term ([-+*/] term)*
term ::= [a-z] [a-z0-9]* | [0-9]+ | "(" expr ")"
""",
}
PROMPT = "Generate user info"
SEEDS, TOKENS = range(8), 40
PLAIN = SamplingConfig(temperature=0.8, repetition_penalty=1.0, max_tokens=TOKENS)
OURS = {**NAMES, "ignore_eos": "ignore_eos", "max_tokens": "n_predict", "seed": "seed"}
SETTINGS = {
    "min_p": {"top_k": 0, "top_p": 1.0, "min_p": 0.2},
    "typical": {"typical_p": 0.6},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.05},
    "dry": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_window": 100},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2},
    "short-window": {"repetition_penalty": 1.5, "repetition_window": 5},
    "mirostat-1": {"mirostat": 1, "mirostat_tau": 4.0},
    "mirostat-2": {"mirostat": 2, "mirostat_eta": 0.3},
    "greedy": {"temperature": 0.0},
    "hot": {"temperature": 3.0},
    "no-truncation": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "sigma": {"top_n_sigma": 1.0},
    "dynamic": {"dynatemp_range": 0.5, "dynatemp_exponent": 1.5},
    "kept": {"min_keep": 3, "min_p": 0.9, "top_p": 0.1},
    "reversed": {
        "sampler_order": ("temperature", "xtc", "min_p", "top_p", "typical_p", "top_k", "penalties"),
        "xtc_probability": 0.5,
        "typical_p": 0.9,
        "repetition_penalty": 1.2,
    },
    "none-named": {"sampler_order": ()},
    "biased": {"logit_bias": {203: -4.0, 5: 3.0, 12: -float("inf")}},
}


@pytest.fixture(scope="module")
def engine():
    # As the server is set, so that logits are the same to the bit.
    loaded = espalier.load(demo_model() / "demo.gguf", kv_type="f32", flash_attention="off", threads=1, context=1024)
    with loaded:
        yield loaded


@pytest.fixture(scope="module")
def server():
    if find_spec("xllamacpp") is None:  # never imported here: two llama.cpp libraries in one process
        pytest.skip("xllamacpp (a real llama-server) is not installed")
    with llama_server(demo_model() / "demo.gguf") as running:
        yield running


def drawn_by(server, config, grammar=None, prompt=PROMPT):
    body = {"prompt": prompt, "return_tokens": True, "cache_prompt": False}
    body |= {theirs: getattr(config, ours) for ours, theirs in OURS.items()}
    body["typical_p"] = config.typical_p or 1.0
    body["dry_penalty_last_n"] = config.dry_window if config.dry_window >= 0 else 1025
    body["samplers"] = ["typ_p" if name == "typical_p" else name for name in config.sampler_order]
    body["logit_bias"] = [[key, value if value > -1e30 else False] for key, value in config.logit_bias]
    if grammar is not None:
        body["grammar"] = grammar
    return tuple(server.post("/completion", body)["tokens"])


def generate(engine, config, constraint=None, prompt=PROMPT, **more):
    return engine.generate(prompt, raw=True, constraint=constraint, sampling=config, sampler="native", **more)


def set_to(seed, **fields):
    return SamplingConfig.from_json(PLAIN.to_json() | {"seed": seed} | fields)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAMMARS)
def test_the_tokens_are_those_of_llama_server_rejections_included(engine, server, name):
    rejections = 0
    for seed in SEEDS:
        config = set_to(seed)
        mine = generate(engine, config, Gbnf(GRAMMARS[name]))
        assert len(mine.token_ids) == TOKENS
        assert mine.token_ids == drawn_by(server, config, GRAMMARS[name]), f"seed {seed}"
        rejections += mine.trace.summary()["rejected_steps"]
        assert mine.trace.sampling["sampler"] == "native"
    assert rejections >= 8, "the grammar was never in the way: nothing was shown"


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_draws_as_llama_server_does(engine, server, name):
    fields = dict(SETTINGS[name])
    if "mirostat" in fields:
        fields |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    fields.setdefault("mirostat_tau", 5.0 if "mirostat" in fields else 0.0)
    fields.setdefault("mirostat_eta", 0.1 if "mirostat" in fields else 0.0)
    for seed in range(3):
        config = set_to(seed, **fields)
        for grammar in (OBJECT, None):
            constraint = None if grammar is None else Gbnf(grammar)
            mine = generate(engine, config, constraint, trace="off")
            assert mine.token_ids == drawn_by(server, config, grammar), f"seed {seed}, {constraint}"


def test_ignore_eos_goes_on_as_llama_server_does(engine, server):
    config = set_to(4, ignore_eos=True, max_tokens=60)
    mine = generate(engine, config)
    assert len(mine.token_ids) == 60
    assert mine.token_ids == drawn_by(server, config)
    assert all(step.allowed_count == engine.vocab.width - len(engine.vocab.eos_ids) for step in mine.trace.steps)


@pytest.mark.parametrize(
    "spec",
    [
        JsonSchema(
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name", "age"],
            }
        ),
        JsonObject(),
        Choice(["yes", "no", "not yet"]),
        Regex(r"[a-z]{3,8}( [a-z]{2,9}){1,4}\."),
        AnyOf(Regex("[0-9]{5,9}"), Choice(["none"])),
    ],
    ids=lambda spec: spec.kind,
)
def test_other_constraints_are_the_same_through_their_grammar_text(engine, server, spec):
    text = portable(spec, engine.engine.compiler)
    for seed in range(4):
        config = set_to(seed)
        mine = generate(engine, config, spec)
        assert mine.token_ids == drawn_by(server, config, text), f"seed {seed}"
        if mine.finish_reason == "stop":
            assert mine.verdict.valid


def test_trace_level_and_other_sequences_change_no_token(engine):
    config, spec = set_to(3), Gbnf(GRAMMARS["chess"])
    expected = generate(engine, config, spec).token_ids
    assert generate(engine, config, spec, trace="off").token_ids == expected
    assert generate(engine, config, spec, trace="summary").token_ids == expected
    several = engine.generate([PROMPT, "Hello"], raw=True, constraint=spec, sampling=config, sampler="native")
    assert several[0].token_ids == expected


def test_each_of_n_outputs_has_the_seed_after_the_one_before(engine):
    first, second, third = generate(engine, set_to(5, n=3), Gbnf(GRAMMARS["list"]))
    assert first.token_ids == generate(engine, set_to(5), Gbnf(GRAMMARS["list"])).token_ids
    assert second.token_ids == generate(engine, set_to(6), Gbnf(GRAMMARS["list"])).token_ids
    assert third.token_ids == generate(engine, set_to(7), Gbnf(GRAMMARS["list"])).token_ids


def test_a_rejected_step_tells_what_was_drawn_first_and_why_it_was_refused(engine):
    found = generate(engine, set_to(1), Gbnf(GRAMMARS["chess"]))
    rejected = [step for step in found.trace.steps if step.was_rejected]
    assert rejected
    for step in rejected:
        assert step.rejected is not None
        assert not step.rejected.allowed
        assert step.rejected.id != step.token_id
        assert 0 < step.rejected.prob <= 1
        assert step.blame is not None
        assert step.blame.reason
        assert step.rejected.id in {one.id for one in step.pre_masking}
        assert all(one.allowed for one in step.post_grammar)
        chain = [one for one in step.post_chain if one.prob > 0]
        assert all(one.allowed for one in chain)
        assert step.resampled.prob == pytest.approx(next(one.prob for one in chain if one.id == step.token_id))
    for step in found.trace.steps:
        assert step.removed_mass == pytest.approx(1 - np.exp(-step.tax_nats))
        assert step.rejected is None or step.was_rejected
    again = espalier.Trace.from_json(json.loads(json.dumps(found.trace.to_json())))
    assert again.to_json() == found.trace.to_json()


def test_z_sampled_is_the_allowed_mass_after_temperature(engine):
    config = set_to(2, temperature=1.0, logit_bias={})
    found = generate(engine, config, Gbnf(GRAMMARS["arithmetic"]))
    for step in found.trace.steps:
        assert step.z_sampled == pytest.approx(1 - step.removed_mass, abs=1e-5)
    greedy = generate(engine, set_to(2, temperature=0.0), Gbnf(GRAMMARS["arithmetic"]))
    assert all(step.z_sampled is None for step in greedy.trace.steps)


# What is refused


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("min_tokens", {"min_tokens": 3}),
        ("bad_words", {"bad_words": ["x"]}),
        ("allowed_ids", {"allowed_ids": [1, 2]}),
        ("soft", {"soft": espalier.SoftJson()}),
        ("seed", {"seed": 2**32 - 1}),
        ("temperature", {"temperature": 1e-5}),
        ("repetition_penalty", {"repetition_penalty": 1e30}),
        ("constraint", {"constraint": AllOf(JsonObject(), Regex(".{3,9}"))}),
    ],
)
def test_what_it_cannot_do_is_refused_naming_the_field(engine, field, options):
    with pytest.raises((CapabilityError, InputError)) as raised:
        engine.generate("x", sampler="native", max_tokens=3, **options)
    assert raised.value.field == field


def test_an_unknown_sampler_and_an_engine_without_one_are_refused(engine):
    with pytest.raises(InputError, match="espalier, native") as raised:
        engine.generate("x", sampler="best")
    assert raised.value.field == "sampler"
    with espalier.load("fake") as fake, pytest.raises(CapabilityError, match=r"only the llama\.cpp engine") as refused:
        fake.generate("x", sampler="native")
    assert refused.value.field == "sampler"
    assert engine.capabilities.native_sampler


def test_a_special_token_that_llama_cpp_reads_as_text_is_an_error(engine):
    special = engine.vocab.special_id("<|im_start|>")
    config = SamplingConfig(temperature=0.0, max_tokens=4, logit_bias={special: 1000.0})
    with pytest.raises(GenerationError, match="the two grammars disagree at step 0"):
        generate(engine, config, Gbnf("root ::= [^x]+"))


# The sampler alone


def sampler_of(engine, config, grammar=None, seed=1):
    make = engine.engine._runs._native
    fitted = fit(config, engine.vocab, engine.vocab.encoder)
    return make(config, fitted, seed=seed, grammar=grammar)


def test_logits_that_are_no_numbers_never_reach_the_library(engine):
    sampler = sampler_of(engine, PLAIN)
    for bad in (np.nan, np.inf, 1e35):
        row = np.zeros(engine.vocab.width, dtype=np.float32)
        row[7] = bad
        with pytest.raises(BadLogits):
            sampler.sample(row, full=False)
    with pytest.raises(BadLogits):
        sampler.sample(np.full(engine.vocab.width, -np.inf, dtype=np.float32), full=False)
    with pytest.raises(GenerationError, match="3 logits"):
        sampler.sample(np.zeros(3, dtype=np.float32), full=False)


@pytest.mark.parametrize("name", SETTINGS)
def test_where_nothing_is_allowed_it_is_a_dead_end(engine, name):
    config = SamplingConfig.from_json(
        SETTINGS[name] if "mirostat" in SETTINGS[name] else PLAIN.to_json() | SETTINGS[name]
    )
    row = np.full(engine.vocab.width, -np.inf, dtype=np.float32)
    token = next(i for i in range(300, engine.vocab.width) if engine.vocab.bytes_of(i) == b"no")
    row[token] = 1.0
    sampler = sampler_of(engine, config, 'root ::= "yes"\n')
    with pytest.raises(DeadEnd):
        sampler.sample(row, full=True)


def test_bans_that_leave_nothing_are_a_dead_end(engine):
    config = SamplingConfig(logit_bias={i: -float("inf") for i in range(engine.vocab.width)})
    with pytest.raises(DeadEnd):
        sampler_of(engine, config).sample(np.zeros(engine.vocab.width, dtype=np.float32), full=False)


def test_only_what_was_drawn_is_accepted_and_nothing_after_close(engine):
    sampler = sampler_of(engine, PLAIN, 'root ::= "yes" | "no"\n')
    row = np.zeros(engine.vocab.width, dtype=np.float32)
    token = sampler.sample(row, full=False).taken.token
    with pytest.raises(GenerationError, match="is not the one that was drawn"):
        sampler.accept(token + 1)
    sampler.accept(token)
    with pytest.raises(GenerationError):
        sampler.accept(token)  # once
    with pytest.raises(GenerationError, match="outside"):
        sampler.accept_prompt([engine.vocab.width])
    sampler.close()
    sampler.close()
    for call in (lambda: sampler.sample(row, full=False), lambda: sampler.accept_prompt([1])):
        with pytest.raises(GenerationError, match="closed"):
            call()


def test_a_grammar_that_llama_cpp_refuses_is_an_error(engine, capfd):
    for text in ("root ::= root", "root ::= nobody", "other ::= [a-z]", "root ::= [a-z]{9999}"):
        with pytest.raises(CapabilityError, match=r"llama\.cpp refuses the grammar"):
            sampler_of(engine, PLAIN, text)


class Counting:
    """The library, counting what it frees and what it makes."""

    def __init__(self, real):
        self.real, self.made, self.freed = real, 0, []

    def __getattr__(self, name):
        return getattr(self.real, name)

    def llama_sampler_chain_init(self, params):
        self.made += 1
        return self.real.llama_sampler_chain_init(params)

    def llama_sampler_init_grammar(self, *given):
        found = self.real.llama_sampler_init_grammar(*given)
        self.made += bool(found)
        return found

    def llama_sampler_free(self, handle):
        self.freed.append(handle)
        return self.real.llama_sampler_free(handle)


@pytest.fixture
def counting(monkeypatch):
    from espalier.engines.llamacpp import native as llama_native

    lib = Counting(llama_native.library())
    monkeypatch.setattr(llama_native, "library", lambda: lib)
    return lib


def test_samplers_are_freed_once_however_a_run_ends(engine, counting):
    spec = Gbnf(OBJECT)
    generate(engine, set_to(1), spec)  # to its end
    stream = engine.stream(PROMPT, raw=True, constraint=spec, sampler="native")
    next(stream)
    stream.close()  # in the middle
    engine.stream(PROMPT, raw=True, constraint=spec, sampler="native").close()  # before it began
    to_special = SamplingConfig(temperature=0, logit_bias={engine.vocab.special_id("<|im_start|>"): 99.0})
    with pytest.raises(GenerationError):
        generate(engine, to_special, Gbnf("root ::= [^x]+"))
    with pytest.raises(CapabilityError):
        sampler_of(engine, PLAIN, "root ::= root")  # half made
    gc.collect()
    assert counting.made == len(counting.freed) >= 8
    # A handle may be given again once it is free: so many frees as makes, and none of nothing.
    assert all(counting.freed)


LAW = {
    "plain": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "top_k": {"temperature": 1.0, "top_k": 5, "top_p": 1.0, "min_p": 0.0},
    "top_p": {"temperature": 1.4, "top_k": 0, "top_p": 0.7, "min_p": 0.0},
}


@pytest.mark.parametrize("name", LAW)
def test_its_law_is_that_of_rejection_and_not_of_masking(engine, name):
    """c_p(v) + (1 - c_p(A)) c_q(v), as in docs/strategies.md, for toy logits over a few tokens of the vocabulary."""
    config = SamplingConfig(**LAW[name], repetition_penalty=1.0)
    by_bytes = {engine.vocab.bytes_of(i): i for i in range(engine.vocab.width)}
    letters = [by_bytes[bytes([97 + n])] for n in range(12)]
    row = np.full(engine.vocab.width, -np.inf, dtype=np.float32)
    row[letters] = np.random.default_rng(3).normal(0, 1.5, 12).astype(np.float32)
    inside = letters[1::3]
    free = chain_law(row, config)
    masked = row.copy()
    masked[[i for i in letters if i not in inside]] = -np.inf
    held = chain_law(masked, config)
    expected = {v: free.get(v, 0.0) + (1 - sum(free.get(a, 0.0) for a in inside)) * held.get(v, 0.0) for v in inside}
    allowed = "".join(chr(97 + n) for n in range(12)[1::3])
    draws = 2000
    sampler = sampler_of(engine, config, f"root ::= [{allowed}]\n", seed=11)
    counts = dict.fromkeys(inside, 0)
    rejected = 0
    for _ in range(draws):
        choice = sampler.sample(row, full=False)
        counts[choice.taken.token] += 1
        rejected += choice.rejected is not None
    live = [v for v in inside if expected[v] > 0]
    assert sum(counts[v] for v in live) == draws
    chi = sum((counts[v] - draws * expected[v]) ** 2 / (draws * expected[v]) for v in live)
    assert chi < 25  # 3 degrees of freedom: chance of 1.5e-5
    assert rejected / draws == pytest.approx(1 - sum(free.get(a, 0.0) for a in inside), abs=0.05)


def chain_law(row, config):
    """By hand: the truncations, then the temperature."""
    ids = sorted((int(i) for i in np.flatnonzero(row > -np.inf)), key=lambda i: -row[i])
    if config.top_k:
        ids = ids[: config.top_k]
    weights = np.exp(row[ids].astype(np.float64) - row[ids[0]])
    probs = weights / weights.sum()
    if config.top_p < 1:
        ids = ids[: int(np.searchsorted(np.cumsum(probs), config.top_p)) + 1]
    weights = np.exp((row[ids].astype(np.float64) - row[ids[0]]) / config.temperature)
    return dict(zip(ids, (weights / weights.sum()).tolist(), strict=True))


@pytest.mark.slow
def test_what_would_abort_the_process_does_not():
    """In a process of its own: the library ends it on any mistake, and nothing would be reported here."""
    program = """
import espalier, numpy as np, sys
from espalier import Gbnf, SamplingConfig
from espalier.errors import EspalierError
from espalier.wiring import demo_model
engine = espalier.load(demo_model() / "demo.gguf", context=256)
specials = list(engine.vocab.special_texts)[:3]
deep = 'root ::= ' + '(' * 5000 + '"a"' + ')' * 5000
for grammar in ('root ::= "a"', 'root ::= ("a" | "é")*', 'root ::= [^"]*', deep,
                'root ::= "a"{0,5000}', 'root ::= ("b"? "c"?){1900,1999} "d"'):
    for fields in ({"temperature": 0.0}, {"mirostat": 1}, {"mirostat": 2}, {"typical_p": 0.2}, {"temperature": 50.0},
                   {"logit_bias": {t: 50.0 for t in specials}}, {"repetition_window": 2**50, "dry_multiplier": 1.0,
                   "dry_window": 2**50, "top_k": 2**50, "min_keep": 2**50, "dry_allowed_length": 2**50}):
        try:
            engine.generate("x", raw=True, constraint=Gbnf(grammar), sampler="native", max_tokens=6, seed=1, **fields)
        except EspalierError as error:
            print(type(error).__name__)
print("done")
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == "done"
