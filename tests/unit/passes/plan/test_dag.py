"""The scheduler against brute force."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trc.passes.plan.dag import Ancestry, DagNode, order_nodes

SETTINGS = settings(max_examples=300, deadline=None)

tensors = st.lists(st.integers(0, 5), max_size=3).map(tuple)
nodes = st.lists(
    st.builds(DagNode, tensors, tensors, st.booleans(), st.sampled_from(["a", "b", "c", None])), max_size=14
)


def closure(after: list[tuple[int, ...]]) -> list[set[int]]:
    found: list[set[int]] = []
    for before in after:
        found.append(set(before).union(*(found[p] for p in before)))
    return found


@given(nodes)
@SETTINGS
def test_conflicting_nodes_are_ordered(made: list[DagNode]) -> None:
    before = closure(order_nodes(made))
    for j, b in enumerate(made):
        for i, a in enumerate(made[:j]):
            if set(a.writes) & {*b.reads, *b.writes} or set(a.reads) & set(b.writes):
                assert i in before[j]


@given(nodes)
@SETTINGS
def test_segments_do_not_drift_apart(made: list[DagNode]) -> None:
    before = closure(order_nodes(made))
    segments: list[list[int]] = []
    previous: DagNode | None = None
    for n, node in enumerate(made):
        if node.transient:
            if previous is None or previous.segment != node.segment:
                segments.append([])
            segments[-1].append(n)
            previous = node
    for s, segment in enumerate(segments):
        for n in segment:
            assert {p for earlier in segments[: max(s - 1, 0)] for p in earlier} <= before[n]


@given(nodes)
@SETTINGS
def test_edges_point_backwards_and_rise(made: list[DagNode]) -> None:
    for n, before in enumerate(order_nodes(made)):
        assert list(before) == sorted(set(before))
        assert all(0 <= p < n for p in before)


def test_neighbouring_segments_may_overlap() -> None:
    """Weight and data gradients read the same dy; nothing orders them."""
    after = order_nodes(
        [DagNode((), (0,), True, "fc2"), DagNode((0,), (1,), True, "fc1"), DagNode((0,), (2,), True, "fc1")]
    )
    assert after == [(), (0,), (0,)]


edges = st.lists(st.lists(st.integers(0, 30), max_size=4), max_size=25)


@given(edges, st.lists(st.booleans(), min_size=25, max_size=25))
@SETTINGS
def test_ancestry_is_exact(raw: list[list[int]], transient: list[bool]) -> None:
    after = [tuple(sorted({p % n for p in before})) if n else () for n, before in enumerate(raw)]
    before = closure(after)
    ancestry = Ancestry()
    for n, edge in enumerate(after):
        ancestry.add(edge, transient[n])
    for n in range(len(after)):
        for p in range(n):
            if transient[p]:
                assert ancestry.before(ancestry.ordinal[p], n) == (p in before[n])
