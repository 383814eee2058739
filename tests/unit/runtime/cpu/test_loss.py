import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from .plans import run_kernel
from .reference import DTYPES, eps, random, within

ONE = (1, 1, 1, 1)
RESULTS = dict.fromkeys(("loss", "top1", "top5"), ONE)


def labels_of(seed, n, k):
    return np.random.default_rng(seed).integers(0, k, (n, 1, 1, 1)).astype(np.int32)


def forward(logits, label, smoothing, dtype=np.float32, alias=None):
    outputs = {"probs": logits.shape, **RESULTS}
    put = {"logits": logits, "label": label}
    got = run_kernel("softmax_ce_fwd", put, outputs, dtype, alias=alias, label_smoothing=smoothing)
    return {n: a if n == "probs" else float(a.item()) for n, a in got.items()}


def infer(logits, label, smoothing, dtype=np.float32):
    outputs = {"predicted": label.shape, **RESULTS}
    put = {"logits": logits, "label": label}
    got = run_kernel("softmax_ce_infer", put, outputs, dtype, label_smoothing=smoothing)
    return {n: a.reshape(-1) if n == "predicted" else float(a.item()) for n, a in got.items()}


def ranks(logits, label):
    """By definition, one row at a time."""
    found = []
    for row, y in zip(logits.reshape(len(label), -1), label.reshape(-1), strict=True):
        found.append(sum(v > row[y] or (v == row[y] and c < y) for c, v in enumerate(row)))
    return np.array(found)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 2), (3, 3), (7, 5), (33, 10), (200, 1001)])
def test_against_torch(n, k, dtype, smoothing):
    for seed in range(3):
        (logits,) = random(seed, (n, 1, 1, k), dtype=dtype, scale=5.0)
        if seed == 2:
            logits = np.round(logits)  # many ties
        label = labels_of(seed, n, k)
        z = torch.tensor(logits.reshape(n, k).astype(np.float64), requires_grad=True)
        loss = nn.cross_entropy(z, torch.tensor(label.reshape(n)).long(), label_smoothing=smoothing)
        (loss * 8).backward()
        unit = eps(dtype)
        got = forward(logits, label, smoothing, dtype)
        size = (1 + np.abs(logits).max()) * 2
        assert abs(got["loss"] - loss.item()) <= (k + n + 8) * unit * size
        probs = nn.softmax(z.detach(), 1).numpy()
        within(got["probs"].reshape(n, k), probs, (k + 8 + size) * unit * probs + 1e-44)
        rank = ranks(logits, label)
        assert (got["top1"], got["top5"]) == ((rank < 1).sum(), (rank < min(5, k)).sum())
        put = {"probs": got["probs"], "label": label}
        kinds = {"scalars": {"scaling": 8.0}, "label_smoothing": smoothing}
        back = run_kernel("softmax_ce_bwd", put, {"dlogits": logits.shape}, dtype, **kinds)["dlogits"]
        within(back.reshape(n, k), z.grad.numpy(), (k + 8 + size) * unit * 8 / n)
        aliased = run_kernel(
            "softmax_ce_bwd", put, {"dlogits": logits.shape}, dtype, alias={"dlogits": "probs"}, **kinds
        )
        assert np.array_equal(aliased["dlogits"], back)
        inferred = infer(logits, label, smoothing, dtype)
        assert np.array_equal(inferred["predicted"], logits.reshape(n, k).argmax(1))
        assert all(inferred[name] == got[name] for name in RESULTS)
        in_place = forward(logits, label, smoothing, dtype, alias={"probs": "logits"})
        assert np.array_equal(in_place["probs"], got["probs"])
        assert all(in_place[name] == got[name] for name in RESULTS)


def test_log_softmax_is_exact_where_a_probability_vanishes():
    logits = np.array([[0, 500, -500]], np.float32).reshape(1, 1, 1, 3)
    got = forward(logits, np.array([0], np.int32).reshape(ONE), 0.0)
    assert got["loss"] == 500
    assert np.isfinite(got["probs"]).all()


@pytest.mark.parametrize(
    ("row", "label", "rank"),
    [
        ([1, 1, 1], 0, 0),
        ([1, 1, 1], 2, 2),
        ([1, 2, 1], 2, 2),
        ([0, 0, 0, 0, 0, 0], 4, 4),
        ([0, 0, 0, 0, 0, 0], 5, 5),
        ([np.nan, 0, 0, 0, 0, 0], 0, 6),
        ([np.nan] * 5 + [3], 5, 6),
        ([np.nan, 1, 0, 0, 0, 0], 1, 6),
    ],
)
def test_ties_and_nan(row, label, rank):
    logits = np.array(row, np.float32).reshape(1, 1, 1, -1)
    where = np.array([label], np.int32).reshape(ONE)
    for got in (forward(logits, where, 0.0), infer(logits, where, 0.0)):
        assert got["top1"] == (rank < 1)
        assert got["top5"] == (rank < min(5, len(row)))


def test_predicted_is_the_lowest_index():
    logits = np.array([[1, 3, 3], [2, 2, 2]], np.float32).reshape(2, 1, 1, 3)
    assert infer(logits, labels_of(0, 2, 3), 0.0)["predicted"].tolist() == [1, 0]


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_label_out_of_range_is_an_error(bad):
    logits = np.zeros((2, 1, 1, 3), np.float32)
    label = np.array([0, bad], np.int32).reshape(2, 1, 1, 1)
    for call in (forward, infer):
        with pytest.raises(ValueError, match=rf"label {bad} is not one of 3 classes"):
            call(logits, label, 0.0)


def test_smoothing_out_of_range_is_an_error():
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\)"):
        forward(np.zeros((1, 1, 1, 3), np.float32), np.zeros(ONE, np.int32), 1.0)
