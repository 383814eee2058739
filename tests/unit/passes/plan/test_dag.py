"""The scheduler against brute force."""

from __future__ import annotations

from dataclasses import replace
from random import Random

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


@st.composite
def sized(draw: st.DrawFn) -> tuple[list[DagNode], dict[int, int]]:
    """Nodes as networks have them: all transient, a tensor is written before it is read; some may be in place."""
    made: list[DagNode] = []
    count = 0
    for n in range(draw(st.integers(1, 14))):
        reads = tuple(draw(st.sets(st.integers(0, count - 1), max_size=3))) if count else ()
        writes = tuple(range(count, count + draw(st.integers(0 if count else 1, 2))))
        aliases = ((max(reads), writes[0]),) if reads and writes and draw(st.booleans()) else ()
        count += len(writes)
        made.append(DagNode(reads, writes, True, draw(st.sampled_from("abc")) if n % 2 else "d", aliases))
    sizes = draw(st.lists(st.sampled_from([1, 2, 10, 100]), min_size=count, max_size=count))
    # What may be in place is of one size.
    for node in made:
        for t, u in node.aliases:
            sizes[u] = sizes[t]
    return [replace(n, aliases=tuple((t, u) for t, u in n.aliases if sizes[t] == sizes[u])) for n in made], dict(
        enumerate(sizes)
    )


def heirs(made: list[DagNode]) -> dict[int, int]:
    """The head of the chain that a tensor takes the place of, by the linear order; the packer may do no better."""
    last = {t: n for n, node in enumerate(made) for t in (*node.reads, *node.writes)}
    head: dict[int, int] = {}
    for n, node in enumerate(made):
        fit = [(t, u) for t, u in node.aliases if last[t] == n]
        if fit:
            head[fit[0][1]] = head.get(fit[0][0], fit[0][0])
    return head


def alive(made: list[DagNode], sizes: dict[int, int], order: list[int], head: dict[int, int]) -> int:
    """The most bytes alive at once when the nodes run one after another in an order."""
    place = {n: k for k, n in enumerate(order)}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for n, node in enumerate(made):
        for t in (*node.reads, *node.writes):
            block = head.get(t, t)
            first[block] = min(first.get(block, place[n]), place[n])
            last[block] = max(last.get(block, place[n]), place[n])
    return max(sum(sizes[t] for t in first if first[t] <= k <= last[t]) for k in range(len(order)))


@given(sized(), st.randoms(use_true_random=False))
@SETTINGS
def test_no_execution_needs_more_than_the_linear_order(
    drawn: tuple[list[DagNode], dict[int, int]], rng: Random
) -> None:
    made, sizes = drawn
    sizes = {t: sizes[t] for node in made for t in (*node.reads, *node.writes)}
    after = order_nodes(made, sizes)
    head = heirs(made)
    most = alive(made, sizes, list(range(len(made))), head)
    for _ in range(5):
        ready, order = set(range(len(made))), list[int]()
        while ready:
            n = rng.choice(sorted(m for m in ready if set(after[m]) <= set(order)))
            order.append(n)
            ready.remove(n)
        assert alive(made, sizes, order, head) <= most


def test_far_from_the_peak_nodes_stay_free() -> None:
    """A wide middle, then a narrow end whose weight and data gradients may overlap."""
    made = [
        DagNode((), (0,), True, "wide"),
        DagNode((0,), (1,), True, "wide"),
        DagNode((1,), (2,), True, "narrow"),
        DagNode((2,), (3,), True, "fc"),
        DagNode((2,), (4,), True, "fc"),
    ]
    after = order_nodes(made, {0: 1000, 1: 1000, 2: 1, 3: 1, 4: 1})
    assert after[3] == after[4] == (2,)


def test_near_the_peak_nodes_are_put_in_order() -> None:
    made = [DagNode((), (0,), True, "a"), DagNode((0,), (1,), True, "b"), DagNode((0,), (2,), True, "b")]
    assert order_nodes(made, {0: 10, 1: 10, 2: 10})[2] == (1,), "2 after 1, whose result is dead by then"
    assert order_nodes(made)[2] == (0,)


def test_who_takes_a_place_comes_after_its_readers() -> None:
    made = [
        DagNode((), (0,), True, "a"),
        DagNode((0,), (1,), True, "b"),
        DagNode((0,), (2,), True, "c", ((0, 2),)),
        DagNode((1, 2), (), True, "c"),
    ]
    assert order_nodes(made, {0: 10, 1: 1, 2: 10})[2] == (1,)
