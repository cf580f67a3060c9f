"""Where vLLM or SGLang is not installed, its interface as published stands in for it."""

import tests.engine_doubles  # noqa: F401  # before the test modules import the adapters
