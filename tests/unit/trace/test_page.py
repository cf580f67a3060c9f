"""The page holds its data safely, needs nothing else, and is written whole or not at all."""

import dataclasses
import html.parser
import json
import os
import re

import pytest

from espalier.errors import InputError, OutputError
from espalier.trace.page import render, render_pair
from tests.traces import sample_trace

EVIL = '</script><script>alert(1)</script><img src=x onerror=alert(1)> & "quoted" \u2028\u2029\x00\x1b[31m {{data}}'


def page_data(page):
    """The trace that is embedded in a page, read as a browser would."""
    found = re.search(r'<script type="application/json" id="trace-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


class Tags(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def test_the_embedded_trace_parses_back_equal():
    trace = sample_trace(30)
    assert page_data(render(trace.to_json())) == json.loads(json.dumps(trace.to_json()))


def test_hostile_text_stays_text():
    trace = dataclasses.replace(sample_trace(5), text=EVIL, prompt=EVIL, asked=EVIL, model=EVIL)
    page = render(trace.to_json())
    assert page_data(page)["text"] == EVIL
    tags = Tags(page).tags
    assert [tag for tag, _ in tags].count("script") == 3  # two of data, one of code
    assert "img" not in {tag for tag, _ in tags}
    assert not any(name.startswith("on") for _, attributes in tags for name in attributes)


def test_a_page_of_two_holds_both_and_hostile_titles_and_findings_stay_text():
    a, b = sample_trace(3), dataclasses.replace(sample_trace(5), text=EVIL, prompt=EVIL)
    found = [{"code": "x", "severity": "fault", "message": EVIL, "remedies": []}]
    pair = render_pair(a.to_json(), b.to_json(), (EVIL, EVIL))
    held = re.findall(r'<script type="application/json" id="trace-[ab]">(.*?)</script>', pair, re.DOTALL)
    assert [json.loads(one)["text"] for one in held] == [a.text, EVIL]
    for page, scripts in ((pair, 4), (render(a.to_json(), findings=found), 3)):
        tags = [tag for tag, _ in Tags(page).tags]
        assert tags.count("script") == scripts
        assert "img" not in tags


def test_the_page_needs_nothing_else():
    for _, attributes in Tags(render(sample_trace(5).to_json())).tags:
        for name in ("src", "href", "action"):
            assert not re.match(r"(https?:)?//", attributes.get(name) or "")
    policy = next(a["content"] for t, a in Tags(render(sample_trace(3).to_json())).tags if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_it_is_named_after_what_was_asked_and_not_after_the_template():
    trace = dataclasses.replace(sample_trace(3), prompt="<|im_start|>user\nHi there", asked="Hi there")
    assert "<title>Hi there</title>" in render(trace.to_json())


def test_html_and_json_are_chosen_by_suffix(tmp_path):
    trace = sample_trace(8)
    trace.save(tmp_path / "t.html")
    trace.save(str(tmp_path / "t.json"))
    assert page_data((tmp_path / "t.html").read_text(encoding="utf-8"))["text"] == trace.text
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8")) == trace.to_json()


def test_a_notebook_shows_a_frame_that_cannot_reach_out():
    shown = sample_trace(3)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts allow-downloads" ')
    assert "<script" not in shown  # all of it is escaped inside srcdoc


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"t\.pdf"):
        sample_trace(3).save(tmp_path / "t.pdf")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(OutputError, match="no_such"):
        sample_trace(3).save(tmp_path / "no_such" / "t.html")


def test_a_path_that_is_a_folder_is_named_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "t.html").mkdir()
    with pytest.raises(OutputError, match=r"t\.html"):
        sample_trace(3).save(tmp_path / "t.html")
    assert [p.name for p in tmp_path.iterdir()] == ["t.html"]


def test_a_nul_in_the_name_is_an_output_error():
    with pytest.raises(OutputError, match="cannot write"):
        sample_trace(3).save("a\x00b.html")


def test_an_existing_file_is_replaced_whole_or_kept(tmp_path, monkeypatch):
    target = tmp_path / "t.html"
    target.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            sample_trace(3).save(target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["t.html"]
    sample_trace(3).save(target)
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
