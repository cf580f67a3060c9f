"""`LlamaCppClient`: the one-shot client of PedroCLI, with its setters, over `LlamaCliEngine`.

A setter checks its value at once and changes nothing if it is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

from espalier.constraints.spec import Gbnf
from espalier.engines.base import FinishEvent, Request, Result
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.files.limits import GRAMMAR
from espalier.files.reading import read_text
from espalier.sampling.config import SamplingConfig
from espalier.sampling.presets.catalogue import CLIENT_STRUCTURED, CLIENT_TOOL_CALLS
from espalier.upstream.llama_cli.open import open_engine

MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """temperature: None for the client's own."""

    user_prompt: str
    system_prompt: str = ""
    max_tokens: int = MAX_TOKENS
    temperature: float | None = None
    seed: int | None = None


class Setter:
    """The setter `set_NAME` of an option: `client.set_top_k(20)`, or `client.set_top_k(top_k=20)`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._option = name.removeprefix("set_")

    @overload
    def __get__(self, client: None, owner: type) -> Setter: ...
    @overload
    def __get__(self, client: LlamaCppClient, owner: type) -> Callable[..., LlamaCppClient]: ...
    def __get__(self, client: LlamaCppClient | None, owner: type) -> Setter | Callable[..., LlamaCppClient]:
        return self if client is None else partial(self._set, client)

    def _set(self, client: LlamaCppClient, *values: float, **named: float) -> LlamaCppClient:
        value = [*values, *named.values()]
        if len(value) != 1 or named.keys() - {self._option}:
            raise TypeError(f"set_{self._option} takes one value")
        return client._set(**{self._option: value[0]})


class LlamaCppClient:
    """Answers prompts with llama-completion. Setters return the client. Not for several threads at once.

    model: a GGUF file. binary: the program; without it, the one on the PATH. options: those of EngineOptions that
    `llama-cli` takes, such as `threads` and `timeout`. Raises as `espalier.load` does.
    """

    def __init__(self, model: str | os.PathLike[str], *, binary: str | None = None, **options: Any) -> None:
        self._engine = open_engine(os.fspath(model), options=EngineOptions(binary=binary, **options))
        self._sampling = SamplingConfig(max_tokens=MAX_TOKENS)
        self._grammar: Gbnf | None = None

    @property
    def sampling(self) -> SamplingConfig:
        return self._sampling

    @property
    def grammar(self) -> str | None:
        """The text of the grammar, None without one."""
        return None if self._grammar is None else self._grammar.grammar

    def set_grammar(self, grammar: str) -> LlamaCppClient:
        """Hold answers to a GBNF grammar. Raises GrammarError."""
        checked = Gbnf(grammar)
        self._engine.compiler.compile(checked)
        self._grammar = checked
        return self

    def set_grammar_file(self, path: str | os.PathLike[str]) -> LlamaCppClient:
        """Raises InputError for a file that cannot be read, GrammarError."""
        return self.set_grammar(read_text(path, GRAMMAR))

    def clear_grammar(self) -> LlamaCppClient:
        self._grammar = None
        return self

    set_temperature = Setter()
    set_top_k = Setter()
    set_top_p = Setter()
    set_min_p = Setter()

    def set_repeat_penalty(self, penalty: float) -> LlamaCppClient:
        return self._set(repetition_penalty=penalty)

    def set_repeat_last_n(self, tokens: int) -> LlamaCppClient:
        """tokens: how many the penalty looks at; -1 for all."""
        return self._set(repetition_window=tokens)

    def configure_for_structured_output(self) -> LlamaCppClient:
        """Low temperature and tight sampling."""
        return self._set(**CLIENT_STRUCTURED)

    def configure_for_tool_calls(self) -> LlamaCppClient:
        """The most probable token, always."""
        return self._set(**CLIENT_TOOL_CALLS)

    def infer(self, request: InferenceRequest) -> Result:
        """One answer. Raises InputError and its subclasses before the program runs; UpstreamError, UpstreamTimeout."""
        sampling = replace(self._sampling, max_tokens=request.max_tokens, seed=request.seed)
        if request.temperature is not None:
            sampling = replace(sampling, temperature=request.temperature)
        if self._engine.template is None and request.system_prompt:
            raise InputError(
                f"{self._engine.name} has no chat template for a system prompt",
                hint="put it into the user prompt",
                field="system_prompt",
            )
        messages: tuple[dict[str, str], ...] = ({"role": "user", "content": request.user_prompt},)
        if request.system_prompt:
            messages = ({"role": "system", "content": request.system_prompt}, *messages)
        asked = Request(constraint=self._grammar, sampling=sampling, trace="off")
        if self._engine.template is None:
            asked = replace(asked, prompt=request.user_prompt)
        else:
            asked = replace(asked, messages=messages)
        *_, last = self._engine.run([asked])
        if not isinstance(last, FinishEvent):
            raise AssertionError("an engine ends every request with Finished")
        return last.result

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> LlamaCppClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set(self, **values: Any) -> LlamaCppClient:
        self._sampling = replace(self._sampling, **values)
        return self
