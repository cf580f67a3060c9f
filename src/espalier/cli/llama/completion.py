"""Answers an argument list as llama-completion does: its stdout and exit codes, Espalier's engine and constraints.

Exit codes: 0 done; 1 a wrong argument, a model that cannot be opened, a prompt that is too long; 255 nothing to read;
a grammar that cannot be read ends the process with SIGABRT, as llama.cpp's does. Messages go to stderr.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from espalier import api
from espalier.cli import output
from espalier.cli.flags.store import app_with_store
from espalier.cli.llama.reading import (
    ArgumentError,
    LlamaArguments,
    read_arguments,
    read_environment,
    usage,
)
from espalier.cli.llama.table import FLAGS
from espalier.constraints.spec import Gbnf, JsonSchema, Spec
from espalier.engines.base import Finished, Message, Request, Result
from espalier.engines.gguf.header import read_header
from espalier.errors import EspalierError, GrammarError, InputError, SchemaError, UnsupportedError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import UNLIMITED, from_llama
from espalier.version import __version__

ENDED = b" [end of text]\n"
NOTHING_TO_READ = 255
BLOCK = 256
"""llama.cpp rounds a context up to this many tokens."""
MARGIN = 4
"""Tokens that llama.cpp keeps free beside a prompt."""
HELP, VERSION = ("-h", "--help", "--usage"), "--version"


def main(arguments: Sequence[str], *, environ: Mapping[str, str] | None = None) -> int:
    """Run, and return the exit code."""
    try:
        if any(one in HELP for one in arguments):
            sys.stdout.write("".join(f"{usage(flag)}\n" for flag in FLAGS))
            return 0
        if VERSION in arguments:
            print(f"version: Espalier {__version__}", file=sys.stderr)
            return 0
        found = read_arguments(arguments)
        read_environment(found, os.environ if environ is None else environ)
        return _answer(found)
    except ArgumentError as error:
        print(error.lines, file=sys.stderr)
        return 1
    except GrammarError as error:
        output.fail(error)
        print("failed to parse grammar", file=sys.stderr)
        return _abort()
    except EspalierError as error:
        output.fail(error)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _abort() -> int:
    """End as llama.cpp ends where it cannot read a grammar: by SIGABRT, here without a core file."""
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGABRT)
    return 128 + signal.SIGABRT


def _answer(found: LlamaArguments) -> int:
    model = found.inputs.get("model")
    if model is None:
        raise InputError("error: --model is required", field="model")
    sampling, prompt = _sampling(found), found.prompt or ""
    app = app_with_store()
    with api.load(model, app=app, **_engine_options(found, model)) as engine:
        constraint = _constraint(found)
        has_template = engine.engine.template is not None
        is_chat = bool(found.inputs.get("conversation", has_template)) and has_template
        session = Session(found, engine, sampling, constraint, sys.stdout.buffer)
        return session.talk(prompt) if is_chat else session.complete(prompt)


def _sampling(found: LlamaArguments) -> SamplingConfig:
    fields = dict(found.sampling)
    if fields.get("n_predict", 0) < 0:  # -1: without a limit; -2: until the context is full, which is the same
        fields["n_predict"] = -1
    if fields.get("n_predict") == 0:  # nothing is generated: see `Session`
        fields["n_predict"] = 1
    if "temperature" in fields:
        fields["temperature"] = max(0.0, fields["temperature"])
    if "logit_bias" in fields:
        fields["logit_bias"] = _summed(fields["logit_bias"])
    config = from_llama(fields)
    for note in config.notes:
        output.note(note)
    return config


def _summed(biases: Sequence[tuple[int, float]]) -> list[list[Any]]:
    """One bias for each token: llama.cpp adds up those that are given several times."""
    found: dict[int, float] = {}
    for token, bias in biases:
        found[token] = found.get(token, 0.0) + bias
    return [[token, bias] for token, bias in found.items()]


def _engine_options(found: LlamaArguments, model: str) -> dict[str, Any]:
    """Options of `espalier.load`. A context beyond the trained one is cut to it, with a note."""
    options = dict(found.engine)
    asked = options.get("context")
    if asked is not None:
        whole = -(-max(asked, 1) // BLOCK) * BLOCK
        trained = _trained_context(model)
        if trained and whole > trained:
            output.note(f"the model was trained on {trained} tokens of context only ({asked} asked)")
            whole = trained
        options["context"] = whole
    return options


def _trained_context(model: str) -> int:
    """0 where the model is no GGUF file, which loading reports."""
    path = Path(model).expanduser()
    return read_header(path).count("context_length") if path.is_file() else 0


def _constraint(found: LlamaArguments) -> Spec | None:
    if "schema" in found.inputs:
        return JsonSchema(found.inputs["schema"], closed=True)
    text = found.inputs.get("grammar")
    return Gbnf(text) if text else None


@dataclass(slots=True)
class Session:
    """One run of the program: prompts in, text out."""

    arguments: LlamaArguments
    engine: api.LoadedEngine
    sampling: SamplingConfig
    constraint: Spec | None
    out: BinaryIO

    def complete(self, prompt: str) -> int:
        """The prompt as it is, then its continuation."""
        if self.arguments.sampling.get("n_predict") == 0:
            self._write(b"\n\n")
            return 0
        request = self._request(prompt=prompt, raw=True)
        self._echo(request)
        result = self._generate(request)
        self._write((ENDED if _is_ended(result) else b"") + b"\n\n")
        return 0

    def talk(self, prompt: str) -> int:
        """A turn for the prompt, and one for each line of stdin, as in llama.cpp's conversations."""
        inputs, messages = self.arguments.inputs, []
        if inputs.get("system"):
            messages.append({"role": "system", "content": inputs["system"]})
        is_single = bool(inputs.get("single_turn"))
        is_echoed = True
        while True:
            if prompt:
                messages.append({"role": "user", "content": prompt})
                request = self._request(messages=messages, raw=False)
                if is_echoed:
                    self._echo(request)
                result = self._generate(request)
                messages.append({"role": "assistant", "content": result.text})
                if is_single:
                    self._write((ENDED if _is_ended(result) else b"") + b"\n\n")
                    return 0
                self._write(b"\n" if _is_ended(result) else b"")
            elif is_echoed and messages:
                self._echo(self._request(messages=messages, raw=False), generates=False)
            self._write(b"\n> ")
            line, is_echoed = _read_turn(), False
            if line is None:
                self._write(b"EOF by user\n\n\n")
                return 0
            prompt = line

    def _request(self, *, prompt: str = "", messages: Sequence[Message] = (), raw: bool) -> Request:
        asked: Any = list(messages) if messages else prompt
        is_native = self.engine.capabilities.native_sampler
        return api.make_request(
            asked or " ", constraint=self.constraint, sampling=self.sampling, raw=raw, trace="off",
            sampler="native" if is_native else "espalier",
        )  # fmt: skip
