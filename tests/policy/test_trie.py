from hypothesis import given
from hypothesis import strategies as st

from algorist.policy.trie import batches, build

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=12)


@given(SEQUENCES, st.integers(1, 20))
def test_every_path_spells_its_sequence_and_every_sequence_is_in_one_trie(
    sequences: list[list[int]], size: int
) -> None:
    tries = build(sequences, max_nodes=size)
    seen = []
    for trie in tries:
        for row, path in zip(trie.rows, trie.paths, strict=True):
            assert trie.token_ids[path].tolist() == sequences[row]
            assert trie.depth[path].tolist() == list(range(len(path)))
            seen.append(row)
    assert sorted(seen) == list(range(len(sequences)))


@given(SEQUENCES)
def test_a_node_sees_exactly_the_nodes_on_its_own_path(sequences: list[list[int]]) -> None:
    (trie,) = build(sequences, max_nodes=10_000)
    for path in trie.paths:
        for at, node in enumerate(path):
            visible = [i for i in range(trie.num_nodes) if i <= node < trie.end[i]]
            assert visible == path[: at + 1].tolist()


@given(SEQUENCES)
def test_no_prefix_is_held_twice(sequences: list[list[int]]) -> None:
    (trie,) = build(sequences, max_nodes=10_000)
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert trie.num_nodes == len(prefixes)


@given(SEQUENCES, st.integers(1, 20), st.integers(1, 40))
def test_a_micro_batch_stays_within_its_padded_budget(sequences: list[list[int]], size: int, budget: int) -> None:
    tries = build(sequences, max_nodes=size)
    made = batches(tries, max_tokens=budget)
    assert sum(len(batch) for batch in made) == len(tries)
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(t.num_nodes for t in batch) <= budget
