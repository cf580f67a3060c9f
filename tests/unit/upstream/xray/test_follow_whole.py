"""Whole replies, followed from what a server told of them: each step is what a small server of our own did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from espalier.errors import UpstreamError
from espalier.upstream.xray import follow
from espalier.upstream.xray.follow import ReplyReplay, following, has_gaps
from espalier.upstream.xray.wire.reply import OutputSoFar
from tests.toy_llama_server import END, KNOWN, PLAIN, PROMPT, SPELLED, THINK, WIDTH, Server, fits


def followed(output: OutputSoFar, again: Any = None, *, count: int = 0) -> ReplyReplay:
    with following(output, KNOWN, again, count=count) as found:
        return found


def told(server: Server, found: ReplyReplay) -> int:
    """How many steps are known. Each of them is what the server did."""
    known = 0
    for place, (step, token, refused) in enumerate(zip(found.steps, server.tokens, server.refused, strict=True)):
        if step.verdict.outcome == "unknown":
            assert step.reason
            continue
        known += 1
        assert step.token == token
        assert step.verdict.outcome == ("accepted" if refused is None else "rejected"), place
        assert refused is None or (step.verdict.first is not None and step.verdict.first.token == refused)
        assert step.reason == ""
    return known


SAMPLERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "hot": {"temperature": 1.8},
    "five": {"top_k": 5},
    "bias": {"logit_bias": [{"token": 3, "bias": 1.5}, {"token": 2, "bias": -1.0}]},
    "presence": {"presence_penalty": 0.7},
    "frequency": {"frequency_penalty": 0.5, "repeat_last_n": 3, "top_k": 6},
    "no grammar": {"grammar": "", "n_predict": 20},
}
SEEDS = range(1, 9)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_reply_with_all_probabilities_is_known_at_each_token_and_the_server_is_not_asked(name: str) -> None:
    tokens = refused = 0
    for seed in SEEDS:
        server = Server(PLAIN | SAMPLERS[name] | {"seed": seed}).generate()
        assert not has_gaps(server.output(), KNOWN)
        found = followed(server.output(), server)
        assert told(server, found) == len(server.tokens)
        is_asked = any("penalty" in setting for setting in SAMPLERS[name])
        assert server.asked == ([("adc", 0, 0, False)] if is_asked else [])
        assert (found.asked_again, found.reason, found.is_lost) == (0, "", False)
        assert found.prompt_ids == (PROMPT if is_asked else [])
        assert all(step.verdict.is_checked for step in found.steps)
        tokens, refused = tokens + len(server.tokens), refused + len([*filter(None, server.refused)])
    assert tokens > 10
    assert refused > 3 or name == "no grammar"


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_a_few_probabilities_do_not_decide_is_asked_for_with_all_of_them(name: str, is_stream: bool) -> None:
    entries = 0
    for seed in SEEDS:
        server = Server(PLAIN | SAMPLERS[name] | {"seed": seed}, told=3, splits=True).generate()
        found = followed(server.stream() if is_stream else server.output(), server, count=3)
        assert told(server, found) == len(server.tokens)
        asked = [one for one in server.asked if one[0] == "entry"]
        assert found.asked_again == len(asked)
        assert not any(is_fresh for *_, is_fresh in asked)
        assert sum(one[0] == "adc" for one in server.asked) <= 1
        assert (found.reason, found.is_lost) == ("", False)
        entries += len(asked)
    assert entries >= 4


def test_without_a_server_to_ask_a_step_is_known_where_the_listed_tokens_decide_it() -> None:
    for seed in SEEDS:
        server = Server(PLAIN | {"seed": seed, "top_k": 4}, told=4).generate()
        assert told(server, followed(server.output())) == len(server.tokens)
        assert followed(server.output(), server).asked_again == 0
        server = Server(PLAIN | {"seed": seed}, told=9).generate(most=3)
        found = followed(server.output())
        assert told(server, found) == 0
        assert {step.reason for step in found.steps} == {"the listed tokens do not decide what was drawn first"}
        assert (found.reason, found.is_lost) == ("", False)


def test_what_the_servers_cache_makes_wrong_is_asked_for_without_it() -> None:
    repeated = 0
    never = [{"token": token, "bias": -99.0} for token in (6, 7)]
    anything = PLAIN | {"grammar": "root ::= .*", "logit_bias": never}
    for seed in SEEDS:
        server = Server(anything | {"seed": seed}, told=2, stale=True).generate(is_free=lambda _: True)
        found = followed(server.output(), server, count=2)
        assert told(server, found) == len(server.tokens)
        fresh = [one for one in server.asked if one[3]]
        for one in fresh:
            assert server.asked[server.asked.index(one) - 1] == (*one[:3], False)
        assert found.asked_again == sum(one[0] == "entry" for one in server.asked)
        repeated += len(fresh)
    assert repeated


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_reply_has_only_so_many_positions_asked_for_again(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MOST_UPGRADES", limit)
    server = next(
        server
        for server in (Server(PLAIN | {"seed": seed}, told=2).generate() for seed in range(1, 50))
        if len(server.tokens) > 4
    )
    found = followed(server.output(), server, count=2)
    told(server, found)
    assert found.asked_again == limit


@pytest.mark.parametrize(("widest", "count"), [(WIDTH, WIDTH), (WIDTH - 1, 4)])
def test_of_a_very_large_vocabulary_not_all_tokens_are_asked_for(
    widest: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WIDEST", widest)
    server = Server(PLAIN, told=2).generate()
    followed(server.output(), server, count=4)
    assert {one[2] for one in server.asked if one[0] == "entry"} == {count}


@pytest.mark.parametrize("most", [WIDTH, WIDTH - 1])
def test_of_a_large_vocabulary_the_second_draw_is_from_listed_tokens_alone(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best two that the grammar allows are among those that are listed, or it is not known."""
    monkeypatch.setattr("espalier.upstream.xray.replay.MASKED", most)
    checked = refused = 0
    for seed in range(1, 20):
        server = Server(PLAIN | {"seed": seed, "top_k": 2}, told=10).generate()
        found = followed(server.output())
        told(server, found)
        for step, token in zip(found.steps, server.refused, strict=True):
            refused += token is not None
            checked += token is not None and step.verdict.is_checked
    assert refused > checked > refused // 3


