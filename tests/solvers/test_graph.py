"""The graph of neighbours: those that a search by hand finds, and probabilities smoothed as the equations say."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fewtags.errors import UserError
from fewtags.solvers import graph
from fewtags.solvers.graph import Neighbours, clamp_known, find_neighbours, smooth


def vectors(count, width=5, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def by_hand(queries, k, bank=None):
    """Rows [n, k] and weights [n, k] of the neighbours, one image after the other, in float64."""
    among = (queries if bank is None else bank).double().numpy()
    rows, weights = [], []
    for place, one in enumerate(queries.double().numpy()):
        cosines = {
            row: one @ other / (np.linalg.norm(one) * np.linalg.norm(other))
            for row, other in enumerate(among)
            if bank is not None or row != place
        }
        nearest = sorted(cosines, key=lambda row: -cosines[row])[:k]
        counts = np.array([max(cosines[row], 1e-6) ** 3 for row in nearest])
        rows.append(nearest)
        weights.append(counts / counts.sum())
    return np.array(rows), np.array(weights)


def dense(rows, weights, width):
    """W [n, m] with the weights in their places."""
    matrix = np.zeros((len(rows), width))
    for place, (some, counts) in enumerate(zip(rows, weights, strict=True)):
        matrix[place, some] += counts
    return matrix


@pytest.mark.parametrize("k", [1, 4, 39])
def test_neighbours_are_those_of_a_search_by_hand_and_never_the_image_itself(k):
    found = find_neighbours(vectors(40), k)
    rows, weights = by_hand(vectors(40), k)
    assert found.rows.tolist() == rows.tolist()
    np.testing.assert_allclose(found.weights, weights, atol=1e-6)
    assert not (found.rows == torch.arange(40)[:, None]).any()


def test_the_length_of_a_vector_plays_no_part():
    lengths = torch.logspace(-3, 3, 40)[:, None]
    ours, theirs = find_neighbours(vectors(40) * lengths, 6), find_neighbours(vectors(40), 6)
    assert torch.equal(ours.rows, theirs.rows)
    torch.testing.assert_close(ours.weights, theirs.weights)


def test_in_a_bank_of_other_images_every_one_may_be_a_neighbour():
    queries, bank = vectors(7), vectors(30, seed=1)
    bank[4] = 2 * queries[4]  # at the same position as the query that it equals
    found = find_neighbours(queries, 5, bank)
    rows, weights = by_hand(queries, 5, bank)
    assert found.rows.tolist() == rows.tolist()
    assert found.rows[4, 0] == 4
    np.testing.assert_allclose(found.weights, weights, atol=1e-6)


def test_halves_in_the_bank_are_read_as_numbers():
    bank = vectors(30, seed=1).half()
    assert torch.equal(find_neighbours(vectors(7), 5, bank).rows, find_neighbours(vectors(7), 5, bank.float()).rows)


def test_a_weight_is_the_cosine_to_its_power_and_one_that_points_away_counts_next_to_nothing():
    bank = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    found = find_neighbours(torch.tensor([[1.0, 0.0]]), 3, bank)
    assert found.rows.tolist() == [[0, 1, 2]]
    expected = torch.tensor([1.0, 0.6**3, 1e-18])
    torch.testing.assert_close(found.weights[0], expected / expected.sum())
    linear = find_neighbours(torch.tensor([[1.0, 0.0]]), 2, bank, power=1.0).weights[0]
    torch.testing.assert_close(linear, torch.tensor([1.0, 0.6]) / 1.6)
    alone = find_neighbours(torch.tensor([[1.0, 0.0]]), 1, bank[2:]).weights
    torch.testing.assert_close(alone, torch.ones(1, 1))  # it is all there is


@pytest.mark.parametrize(("own", "expected"), [(True, 4), (False, 5)])
def test_no_more_neighbours_than_there_are_images(own, expected):
    found = find_neighbours(vectors(5), 30, None if own else vectors(5, seed=1))
    assert found.rows.shape == found.weights.shape == (5, expected)
    assert all(len(set(rows)) == expected for rows in found.rows.tolist())


def test_a_single_image_has_no_neighbours_and_keeps_what_its_own_share_leaves():
    found = find_neighbours(vectors(1), 30)
    assert found.rows.shape == (1, 0)
    first = torch.tensor([[0.4, 0.8]])
    torch.testing.assert_close(found.average(first), torch.zeros(1, 2))
    torch.testing.assert_close(smooth(first, found, share=0.5), first / 2)


def test_copies_of_an_image_are_neighbours_of_each_other():
    some = vectors(12)
    some[[3, 7, 9]] = some[3].clone()
    found = find_neighbours(some, 2)
    for copy, others in ((3, {7, 9}), (7, {3, 9}), (9, {3, 7})):
        assert set(found.rows[copy].tolist()) == others
        torch.testing.assert_close(found.weights[copy], torch.tensor([0.5, 0.5]))


def test_an_image_without_any_direction_spreads_its_trust_evenly():
    some = vectors(6)
    some[2] = 0
    found = find_neighbours(some, 3)
    torch.testing.assert_close(found.weights[2], torch.full((3,), 1 / 3))
    assert torch.isfinite(found.weights).all()


@pytest.mark.parametrize("cells", [1, 100, 7 * 40 + 3])
@pytest.mark.parametrize("own", [True, False])
def test_a_search_in_blocks_finds_what_one_block_finds(monkeypatch, cells, own):
    bank = None if own else vectors(40, seed=1)
    whole = find_neighbours(vectors(40), 6, bank)
    monkeypatch.setattr(graph, "BLOCK_CELLS", cells)
    blocks = find_neighbours(vectors(40), 6, bank)
    assert torch.equal(blocks.rows, whole.rows)
    torch.testing.assert_close(blocks.weights, whole.weights)


def test_an_average_is_the_product_with_the_matrix_of_weights():
    queries, bank, values = vectors(7), vectors(30, seed=1), torch.rand(30, 3, dtype=torch.float64)
    expected = dense(*by_hand(queries, 5, bank), 30) @ values.numpy()
    np.testing.assert_allclose(find_neighbours(queries, 5, bank).average(values), expected, atol=1e-6)


@pytest.mark.parametrize(("share", "rounds"), [(0.5, 8), (0.5, 1), (0.9, 3), (0.0, 2)])
def test_smoothing_repeats_the_equation_so_many_times(share, rounds):
    first = torch.rand(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    kept = first.clone()
    matrix, expected = dense(*by_hand(vectors(40), 6), 40), first.numpy()
    for _ in range(rounds):
        expected = share * matrix @ expected + (1 - share) * first.numpy()
    found = smooth(first, find_neighbours(vectors(40), 6), share, rounds)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert torch.equal(first, kept)


def test_many_rounds_end_at_the_solution_of_the_linear_system():
    first = torch.rand(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    matrix, share = dense(*by_hand(vectors(40), 6), 40), 0.7
    solution = (1 - share) * np.linalg.solve(np.eye(40) - share * matrix, first.numpy())
    found = smooth(first, find_neighbours(vectors(40), 6), share, rounds=100)
    np.testing.assert_allclose(found, solution, atol=1e-6)


def test_known_cells_become_their_label_and_unknown_ones_keep_their_score():
    scores = torch.tensor([[0.2, 0.7, 0.4], [0.9, 0.1, 0.6]])
    targets = torch.tensor([[1, 0, -1], [-7, 1, 0]], dtype=torch.int8)
    clamped = clamp_known(scores, targets)
    assert torch.equal(clamped, torch.tensor([[1.0, 0.0, 0.4], [0.9, 1.0, 0.0]]))
    assert clamped.dtype == scores.dtype


def test_more_images_than_an_exact_search_bears_name_the_line_to_run(monkeypatch):
    monkeypatch.setattr(graph, "EXACT_UP_TO", 10)
    monkeypatch.setitem(sys.modules, "faiss", None)
    find_neighbours(vectors(10), 3)
    find_neighbours(vectors(20), 3, vectors(10))  # the bank is what is searched
    for bank in (None, vectors(11)):
        with pytest.raises(UserError, match=r"11 images are too many.*pip install 'faiss-cpu>="):
            find_neighbours(vectors(11), 3, bank)


class ExactIndex:
    """Stands for an index of faiss, with its habits: an image finds itself, -1 fills up what was not found."""

    def __init__(self, found_at_most=99, twins_first=False):
        self.cp, self.most, self.twins_first = SimpleNamespace(seed=0), found_at_most, twins_first

    def train(self, bank):
        pass

    def add(self, bank):
        self.bank = bank

    def search(self, queries, k):
        cosines = queries @ self.bank.T
        places = np.arange(len(self.bank))
        order = np.array([np.lexsort((-places if self.twins_first else places, -row.round(5))) for row in cosines])
        rows = order[:, :k].astype(np.int64)
        values = np.take_along_axis(cosines, rows, axis=1)
        rows[:, self.most :], values[:, self.most :] = -1, -np.inf
        return values, rows


def indexed(monkeypatch, index):
    faiss = SimpleNamespace(index_factory=lambda width, kind, metric: index, METRIC_INNER_PRODUCT=0)
    monkeypatch.setitem(sys.modules, "faiss", faiss)
    monkeypatch.setattr(graph, "EXACT_UP_TO", 10)


@pytest.mark.parametrize("own", [True, False])
def test_what_an_index_finds_is_read_like_an_exact_search(monkeypatch, own):
    bank = None if own else vectors(40, seed=1)
    exact = find_neighbours(vectors(40), 6, bank)
    indexed(monkeypatch, ExactIndex())
    found = find_neighbours(vectors(40), 6, bank)
    assert torch.equal(found.rows, exact.rows)
    torch.testing.assert_close(found.weights, exact.weights)


@pytest.mark.parametrize("twins_first", [True, False])
def test_an_image_that_an_index_hides_behind_its_copies_is_still_no_neighbour_of_itself(monkeypatch, twins_first):
    some = vectors(20)
    some[[3, 7, 9, 15]] = some[3].clone()
    indexed(monkeypatch, ExactIndex(twins_first=twins_first))
    found = find_neighbours(some, 2)
    assert found.rows.shape == (20, 2)
    assert not (found.rows == torch.arange(20)[:, None]).any()
    assert all(set(found.rows[copy].tolist()) < {3, 7, 9, 15} for copy in (3, 7, 9, 15))


def test_what_an_index_did_not_find_counts_nothing(monkeypatch):
    exact = find_neighbours(vectors(40), 2)
    indexed(monkeypatch, ExactIndex(found_at_most=3))  # itself and two others
    found = find_neighbours(vectors(40), 6)
    assert torch.equal(found.rows[:, :2], exact.rows)
    assert int(found.rows.min()) >= 0
    values = torch.rand(40, 3)
    torch.testing.assert_close(found.average(values), exact.average(values))


def test_the_index_of_faiss_finds_nine_of_ten_neighbours(monkeypatch):
    pytest.importorskip("faiss")
    centres = vectors(40, 16, seed=2)
    some = centres.repeat(50, 1) + 0.4 * vectors(2000, 16)
    exact = find_neighbours(some, 10)
    monkeypatch.setattr(graph, "EXACT_UP_TO", 1000)
    found = find_neighbours(some, 10)
    pairs = zip(found.rows.tolist(), exact.rows.tolist(), strict=True)
    recall = sum(len(set(ours) & set(theirs)) for ours, theirs in pairs) / exact.rows.numel()
    assert recall > 0.9
    assert not (found.rows == torch.arange(2000)[:, None]).any()


def test_neighbours_come_nearest_first():
    found = find_neighbours(vectors(40), 8)
    assert isinstance(found, Neighbours)
    assert bool((found.weights.diff(dim=1) <= 0).all())
    torch.testing.assert_close(found.weights.sum(1), torch.ones(40))
