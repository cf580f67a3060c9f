"""API keys: who is identified, what a key file may hold, and where a server without keys may listen."""

from __future__ import annotations

import hashlib
import hmac

import pytest

pytest.importorskip("dotenv", reason="the extra [server] is not installed")

from starlette.testclient import TestClient

from espalier.errors import InputError, Unauthorized
from espalier.server.admit import auth
from espalier.server.admit.auth import bearer, check_bind, is_loopback, read_keys
from espalier.server.settings import settings_of
from tests.server_app import make_app, settings

NOON = 1_800_000_000.0  # 2027-01-15


def keys_of(tmp_path, text: str, now: float = NOON, **more: str):
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="utf-8")
    return read_keys(settings_of({"API_KEYS_FILE": str(path), **more}), now=lambda: now)


TWO = f"""
[[key]]
name = "team"
key = "team-key-1234"
requests_per_minute = 6
concurrent = 2
expires = 2027-01-16

[[key]]
name = "probe"
sha256 = "{hashlib.sha256(b"probe-key-1234").hexdigest()}"
may_read_metrics = true
"""


def test_each_key_is_known_by_its_name_with_its_limits(tmp_path):
    keys = keys_of(tmp_path, TWO, SECRET_TOKEN="the-default-one")
    assert keys.identify("team-key-1234").name == "team"
    assert keys.identify("team-key-1234").may_read_metrics is False
    assert keys.identify("probe-key-1234").may_read_metrics is True
    assert keys.identify("the-default-one").name == "default"
    assert (keys.named("team").requests_per_minute, keys.named("team").concurrent) == (6, 2)
    assert len(keys) == 3


@pytest.mark.parametrize("secret", [None, "", "wrong", "team-key-123", "team-key-12345", "TEAM-KEY-1234", "\udcff"])
def test_whoever_has_no_key_is_refused_without_a_hint_of_the_right_one(tmp_path, secret):
    with pytest.raises(Unauthorized) as caught:
        keys_of(tmp_path, TWO).identify(secret)
    assert (caught.value.http_status, caught.value.code) == (401, "invalid_api_key")
    assert "team" not in str(caught.value)


def test_a_key_is_good_until_it_expires(tmp_path):
    assert keys_of(tmp_path, TWO, now=NOON).identify("team-key-1234").name == "team"
    with pytest.raises(Unauthorized, match="has expired"):
        keys_of(tmp_path, TWO, now=NOON + 2 * 86_400).identify("team-key-1234")


def test_every_key_is_compared_whichever_fits(tmp_path, monkeypatch):
    keys = keys_of(tmp_path, TWO, SECRET_TOKEN="the-default-one")
    compared = []
    monkeypatch.setattr(
        auth.hmac, "compare_digest", lambda a, b, real=hmac.compare_digest: compared.append(1) or real(a, b)
    )
    for secret in ("the-default-one", "probe-key-1234"):
        compared.clear()
        keys.identify(secret)
        assert len(compared) == 3


def test_without_keys_everybody_is_anonymous():
    keys = read_keys(settings_of({"SECRET_TOKEN": ""}))
    assert keys.identify(None).name == keys.identify("whatever").name == "anonymous"


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("BEARER abc", "abc"),
        (None, None),
        (" ", None),
        ("Bearer ", None),
    ],
)
def test_the_scheme_is_read_in_any_case(header, secret):
    assert bearer(header) == secret


def test_another_scheme_is_refused():
    with pytest.raises(Unauthorized, match="must have the scheme Bearer"):
        bearer("Basic abc")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must hold [[key]] tables"),
        ("key = 1", "must hold [[key]] tables"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\n[other]', "must hold [[key]] tables"),
        ('[[key]]\nname="a"\nkey="the-key-itself', "is not TOML"),
        ('[[key]]\nname="a"', "exactly one of `key` and `sha256`"),
        ('[[key]]\nname="a"\nkey="short"', "at least 8 characters"),
        ('[[key]]\nname="a"\nkey="your-secret-token"', "not a value from examples"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\nsha256="00"', "exactly one of `key` and `sha256`"),
        ('[[key]]\nname="a"\nsha256="00"', "64 hexadecimal digits"),
        ('[[key]]\nname="default"\nkey="the-key-itself"', "neither `anonymous` nor `default`"),
        ('[[key]]\nname="a b"\nkey="the-key-itself"', "`name` must be"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\nlimit=1', "unknown field 'limit'"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\nconcurrent=true', "`concurrent` must be a whole number"),
        (
            '[[key]]\nname="a"\nkey="the-key-itself"\nrequests_per_minute=0',
            "`requests_per_minute` must be a whole number",
        ),
        ('[[key]]\nname="a"\nkey="the-key-itself"\nexpires="soon"', "`expires` must be a date"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\nmay_read_metrics=1', "`may_read_metrics` must be true or false"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\n[[key]]\nname="a"\nkey="another-key"', "two keys are named 'a'"),
        ('[[key]]\nname="a"\nkey="the-key-itself"\n[[key]]\nname="b"\nkey="the-key-itself"', "the same key"),
    ],
)
def test_a_wrong_key_file_is_one_line_that_shows_no_key(tmp_path, text, says):
    with pytest.raises(InputError) as caught:
        keys_of(tmp_path, text)
    assert says in str(caught.value)
    assert caught.value.field == "API_KEYS_FILE"
    assert "the-key-itself" not in str(caught.value)


def test_a_key_file_that_is_not_there_is_one_line():
    with pytest.raises(InputError, match="cannot read the file of keys nowhere"):
        read_keys(settings_of({"API_KEYS_FILE": "nowhere"}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "a.localhost"])
def test_on_loopback_no_key_is_needed(host):
    settings = settings_of({"HOST": host})
    assert is_loopback(host)
    check_bind(settings, read_keys(settings))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org"])
def test_beyond_loopback_a_key_is_needed_that_no_example_shows(host):
    assert not is_loopback(host)
    for token in ("", "changeme", "your-secret-token", "  ChangeMe "):
        settings = settings_of({"HOST": host, "SECRET_TOKEN": token})
        with pytest.raises(InputError, match="can be reached from elsewhere"):
            check_bind(settings, read_keys(settings))
    settings = settings_of({"HOST": host, "SECRET_TOKEN": "one-that-nobody-knows"})
    check_bind(settings, read_keys(settings))


def test_the_default_token_is_refused_beside_good_keys_too(tmp_path):
    keys = keys_of(tmp_path, TWO, SECRET_TOKEN="changeme")
    with pytest.raises(InputError, match="a value from examples"):
        check_bind(settings_of({"HOST": "0.0.0.0", "SECRET_TOKEN": "changeme"}), keys)


def test_a_unix_socket_needs_none():
    settings = settings_of({"UDS": "/run/x.sock", "HOST": "0.0.0.0"})
    check_bind(settings, read_keys(settings))


@pytest.mark.parametrize(
    ("token", "address", "status"),
    [("changeme", "203.0.113.5", 403), ("changeme", "127.0.0.1", 200), ("one-that-nobody-knows", "203.0.113.5", 200)],
)
def test_a_token_from_examples_opens_no_public_address_whatever_serves(token: str, address: str, status: int) -> None:
    """gunicorn and hypercorn do not say where they listen: the address of each connection does."""
    with TestClient(make_app(config=settings(secret_token=token)), base_url=f"http://{address}:8010") as api:
        reply = api.get("/v1/models", headers={"authorization": f"Bearer {token}"})
    assert reply.status_code == status, reply.text
    if status == 403:
        assert "a value from examples" in reply.json()["error"]["message"]
