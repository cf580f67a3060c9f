"""Answers an argument list as llama-completion does: its stdout and exit codes, Espalier's engine and constraints.

Exit codes: 0 done; 1 a wrong argument, a model that cannot be opened, a prompt that is too long; 255 nothing to read;
a grammar that cannot be read ends the process with SIGABRT, as llama.cpp's does. Messages go to stderr.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from espalier import api
from espalier.cli import output
from espalier.cli.flags.model import load
from espalier.cli.flags.schema import parse_json
from espalier.cli.flags.store import app_with_store
from espalier.cli.llama.reading import ArgumentError, LlamaArguments, read_arguments, read_environment, summed, usage
from espalier.cli.llama.table import FLAGS
from espalier.cli.llama.values import unescape
from espalier.constraints.spec import Gbnf, JsonSchema, Spec
from espalier.engines.base import Event, Finished, Message, Request, Result, SamplerName
from espalier.engines.gguf.header import read_header
from espalier.errors import EspalierError, GrammarError, InputError, PromptTooLong, UnsupportedError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import from_llama
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
        if any(argument in HELP for argument in arguments):
            sys.stdout.write("".join(f"{usage(flag)}\n" for flag in FLAGS if flag.sets is not None))
            return 0
        if VERSION in arguments:
            _tell(f"version: Espalier {__version__}")
            return 0
        parsed = read_arguments(arguments)
        read_environment(parsed, os.environ if environ is None else environ)
        return _answer(parsed)
    except ArgumentError as error:
        _tell(error.lines)
        return 1
    except GrammarError as error:
        output.fail(error)
        _tell("failed to parse grammar")
        return _abort()
    except EspalierError as error:
        output.fail(error)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _tell(lines: str) -> None:
    """Write llama.cpp's own words to stderr."""
    sys.stderr.write(f"{lines}\n")


def _abort() -> int:
    """End as llama.cpp ends where it cannot read a grammar: by SIGABRT, here without a core file."""
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGABRT)
    return 128 + signal.SIGABRT


def _answer(arguments: LlamaArguments) -> int:
    model = arguments.inputs.get("model")
    if model is None:
        raise InputError("--model is required", hint="-m FILE.gguf", field="model")
    sampling, prompt = _sampling(arguments), arguments.prompt or ""
    with load(model, _engine_options(arguments, model), app_with_store()) as engine:
        # After the model, as in llama.cpp: a model that is missing exits with 1 whatever the grammar is.
        constraint, compiler = _constraint(arguments), engine.engine.compiler
        if constraint is not None and compiler is not None:
            compiler.compile(constraint)  # before anything is printed
        session = Session(arguments, engine, sampling, constraint)
        has_template = engine.engine.template is not None
        is_chat = has_template and arguments.inputs.get("conversation", True)
        return session.talk(prompt) if is_chat else session.complete(prompt)


def _sampling(arguments: LlamaArguments) -> SamplingConfig:
    fields = dict(arguments.sampling)
    limit = fields.get("n_predict", -1)
    # Below 0 there is no limit; with 0 the session generates nothing.
    fields["n_predict"] = -1 if limit < 0 else max(limit, 1)
    if "logit_bias" in fields:
        fields["logit_bias"] = summed(fields["logit_bias"])
    config = from_llama(fields)
    for note in config.notes:
        output.note(note)
    return config


