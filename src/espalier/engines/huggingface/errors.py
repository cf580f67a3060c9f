"""Maps exceptions of torch and transformers to our errors, and silences their logs while a model loads.

It knows no models and no engines, only what those libraries' exceptions mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.utils import logging as upstream_logging

from espalier.errors import CapabilityError, EspalierError, GenerationError, InputError, LimitExceeded, UnknownModel


def first_line(error: BaseException) -> str:
    """The error's message up to the first line break; its type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def quiet() -> Iterator[None]:
    """No log lines and no progress bars over weights while a model loads; restores both afterwards. Download bars are
    the hub's own and stay."""

    def hidden(make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return make(*args, **{**kwargs, "disable": True})

    hub = logging.getLogger("huggingface_hub")  # it logs every retry
    verbosity, level = upstream_logging.get_verbosity(), hub.level
    bars = upstream_logging.set_tqdm_hook(hidden)
    upstream_logging.set_verbosity(logging.ERROR)
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        upstream_logging.set_verbosity(verbosity)
        upstream_logging.set_tqdm_hook(bars)
        hub.setLevel(level)


@contextmanager
def mapped() -> Iterator[None]:
    """Maps what torch raises during computation to our errors."""
    try:
        yield
    except EspalierError:
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise LimitExceeded("out of memory", hint="fewer or shorter sequences, or a smaller model") from error
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # NotImplementedError is a RuntimeError
        if "allocate memory" in str(error):  # the CPU allocator has no exception of its own
            raise LimitExceeded("out of memory", hint="fewer or shorter sequences") from error
        raise GenerationError(f"the model's forward pass failed: {first_line(error)}") from error


@contextmanager
def mapped_loading(name: str) -> Iterator[None]:
    """Maps what transformers raises while loading to our errors."""
    try:
        yield
    except EspalierError:
        raise
    except OSError as error:
        raise UnknownModel(
            f"there is no model {name!r}: {first_line(error)}",
            hint="give a folder, or a name on the Hugging Face hub; offline it must be in the hub's cache",
            field="model",
        ) from error
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise LimitExceeded(f"{name} does not fit into memory", hint="a smaller model or dtype") from error
    except (ValueError, ImportError) as error:
        # A config without model_type is no model; the others are models that transformers cannot load.
        kind = UnknownModel if "Unrecognized model in" in str(error) else CapabilityError
        raise kind(f"transformers cannot load {name}: {first_line(error)}", field="model") from error
    except Exception as error:  # of damaged files anything may come, from tokenizers a bare Exception
        raise InputError(f"the files of {name} cannot be read: {first_line(error)}", field="model") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of tokenizers, in Rust; it derives from BaseException
            raise
        raise InputError(f"the files of {name} cannot be read: {first_line(error)}", field="model") from error