def test_a_second_draw_is_known_where_all_that_the_grammar_allows_is_listed() -> None:
    seen = set()
    for seed in range(1, 20):
        server = Server(PLAIN | {"seed": seed, "top_k": 9}, told=9).generate()
        found = followed(server.output())
        assert told(server, found) == len(server.tokens)
        for place, step in enumerate(found.steps):
            here = Server(server.settings, tokens=server.tokens[:place])
            listed = {one["id"] for one in server.answer([*PROMPT, *here.tokens], 9)["top_logprobs"]}
            is_listed = all(token in listed for token in range(WIDTH) if here.allows(token))
            assert step.verdict.is_checked == (is_listed or server.refused[place] is None)
            assert step.verdict.is_checked == (step.verdict.taken is not None)
            seen.add((is_listed, server.refused[place] is None))
    assert len(seen) == 4


def with_gap(**more: Any) -> Server:
    """A server whose reply leaves out the entry of a token that ends inside a character."""
    for seed in range(1, 200):
        server = Server(PLAIN | {"seed": seed} | more, splits=True).generate()
        if 6 in server.tokens[1:]:
            return server
    raise AssertionError


def test_an_entry_that_is_left_out_is_asked_for_with_as_many_probabilities_as_the_others() -> None:
    server = with_gap()
    assert has_gaps(server.output(), KNOWN)
    found = followed(server.output(), server, count=40)
    assert told(server, found) == len(server.tokens)
    places = [place for place, token in enumerate(server.tokens) if token == 6]
    assert [one for one in server.asked if one[0] == "entry"] == [
        ("entry", len(PROMPT) + place, WIDTH, False) for place in places
    ]
    assert [step.reported is not None and step.reported.is_again for step in found.steps] == [
        place in places for place in range(len(server.tokens))
    ]
    alone = followed(server.output())
    told(server, alone)
    assert alone.steps[places[0]].reported is None
    few = with_gap()
    followed(few.output(), few, count=5)
    assert few.asked[1][2] == 5


def test_a_token_that_a_stream_does_not_name_is_found_from_all_probabilities() -> None:
    server = with_gap()
    output = server.stream()
    assert has_gaps(output, KNOWN)
    assert not has_gaps(OutputSoFar(count=1, entries={0: next(iter(server.entries().values()))}), KNOWN)
    found = followed(output, server, count=3)
    assert told(server, found) == len(server.tokens)
    assert all(one[2] == WIDTH for one in server.asked if one[0] == "entry")
    alone = followed(output)
    first = server.tokens.index(6)
    assert told(server, alone) == first
    assert [step.token for step in alone.steps] == [
        token if token != 6 and place != first else -1 for place, token in enumerate(server.tokens)
    ]
    assert alone.reason == "which token the server took here is not known"


def test_a_reply_that_ends_in_a_word_or_by_itself_may_leave_out_its_last_token() -> None:
    server = next(one for seed in range(1, 99) if (one := Server(PLAIN | {"seed": seed}).generate()).tokens[-1] == END)
    last = len(server.tokens) - 1
    output = server.stream()
    del output.entries[last], output.ids[last]
    found = followed(output, server, count=3)
    assert told(server, found) == len(server.tokens)
    assert found.steps[-1].token == END