def _engine_options(arguments: LlamaArguments, model: str) -> dict[str, Any]:
    """Options of `espalier.load`. A context beyond the trained one is cut to it, with a note."""
    options = dict(arguments.engine)
    option = options.get("context")
    if option is not None:
        whole = -(-max(option, 1) // BLOCK) * BLOCK
        trained = _trained_context(model)
        if trained and whole > trained:
            output.note(f"the model was trained on only {trained} context tokens ({option} specified)")
            whole = trained
        options["context"] = whole
    return options


def _trained_context(model: str) -> int:
    """0 where the model is no file, which loading reports."""
    path = Path(model).expanduser()
    return read_header(path).count("context_length") if path.is_file() else 0


def _constraint(arguments: LlamaArguments) -> Spec | None:
    if "schema" in arguments.inputs:
        return JsonSchema(parse_json(arguments.inputs["schema"], "the schema"), closed=True)
    text = arguments.inputs.get("grammar")
    return Gbnf(text) if text else None


@dataclass(slots=True)
class Session:
    """One run of the program: prompts in, text out."""

    arguments: LlamaArguments
    engine: api.LoadedEngine
    sampling: SamplingConfig
    constraint: Spec | None

    def complete(self, prompt: str) -> int:
        """Print the prompt and its continuation."""
        if not prompt:
            _tell("input is empty")
            return NOTHING_TO_READ
        request = self._request(prompt, raw=True)
        if not self._generates_nothing:
            self._echo(request)
            self._write(ENDED if _is_ended(self._generate(request)) else b"")
        self._write(b"\n\n")
        return 0

    def talk(self, prompt: str) -> int:
        """Answer the prompt, then each line of stdin, until it ends."""
        messages: list[Message] = []
        if system := self.arguments.inputs.get("system"):
            messages.append({"role": "system", "content": system})
        is_first, turns = True, self._turns(prompt, waits=not messages)
        for text in turns:
            if text:
                messages.append({"role": "user", "content": text})
            request = self._request(messages, raw=False)
            if is_first:
                self._echo(request if text else replace(request, turn="none"))
            is_first = False
            if not text or self._generates_nothing:
                continue
            result = self._generate(request)
            messages.append({"role": "assistant", "content": result.text})
            if self.arguments.inputs.get("single_turn"):
                self._write((ENDED if _is_ended(result) else b"") + b"\n\n")
                return 0
            self._write(b"\n" if _is_ended(result) else b"")
        self._write(b"EOF by user\n\n\n")
        return 0

    def _turns(self, prompt: str, *, waits: bool) -> Iterator[str]:
        """The prompt, if there is one, then the lines of stdin; each after llama.cpp's `> `. waits: whether nothing
        is shown before the first line; else the messages that there are already are, with no text."""
        if prompt or not waits:
            yield prompt
        while True:
            self._write(b"\n> ")
            line = sys.stdin.readline()
            while line.endswith("\\\n"):  # the next line belongs to it
                line = line[:-2] + "\n" + sys.stdin.readline()
            if not line:
                return
            if text := line.removesuffix("\n").removesuffix("/"):
                yield unescape(text) if self.arguments.inputs.get("escapes", True) else text

    @property
    def _generates_nothing(self) -> bool:
        return self.arguments.sampling.get("n_predict") == 0

    def _request(self, prompt: str | list[Message], *, raw: bool) -> Request:
        sampler: SamplerName = "native" if self.engine.capabilities.native_sampler else "espalier"
        request = api.make_request(
            prompt, constraint=self.constraint, sampling=self.sampling, raw=raw, trace="off", sampler=sampler
        )
        count, context = len(self.engine.engine.prompt_ids(request)), self.engine.capabilities.max_context
        if context is not None and count > context - MARGIN:
            raise PromptTooLong(f"prompt is too long ({count} tokens, max {context - MARGIN})")
        return request

    def _generate(self, request: Request) -> Result:
        """Print the answer as it comes. What no grammar can express is drawn by Espalier's own sampler."""
        try:
            return self._print_events(self.engine.run([request], route="llama-cli"))
        except UnsupportedError as error:
            if request.sampler != "native":
                raise
            output.note(f"Espalier's own sampler draws the tokens: {error.message}")
            return self._print_events(self.engine.run([replace(request, sampler="espalier")], route="llama-cli"))

    def _print_events(self, events: Iterator[Event]) -> Result:
        size = 0
        for event in events:
            if isinstance(event, Finished):
                break
            if not self._shows_special:
                piece = event.text.encode()
                size += len(piece)
                self._write(piece)
        else:
            raise AssertionError("a run always ends in Finished")
        # llama.cpp prints whole tokens: the text that ended the answer, too, and half a character.
        self._write(self._bytes_of(event.result.token_ids)[size:])
        for note in event.result.notes:
            output.note(note)
        return event.result

    def _echo(self, request: Request) -> None:
        """Print the prompt as its tokens spell it."""
        if self.arguments.inputs.get("display_prompt", True):
            self._write(self._bytes_of(self.engine.engine.prompt_ids(request)))

    @property
    def _shows_special(self) -> bool:
        return bool(self.arguments.inputs.get("special"))

    def _bytes_of(self, tokens: Sequence[int]) -> bytes:
        vocab = self.engine.vocab
        special = vocab.special_texts if self._shows_special else {}
        return b"".join(special[token].encode() if token in special else vocab.bytes_of(token) for token in tokens)

    def _write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _is_ended(result: Result) -> bool:
    """Whether the model ended the text itself."""
    return result.finish_reason == "stop" and not isinstance(result.stop_reason, str)
