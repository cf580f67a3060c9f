"""`espalier chat`: a conversation in the terminal, whose constraint can be switched between answers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from espalier import api
from espalier.chat.reading.deltas import ContentDelta
from espalier.cli import output
from espalier.cli.flags.answer import AnswerFlags
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.decoding import DecodingFlags
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.inputs import System, check_trace_path
from espalier.cli.flags.model import EngineFlags, Model, described, load
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.sampling import PER_ANSWER, Sampler, SamplingFlags, check_single
from espalier.cli.flags.store import app_with_store
from espalier.cli.flags.tools import show_delta
from espalier.cli.flags.words import WordFlags
from espalier.cli.generate import report
from espalier.constraints.spec import Spec
from espalier.decoding.options import OPTIONS, Decoding
from espalier.engines.base import Event, FinishEvent, Result
from espalier.engines.request_options import REASONING
from espalier.errors import EspalierError, InputError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.presets.spec import Preset

HELP = """\
/schema SCHEMA   valid under a schema   /json            any JSON object
/regex PATTERN   what it matches        /choice A B ...  one of these
/grammar FILE    in a GBNF grammar      /free            no constraint
/system TEXT     set it, start anew     /reset           forget the messages
/strategy NAME   how to constrain       /trace FILE      write the last trace
/quit            leave (or Ctrl-D)"""


@dataclass
class ChatSession:
    """The state of a chat."""

    engine: api.LoadedEngine
    sampling: SamplingConfig
    constraint: Spec | None = None
    system: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: Result | None = None
    preset: Preset | None = None
    sampler: str = "espalier"
    flags: AnswerFlags | None = None
    decoding: DecodingFlags = field(default_factory=DecodingFlags)
    usual: dict[str, Any] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def tell(self, notes: Sequence[str]) -> None:
        """Print the notes that were not printed yet."""
        for note in notes:
            if note not in self.told:
                output.note(note)
        self.told.update(notes)

    def prompt(self) -> list[dict[str, Any]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + self.messages


@with_flags
def command(
    *,
    model: Model = None,
    system: System = None,
    constraint: ConstraintFlags,
    safety: SafetyFlags,
    vocab: WordFlags,
    sampling: SamplingFlags,
    sampler: Sampler = "espalier",
    decoding: DecodingFlags,
    engine: EngineFlags,
) -> None:
    """Talk with a model; /help inside shows how to switch the constraint."""
    wanted = AnswerFlags(constraint=constraint, safety=safety, vocab=vocab)
    spec, soft = wanted.specs()
    fields = ({} if sampling.preset else {"max_tokens": PER_ANSWER}) | sampling.fields()
    app = app_with_store()
    wanted.check(spec, app)
    preset = None if sampling.preset is None else app.presets.get(sampling.preset)
    usual = {  # for later commands too
        "soft": soft,
        "default_order": constraint.usual_order(app),
        "default_reasoning": app.settings.default_of(REASONING),
    }
    options = fields | decoding.options() | usual | {"sampler": sampler}
    request = api.make_request("", constraint=spec, preset=preset, **options, closed=constraint.closed or None)
    check_single(request.sampling)
    with load(model, engine, app) as loaded:
        output.note(described(model, engine, loaded, app))
        output.note("/help for commands, Ctrl-D to leave")
        conversation = ChatSession(
            loaded,
            request.sampling,
            spec if spec is None or not constraint.closed else spec.closing(True),
            system,
            preset=preset,
            sampler=sampler,
            decoding=decoding,
            flags=wanted,
            usual=usual,
        )
        conversation.tell(request.notes)
        talk(conversation)


def talk(conversation: ChatSession) -> None:
    """Read lines until the end of input or /quit. An error in one line is printed, and the chat goes on."""
    while True:
        try:
            line = _read_line()
        except UnicodeDecodeError as error:
            output.fail(InputError(f"that line is not UTF-8 at byte {error.start}"))
            continue
        if line is None or line.strip() in ("/quit", "/exit"):
            return
        if not line.strip():
            continue
        try:
            if line.startswith("/"):
                switch(conversation, line)
            else:
                answer(conversation, line)
        except EspalierError as error:
            output.fail(error)


def answer(conversation: ChatSession, line: str) -> None:
    """Send one line and stream the answer. Ctrl-C stops the answer; its text so far stays in the conversation."""
    conversation.messages.append({"role": "user", "content": line})
    shown: list[str] = []
    was_stopped = False
    try:
        with closing(_stream(conversation)) as events:
            for event in events:
                for delta in event.deltas:
                    show_delta(delta)
                    shown += [delta.text] if isinstance(delta, ContentDelta) else []
                if isinstance(event, FinishEvent):
                    conversation.last = event.result
    except KeyboardInterrupt:
        was_stopped = True
        conversation.last = None
    except EspalierError:
        conversation.messages.pop()  # the question was never answered
        raise
    output.piece("\n")
    if was_stopped:
        output.note("stopped; the text so far stays in the conversation")
    conversation.messages.append({"role": "assistant", "content": "".join(shown)})
    if conversation.last is not None:
        conversation.tell(conversation.last.notes)
        report(conversation.last)


def _stream(conversation: ChatSession) -> Generator[Event, None, None]:
    """The events of an answer, as a generator that can be closed. It renders and compiles at its first event."""
    requests, _ = conversation.engine.requests(
        conversation.prompt(),
        constraint=conversation.constraint,
        sampling=conversation.sampling,
        preset=conversation.preset,
        sampler=conversation.sampler,
        **conversation.decoding.options(),
        **conversation.usual,
    )
    yield from conversation.engine.run(requests, route="espalier chat")


def switch(conversation: ChatSession, line: str) -> None:
    """Run one /command. Raises InputError for an unknown command or a wrong argument."""
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    run = COMMANDS.get(name)
    if run is None:
        raise InputError(f"there is no /{name}", hint="/help lists the commands")
    run(conversation, rest)


def _constrain(conversation: ChatSession, **given: Any) -> None:
    flags = conversation.flags
    if flags is None:
        spec = ConstraintFlags(**given).spec()
    else:  # bans, filters and word lists of the command line stay
        spec, _ = replace(flags, constraint=ConstraintFlags(**given, ban=flags.constraint.ban)).specs()
    if spec is not None:
        # Compile now, so that a fault shows here and not at the next question.
        api.compile(spec, vocab=conversation.engine.engine.vocab)
    conversation.constraint = spec
    otherwise = "the preset's" if conversation.preset else "none"
    output.note(f"constraint: {spec.kind if spec else otherwise}")


def _grammar(rest: str) -> dict[str, str]:
    """The flags of `FILE`, or of `FILE --root RULE`."""
    path, _, root = rest.partition(" --root ")
    return {"grammar": path.strip()} | ({"root": root.strip()} if root else {})


def _need(rest: str, what: str) -> str:
    if not rest:
        raise InputError(f"this command needs {what}", hint="/help lists the commands")
    return rest


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise InputError(f"the choices cannot be read: {error}", hint='quote as in a shell: /choice "a b" c') from error


def _reset(conversation: ChatSession, rest: str) -> None:
    conversation.messages.clear()
    conversation.last = None
    output.note("a new conversation")


def _system(conversation: ChatSession, rest: str) -> None:
    conversation.system = rest or None
    _reset(conversation, rest)


def _strategy(conversation: ChatSession, rest: str) -> None:
    """Options of the old strategy are dropped: beams mean nothing to another one."""
    name = _need(rest, "the name of a strategy")
    options = ((OPTIONS[option], value) for option, value in conversation.decoding.options_given.items())
    meant = {option.name: value for option, value in options if not option.strategies or name in option.strategies}
    decoding = DecodingFlags(options_given={**meant, "strategy": name})
    Decoding(**decoding.options())
    conversation.decoding = decoding
    output.note(f"strategy: {name}")


def _trace(conversation: ChatSession, rest: str) -> None:
    path = _need(rest, "a file name")
    target = check_trace_path(path)
    if conversation.last is None or conversation.last.trace is None:
        raise InputError("there is no answer to trace yet")
    if target is not None:
        conversation.last.trace.save(target, edge="cli")
    output.note(f"trace: {path}")


COMMANDS: dict[str, Callable[[ChatSession, str], None]] = {
    "help": lambda c, rest: output.note(HELP),
    "schema": lambda c, rest: _constrain(c, schema=_need(rest, "a schema")),
    "regex": lambda c, rest: _constrain(c, regex=_need(rest, "a pattern")),
    "grammar": lambda c, rest: _constrain(c, **_grammar(_need(rest, "a file"))),
    "choice": lambda c, rest: _constrain(c, choice=_words(_need(rest, "at least one answer"))),
    "json": lambda c, rest: _constrain(c, json_object=True),
    "free": lambda c, rest: _constrain(c),
    "reset": _reset,
    "system": _system,
    "strategy": _strategy,
    "trace": _trace,
}


def _read_line() -> str | None:
    """One line, or None at the end of input. The prompt `> ` goes to stderr: stdout holds answers only."""
    if sys.stdin.isatty():
        output.ask("> ")
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        line = ""
    output.answered(ended=bool(line))
    return line.rstrip("\n") if line else None
