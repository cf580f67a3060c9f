"""The JSON pointer of each token, against a reader that looks at the finished document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.trace.paths import document_start, json_paths


def cut(text, pieces):
    """The path of each piece, by its text."""
    assert "".join(pieces) == text
    return list(zip(pieces, json_paths(piece.encode() for piece in pieces), strict=True))


def test_values_have_their_paths_and_punctuation_its_container():
    text = '{"a": 1, "b": ["x", {"c": null}], "d": {}}'
    pieces = ['{"', "a", '": ', "1", ', "', 'b": ["', "x", '", ', '{"c', '": nu', "ll", "}]", ', "d"', ": ", "{}", "}"]
    assert [path for _, path in cut(text, pieces)] == [
        "",
        "",
        "",
        "/a",
        "",
        "",
        "/b/0",
        "/b/0",
        "/b/1",
        "/b/1",
        "/b/1/c",
        "/b/1",
        "",
        "",
        "/d",
        "",
    ]


def test_a_scalar_alone_and_what_follows_the_document():
    assert json_paths([b'"ab', b'c"']) == ["", ""]
    assert json_paths([b"[1]", b" more"]) == ["", None]
    assert json_paths([b"", b"[", b""]) == [None, "", None]


def test_keys_are_escaped_as_pointers_are():
    assert json_paths([b'{"a/b~c":', b"1"])[1] == "/a~1b~0c"


def test_a_document_after_a_marker_begins_there():
    constraint = {
        "kind": "after",
        "marker": "</think>",
        "spec": {"kind": "all_of", "members": [{"kind": "json_object"}]},
    }
    text = 'é</think>\n{"a": 1}'
    start = document_start(constraint, text)
    assert text.encode()[start:].lstrip().startswith(b"{")
    pieces = [text.encode()[i : i + 1] for i in range(len(text.encode()))]
    assert json_paths(pieces, start)[-2] == "/a"
    assert json_paths(pieces, start)[0] is None


SCHEMA = {"kind": "json_schema", "schema": True}
CHANNELS = {"kind": "channels", "final": SCHEMA, "calls": None, "thinks": True, "max_tokens": None}
THINKING = {"kind": "thinking", "spec": SCHEMA, "start": "<think>", "end": "</think>", "max_tokens": None}


@pytest.mark.parametrize(
    ("constraint", "text", "start"),
    [
        (THINKING, "<think>so {1}</think>\n[1]", 21),
        (THINKING, " <think>é</think>[1]", 18),
        (THINKING, "<think>[1]", None),
        (THINKING, '{"a": "</think>"}', 0),
        (THINKING, "hm, opened by the prompt</think>[1]", 32),
        (THINKING, "hm, opened by the prompt", None),
        ({"kind": "after", "marker": "#", "spec": SCHEMA, "in_prompt": "yes"}, '{"a": "#"}', 0),
        ({"kind": "after", "marker": "#", "spec": SCHEMA, "in_prompt": "auto"}, "a#[", 2),
        ({"kind": "any_of", "members": [{"kind": "regex", "pattern": "x"}, SCHEMA]}, "[1", 0),
        ({"kind": "any_of", "members": [{"kind": "regex", "pattern": "no"}, SCHEMA]}, "no!", None),
        ({"kind": "any_of", "members": [THINKING, SCHEMA]}, "<think>a</think>{", 16),
        (CHANNELS, "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>[1]", 84),
        (CHANNELS, "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final", None),
        ({"kind": "a_kind_of_a_plugin", "inside": {"kind": "json_object"}}, "{", 0),
    ],
)
def test_a_document_is_found_through_the_members_of_any_kind(constraint, text, start):
    assert document_start(constraint, text) == start


def test_a_run_with_reasoning_has_costs_by_path():
    text = '<think>é?</think>{"a": 12}'
    pieces = ["<think>", "é?", "</think>", '{"', "a", '": ', "1", "2", "}"]
    assert "".join(pieces) == text
    start = document_start(THINKING, text)
    assert json_paths([piece.encode() for piece in pieces], start) == [None, None, None, "", "", "", "/a", "/a", ""]


@pytest.mark.parametrize("constraint", [None, {"kind": "regex"}, {"kind": "all_of", "members": [{"kind": "regex"}]}])
def test_other_constraints_have_no_paths(constraint):
    assert document_start(constraint, "x") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from([None, 1]))
def test_each_leaf_is_where_the_document_has_it(value, indent):
    """The bytes of one path, put together, begin with the spelling of what the document has there."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    data = text.encode()
    paths = json_paths([data[i : i + 1] for i in range(len(data))])
    spelled: dict[str, bytes] = {}
    for i, path in enumerate(paths):
        if path is not None:
            spelled[path] = spelled.get(path, b"") + data[i : i + 1]

    def leaves(node, path):
        if isinstance(node, dict) and node:
            for key, child in node.items():
                written = json.dumps(key, ensure_ascii=False)[1:-1]
                yield from leaves(child, f"{path}/{written.replace('~', '~0').replace('/', '~1')}")
        elif isinstance(node, list) and node:
            for i, child in enumerate(node):
                yield from leaves(child, f"{path}/{i}")
        else:
            yield path, node

    for path, leaf in leaves(value, ""):
        assert spelled[path].strip() == json.dumps(leaf, ensure_ascii=False).encode()
