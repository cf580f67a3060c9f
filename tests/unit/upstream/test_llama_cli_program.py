"""Programs that hang, abort, lose their output or are no llama-completion: each is an error of ours, no child stays."""

from __future__ import annotations

import os
import stat
import struct
import threading
from pathlib import Path

import pytest

import espalier
from espalier import Choice
from espalier.errors import Cancelled, CapabilityError, InputError, UpstreamError, UpstreamTimeout
from espalier.upstream.llama_cli.output import ProgramOutput, generated, read_session, read_text
from espalier.upstream.llama_cli.pieces import spelling, up_to
from espalier.upstream.llama_cli.program import NEEDED, find_program
from espalier.wiring import demo_model

MODEL = str(demo_model() / "demo.gguf")
FLAGS = " ".join(
    (
        *NEEDED,
        "--temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n --samplers --n-predict --prompt-cache",
        "--prompt-cache-all",
    )
)
SAVED = """
session=
while [ $# -gt 0 ]; do [ "$1" = --prompt-cache ] && session=$2; shift; done
end() { printf "\\nmain: saving final output to session file '%s'\\n\\n\\n" "$session"; }
"""


@pytest.fixture
def program(tmp_path):
    """Makes a program of a shell script that follows the answer to `--help`."""

    def made(script: str, flags: str = FLAGS) -> str:
        path = tmp_path / "llama-completion"
        path.write_text(f'#!/bin/sh\ncase "$1" in --help) echo "{flags}"; exit;; esac\n{SAVED}\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return made


def opened(binary: str, **options):
    return espalier.load(MODEL, engine="llama-cli", binary=binary, **options)


def test_a_sound_program_is_an_engine(program):
    with opened(program('printf "yes [end of text]\\n"; end')) as engine:
        result = engine.generate("hello", constraint=Choice(["yes", "no"]))
    assert (result.text, result.verdict.valid, result.finish_reason) == ("yes", True, "stop")
    assert any("no steps" in note for note in result.notes)


def test_prompt_and_grammar_are_in_files_that_are_gone_afterwards(program, tmp_path):
    log = tmp_path / "log"
    script = f'echo "$session" > {log}; ls -ld "$(dirname "$session")" >> {log}; printf "yes [end of text]\\n"; end'
    with opened(program(script)) as engine:
        engine.generate("secret words", constraint=Choice(["yes"]))
    session, mode = log.read_text().splitlines()
    assert mode.startswith("drwx------")
    assert not Path(session).parent.exists()


def test_lost_output_is_tried_again_with_the_same_seed_and_then_an_error(program, tmp_path):
    count = tmp_path / "count"
    script = f'echo x >> {count}; [ "$(wc -l < {count})" -lt 3 ] && exit 0; printf "yes [end of text]\\n"; end'
    with opened(program(script)) as engine:
        assert engine.generate("hello", constraint=Choice(["yes"])).text == "yes"
    assert len(count.read_text().splitlines()) == 3
    with opened(program('printf "ye"')) as engine, pytest.raises(UpstreamError, match="was lost 6 times"):
        engine.generate("hello", constraint=Choice(["yes"]))


@pytest.mark.parametrize(
    ("stop", "text", "met"),
    [
        (["lo"], "hel", "lo"),
        (["wor", "o w"], "hell", "o w"),
        (["xyz"], "hello world", None),
        (["d!", "d"], "hello worl", "d"),
    ],
)
def test_a_stop_text_cuts_the_text_of_a_program_that_knows_none(program, stop, text, met):
    with opened(program('printf "hello world [end of text]\\n"; end')) as engine:
        *tokens, finished = engine.stream("hello", stop=stop)
    result = finished.result
    assert (result.text, result.stop_reason, result.finish_reason) == (text, met, "stop")
    assert "".join(one.text for one in tokens) + finished.text == text


def test_the_tokens_up_to_a_stop_text_are_told_only_where_their_spellings_are_the_text():
    spelled = {1: b"he", 2: b"llo", 3: b" world"}
    assert up_to((1, 2, 3), spelled.get, b"hello world", 4) == (1, 2)
    assert up_to((1, 2, 3), spelled.get, b"hello world", 11) == (1, 2, 3)
    assert up_to((2, 1, 3), spelled.get, b"hello world", 4) is None
    assert up_to((1, 9), spelled.get, b"hello world", 4) is None
    assert up_to((), spelled.get, b"hello world", 4) is None


def test_the_tokens_of_a_text_are_found_by_their_spellings_where_the_counts_are_lost():
    spelled = {1: b"he", 2: b"llo", 3: b" world", 4: b"hello", 9: b""}
    assert spelling((4, 1, 2, 3, 7), spelled.get, b"hello world", ended=True) == (1, 2, 3, 7)
    assert spelling((4, 1, 2, 3), spelled.get, b"hello world", ended=True) == (1, 2, 3)
    assert spelling((4, 4, 3), spelled.get, b"hello world", ended=False) == (4, 3)
    assert spelling((4, 7), spelled.get, b"", ended=True) == (7,)
    for ids in ((3,), (2, 3), (9, 3), (5, 3), ()):
        assert spelling(ids, spelled.get, b"hello world", ended=True) == ()
        assert spelling((*ids, 7), spelled.get, b"hello world", ended=False) == ()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('echo "error: parsing grammar: bad" >&2; kill -ABRT $$', "signal 6: error: parsing grammar: bad"),
        ('echo "error: failed to load model" >&2; exit 1', "status 1: error: failed to load"),
        ("exit 3", "status 3: it says nothing"),
        ('printf "no [end of text]\\n"; end', "did not keep to choice"),
        ('printf "ye [end of text]\\n"; end', "does not satisfy choice yet"),
        ('printf "\\377 [end of text]\\n"; end', "not UTF-8"),
    ],
)
def test_a_program_that_fails_or_breaks_the_constraint_is_an_error(program, script, said):
    with opened(program(script)) as engine, pytest.raises(UpstreamError, match=said):
        engine.generate("hello", constraint=Choice(["yes"]))