def test_another_seed_contradicts_the_server() -> None:
    lost = 0
    for seed in SEEDS:
        server = Server(PLAIN | {"seed": seed, "n_predict": 20, "grammar": ""}).generate()
        found = followed(server.output(settings=server.settings | {"seed": seed + 100}), server)
        lost += found.is_lost
        assert found.reason == ("the replay of the sampler has lost its place" if found.is_lost else "")
        assert not found.is_lost or all(step.reason == found.reason for step in found.steps if step.reason)
    assert lost > 4


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"settings": None, "is_cut": True}, "the reply was cut before it told its settings"),
        ({"settings": None}, "the reply does not tell its generation_settings"),
        ({"settings": PLAIN | {"seed": 2**32 - 1}}, "the seed is not known"),
        ({"settings": PLAIN | {"grammar": "root ::= <none>"}}, "the grammar cannot be followed: "),
        ({"settings": PLAIN | {"grammar": "root"}}, "the grammar cannot be followed: "),
    ],
)
def test_a_reply_that_cannot_be_followed_has_steps_with_the_models_probabilities(
    more: dict[str, Any], reason: str
) -> None:
    server = Server(PLAIN).generate()
    for output in (server.output(**more), server.stream(**more)):
        found = followed(output, server)
        assert found.reason.startswith(reason)
        assert [step.token for step in found.steps] == server.tokens
        assert all(step.verdict.outcome == "unknown" and step.reason == found.reason for step in found.steps)
        assert all(step.reported is not None and step.reported.is_whole for step in found.steps)
        assert server.asked == []


@pytest.mark.parametrize("count", [None, 3, 4])
def test_penalties_need_the_prompts_tokens(count: int | None) -> None:
    server = Server(PLAIN | {"presence_penalty": 0.5}).generate()
    found = followed(server.output(prompt_count=count), server)
    assert told(server, found) == (0 if count == 4 else len(server.tokens))
    assert not found.is_lost
    said = "penalties look at the prompt's tokens, which are not known: its text splits into other tokens"
    assert found.reason == (said if count == 4 else "")


def test_entries_that_are_not_those_of_the_tokens_are_told_apart_from_none() -> None:
    server = Server(PLAIN).generate()
    listed = list(server.entries().values())
    for wrong in (listed[1:], [*listed, listed[0]], [*listed[:-1], listed[0]]):
        found = followed(server.output(listed=wrong), None)
        assert found.reason == "the probabilities of the reply cannot be told apart by token"
        assert told(server, found) == 0
    found = followed(server.output(listed=listed[:-1], is_stopped_by_word=True), None)
    assert found.reason == ""


@pytest.mark.parametrize("factor", [1.3, 0.8])
@pytest.mark.parametrize("told_of", [WIDTH, 6])
def test_with_a_repeat_penalty_the_level_of_the_logits_is_asked_for(factor: float, told_of: int) -> None:
    known = tokens = 0
    for seed in SEEDS:
        server = Server(PLAIN | {"seed": seed, "repeat_penalty": factor}, told=told_of).generate()
        found = followed(server.output(), server, count=WIDTH)
        known += told(server, found)
        tokens += len(server.tokens)
        assert found.asked_again == sum(one[0] != "adc" for one in server.asked)
        assert "probed" in {one[0] for one in server.asked}
        alone = followed(server.output(), None)
        assert told(server, alone) < len(server.tokens)
    assert known > 0.8 * tokens


def test_a_grammar_that_begins_with_the_end_of_the_prompt_holds_from_there() -> None:
    for seed in SEEDS:
        server = Server(PLAIN | {"seed": seed}, begins=b"abc").generate()
        found = followed(server.output(prefill="abc"), server)
        assert told(server, found) == len(server.tokens)
        assert server.asked == []
    wrong = followed(server.output(prefill="b"), server)
    assert wrong.reason == "the grammar, as it is followed here, refuses what it begins with"
    assert told(server, wrong) == 0
    assert wrong.is_lost


def test_a_token_that_the_grammar_refuses_is_not_explained() -> None:
    server = Server(PLAIN, begins=b"ab").generate()  # so that at most five more units are taken
    server.settings = PLAIN | {"grammar": 'root ::= "d"+'}
    found = followed(server.output(), server)
    assert found.reason
    assert found.is_lost
    assert told(server, found) == 0


TRIGGERS = [{"type": 1, "value": "dd"}]


