"""SGLang's own base classes where SGLang is installed, and its recorded interface where it is not."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

HAS_SGLANG = find_spec("sglang") is not None
"""An SGLang that is there and lacks one of these names raises ImportError: it is older than this adapter can serve."""

if TYPE_CHECKING or not HAS_SGLANG:
    from espalier.integrations.sglang.recorded import (
        BaseGrammarBackend,
        BaseGrammarObject,
        InvalidGrammarObject,
        register_grammar_backend,
    )
else:
    from sglang.srt.constrained.base_grammar_backend import (
        BaseGrammarBackend,
        BaseGrammarObject,
        InvalidGrammarObject,
        register_grammar_backend,
    )

__all__ = ["HAS_SGLANG", "BaseGrammarBackend", "BaseGrammarObject", "InvalidGrammarObject", "register_grammar_backend"]