@pytest.mark.slow
def test_a_program_that_hangs_is_killed_with_its_children(program, tmp_path):
    pid = tmp_path / "pid"
    script = f"trap '' TERM; sleep 600 & echo $! > {pid}; wait; wait"
    with opened(program(script), timeout=5) as engine, pytest.raises(UpstreamTimeout, match="ran for more than"):
        engine.generate("hello")
    killed = int(pid.read_text())
    waiting = threading.Event()  # never set: the kernel takes a moment to end what was killed
    assert any(not _is_running(killed) or waiting.wait(0.05) for _ in range(1200))


def test_a_cancelled_request_ends_the_program(program):
    with opened(program("sleep 600")) as engine:
        service = engine.serve(queue_size=2)
        run = service.submit(engine.requests("hello")[0][0])
        threading.Timer(0.2, run.cancel).start()
        with pytest.raises(Cancelled):
            list(run)


def test_an_old_llama_cli_is_found_on_the_path_and_used_by_its_own_flags(program, tmp_path, monkeypatch):
    """One that has neither session files nor the newer samplers."""
    more = "--temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n --samplers --n-predict"
    asked = tmp_path / "asked"
    script = f'echo "$@" > {asked}; printf "yes [end of text]\\n\\n\\n"'
    made = Path(program(script, " ".join((*NEEDED, more))))
    made.write_text(made.read_text().replace(SAVED, ""))
    made.rename(tmp_path / "llama-cli")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with espalier.load(MODEL, engine="llama-cli") as engine:
        result = engine.generate("hello", constraint=Choice(["yes"]), seed=3)
        with pytest.raises(CapabilityError, match="--dry-multiplier"):
            engine.generate("hello", dry_multiplier=1.0)
    assert result.text == "yes"
    assert result.token_ids == ()
    assert "--grammar-file" in asked.read_text()
    assert "--prompt-cache" not in asked.read_text()


def test_a_program_that_only_chats_or_is_none_is_refused(program):
    with pytest.raises(CapabilityError, match="--no-conversation"):
        opened(program("exit", flags="--model --file --grammar-file --seed"))
    with pytest.raises(InputError, match="there is no program"):
        find_program("/nowhere/llama-completion")


def test_a_sampler_that_the_program_lacks_is_refused(program):
    with opened(program("exit")) as engine, pytest.raises(CapabilityError, match="--mirostat") as caught:
        engine.generate("hello", mirostat=2, min_p=0, top_k=0, top_p=1, repetition_penalty=1.0)
    assert caught.value.field == "mirostat"


def test_a_text_that_ends_with_the_words_of_the_end_is_told_apart_by_its_last_token():
    session = Path("/tmp/s")
    end = b"\nmain: saving final output to session file '/tmp/s'\n\n\n"
    text = b"it says [end of text]\n"
    piece = {5: b"it", 7: b"]\n"}.get
    assert read_text(text + end, session, (5, 7), {2}, piece) == ProgramOutput("it says [end of text]\n", False)
    assert read_text(text + end, session, (5, 2), {2}, piece) == ProgramOutput("it says", True)
    assert read_text(b"half \xe2\x82" + end, session, (), {2}, piece) == ProgramOutput("half ", False)
    assert read_text(b"", session, (), {2}, piece) is None
    assert read_text(b"text\n\n", None, (), {2}, piece) == ProgramOutput("text", False)


def test_an_end_that_the_file_does_not_name_as_one_is_an_end():
    """llama.cpp ends texts at `<|endoftext|>` too where the file names `<|im_end|>` alone: by the names of tokens."""
    session = Path("/tmp/s")
    out = b"yes [end of text]\n\nmain: saving final output to session file '/tmp/s'\n\n\n"
    piece = {5: b"yes", 0: b"<|endoftext|>"}.get
    assert read_text(out, session, (5, 0), {2}, piece) == ProgramOutput("yes", True)
    assert read_text(out, session, (5, 9), {2}, piece) == ProgramOutput("yes", True)  # a token that nobody can spell
    assert spelling((5, 0), piece, b"yes", ended=True) == (5, 0)


def test_a_session_file_that_is_cut_or_of_another_kind_tells_nothing(tmp_path):
    path = tmp_path / "session"
    whole = struct.pack("<III3i", 0x6767736E, 10, 3, 7, 8, 9)
    for data, ids in ((whole, (7, 8, 9)), (whole[:-1], ()), (b"ggml" + whole[4:], ()), (b"", ())):
        path.write_bytes(data)
        assert read_session(path) == ids
    assert read_session(tmp_path / "none") == ()
    assert generated((1, 2, 3, 4), b"prompt eval time = 1 ms / 1 tokens\n eval time = 1 ms / 2 runs") == (3, 4)
    assert generated((1, 2, 3, 4), b"prompt eval time = 1 ms / 3 tokens") == ()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
