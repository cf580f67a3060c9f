"""TransformersStepModel on tiny random models of several families, against transformers itself."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from espalier.decoding.ports import Extend, Rows  # noqa: E402
from espalier.engines.base import FinishEvent, Request  # noqa: E402
from espalier.engines.huggingface.loading import eos_ids, load_model, make_encode  # noqa: E402
from espalier.engines.huggingface.model import TransformersStepModel  # noqa: E402
from espalier.engines.huggingface.open import open_engine  # noqa: E402
from espalier.engines.options import EngineOptions  # noqa: E402
from espalier.errors import CapabilityError, GenerationError, InputError, LimitExceeded, UnknownModel  # noqa: E402
from espalier.sampling.config import SamplingConfig  # noqa: E402
from tests.step_model_laws import check_step_model, last, words  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH, POSITIONS = 97, 160
SMALL: dict[str, Any] = {
    "vocab_size": WIDTH,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.2,  # so that logits are not flat
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def llama(**changes: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL | {"num_key_value_heads": 2} | changes))


def qwen3(**changes: Any) -> Any:
    config = transformers.Qwen3Config(**SMALL | {"num_key_value_heads": 2, "head_dim": 8} | changes)
    return transformers.Qwen3ForCausalLM(config)


def gpt2(**changes: Any) -> Any:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS}
    dropped = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}
    plain = {k: v for k, v in SMALL.items() if k not in dropped | {"max_position_embeddings"}}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**plain | sizes | changes))


def mistral(**changes: Any) -> Any:
    config = transformers.MistralConfig(**SMALL | {"num_key_value_heads": 2, "sliding_window": 8} | changes)
    return transformers.MistralForCausalLM(config)


def bloom() -> Any:
    config = transformers.BloomConfig(
        vocab_size=WIDTH, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2, eos_token_id=None
    )
    return transformers.BloomForCausalLM(config)


def mamba() -> Any:
    config = transformers.MambaConfig(
        vocab_size=WIDTH,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=4,
        initializer_range=0.2,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    return transformers.MambaForCausalLM(config)


MODELS: dict[str, Callable[[], Any]] = {
    "llama sdpa": lambda: llama(attn_implementation="sdpa"),
    "llama eager": lambda: llama(attn_implementation="eager"),
    "qwen3": qwen3,
    "gpt2 sdpa": lambda: gpt2(attn_implementation="sdpa"),
    "gpt2 eager": lambda: gpt2(attn_implementation="eager"),
    "mistral without a window": lambda: mistral(sliding_window=None),
    "mistral that never leaves its window": lambda: mistral(sliding_window=POSITIONS),
    "bloom, whose positions come from a mask": bloom,
}
UNCUTTABLE: dict[str, Callable[[], Any]] = {"mistral": mistral, "mamba": mamba}


def build(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return make().eval()


def full_forward(model: Any) -> Callable[[Sequence[int]], Rows]:
    """The oracle: one call of the model without any cache."""

    def oracle(tokens: Sequence[int]) -> Rows:
        with torch.no_grad():
            rows: Rows = model(torch.tensor([list(tokens)]), use_cache=False).logits[0].float().numpy()
        return rows

    return oracle


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *UNCUTTABLE])
def test_it_keeps_the_laws(name: str) -> None:
    model = build((MODELS | UNCUTTABLE)[name])
    check_step_model(
        lambda: TransformersStepModel(model, max_sequences=8), oracle=full_forward(model), programs=6, actions=50
    )


@pytest.mark.parametrize("name", MODELS)
def test_full_attention_can_be_cut(name: str) -> None:
    assert TransformersStepModel(build(MODELS[name])).can_truncate


@pytest.mark.parametrize("name", UNCUTTABLE)
def test_windows_and_recurrent_layers_refuse_to_be_cut(name: str) -> None:
    step = TransformersStepModel(build(UNCUTTABLE[name]))
    assert not step.can_truncate
    sequence = step.new()
    last(step, sequence, (1, 2, 3))
    with pytest.raises(CapabilityError, match="cannot be truncated"):
        step.truncate(sequence, 1)


@pytest.mark.parametrize("name", [*MODELS, *UNCUTTABLE])
def test_greedy_equals_generate(name: str) -> None:
    model = build((MODELS | UNCUTTABLE)[name])
    model.generation_config.pad_token_id = 0
    step, random = TransformersStepModel(model), Random(0)
    for _ in range(20):
        prompt = words(random, WIDTH, random.randint(1, 20))
        wanted = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=16,
        )
        sequence, tokens, said = step.new(), prompt, []
        for _ in range(16):
            said.append(int(last(step, sequence, tokens).argmax()))
            tokens = (said[-1],)
        assert said == wanted[0, len(prompt) :].tolist()
        step.free(sequence)


def test_sizes_come_from_the_model() -> None:
    step = TransformersStepModel(build(llama))
    assert (step.width, step.max_positions) == (WIDTH, POSITIONS)
    assert TransformersStepModel(build(gpt2)).max_positions == POSITIONS


def test_width_is_the_head_s_not_the_tokenizer_s() -> None:
    model = build(llama)
    model.resize_token_embeddings(128)
    step = TransformersStepModel(model)
    assert step.width == 128
    assert last(step, step.new(), (5,)).shape == (128,)


def test_half_precision_gives_float32_rows() -> None:
    step = TransformersStepModel(build(llama).to(torch.bfloat16))
    one, two = step.new(), step.new()
    rows = step.extend([Extend(sequence=one, tokens=(1, 2)), Extend(sequence=two, tokens=(3,), logits="all")])
    assert [r.dtype for r in rows] == [np.float32, np.float32]
    assert all(np.isfinite(r).all() for r in rows)


class Counting:
    """A model that notes the shape of each pass."""

    def __init__(self, model: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.kept: list[int] = []
        model.register_forward_pre_hook(self.note, with_kwargs=True)

    def note(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.shapes.append(tuple(kwargs["input_ids"].shape))
        self.kept.append(kwargs["logits_to_keep"])


def test_rows_share_one_pass_and_one_position_of_the_head() -> None:
    model = build(llama)
    seen, step = Counting(model), TransformersStepModel(model)
    work = [Extend(sequence=step.new(), tokens=(1,) * n) for n in (1, 3, 2)]
    step.extend(work)
    assert (seen.shapes, seen.kept) == ([(3, 3)], [1])
    step.extend([Extend(sequence=work[0].sequence, tokens=(1, 2, 3, 4), logits="all")])
    assert (seen.shapes[1:], seen.kept[1:]) == ([(1, 4)], [4])


def test_a_long_prompt_does_not_pad_its_neighbours() -> None:
    model = build(llama)
    seen, step = Counting(model), TransformersStepModel(model)
    step.extend([Extend(sequence=step.new(), tokens=(1,) * n) for n in (1, 100, 1, 90)])
    assert seen.shapes == [(2, 1), (2, 100)]


def test_wrong_work_is_refused_and_changes_nothing() -> None:
    step = TransformersStepModel(build(llama))
    one, two = step.new(), step.new()
    good = Extend(sequence=two, tokens=(1,))
    for wrong in ((), (WIDTH,), (-1,)):
        with pytest.raises(ValueError):
            step.extend([good, Extend(sequence=one, tokens=wrong)])
    with pytest.raises(ValueError, match="twice"):
        step.extend([good, good])
    with pytest.raises(LimitExceeded, match=str(POSITIONS)):
        step.extend([good, Extend(sequence=one, tokens=(1,) * (POSITIONS + 1))])
    assert step.extend([]) == []
    assert (step.length(one), step.length(two)) == (0, 0)
    step.free(one)
    with pytest.raises(KeyError):
        step.extend([Extend(sequence=one, tokens=(1,))])


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RuntimeError("mat1 and mat2 shapes"), GenerationError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), LimitExceeded),
        (torch.OutOfMemoryError("CUDA out of memory"), LimitExceeded),
        (MemoryError(), LimitExceeded),
        (IndexError("index out of range in self"), GenerationError),
        (ValueError("no such attention"), GenerationError),
    ],
)
def test_a_pass_that_fails_is_ours_by_name_and_undone(raised: Exception, expected: type[Exception]) -> None:
    model = build(llama)
    step = TransformersStepModel(model)
    one, two = step.new(), step.new()
    before = last(step, one, (1, 2, 3))
    calls = []

    def fail(module: Any, args: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise raised

    hook = model.lm_head.register_forward_pre_hook(fail)
    with pytest.raises(expected):  # the short row's pass has run by then, the long one's fails
        step.extend([Extend(sequence=one, tokens=(4,)), Extend(sequence=two, tokens=(1,) * 50)])
    hook.remove()
    assert (step.length(one), step.length(two)) == (3, 0)
    step.truncate(one, 2)
    assert np.abs(last(step, one, (3,)) - before).max() < 1e-5


def test_what_is_no_causal_language_model_is_refused() -> None:
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=32, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    )
    with pytest.raises(CapabilityError, match="encoder-decoder"):
        TransformersStepModel(t5)
    rwkv = transformers.RwkvForCausalLM(
        transformers.RwkvConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, intermediate_size=16)
    )
    with pytest.raises(CapabilityError, match="Rwkv"):
        TransformersStepModel(rwkv)


# Loading


def save_tokenizer(folder: Path, **options: Any) -> Any:
    letters = [chr(c) for c in range(33, 33 + 90)]
    table = {t: i for i, t in enumerate(["<s>", "</s>", "<|end|>", *letters])}
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=table, merges=[]))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    raw.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", additional_special_tokens=["<|end|>"], **options
    )
    made.save_pretrained(folder)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = build(llama)
    model.generation_config.eos_token_id = [2, 1]
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    return tmp_path


def test_a_folder_loads_quietly_and_leaves_the_settings_alone(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    upstream = transformers.utils.logging
    capfd.readouterr()
    before = (upstream.get_verbosity(), upstream.is_progress_bar_enabled(), logging.getLogger("huggingface_hub").level)
    model, tokenizer = load_model(str(folder), device="cpu")
    assert capfd.readouterr() == ("", "")
    assert before == (
        upstream.get_verbosity(),
        upstream.is_progress_bar_enabled(),
        logging.getLogger("huggingface_hub").level,
    )
    assert upstream.set_tqdm_hook(None) is None
    assert model.dtype == torch.float32
    assert not model.training
    assert eos_ids(model, tokenizer) == (2, 1)


def test_the_dtype_can_be_chosen(folder: Path) -> None:
    assert load_model(str(folder), device="cpu", dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load_model(str(folder), device="cpu", dtype="auto")[0].dtype == torch.float32


def test_eos_ids_are_a_union_in_order() -> None:
    class Holder:
        def __init__(self, value: Any) -> None:
            self.eos_token_id = value
            self.generation_config = self

    assert eos_ids(Holder([5, 2]), Holder(2)) == (5, 2)
    assert eos_ids(Holder(7), Holder(2)) == (7, 2)
    assert eos_ids(Holder(None), Holder(None)) == ()


def test_prompts_are_encoded_with_one_bos_and_no_eos(folder: Path) -> None:
    encode = make_encode(transformers.AutoTokenizer.from_pretrained(folder))
    a, b = encode("AB", add_special=False)
    assert encode("AB", add_special=True) == [0, a, b]
    assert encode("<s>AB", add_special=True) == [0, a, b]
    assert encode("<s>AB", add_special=False) == [0, a, b]
    assert encode("A<|end|>B", add_special=False) == [a, 2, b]
    assert encode("AB</s>", add_special=True)[-1] == 1
    assert encode("", add_special=True) == [0]


def test_an_engine_opens_and_generates(folder: Path) -> None:
    engine = open_engine(str(folder), options=EngineOptions(device="cpu"))
    assert engine.capabilities.truncate
    assert not engine.capabilities.chat_template
    assert engine.vocab.eos_ids == (2, 1)
    assert engine.vocab.width == WIDTH
    sampling = SamplingConfig(temperature=0.0, max_tokens=5)
    (result,) = (
        event.result
        for event in engine.run([Request(prompt="AB", sampling=sampling)])
        if isinstance(event, FinishEvent)
    )
    assert result.usage.prompt_tokens == 3
    assert 1 <= len(result.token_ids) <= 5
    engine.close()


def test_an_engine_takes_the_chat_template(folder: Path) -> None:
    save_tokenizer(folder, chat_template="{{ bos_token }}{{ messages[0]['content'] }}<|end|>")
    engine = open_engine(str(folder), options=EngineOptions(device="cpu"))
    assert engine.capabilities.chat_template
    assert engine.prompt_text(Request(prompt="AB")) == "<s>AB<|end|>"


def test_a_device_or_dtype_that_is_not_there_is_named(folder: Path) -> None:
    for device in ("tpu9", "cuda:99", "meta", "cpu:x"):
        with pytest.raises(InputError, match=r"here: .*cpu") as caught:
            load_model(str(folder), device=device)
        assert caught.value.field == "device"
    with pytest.raises(InputError, match=r"float32, float16, bfloat16") as caught:
        load_model(str(folder), dtype="int3")
    assert caught.value.field == "dtype"


def test_a_name_that_is_no_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As with HF_HUB_OFFLINE=1, which is read when the hub's library is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnknownModel, match="offline") as caught:
        load_model("espalier-tests/no-such-model")
    assert "espalier-tests/no-such-model" in str(caught.value)
    for name in ("not a name", ""):
        with pytest.raises(UnknownModel):
            load_model(name)
    with pytest.raises(UnknownModel, match="no folder"):
        load_model(str(tmp_path / "missing"))
    with pytest.raises(UnknownModel, match=r"config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(UnknownModel, match="is a file"):
        load_model(str(tmp_path / "weights.bin"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{}", UnknownModel),
        ("{nonsense", InputError),
        ('{"model_type": "of-the-future"}', CapabilityError),
        ('{"model_type": "t5", "is_encoder_decoder": true}', CapabilityError),
        ('{"model_type": "vit"}', CapabilityError),
        ('{"model_type": "x", "auto_map": {"AutoConfig": "evil.Config"}}', CapabilityError),
    ],
)
def test_folders_with_other_configs_are_named(tmp_path: Path, config: str, expected: type[Exception]) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    with pytest.raises(expected):
        load_model(str(tmp_path), device="cpu")


def test_broken_folders_are_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 50}))
    with pytest.raises(InputError, match="cannot be read"):
        load_model(str(folder), device="cpu")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"garbage" * 10)
    with pytest.raises(InputError, match="which do not fit into 70 bytes"):
        load_model(str(folder), device="cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnknownModel):
        load_model(str(folder), device="cpu")


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(UnknownModel, match="tokenizer"):
        load_model(str(folder), device="cpu")


def test_weights_without_a_head_are_refused(folder: Path) -> None:
    build(llama).model.save_pretrained(folder)
    with pytest.raises(CapabilityError, match=r"lm_head\.weight"):
        load_model(str(folder), device="cpu")


def test_an_encoder_is_refused_by_what_it_does(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=WIDTH, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32
    )
    build(lambda: transformers.BertForMaskedLM(config)).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(CapabilityError, match="not a causal model"):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_its_packages_the_pip_line_is_said(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from espalier.errors import MissingDependency\n"
        "import espalier\n"
        "try:\n    espalier.load()\n"
        "except MissingDependency as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{package} is not installed: it comes with the extra `transformers` (pip install ")
