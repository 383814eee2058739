import numpy as np
import pytest

from trc_runtime.rng import (
    BLOCK,
    Philox,
    Stream,
    check_streams,
    normals_of,
    philox,
    philox_at,
    stream_id,
    uniform_of,
    word64_of,
)

GOLDEN = [  # spec/training-facts.md section 2.1
    (0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (123, 0, "11237cdc 66ff3dd8 bfb09d90 30db7e52"),
    (123, 1, "a3c0144e 7d401ead 34d6591e de0ecdaf"),
    (42, 7, "5bbd83b1 68784c85 172067aa 2e6b75b7"),
    (0x0123456789ABCDEF, 0x1122334455667788, "5a8aca4e 25f111a1 1af9e486 018cac5b"),
]


@pytest.mark.parametrize(("seed", "offset", "words"), GOLDEN)
def test_golden_values_of_the_cipher(seed, offset, words):
    assert philox_at(seed, offset) == tuple(int(w, 16) for w in words.split())


def test_known_answers_of_the_authors():
    # Random123's kat_vectors for philox4x32-10
    ones = (1 << 64) - 1
    assert philox(ones, (0xFFFFFFFF,) * 4) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox(0x299F31D0 << 32 | 0xA4093822, pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_golden_derived_values():
    first, second, *_ = philox_at(123, 0)
    assert uniform_of(first) == 0.06694769859313965
    assert word64_of(first, second) == 0x11237CDC66FF3DD8
    u1, u2 = ((first >> 8) | 1) * 2.0**-24, (second >> 8) * 2.0**-24
    radius = np.sqrt(-2 * np.log(u1))
    want = radius * np.cos(2 * np.pi * u2), radius * np.sin(2 * np.pi * u2)
    np.testing.assert_allclose(normals_of(first, second), want, rtol=1e-7)


def test_extreme_words_give_finite_numbers():
    assert uniform_of(0xFFFFFFFF) == 1 - 2.0**-24
    assert all(np.isfinite(normals_of(0, 0xFFFFFFFF)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (7, 33), (3, 4 * BLOCK + 5), (BLOCK + 3, 2), (0, 4), (4, 0)])
def test_blocks_agree_with_the_scalar_cipher(shape):
    stream = Stream(0xFEDCBA9876543210, 0xDEADBEEF, 17)
    out = np.zeros(shape, np.uint32)
    Philox().words(stream, out, first_row=1000)
    rng = np.random.default_rng(sum(shape))
    for _ in range(60 if out.size else 0):
        r, e = int(rng.integers(shape[0])), int(rng.integers(shape[1]))
        assert out[r, e] == philox(stream.seed, (stream.name_id, stream.step, 1000 + r, e // 4))[e % 4]


def test_last_rows_fit_and_no_more():
    out = np.zeros((2, 5), np.uint32)
    Philox().words(Stream(1, 2, 3), out, first_row=(1 << 32) - 2)
    assert out[1, 4] == philox(1, (2, 3, 0xFFFFFFFF, 1))[0]
    with pytest.raises(ValueError, match="does not fit a counter word"):
        Philox().words(Stream(1, 2, 3), out, first_row=(1 << 32) - 1)


@pytest.mark.parametrize("shape", [(5, 7), (2, 4 * BLOCK + 6)])
def test_derived_arrays_agree_with_the_words(shape):
    stream, p = Stream.named(7, "init/fc1.weight"), Philox()
    words = np.zeros(shape, np.uint32)
    p.words(stream, words)
    uniforms = np.zeros(shape, np.float32)
    p.uniforms(stream, uniforms)
    assert np.array_equal(uniforms, (words >> 8) * np.float64(2.0**-24))
    normals = np.zeros(shape, np.float64)
    p.normals(stream, normals)
    padded = np.zeros((shape[0], (shape[1] + 3) // 4 * 4), np.uint32)
    p.words(stream, padded)
    for r, e in ((0, 0), (1, 1), (1, 2), (0, 3), (1, shape[1] - 1)):
        pair = e // 2 * 2
        want = normals_of(int(padded[r, pair]), int(padded[r, pair + 1]))[e % 2]
        assert abs(normals[r, e] - want) <= 1e-7 * max(1, abs(want))
    keep = np.zeros(shape, np.int8)
    for probability in (0.0, 0.1, 0.5, 1 / 3, 1.0):
        p.at_least(stream, probability, keep)
        assert np.array_equal(keep, uniforms.astype(np.float64) >= probability)


def test_keys_of_64_bits_a_row():
    stream, out = Stream.named(3, "shuffle", 5), np.zeros(BLOCK + 9, np.uint64)
    Philox().row_words64(stream, out, first_row=11)
    for row in (0, 1, BLOCK, BLOCK + 8):
        words = philox(3, (stream.name_id, 5, 11 + row, 0))
        assert int(out[row]) == word64_of(words[0], words[1])


def test_a_draw_does_not_depend_on_how_rows_are_cut():
    stream, p = Stream.named(1, "x", 4), Philox()
    whole, parts = np.zeros((100, 37), np.float32), np.zeros((100, 37), np.float32)
    p.uniforms(stream, whole)
    for a, b in ((0, 1), (1, 40), (40, 100)):
        p.uniforms(stream, parts[a:b], first_row=a)
    assert np.array_equal(whole, parts)


def test_other_keys_give_other_numbers():
    def draw(*args):
        out = np.zeros((4, 64), np.uint32)
        Philox().words(Stream(*args), out)
        return out

    base = draw(1, 2, 3)
    for other in ((2, 2, 3), (1 + (1 << 32), 2, 3), (1, 3, 3), (1, 2, 4)):
        assert np.mean(draw(*other) == base) < 0.01


def test_moments_of_the_distributions():
    p, n = Philox(), 1 << 20
    u = np.zeros((1, n), np.float32)
    p.uniforms(Stream.named(0, "u"), u)
    assert 0 <= u.min() < 1e-5
    assert 1 - 1e-5 < u.max() < 1
    assert abs(u.mean(dtype=np.float64) - 0.5) < 5 / np.sqrt(12 * n)
    z = np.zeros((1, n), np.float64)
    p.normals(Stream.named(0, "z"), z)
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert abs((z[0, ::2] * z[0, 1::2]).mean()) < 5 / np.sqrt(n / 2)


def test_names_of_streams():
    assert stream_id("a") == 0xE8B7BE43
    assert check_streams(["a", "b", "a"]) == {"a": stream_id("a"), "b": stream_id("b")}
    # a known pair with one CRC-32
    assert stream_id("plumless") == stream_id("buckeroo")
    with pytest.raises(ValueError, match="'plumless' and 'buckeroo'"):
        check_streams(["plumless", "buckeroo"])
