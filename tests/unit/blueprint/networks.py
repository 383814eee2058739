"""Random layers and texts, shared by the tests of this folder."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import trc.blueprint as bp
from trc.blueprint.network import name_problem

small = st.integers(1, 70)
padding = st.integers(0, 5)
names = st.none() | st.from_regex(r"[a-z_][a-z0-9_]{0,6}(\.[a-z0-9_]{1,4})?", fullmatch=True)
rates = st.floats(0, 1, allow_nan=False)
epsilons = st.floats(1e-300, 1)
acts = st.sampled_from(["relu", "relu6", bp.relu, bp.relu6])


def _call(factory: Any, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[bp.Layer]:
    return st.builds(lambda name, *args: factory(*args, name=name), names, *arguments)


def _pool(factory: Any) -> st.SearchStrategy[bp.Layer]:
    return st.builds(
        lambda k, s, p, name: factory(k, s, min(p, k - 1), name=name), small, small, st.integers(0, 70), names
    )


leaves: st.SearchStrategy[bp.Layer] = st.one_of(
    _call(bp.conv, small, small, small, padding, st.booleans()),
    _call(bp.conv_dw, small, small, padding, st.booleans()),
    st.builds(lambda g, n, k, name: bp.group_conv(g * n, g, k, name=name), small, small, small, names),
    _call(bp.bn, rates, epsilons),
    *[_call(f) for f in (bp.relu, bp.tanh_act, bp.silu, bp.relu6, bp.hardswish, bp.sigmoid)],
    *[_call(f) for f in (bp.flatten, bp.channel_padding, bp.gap, bp.identity)],
    _call(bp.leaky_relu, st.floats(min_value=0, allow_infinity=False)),
    _call(bp.elu, st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
    _call(bp.dropout, st.floats(0, 1, exclude_max=True)),
    _pool(bp.maxpool),
    _pool(bp.avgpool),
    _call(bp.fc, small, st.booleans()),
    _call(bp.gap_fc, small, st.booleans()),
    _call(bp.cbr, small, small, small, padding, rates, epsilons, acts),
    _call(bp.cbrp, small, small, small, padding, st.just(3), small, st.integers(0, 2), rates, epsilons, acts),
    _call(bp.block, small, small, st.sampled_from(["RESNET_1_3_1", bp.RESNET_1_3_1_DS])),
    _call(bp.block, small, st.sampled_from([s for s in bp.BlockStyle if "1_3_1" not in s])),
    _call(bp.mbconv, st.sampled_from([1, 6]), small, st.sampled_from([1, 2])),
)


def _inner(layer: st.SearchStrategy[bp.Layer]) -> st.SearchStrategy[bp.Layer]:
    return st.one_of(
        st.builds(lambda children, name: bp.seq(children, name=name), st.lists(layer, min_size=1, max_size=5), names),
        _call(bp.add2, layer, layer),
        _call(bp.repeat, layer, st.integers(1, 4)),
    )


layers: st.SearchStrategy[bp.Layer] = st.recursive(leaves, _inner, max_leaves=12)
inputs = st.none() | st.tuples(small, small, small)
blueprints: st.SearchStrategy[bp.BluePrint] = st.builds(
    bp.BluePrint,
    layers,
    st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name_problem(name) is None),
    inputs,
)

TEXTS = (
    """BluePrint mlp = seq(
    fc(1024, true), relu(),
    fc(512, true), relu(),      // comments
    fc(10, true)
);
""",
    """input(32, 32, 3); /* a picture
of two lines */
Layer stage = seq(conv(64, 3, s=1, p=1, bias=true, name="c"), bn(0.1f, eps=1e-3), leaky_relu(.2),);
auto last = seq(gap(), dropout(0.5f), gap_fc(10, false, name="head.fc"));
BluePrint net = seq(cbr(64, 7, 2, 3, act=relu6), stage, add2(identity(), stage, name="res"),
    repeat(block(64, 256, RESNET_1_3_1), 3), block(64, style=MB_E6_K3_DS), mbconv(6, 24, 2), last);
""",
    "seq(input(28, 28, 1), group_conv(8, 2, 3), cbrp(64, 7, 2, 3, 3, 2, 1), maxpool(3, 2, 1), elu(1.5), fc(10))",
)
