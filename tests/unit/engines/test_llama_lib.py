"""llama.cpp's library: what is refused when bindings and library do not fit, and whose log is whose."""

from __future__ import annotations

import ctypes
import threading

import pytest

pytest.importorskip("llama_cpp")

from espalier.engines.llamacpp import library as llama_lib
from espalier.engines.llamacpp.library import NO_REASON, Reasons, check_defaults, library, reasons, version
from espalier.errors import CapabilityError


def say(level, text):
    """As llama.cpp would log it."""
    llama_lib._hear(level, text.encode(), ctypes.c_void_p(0))


def test_the_installed_library_fits_its_bindings():
    lib = library()
    check_defaults(lib.llama_context_default_params(), lib.llama_model_default_params())
    assert library() is lib
    assert version()[0].isdigit()


@pytest.mark.parametrize(("name", "value"), [("n_batch", 1), ("kv_unified", True), ("type_v", 0)])
def test_a_field_that_has_moved_is_named(name, value):
    lib = library()
    context = lib.llama_context_default_params()
    setattr(context, name, value)
    with pytest.raises(CapabilityError, match=name) as caught:
        check_defaults(context, lib.llama_model_default_params())
    assert "install llama-cpp-python again" in str(caught.value)


def test_a_field_of_the_model_that_has_moved_is_named():
    lib = library()
    model = lib.llama_model_default_params()
    model.no_alloc = True
    with pytest.raises(CapabilityError, match="no_alloc"):
        check_defaults(lib.llama_context_default_params(), model)


def test_the_reason_is_the_innermost_error_without_the_functions_around_it():
    with reasons() as said:
        say(2, "loading\n")
        say(3, "llama_thing: odd\n")
        say(4, "llama_model_load: error loading model: check_tensor_dims: tensor 'x' not found\n")
        say(4, "llama_model_load_from_file_impl: failed to load model\n")
    assert said.first() == "tensor 'x' not found"
    assert [line.split(":")[0] for line in said.all()] == [
        "llama_thing",
        "llama_model_load",
        "llama_model_load_from_file_impl",
    ]


def test_a_line_in_pieces_is_one_line():
    with reasons() as said:
        say(4, "parse: error at ")
        say(5, "the end\n")
        say(4, "second\n")
    assert said.first() == "error at the end"
    assert said.all() == ["parse: error at the end", "second"]


def test_an_empty_error_is_no_reason():
    with reasons() as said:
        say(4, "\n")
        say(4, "f: why\n")
    assert said.first() == "why"
    assert Reasons().first() == NO_REASON


def test_what_is_said_outside_a_block_is_not_kept():
    say(4, "before\n")
    with reasons() as said:
        pass
    say(4, "after\n")
    assert said.all() == []


def test_an_outer_block_hears_what_an_inner_one_hears():
    with reasons() as outer:
        say(4, "one\n")
        with reasons() as inner:
            say(4, "two\n")
    assert (outer.all(), inner.all()) == (["one", "two"], ["two"])


def test_threads_do_not_hear_one_another():
    heard = {}
    both = threading.Barrier(2, timeout=20)

    def run(name):
        with reasons() as said:
            both.wait()
            say(4, f"{name}\n")
            both.wait()
        heard[name] = said.all()

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == {"a": ["a"], "b": ["b"]}


def test_a_flood_of_lines_is_cut_but_no_error_is_lost():
    said = Reasons()
    for n in range(5000):
        said.hear(3, f"{n}\n")
    said.hear(4, "why\n")
    assert said.first() == "why"
    assert len(said.all()) < 2000
