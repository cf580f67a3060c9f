"""llama-completion as an Engine: one process for each answer, our templates and constraints before it, our verdict
after it.

A grammar that llama.cpp cannot read ends the program, so nothing fails open; the text is held to our matcher anyway.
The program tells no probabilities, so its traces have no steps.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from espalier.chat.prompt.template import ChatTemplate, template_of
from espalier.constraints.compiler import NOWHERE, Compiler, Folders
from espalier.constraints.joining.rule import with_bad_words
from espalier.constraints.kinds import KINDS
from espalier.constraints.to_gbnf import portable
from espalier.engines.base import Capabilities, Event, Request
from espalier.engines.capabilities import check_capabilities
from espalier.engines.gguf.header import Header, read_header
from espalier.engines.local.turns import TurnMaker
from espalier.errors import CapabilityError, InputError, UpstreamError
from espalier.sampling.config_names import llama_notes
from espalier.tokens.vocab import Vocab
from espalier.upstream.link import excerpt
from espalier.upstream.llama_cli.arguments import sampling_arguments
from espalier.upstream.llama_cli.output import ProgramOutput, generated, read_session, read_text, reason
from espalier.upstream.llama_cli.pieces import pieces_of, spelling, up_to
from espalier.upstream.llama_cli.program import LlamaProgram, Ran
from espalier.upstream.runs import AnswerEnd, Begin, Current, IncomingAnswer, UpstreamEngine
from espalier.upstream.safety import sent_constraint

SECONDS = 600.0
TRIES = 6
"""Runs with the same seed until one leaves its whole output: with a tiny model every second one loses some."""
END_KEYS = ("eos", "eot", "eom")
NO_COUNT = "the program does not tell how many tokens there were"
NO_STEPS = "llama-completion tells no probabilities: the trace has no steps"


class LlamaCliEngine(UpstreamEngine):
    """An Engine over a GGUF file and a program. Each answer is a process of its own; from any thread."""

    def __init__(
        self,
        model: str,
        program: LlamaProgram,
        *,
        seconds: float = SECONDS,
        arguments: Sequence[str] = (),
        folders: Folders = NOWHERE,
        tool_format: str | None = None,
        tries: int = TRIES,
    ) -> None:
        """seconds: the longest that one process may run. arguments: further ones, such as `-t 4`. Raises UnknownModel,
        InputError for a file that is no GGUF."""
        self._path = Path(model).expanduser().resolve()
        header = read_header(self._path)
        self._program, self._seconds, self._tries = program, seconds, tries
        self._arguments = tuple(arguments)
        self._context = header.count("context_length")
        self._ends = {
            token for key in END_KEYS if isinstance(token := header.values.get(f"tokenizer.ggml.{key}_token_id"), int)
        }
        bos = _spell_token(header, "bos")
        self._begin = bos if header.values.get("tokenizer.ggml.add_bos_token") is True else ""
        self._template = _template(header, bos)
        self._pieces = pieces_of(header)
        self._vocab = replace(Vocab.bytes(), name=self._path.name)
        self._compiler = Compiler(self._vocab, folders=folders)
        self._turns = TurnMaker(name=self.name, template=self._template, vocab=self._vocab, tool_format=tool_format)

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            constraints=frozenset(KINDS.names()),  # those that no grammar expresses are refused when they are written
            chat_template=self._template is not None,
            max_context=self._context,
            max_sequences=1,
            native_sampler=True,
        )

    @property
    def vocab(self) -> None:
        """Not known here: the text is all that the program tells."""
        return None

    @property
    def compiler(self) -> Compiler:
        """For bytes: what is followed here is text."""
        return self._compiler

    @property
    def template(self) -> ChatTemplate | None:
        return self._template

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        raise CapabilityError(f"{self.name} runs in a program, which tells no tokens", field="model")

    def prompt_text(self, request: Request) -> str:
        return self._turns.prepare(request).text

    def prompt_ids(self, request: Request) -> list[int]:
        return self.encode("", add_special=False)

    def _prepare(self, request: Request) -> tuple[IncomingAnswer, Begin]:
        check_capabilities(self, request)
        if request.prompt_ids is not None:
            raise CapabilityError("a one-shot program takes text, not token ids", field="prompt_ids")
        whole = with_bad_words(request.constraint, request.sampling.bad_words)
        turn = self._turns.prepare(replace(request, constraint=whole))
        turn = replace(turn, notes=(*turn.notes, *llama_notes(request.sampling)))
        sent = sent_constraint(turn.spec, self._compiler)
        answer = IncomingAnswer(
            model=self.name,
            request=request,
            turn=turn,
            compiler=self._compiler,
            stops=request.sampling.stop,
            is_followed=sent.follows is not None,
            is_enforced=sent.is_whole,
            follows=sent.follows,
            follows_from=turn.before if sent.grammar is None else "",
        )
        config = replace(request.sampling, n=1, bad_words=(), stop=(), seed=answer.seed + request.stream)
        arguments = sampling_arguments(config, self._program.flags, context=self._context or 2**31 - 1)
        grammar = sent.grammar
        if grammar is None and sent.spec is not None:
            grammar = portable(sent.spec, self._compiler, before=turn.before)
        # The program adds the BOS that its tokenizer adds, to a rendered template as well, which spells its own.
        text = turn.text.removeprefix(self._begin) if self._begin and not request.raw else turn.text
        if not text:
            raise InputError("the prompt is empty", hint="this model needs at least one token", field="prompt")

        def begin(current: Current, index: int) -> Iterator[Event]:
            return self._events(answer, (arguments, text, grammar), sent.notes, current, index)

        return answer, begin

    def _events(
        self,
        answer: IncomingAnswer,
        asked: tuple[list[str], str, str | None],
        notes: tuple[str, ...],
        current: Current,
        index: int,
    ) -> Iterator[Event]:
        for _ in range(self._tries):
            outcome = self._once(asked, current)
            if outcome is not None:
                break
        else:
            raise UpstreamError(
                f"the output of {self._program.path} was lost {self._tries} times (llama.cpp issue 22142)",
                hint="a newer llama.cpp, or llama-server",
            )
        printed, told = outcome
        told = replace(told, notes=(*told.notes, *notes))
        if answer.is_traced:
            told = replace(told, notes=(*told.notes, NO_STEPS))
        if printed.text:
            yield answer.take(printed.text, index=index)
        if answer.stopped is not None:
            told = self._cut(told, printed.text, answer.stopped)
        yield answer.end(told, index=index)

    def _cut(self, end: AnswerEnd, text: str, size: int) -> AnswerEnd:
        """What is told of a text whose first `size` bytes end with a stop text: the tokens up to there."""
        ids = up_to(end.token_ids, self._pieces, text.encode(), size)
        if ids is None:
            return replace(end, token_ids=(), completion_tokens=0, notes=(*end.notes, NO_COUNT))
        return replace(end, token_ids=ids, completion_tokens=len(ids))

    def _once(
        self, asked: tuple[list[str], str, str | None], current: Current
    ) -> tuple[ProgramOutput, AnswerEnd] | None:
        """One process; None where its output was lost."""
        arguments, text, grammar = asked
        with tempfile.TemporaryDirectory(prefix="espalier-") as folder:  # for this user alone
            session = Path(folder, "session") if "--prompt-cache-all" in self._program.flags else None
            whole = [*self._fixed_arguments(Path(folder), text, grammar, session), *arguments]
            running = self._program.run(whole, seconds=self._seconds)
            try:
                current.is_now(running)
            except BaseException:
                running.end()
                raise
            ran = running.wait()
            if ran.status != 0:
                raise self._describe_failure(ran)
            ids = () if session is None else read_session(session)
            printed = read_text(ran.out, session, ids, self._ends, self._pieces)
        if printed is None:
            return None
        # The counts on stderr may be lost.
        written = generated(ids, ran.err) or spelling(ids, self._pieces, printed.text.encode(), ended=printed.ended)
        return printed, _summarise_end(printed, ids, written)

    def _fixed_arguments(self, folder: Path, text: str, grammar: str | None, session: Path | None) -> Iterator[str]:
        """The arguments that do not depend on the sampling; prompt and grammar are files that only this user reads."""
        prompt = folder / "prompt"
        prompt.write_text(text + "\n", encoding="utf-8", newline="")  # the program removes one newline
        yield from ("--model", str(self._path), "--file", str(prompt))
        yield from ("--no-conversation", "--no-display-prompt", "--no-escape")
        if grammar is not None:
            path = folder / "grammar"
            path.write_text(grammar, encoding="utf-8", newline="")
            yield from ("--grammar-file", str(path))
        if session is not None:
            yield from ("--prompt-cache", str(session), "--prompt-cache-all")
        yield from (flag for flag in ("--simple-io", "--no-warmup") if flag in self._program.flags)
        yield from self._arguments

    def _describe_failure(self, ran: Ran) -> UpstreamError:
        how = f"was ended by signal {-ran.status}" if ran.status < 0 else f"failed with status {ran.status}"
        return UpstreamError(f"{os.path.basename(self._program.path)} {how}: {excerpt(reason(ran.err))}")


def _summarise_end(printed: ProgramOutput, ids: tuple[int, ...], written: tuple[int, ...]) -> AnswerEnd:
    return AnswerEnd(
        finish="stop" if printed.ended else "length",
        prompt_tokens=len(ids) - len(written) if written else 0,
        completion_tokens=len(written),
        token_ids=written,
        notes=() if written else (NO_COUNT,),
    )


def _spell_token(header: Header, key: str) -> str:
    token = header.values.get(f"tokenizer.ggml.{key}_token_id")
    if not isinstance(token, int) or not 0 <= token < len(header.tokens):
        return ""
    return header.tokens[token].decode("utf-8", "replace")


def _template(header: Header, bos: str) -> ChatTemplate | None:
    source = header.values.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        return None
    return template_of(source, bos_token=bos, eos_token=_spell_token(header, "eos"))
