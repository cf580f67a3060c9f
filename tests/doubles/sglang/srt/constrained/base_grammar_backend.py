"""SGLang's interface of grammar backends as published (sglang/srt/constrained/base_grammar_backend.py, 2026), recorded
for machines where SGLang is not installed. What the engine calls, without its caches and statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class BaseGrammarObject:
    def __init__(self) -> None:
        self._finished = False
        self.grammar_stats: Any = None
        self.current_token: int | None = None

    def maybe_init_reasoning(self, reasoning: bool) -> None: ...

    def accept_token(self, token: int) -> None:
        raise NotImplementedError

    def rollback(self, k: int) -> None:
        raise NotImplementedError

    def is_terminated(self) -> bool:
        return False

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> Any:
        raise NotImplementedError

    def fill_vocab_mask(self, vocab_mask: Any, idx: int) -> None:
        raise NotImplementedError

    @staticmethod
    def reset_vocab_mask(vocab_mask: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def move_vocab_mask(vocab_mask: Any, device: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def apply_vocab_mask(logits: Any, vocab_mask: Any) -> None:
        raise NotImplementedError

    def copy(self) -> BaseGrammarObject:
        return self

    @property
    def finished(self) -> bool:
        return self._finished

    @finished.setter
    def finished(self, finished: bool) -> None:
        self._finished = finished

    def try_jump_forward(self, tokenizer: Any) -> Any:
        raise NotImplementedError


class InvalidGrammarObject(BaseGrammarObject):
    def __init__(self, error_message: str = "Unknown grammar error") -> None:
        super().__init__()
        self.error_message = error_message

    def copy(self) -> InvalidGrammarObject:
        return InvalidGrammarObject(self.error_message)


class BaseGrammarBackend:
    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(max_workers=2)
        self.cache: dict[tuple[str, str], BaseGrammarObject] = {}

    def dispatch_fallback(self, key_type: str, key_string: str) -> BaseGrammarObject:
        raise ValueError(f"Invalid key_type: {key_type}={key_string}")

    def _init_value_dispatch(self, key: tuple[str, str], require_reasoning: bool) -> BaseGrammarObject:
        make = getattr(self, f"dispatch_{key[0]}", None)
        grammar: BaseGrammarObject = self.dispatch_fallback(*key) if make is None else make(key[1])
        return grammar

    def get_cached_or_future_value(
        self, key: tuple[str, str], require_reasoning: bool
    ) -> tuple[BaseGrammarObject | Future[BaseGrammarObject], bool]:
        value = self.cache.get(key)
        if value is not None:
            copied = value.copy()
            copied.maybe_init_reasoning(require_reasoning)
            return copied, True
        return self.executor.submit(self._init_value_dispatch, key, require_reasoning), False

    def set_cache(self, key: tuple[str, str], value: BaseGrammarObject) -> None:
        self.cache[key] = value

    def reset(self) -> None:
        self.cache.clear()


GRAMMAR_BACKEND_REGISTRY: dict[str, Callable[..., Any]] = {}


def register_grammar_backend(name: str, init_func: Callable[..., Any]) -> None:
    GRAMMAR_BACKEND_REGISTRY[name] = init_func