def lazy(seed: int, **more: Any) -> tuple[Server, OutputSoFar]:
    """A server whose grammar holds from the first `dd` on, which it begins with."""
    grammar = 'root ::= "dd" ("ab" | "é" | "c"){2,6}'
    given = {"seed": seed, "grammar": grammar, "grammar_lazy": True, "grammar_triggers": TRIGGERS}
    likes = [{"token": 3, "bias": 2.0}, {"token": END, "bias": -99.0}, {"token": 7, "bias": -99.0}]
    server = Lazy(PLAIN | given | {"logit_bias": likes} | more)
    server.generate(is_free=lambda tokens: b"dd" not in b"".join(SPELLED[one] for one in tokens))
    return server, server.output()


class Lazy(Server):
    """The grammar's text begins behind the trigger."""

    def allows(self, token: int) -> bool:
        _, _, text = b"".join(SPELLED[one] for one in self.tokens).partition(b"dd")
        return fits(text, is_whole=True) if token == END else fits(text + SPELLED[token], is_whole=False)


def test_a_lazy_grammar_holds_from_its_trigger_on() -> None:
    begun = refused = 0
    for seed in range(1, 20):
        server, output = lazy(seed)
        if THINK in server.tokens:
            continue
        found = followed(output, server)
        assert (told(server, found), found.reason) == (len(server.tokens), "")
        states = [step.state is not None for step in found.steps]
        text = b"".join(SPELLED[one] for one in server.tokens)
        begun += b"dd" in text
        assert states == sorted(states)
        assert states[-1] == (b"dd" in b"".join(SPELLED[one] for one in server.tokens[:-1]))
        refused += len([*filter(None, server.refused)])
    assert begun > 3
    assert refused > 3


@pytest.mark.parametrize("begins", ["", "<think>", "<think> </think>"])
def test_where_a_model_may_think_a_lazy_grammar_is_not_followed(begins: str) -> None:
    seen = 0
    for seed in range(1, 20):
        server, output = lazy(seed, generation_prompt=begins)
        found = followed(output, server)
        thinks = 0 if begins == "<think>" else server.tokens.index(THINK) + 1 if THINK in server.tokens else 99
        if thinks < len(server.tokens):
            assert found.reason == follow.THINKING
            assert told(server, found) <= thinks
            seen += 1
        else:
            assert told(server, found) == len(server.tokens)
        assert not found.is_lost
    assert seen > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_further_output_is_followed_from_its_entries_alone(seed: int) -> None:
    server = Server(PLAIN | {"seed": seed}).generate()
    listed = list(server.entries().values())
    more = {"tokens": None, "listed": listed, "is_rest": True, "count": 0}
    found = followed(server.output(**more), None)
    assert told(server, found) == len(server.tokens)
    few = Server(PLAIN | {"seed": seed}, told=2).generate()
    found = followed(few.output(**more | {"listed": list(few.entries().values())}), None)
    assert [step.token for step in found.steps] == few.tokens


@pytest.mark.parametrize(("most", "steps"), [(9, 6), (6, 6), (7, 7), (8, 8), (-1, 6)])
def test_a_further_output_that_ended_at_its_limit_has_the_tokens_that_were_held_back(most: int, steps: int) -> None:
    server = next(
        one for seed in range(1, 99) if len((one := Server(PLAIN | {"seed": seed}).generate(most=6)).tokens) == 6
    )
    listed = list(server.entries().values())
    output = server.output(
        tokens=None, listed=listed, is_rest=True, count=0, settings=server.settings | {"n_predict": most}
    )
    output.finish = "length"
    assert len(followed(output, None).steps) == (9 if most == 9 else steps)
    output = server.output(tokens=None, listed=listed, is_rest=True, settings=server.settings | {"n_predict": 10})
    output.finish = "length"
    assert len(followed(output, None).steps) == 6, "no character is so long"


def test_entries_of_a_further_output_that_do_not_follow_one_another_are_not_followed() -> None:
    server = with_gap()
    listed = list(server.entries().values())
    found = followed(server.output(tokens=None, listed=listed, is_rest=True, count=0), server)
    assert found.reason == "the reply leaves out tokens of this output, and does not tell how many"
    assert all(step.reason == found.reason for step in found.steps)
    assert len(found.steps) == len(listed)
    assert server.asked == []


class Shy(Server):
    """Tells no level of its logits."""

    def probed(self, tokens: Sequence[int], probe: Any, *, count: int, is_fresh: bool) -> Any:
        raise UpstreamError("it does not sample")


@pytest.mark.parametrize("factor", [1.3, 0.8])
def test_without_the_level_of_the_logits_a_repeat_penalty_is_the_reason(factor: float) -> None:
    unknown = 0
    for seed in SEEDS:
        server = Shy(PLAIN | {"seed": seed, "repeat_penalty": factor}).generate(most=3)
        found = followed(server.output(), server)
        known = told(server, found)
        for step in found.steps:
            assert not step.reason or step.reason.startswith("a repeat penalty needs the logits themselves")
        unknown += len(server.tokens) - known
        assert found.asked_again == 0
    assert unknown > 5
