"""Every field that widely used front ends send, and that the servers they are made for read, is taken; those without
effect are named in the reply's warning. The fields are those of the public sources of each program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from espalier.server.bodies.base import Body, names_of, read_body
from espalier.server.bodies.fields import MOST_UNKNOWN
from espalier.server.bodies.llama import LlamaBody
from espalier.server.bodies.openai import ChatBody, CompletionBody
from tests.server_app import client, settings

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
LLAMA = "/completion"
BODIES: dict[str, tuple[type[Body], dict[str, Any]]] = {
    CHAT: (ChatBody, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}),
    COMPLETIONS: (CompletionBody, {"prompt": "hello", "max_tokens": 4}),
    LLAMA: (LlamaBody, {"prompt": "hello", "n_predict": 4}),
}
OPENAI = {
    "model": "fake", "temperature": 1, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "stream": False,
    "stop": ["\n\n"], "seed": 1, "user": "me", "n": 1, "logit_bias": {},
}  # fmt: skip
SILLY_TAVERN = {
    "model": "fake", "max_new_tokens": 4, "temperature": 0.7, "top_p": 0.5, "typical_p": 1, "typical": 1, "min_p": 0,
    "repetition_penalty": 1.2, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 40, "skew": 0, "min_tokens": 0,
    "add_bos_token": True, "smoothing_factor": 0, "smoothing_curve": 1, "dry_allowed_length": 2, "dry_multiplier": 0,
    "dry_base": 1.75, "dry_sequence_breakers": ["\n", ":", '"', "*"], "dry_penalty_last_n": 0, "max_tokens_second": 0,
    "stopping_strings": ["\nme:"], "stop": ["\nme:"], "truncation_length": 2048, "ban_eos_token": False,
    "skip_special_tokens": True, "top_a": 0, "tfs": 1, "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
    "custom_token_bans": "", "banned_strings": [], "api_type": "llamacpp", "api_server": "http://127.0.0.1:8080",
    "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0, "adaptive_target": -0.01,
    "adaptive_decay": 0.9, "rep_pen": 1.2, "rep_pen_range": 0, "repetition_penalty_range": 0, "guidance_scale": 1,
    "negative_prompt": "", "repeat_penalty": 1.2, "repeat_last_n": 0, "num_ctx": 2048, "num_predict": 4, "mirostat": 0,
    "ignore_eos": False, "rep_pen_slope": 1, "n": 1, "cache_prompt": True, "grammar": "", "stream": False,
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "xtc", "top_p", "min_p",
                 "adaptive_p", "temperature"],
}  # fmt: skip
TEXT_GENERATION_WEBUI = {
    "preset": None, "dynatemp_low": 1, "dynatemp_high": 1, "dynatemp_exponent": 1, "smoothing_factor": 0,
    "smoothing_curve": 1, "min_p": 0, "top_k": 0, "typical_p": 1, "xtc_threshold": 0.1, "xtc_probability": 0,
    "epsilon_cutoff": 0, "eta_cutoff": 0, "tfs": 1, "top_a": 0, "top_n_sigma": 0, "adaptive_target": 0,
    "adaptive_decay": 0.9, "dry_multiplier": 0, "dry_allowed_length": 2, "dry_base": 1.75, "repetition_penalty": 1,
    "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0, "repetition_penalty_range": 1024, "penalty_alpha": 0,
    "guidance_scale": 1, "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "prompt_lookup_num_tokens": 0,
    "max_tokens_second": 0, "do_sample": True, "dynamic_temperature": False, "temperature_last": False,
    "auto_max_new_tokens": False, "ban_eos_token": False, "add_bos_token": True, "enable_thinking": True,
    "reasoning_effort": "medium", "skip_special_tokens": True, "static_cache": False, "truncation_length": 0,
    "seed": -1, "sampler_priority": ["repetition_penalty", "temperature"], "custom_token_bans": "",
    "negative_prompt": "", "dry_sequence_breakers": '"\\n", ":", "\\"", "*"', "grammar_string": "", "best_of": 1,
    "echo": False, "frequency_penalty": 0, "presence_penalty": 0, "stream": False, "suffix": None, "n": 1,
    "temperature": 1, "top_p": 1, "user": None,
}  # fmt: skip
KOBOLD_CPP = {
    "memory": "", "max_context_length": 4096, "max_length": 4, "temperature": 0.7, "top_k": 100, "top_a": 0,
    "top_p": 0.9, "min_p": 0, "typical": 1, "tfs": 1, "nsigma": 0, "rep_pen": 1.07, "rep_pen_range": 360,
    "rep_pen_slope": 0.7, "presence_penalty": 0, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
    "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 320,
    "dry_sequence_breakers": [], "xtc_threshold": 0.2, "xtc_probability": 0, "sampler_order": [6, 0, 1, 3, 4, 2, 5],
    "sampler_seed": 1, "stop_sequence": ["\n"], "ban_eos_token": False, "stream_sse": False, "grammar": "",
    "grammar_retain_state": False, "genkey": "KCPP1", "trim_stop": True, "quiet": True, "dynatemp_range": 0,
    "dynatemp_exponent": 1, "smoothing_factor": 0, "smoothing_curve": 1, "adaptive_target": -1, "adaptive_decay": 0.9,
    "logit_bias": {}, "render_special": False, "banned_strings": [], "banned_tokens": [], "bypass_eos": False,
    "using_openai_tools": False, "custom_token_bans": "", "images": [], "negative_prompt": "", "guidance_scale": 1,
    "use_default_badwordsids": False, "logprobs": None, "frmttriminc": False, "frmtrmblln": False,
}  # fmt: skip
OPEN_WEBUI = {
    **OPENAI, "stream_options": {"include_usage": True}, "top_k": 40, "min_p": 0, "repeat_penalty": 1.1,
    "repeat_last_n": 64, "tfs_z": 1, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5, "num_ctx": 2048,
    "num_batch": 512, "num_keep": 24, "num_gpu": -1, "num_thread": 4, "use_mmap": True, "use_mlock": False,
    "keep_alive": "5m", "think": True, "function_calling": "native", "stream_response": True, "custom_params": {},
    "session_id": "s", "chat_id": "c", "id": "m", "parent_id": None, "tool_ids": [], "tool_servers": [],
    "filter_ids": [], "files": [], "features": {"web_search": False, "image_generation": False},
    "variables": {"{{USER_NAME}}": "me"}, "background_tasks": {"title_generation": True}, "model_item": {"id": "fake"},
    "params": {}, "metadata": {"chat_id": "c"}, "template": "", "reasoning_tags": ["<think>", "</think>"],
    "verbosity": "low", "reasoning_effort": "low",
}  # fmt: skip
LIBRE_CHAT = {
    **OPENAI, "stream_options": {"include_usage": True}, "reasoning_effort": "low", "verbosity": "low",
    "endpoint": "custom", "endpointType": "custom", "modelLabel": "me", "promptPrefix": "", "resendFiles": True,
    "imageDetail": "auto", "maxContextTokens": 4000, "promptCache": True, "useResponsesApi": False, "web_search": False,
    "disableStreaming": False, "fileTokenLimit": 1, "safe_prompt": True, "transforms": ["middle-out"],
    "route": "fallback", "provider": {"order": []}, "plugins": [], "greeting": "", "iconURL": "", "spec": "",
    "conversationId": "c", "parentMessageId": "p", "key": None,
}  # fmt: skip
CONTINUE = {
    **OPENAI, "prediction": {"type": "content", "content": "x"}, "parallel_tool_calls": False, "tools": [],
    "keepAlive": 1800, "numThreads": 4, "useMmap": True, "numGpu": 1, "raw": True,
    "reasoningBudgetTokens": 1024, "promptCaching": True, "contextLength": 4096, "maxStopWords": 4, "mirostat": 0,
    "min_p": 0, "top_k": 40,
}  # fmt: skip
LM_STUDIO = {
    **OPENAI, "top_k": 40, "repeat_penalty": 1.1, "min_p": 0.05, "ttl": 300, "draft_model": "small",
    "contextOverflowPolicy": "rollingWindow", "context_length": 4096, "maxPredictedTokens": 4,
}  # fmt: skip
TGI = {
    **OPENAI, "tool_prompt": "Given the functions available", "guideline": "be short", "tools": None,
    "repetition_penalty": 1.0, "watermark": False, "do_sample": True, "typical_p": 1, "return_full_text": False,
    "details": False, "decoder_input_details": False, "best_of": 1, "truncate": None, "adapter_id": None,
    "max_new_tokens": 4, "top_n_tokens": 0,
}  # fmt: skip
VLLM = {
    **OPENAI, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "length_penalty": 1.0, "stop_token_ids": [],
    "include_stop_str_in_output": False, "ignore_eos": False, "min_tokens": 0, "skip_special_tokens": True,
    "spaces_between_special_tokens": True, "truncate_prompt_tokens": None, "prompt_logprobs": None,
    "allowed_token_ids": None, "bad_words": [], "add_special_tokens": False, "mm_processor_kwargs": None,
    "media_io_kwargs": None, "structured_outputs": None, "priority": 0, "request_id": "r",
    "return_tokens_as_token_ids": False, "return_token_ids": False, "cache_salt": "s", "kv_transfer_params": None,
    "vllm_xargs": {}, "logits_processors": [], "best_of": 1, "use_beam_search": False, "prompt_embeds": None,
    "repetition_detection": None, "guided_decoding_backend": "xgrammar", "response_format": {"type": "text"},
}  # fmt: skip
SGLANG = {
    **OPENAI, "top_k": -1, "min_p": 0, "min_tokens": 0, "regex": None, "ebnf": None, "repetition_penalty": 1,
    "stop_token_ids": None, "stop_regex": [], "no_stop_trim": False, "ignore_eos": False, "skip_special_tokens": True,
    "lora_path": None, "session_params": None, "stream_reasoning": True, "return_hidden_states": False,
    "return_routed_experts": False, "return_cached_tokens_details": False, "custom_logit_processor": None,
    "custom_params": None, "rid": "r", "extra_key": "tenant", "cache_salt": "s", "priority": 0, "bootstrap_host": None,
    "bootstrap_port": None, "bootstrap_room": None, "data_parallel_rank": None, "disagg_prefill_dp_rank": None,
}  # fmt: skip
SENT = {
    "SillyTavern to llama-server": (LLAMA, SILLY_TAVERN),
    "SillyTavern": (COMPLETIONS, SILLY_TAVERN),
    "text-generation-webui": (COMPLETIONS, TEXT_GENERATION_WEBUI),
    "text-generation-webui, chat": (
        CHAT,
        TEXT_GENERATION_WEBUI
        | {"mode": "instruct", "character": None, "name2": None, "context": None, "greeting": None, "name1": "You",
           "continue_": False, "chat_instruct_command": "Continue the chat dialogue below."},
    ),
    "KoboldCpp": (COMPLETIONS, KOBOLD_CPP),
    "KoboldCpp, without log probabilities": (COMPLETIONS, KOBOLD_CPP | {"logprobs": False}),
    "KoboldCpp, chat": (CHAT, KOBOLD_CPP | {"logprobs": False}),
    "Open WebUI": (CHAT, OPEN_WEBUI),
    "LibreChat": (CHAT, LIBRE_CHAT),
    "Continue": (CHAT, CONTINUE),
    "Continue to llama-server": (LLAMA, {"n_predict": 4, "frequency_penalty": 0, "presence_penalty": 0, "min_p": 0,
                                         "mirostat": 0, "stop": ["x"], "top_k": 40, "top_p": 1, "temperature": 1}),
    "LM Studio": (CHAT, LM_STUDIO),
    "Jan": (CHAT, OPENAI | {"n_predict": -1, "return_progress": True, "cache_prompt": True, "tools": [],
                            "tool_choice": "auto", "timings_per_token": True, "reasoning_format": "auto"}),
    "SillyTavern without reasoning": (LLAMA, SILLY_TAVERN | {"include_reasoning": False, "n_probs": 10,
                                                             "post_sampling_probs": True, "logit_bias": []}),
    "TGI": (CHAT, TGI),
    "vLLM": (CHAT, VLLM),
    "vLLM, completions": (COMPLETIONS, VLLM | {"echo": False, "suffix": None}),
    "SGLang": (CHAT, SGLANG),
    "SGLang, completions": (COMPLETIONS, SGLANG),
}  # fmt: skip


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    # STRICT_FIELDS is off, as a server is by default.
    with client(config=settings()) as started:
        yield started


@pytest.mark.parametrize("name", SENT)
def test_the_body_that_a_front_end_sends_by_default_is_taken(http: TestClient, name: str) -> None:
    route, fields = SENT[name]
    reply = http.post(route, json=BODIES[route][1] | fields)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("name", SENT)
def test_every_field_does_something_or_is_named(name: str) -> None:
    route, fields = SENT[name]
    cls, required = BODIES[route]
    body = read_body(cls, required | fields, strict=False)
    silent = (None, False, 0, 1, "", [], {}, True)  # values at which a field of REFUSED asks for nothing
    asks = {field for field, value in fields.items() if value not in silent and value != ["text"]}
    lines = " ".join(body.told.lines())
    assert {field for field in asks if field not in names_of(cls) and field not in lines} == set()


MISSPELT = ["response_fromat", "jsonschema", "gramar", "grammar_string", "toolChoice", "guided_jsn", "banned_strings"]


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_constraint_is_refused_unless_it_is_empty(http: TestClient, route: str, name: str) -> None:
    base = BODIES[route][1]
    for value in ({"type": "json_object"}, ["a"], "root ::= [a]", True):
        assert http.post(route, json=base | {name: value}).json()["error"]["param"] == name
    for value in (None, "", [], {}, False, 0):
        assert http.post(route, json=base | {name: value}).status_code == 200


@pytest.mark.parametrize("route", BODIES)
def test_one_grammar_under_two_names_is_one_grammar(http: TestClient, route: str) -> None:
    grammar = 'root ::= "ab"'
    reply = http.post(route, json=BODIES[route][1] | {"grammar": grammar, "grammar_string": grammar})
    assert reply.status_code == 200
    assert "grammar_string" in reply.headers["warning"]
    other = BODIES[route][1] | {"grammar": grammar, "grammar_string": 'root ::= "cd"'}
    assert http.post(route, json=other).json()["error"]["param"] == "grammar_string"


@pytest.mark.parametrize("route", BODIES)
def test_many_unknown_fields_are_taken_and_all_are_named(http: TestClient, route: str) -> None:
    fields = {f"zq{i}": i for i in range(MOST_UNKNOWN)}
    assert http.post(route, json=BODIES[route][1] | fields).status_code == 200
    cls, required = BODIES[route]
    assert len(read_body(cls, required | fields, strict=False).told.warnings) == MOST_UNKNOWN


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize(
    ("samplers", "skipped"),
    [
        ("kmt", []),
        ("edskfypmxt", ["f"]),
        ("top_k;adaptive_p", ["adaptive_p"]),
        (["top_k", "typical_p", "temp"], []),
        (["top_k", "tfs_z", "adaptive_p", "infill"], ["tfs_z", "adaptive_p", "infill"]),
        ([], []),
    ],
)
def test_samplers_that_are_not_here_are_skipped_and_named(
    http: TestClient, route: str, samplers: Any, skipped: list[str]
) -> None:
    reply = http.post(route, json=BODIES[route][1] | {"samplers": samplers})
    assert reply.status_code == 200, reply.text
    warning = reply.headers.get("warning", "")
    assert all(repr(name) in warning for name in skipped)
    assert ("skipped" in warning) == bool(skipped)


def test_a_budget_of_reasoning_that_does_not_bind_is_taken_and_named(http: TestClient) -> None:
    """Claude Code sends one with every request, and llama-server takes it."""
    body = {"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}], "model": "fake"}
    reply = http.post("/v1/messages", json=body | {"thinking": {"type": "enabled", "budget_tokens": 1024}})
    assert reply.status_code == 200, reply.text
    assert "budget_tokens is not less than max_tokens" in reply.headers["warning"]


@pytest.mark.parametrize(("value", "count"), [(False, None), (True, 1), (2, 2)])
def test_completions_take_a_flag_of_log_probabilities(http: TestClient, value: bool | int, count: int | None) -> None:
    reply = http.post(COMPLETIONS, json=BODIES[COMPLETIONS][1] | {"logprobs": value})
    assert reply.status_code == 200, reply.text
    shown = reply.json()["choices"][0]["logprobs"]
    assert (shown is None) == (count is None)
    assert count is None or len(shown["top_logprobs"][0]) >= count
