"""A name that is no model, while the hub does not answer: told at once, not after the hub's own repeated tries."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import huggingface_hub.constants as hub

from espalier.engines.huggingface import loading
from espalier.errors import UnknownModel


def test_a_wrong_name_is_told_at_the_first_try_where_the_hub_cannot_be_reached(monkeypatch):
    tries = []

    def unreachable(url, **options):
        tries.append((url, options))
        raise ConnectionError("Name or service not known")

    read = loading._read

    def from_cache_alone(source, dtype, *, local: bool):
        assert local, "transformers asks the hub again and again"
        return read(source, dtype, local=True)

    monkeypatch.setattr(loading, "get_hf_file_metadata", unreachable)
    monkeypatch.setattr(loading, "_read", from_cache_alone)
    with pytest.raises(UnknownModel, match=r"no folder 'WRONG-NAME'.*hub cannot be reached: Name or service not known"):
        loading.load_model("WRONG-NAME", device="cpu")
    assert [url for url, _ in tries] == [f"{hub.ENDPOINT}/WRONG-NAME/resolve/main/config.json"]
    assert tries[0][1]["timeout"] <= 5
