"""The packer against brute force, on made-up steps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trc.passes.plan.dag import Ancestry
from trc.passes.plan.packing import Packing, PackStep, pack

SIZES = st.sampled_from([256, 512, 1024, 4096])


def step(after: list[list[int]], accesses: dict[int, list[int]], *aliases: tuple[int, int, int]) -> PackStep:
    touching = {n for nodes in accesses.values() for n in nodes}
    ancestry = Ancestry()
    for n, before in enumerate(after):
        ancestry.add(before, n in touching)
    return PackStep(ancestry, accesses, dict.fromkeys(aliases))


def chain(count: int) -> list[list[int]]:
    return [[n - 1] if n else [] for n in range(count)]


def test_tensors_that_follow_each_other_share() -> None:
    packing = pack([512, 256, 512], [step(chain(6), {0: [0, 1], 1: [2, 3], 2: [4, 5]})])
    assert packing == Packing([0, 0, 0], 512, 512)


def test_tensors_of_parallel_nodes_do_not() -> None:
    packing = pack([256, 256], [step([[], []], {0: [0], 1: [1]})])
    assert packing.size == 512
    assert packing.bound == 256, "in the linear order one would do"


def test_tensors_of_different_steps_share() -> None:
    packing = pack([256, 512], [step(chain(2), {0: [0, 1]}), step(chain(2), {1: [0, 1]})])
    assert packing.size == 512


def test_a_conflict_in_one_step_counts() -> None:
    apart = step(chain(4), {0: [0, 1], 1: [2, 3]})
    together = step(chain(4), {0: [0, 2], 1: [1, 3]})
    assert pack([256, 256], [apart]).size == 256
    assert pack([256, 256], [apart, together]).size == 512


def test_a_result_takes_the_place_of_what_its_node_reads_last() -> None:
    allowed = step(chain(3), {0: [0, 1], 1: [1, 2]}, (1, 0, 1))
    assert pack([512, 512], [allowed]).offsets == [0, 0]
    read_later = step(chain(3), {0: [0, 1, 2], 1: [1, 2]}, (1, 0, 1))
    assert pack([512, 512], [read_later]).size == 1024
    parallel_reader = step([[], [0], [0]], {0: [0, 1, 2], 1: [2]}, (2, 0, 1))
    assert pack([512, 512], [parallel_reader]).size == 1024


def test_chains_of_results_take_one_place() -> None:
    made = step(chain(4), {0: [0, 1], 1: [1, 2], 2: [2, 3]}, (1, 0, 1), (2, 1, 2))
    assert pack([512, 512, 512], [made]).size == 512


def test_an_alias_in_one_step_only_is_none() -> None:
    allowed = step(chain(3), {0: [0, 1], 1: [1, 2]}, (1, 0, 1))
    not_here = step(chain(3), {0: [0, 1], 1: [1, 2]})
    assert pack([512, 512], [allowed, not_here]).size == 1024


def test_nothing_to_pack() -> None:
    assert pack([], []) == Packing([], 0, 0)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[int], list[tuple[list[list[int]], dict[int, list[int]]]]]:
    sizes = draw(st.lists(SIZES, min_size=1, max_size=8))
    steps: list[tuple[list[list[int]], dict[int, list[int]]]] = []
    for _ in range(draw(st.integers(1, 2))):
        count = draw(st.integers(1, 10))
        after = [sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(count)]
        accesses = {
            t: sorted(draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4)))
            for t in range(len(sizes))
            if draw(st.integers(0, 4))
        }
        steps.append((after, accesses))
    return sizes, steps


@given(worlds())
@settings(max_examples=300, deadline=None)
def test_what_may_live_together_lies_apart(
    world: tuple[list[int], list[tuple[list[list[int]], dict[int, list[int]]]]],
) -> None:
    sizes, raw = world
    packing = pack(sizes, [step(after, accesses) for after, accesses in raw])
    assert packing.bound <= packing.size <= sum(sizes)
    for after, accesses in raw:
        before: list[set[int]] = []
        for edge in after:
            before.append(set(edge).union(*(before[p] for p in edge)))
        for t in accesses:
            for u in accesses:
                a, b = packing.offsets[t], packing.offsets[u]
                if t < u and a < b + sizes[u] and b < a + sizes[t]:
                    one = all(i in before[j] for i in accesses[t] for j in accesses[u])
                    other = all(j in before[i] for i in accesses[t] for j in accesses[u])
                    assert one or other, (t, u)
