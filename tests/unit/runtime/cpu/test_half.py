"""Conversion of half types: all patterns, all ties, NaN, layouts."""

import numpy as np
import pytest
import torch

from trc_runtime.cpu import half
from trc_runtime.cpu.rows import parts

PATTERNS = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
KINDS = ["fp16", "bf16"]
STORAGE = {"fp16": np.float16, "bf16": np.uint16}
TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def compiled(request, monkeypatch):
    """Each test runs with and without the compiled library."""
    if request.param == "numpy":
        monkeypatch.setattr(half, "library", lambda: None)
    elif half.library() is None:
        pytest.skip("no C compiler here")


def torch_bits(values: np.ndarray, kind: str) -> np.ndarray:
    """What PyTorch rounds float32 values to, as 16-bit patterns."""
    return torch.tensor(values).to(TORCH[kind]).view(torch.int16).numpy().view(np.uint16)


def torch_values(bits: np.ndarray, kind: str) -> np.ndarray:
    return torch.tensor(bits.view(np.int16)).view(TORCH[kind]).float().numpy()


def stored(values: np.ndarray, kind: str) -> np.ndarray:
    """The patterns that `store` writes."""
    out = np.zeros(values.shape, STORAGE[kind])
    with np.errstate(all="ignore"):
        half.store(values.copy(), out)
    return out.view(np.uint16)


def same(got: np.ndarray, want: np.ndarray, kind: str) -> None:
    """Equal patterns, or NaN both (PyTorch's rounding to bfloat16 loses a NaN's sign)."""
    a, b = torch_values(got, kind), torch_values(want, kind)
    assert np.array_equal(np.isnan(a), np.isnan(b))
    assert np.array_equal(got[~np.isnan(a)], want[~np.isnan(b)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_pattern_loads_and_comes_back(kind):
    values = np.empty(PATTERNS.shape, np.float32)
    half.load(PATTERNS.view(STORAGE[kind]), values)
    want = torch_values(PATTERNS, kind)
    number = ~np.isnan(want)
    assert np.array_equal(values[number].view(np.uint32), want[number].view(np.uint32))
    assert np.isnan(values[~number]).all()
    assert np.array_equal(np.signbit(values), np.signbit(want))
    same(stored(values, kind), PATTERNS, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_ties_go_to_even_and_their_neighbours_to_the_nearest(kind):
    """Between every two adjacent numbers: the middle, and the float32 next to it on either side."""
    largest = {"fp16": 0x7BFF, "bf16": 0x7F7F}[kind]
    for sign in (0, 0x8000):
        low = (np.arange(largest, dtype=np.uint32) + sign).astype(np.uint16)
        high = low + 1
        a, b = (torch_values(p, kind).astype(np.float64) for p in (low, high))
        middle = ((a + b) / 2).astype(np.float32)
        assert np.array_equal(middle.astype(np.float64), (a + b) / 2)
        assert np.array_equal(stored(middle, kind), np.where(low % 2 == 0, low, high))
        assert np.array_equal(stored(np.nextafter(middle, np.float32(0)), kind), low)
        assert np.array_equal(stored(np.nextafter(middle, np.copysign(np.float32(np.inf), b, dtype=np.float32)), kind),
                              high)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_any_float32(kind):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint64).astype(np.uint32)
    special = np.array([0, 1, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 0x7F7FFFFF, 0x7FFFFFFF], np.uint32)
    values = np.concatenate([bits, special, special | 0x8000_0000]).view(np.float32)
    got = stored(values, kind)
    same(got, torch_bits(values, kind), kind)
    assert np.array_equal(got >> 15, np.signbit(values))
    rounded = values.copy()
    with np.errstate(all="ignore"):
        half.round_to(rounded, STORAGE[kind])
    want = torch_values(torch_bits(values, kind), kind)
    assert np.array_equal(rounded, want, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_layouts(kind):
    rng = np.random.default_rng(2)
    for shape, pad in (((7,), 8), ((3, 5, 3), 8), ((2, 70, 70, 5), 8), ((40_000,), 40_000), ((1, 1, 1), 4)):
        values = rng.standard_normal(shape).astype(np.float32)
        values.reshape(-1)[-1] = np.nan
        padded = np.full((*shape[:-1], pad), 7, STORAGE[kind])
        out = padded[..., : shape[-1]]
        half.store(values.copy(), out)
        want = torch_bits(values, kind)
        same(np.ascontiguousarray(out).view(np.uint16), want, kind)
        assert (padded[..., shape[-1] :] == 7).all()
        back = np.zeros((*shape[:-1], pad), np.float32)
        half.load(out, back[..., : shape[-1]])
        assert np.array_equal(back[..., : shape[-1]], torch_values(want, kind).reshape(shape), equal_nan=True)
        assert not back[..., shape[-1] :].any()
        strided = np.zeros((*shape[:-1], 2 * shape[-1]), np.float32)[..., ::2]
        strided[...] = values
        half.store(strided, out)
        same(np.ascontiguousarray(out).view(np.uint16), want, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_users_see_float32(kind):
    values = np.array([[1.0, -2.5, 1e-3], [np.inf, np.nan, 65504]], np.float64)
    narrow = half.narrowed(values, STORAGE[kind])
    assert narrow.dtype == STORAGE[kind]
    wide = half.widened(narrow)
    assert wide.dtype == np.float32
    assert np.array_equal(wide, torch.tensor(values).float().to(TORCH[kind]).float().numpy(), equal_nan=True)
    plain = half.narrowed(values, np.float32)
    assert plain.dtype == np.float32
    assert not np.shares_memory(half.widened(plain), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_stored_without_loss(kind):
    values = np.random.default_rng(3).standard_normal((50, 40)).astype(np.float32)
    kept, out = values.copy(), np.zeros((50, 48), STORAGE[kind])[:, :40]
    half.store_copy(values, out, np.empty_like(values))
    assert np.array_equal(values, kept)
    same(np.ascontiguousarray(out).view(np.uint16), torch_bits(values, kind), kind)


def test_types():
    assert half.is_half(np.float16)
    assert half.is_half(np.uint16)
    assert not half.is_half(np.float32)
    assert half.compute_type(np.float64) == np.float64
    assert {half.compute_type(t) for t in (np.float32, np.float16, np.uint16)} == {np.dtype(np.float32)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_numbers_that_round_to_zero_and_to_six(kind):
    """By them the gates of norm_bwd tell what readers of the rounded value have seen."""
    storage = np.dtype(STORAGE[kind])
    low, high = (np.float32(table[storage]) for table in (parts._NEGLIGIBLE, parts._SIX))
    around = np.array([low, np.nextafter(low, np.float32(1)), np.nextafter(high, np.float32(0)), high], np.float32)
    zero, more, less, six = torch_values(stored(around, kind), kind)
    assert zero == 0 < more
    assert less < 6 == six
