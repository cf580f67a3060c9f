"""The slot cache by itself, fed with made-up keys and values, against lists of what was written."""

from __future__ import annotations

from random import Random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from espalier.engines.huggingface.slot_cache import FIRST_CAPACITY, NativeCaches, SlotCache  # noqa: E402
from espalier.errors import CapabilityError, LimitExceeded  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS, SIZE, VALUE_SIZE, LAYERS = 2, 3, 5, 2  # keys and values of different sizes, as in latent attention


def make(*, max_rows: int = 8, max_positions: int = 1000) -> SlotCache:
    return SlotCache(
        layers=LAYERS, max_rows=max_rows, max_positions=max_positions, device=torch.device("cpu"), dtype=torch.float32
    )


class Feeder:
    """Plays the model: writes random states through a cache and remembers them by row."""

    def __init__(self, cache: SlotCache) -> None:
        self.cache = cache
        self.held: dict[int, list] = {}  # by row and layer: keys (H, length, D), values (H, length, D')
        self.generator = torch.Generator().manual_seed(0)

    def add(self) -> int:
        row = self.cache.add()
        self.held[row] = [self.empty() for _ in range(LAYERS)]
        return row

    @staticmethod
    def empty():
        return torch.zeros(HEADS, 0, SIZE), torch.zeros(HEADS, 0, VALUE_SIZE)

    def extend(self, rows: list[int], counts: list[int], *, commit: bool = True) -> None:
        layout = self.cache.begin(rows, counts)
        width = max(counts)
        order = [rows[i] for i in layout.order]
        sizes = [counts[i] for i in layout.order]
        assert layout.position_ids.shape == (len(rows), width)
        for layer in range(LAYERS):
            keys = torch.randn(len(rows), HEADS, width, SIZE, generator=self.generator)
            values = torch.randn(len(rows), HEADS, width, VALUE_SIZE, generator=self.generator)
            seen_keys, seen_values = self.cache.update(keys, values, layer)
            for line, (row, size) in enumerate(zip(order, sizes, strict=True)):
                old_keys, old_values = self.held[row][layer]
                now_keys = torch.cat([old_keys, keys[line, :, width - size :]], dim=1)
                now_values = torch.cat([old_values, values[line, :, width - size :]], dim=1)
                length = now_keys.shape[1]
                assert torch.equal(seen_keys[line, :, :length], now_keys)
                assert torch.equal(seen_values[line, :, :length], now_values)
                assert torch.isfinite(seen_values[line]).all()
                if commit:
                    self.held[row][layer] = (now_keys, now_values)
        for line, (row, size) in enumerate(zip(order, sizes, strict=True)):
            start = self.cache.length(row)
            right = layout.position_ids[line, width - size :]
            assert right.tolist() == list(range(start, start + size))
            if layout.attention_mask is not None:
                seen = (layout.attention_mask[line, 0, width - size :] == 0).sum(-1)
                assert seen.tolist() == list(range(start + 1, start + size + 1))
        if commit:
            self.cache.commit()

    def fork(self, row: int) -> int:
        new = self.cache.fork(row)
        self.held[new] = list(self.held[row])
        return new

    def truncate(self, row: int, length: int) -> None:
        self.cache.truncate(row, length)
        self.held[row] = [(k[:, :length], v[:, :length]) for k, v in self.held[row]]

    def remove(self, row: int) -> None:
        self.cache.remove(row)
        del self.held[row]


@pytest.mark.parametrize("seed", range(8))
def test_every_row_reads_what_it_wrote(seed: int) -> None:
    random, feeder = Random(seed), Feeder(make())
    for _ in range(150):
        rows = list(feeder.held)
        act = random.choice(["add", "fork", "remove", "truncate", "extend", "extend", "extend"]) if rows else "add"
        if act == "add" and len(rows) < 8:
            feeder.add()
        elif act == "fork" and len(rows) < 8:
            feeder.fork(random.choice(rows))
        elif act == "remove":
            feeder.remove(random.choice(rows))
        elif act == "truncate":
            row = random.choice(rows)
            feeder.truncate(row, random.randint(0, feeder.cache.length(row)))
        elif act == "extend":
            some = random.sample(rows, random.randint(1, len(rows)))
            sizes = [random.choice([1, 1, 2, 20]) for _ in some] if random.random() < 0.5 else [1] * len(some)
            # Now and then a pass fails after it has written.
            feeder.extend(some, sizes, commit=random.random() < 0.9)
    assert {row: feeder.cache.length(row) for row in feeder.held} == {
        row: layers[0][0].shape[1] for row, layers in feeder.held.items()
    }


def test_a_single_row_reads_a_view_and_needs_no_mask() -> None:
    cache = make()
    row = cache.add()
    cache.begin([row], [3])
    states = torch.ones(1, HEADS, 3, SIZE)
    keys, _ = cache.update(states, states, 0)
    assert keys.untyped_storage().data_ptr() == cache.layers[0].keys.untyped_storage().data_ptr()
    cache.commit()
    assert cache.begin([row], [1]).attention_mask is None


def test_rows_of_one_length_need_no_mask_and_others_do() -> None:
    feeder = Feeder(make())
    one, two = feeder.add(), feeder.add()
    feeder.extend([one, two], [4, 4])
    assert feeder.cache.begin([one, two], [1, 1]).attention_mask is None
    assert feeder.cache.begin([one, two], [1, 2]).attention_mask is not None


def test_the_mask_has_no_line_that_sees_nothing() -> None:
    feeder = Feeder(make())
    rows = [feeder.add(), feeder.add(), feeder.add()]
    feeder.extend(rows[:1], [7])
    mask = feeder.cache.begin(rows, [1, 5, 2]).attention_mask
    assert mask.shape == (3, 1, 5, 8)
    assert (mask == 0).any(-1).all()


def test_room_grows_by_doubling_up_to_the_limit() -> None:
    feeder = Feeder(make(max_positions=300))
    row = feeder.add()
    feeder.extend([row], [FIRST_CAPACITY])
    assert feeder.cache.capacity == FIRST_CAPACITY
    feeder.extend([row], [1])
    assert feeder.cache.capacity == 2 * FIRST_CAPACITY
    feeder.extend([row], [171])
    assert feeder.cache.capacity == 300
    assert feeder.cache.layers[0].keys.shape == (1, HEADS, 300, SIZE)
    feeder.extend([feeder.add()], [2])
    assert feeder.cache.layers[0].keys.shape == (2, HEADS, 300, SIZE)


def test_nothing_is_allocated_before_the_first_pass() -> None:
    cache = make()
    cache.add()
    assert cache.layers[0].keys is None


def test_a_stranger_s_not_a_number_does_not_stay() -> None:
    cache = make()
    rows = [cache.add(), cache.add()]
    bad = torch.full((2, HEADS, 9, SIZE), float("nan"))
    cache.begin(rows, [9, 9])
    for layer in range(LAYERS):
        cache.update(bad, bad, layer)
    cache.commit()
    cache.truncate(rows[0], 1)
    assert torch.isnan(cache.layers[0].values[0, :, :1]).all()
    assert (cache.layers[0].values[0, :, 1:] == 0).all()
    cache.remove(rows[0])
    cache.remove(rows[1])
    assert all((buffer == 0).all() for layer in cache.layers for buffer in (layer.keys, layer.values))


def test_holes_are_closed_when_all_rows_run_together() -> None:
    feeder = Feeder(make())
    rows = [feeder.add() for _ in range(4)]
    feeder.extend(rows, [3, 1, 2, 5])
    feeder.remove(rows[1])
    keys_before = feeder.cache.layers[0].keys
    feeder.extend([rows[3], rows[0], rows[2]], [1, 1, 1])
    layout = feeder.cache.begin([rows[0], rows[2], rows[3]], [1, 1, 1])
    keys, _ = feeder.cache.update(torch.ones(3, HEADS, 1, SIZE), torch.ones(3, HEADS, 1, VALUE_SIZE), 0)
    assert keys.untyped_storage().data_ptr() == keys_before.untyped_storage().data_ptr()
    assert sorted(layout.order) == [0, 1, 2]


def test_slots_run_out_by_name_and_come_back() -> None:
    cache = make(max_rows=3)
    rows = [cache.add() for _ in range(3)]
    with pytest.raises(LimitExceeded, match="3 slots"):
        cache.add()
    with pytest.raises(LimitExceeded):
        cache.fork(rows[0])
    cache.remove(rows[1])
    assert cache.length(cache.add()) == 0


def test_growth_that_fails_leaves_the_cache_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    feeder = Feeder(make())
    row = feeder.add()
    feeder.extend([row], [5])
    second = feeder.cache.layers[1]
    real = type(second).grow

    def grow(layer, written) -> None:
        if layer is second:
            raise RuntimeError("no memory")
        real(layer, written)

    with monkeypatch.context() as patched:
        patched.setattr(type(second), "grow", grow)
        with pytest.raises(RuntimeError, match="no memory"):
            feeder.cache.begin([row], [500])
    assert feeder.cache.length(row) == 5
    other = feeder.add()
    feeder.extend([row, other], [1, 2])
    feeder.extend([row], [500])


def test_what_transformers_asks_of_a_cache() -> None:
    feeder = Feeder(make())
    row = feeder.add()
    feeder.extend([row], [6])
    feeder.cache.begin([row], [2])
    assert feeder.cache.get_seq_length() == 6
    assert feeder.cache.get_mask_sizes(2, 0) == (8, 0)
    assert feeder.cache.get_max_length() == 1000
    assert not any((*feeder.cache.is_sliding, *feeder.cache.is_linear, *feeder.cache.is_dummy))
    assert not feeder.cache.is_compileable
    assert len(feeder.cache) == LAYERS


def test_native_caches_cannot_be_cut() -> None:
    transformers = pytest.importorskip("transformers")
    caches = NativeCaches(config=transformers.LlamaConfig(), max_rows=1, device=torch.device("cpu"))
    row = caches.add()
    caches.begin([row], [3])
    caches.commit()
    assert caches.length(row) == 3
    caches.truncate(row, 3)
    with pytest.raises(CapabilityError):
        caches.truncate(row, 2)
    with pytest.raises(LimitExceeded):
        caches.fork(row)
    with pytest.raises(ValueError):
        caches.begin([row, row], [1, 1])
    caches.remove(row)
    caches.add()
