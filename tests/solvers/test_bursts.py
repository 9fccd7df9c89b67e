"""Photos of one moment: which images are held to be near-duplicates, by their looks and by when they were taken."""

import numpy as np
import pytest
import torch

from fewtags.solvers.bursts import LARGEST_SHARE, SAME_SCENE, SECONDS, find_bursts


def ordinary(count=60, width=20, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def beside(vectors, row, distance, seed=1):
    """A vector that lies so far (1 - cosine) from a row, as the vectors' mean sees it."""
    middle = vectors.mean(0)
    direction = torch.nn.functional.normalize(vectors[row] - middle, dim=0)
    other = torch.randn(len(direction), generator=torch.Generator().manual_seed(seed))
    other = torch.nn.functional.normalize(other - other @ direction * direction, dim=0)
    cosine = 1 - distance
    return middle + (vectors[row] - middle).norm() * (cosine * direction + (1 - cosine**2) ** 0.5 * other)


def with_neighbour(distance, row=7, count=60):
    """Ordinary images, and one that lies near a row of them."""
    vectors = ordinary(count)
    return torch.cat([vectors, beside(vectors, row, distance)[None]])


def test_ordinary_images_stand_alone():
    assert find_bursts(ordinary()).tolist() == list(range(60))


def test_near_duplicates_share_the_number_of_the_first():
    found = find_bursts(with_neighbour(0.05))
    assert found.tolist() == [*range(60), 7]
    assert found.dtype == np.int64


def test_what_merely_looks_alike_is_not_joined():
    assert find_bursts(with_neighbour(0.35)).tolist() == list(range(61))


def test_many_pairs_are_found_at_once():
    vectors = ordinary()
    copies = vectors + 0.1 * ordinary(seed=5)
    assert find_bursts(torch.cat([vectors, copies[:25]])).tolist() == [*range(60), *range(25)]


def test_where_all_images_are_alike_only_those_far_closer_than_usual_are_joined():
    """Photos of one place: near each other by any fixed measure, but none nearer than the others."""
    groups = ordinary(15, width=5)
    vectors = groups.repeat_interleave(4, 0) + 0.15 * ordinary(60, width=5, seed=5)
    units = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    cosines = (units @ units.T).fill_diagonal_(-1)
    assert float((1 - cosines.max(1).values).median()) < 0.1
    assert len(np.unique(find_bursts(vectors))) > 45
    copies = torch.cat([vectors, vectors[:1] + 1e-3])
    assert find_bursts(copies)[-1] == 0


# --- times -------------------------------------------------------------------------------------------------------


def times(last, row=7, of_row=1000.0, count=60):
    found: list[float | None] = [None] * count + [last]
    found[row] = of_row
    return found


def test_photos_of_the_same_seconds_are_joined_though_they_look_less_alike():
    alike = with_neighbour(0.4)
    assert find_bursts(alike).tolist() == list(range(61))
    assert find_bursts(alike, times(1000.0 + SECONDS)).tolist() == [*range(60), 7]
    assert find_bursts(alike, times(1000.0 - SECONDS)).tolist() == [*range(60), 7]
    assert find_bursts(alike, times(1000.1 + SECONDS)).tolist() == list(range(61))


def test_photos_of_the_same_seconds_of_other_scenes_are_not_joined():
    assert find_bursts(with_neighbour(SAME_SCENE + 0.1), times(1000.0)).tolist() == list(range(61))


def test_missing_times_join_nothing():
    assert find_bursts(with_neighbour(0.4), times(None)).tolist() == list(range(61))
    assert find_bursts(with_neighbour(0.4), [None] * 61).tolist() == list(range(61))


def test_near_duplicates_are_joined_whatever_the_clock_says():
    for when in (None, 9e9):
        assert find_bursts(with_neighbour(0.05), times(when)).tolist() == [*range(60), 7]


# --- groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "largest"), [(30, 2), (80, 80 // LARGEST_SHARE), (200, 200 // LARGEST_SHARE)])
def test_no_group_is_so_large_that_folds_could_not_be_balanced(count, largest):
    vectors = ordinary(count)
    burst = vectors[:1] + 0.05 * ordinary(largest + 3, seed=5)
    found = find_bursts(torch.cat([vectors[largest + 3 :], burst]))
    assert len(found) == count
    assert np.bincount(found).max() == largest


def test_of_too_many_the_most_alike_are_joined():
    vectors = ordinary(30)
    near, nearer = (beside(vectors, 4, distance, seed) for distance, seed in ((0.08, 2), (0.01, 3)))
    assert find_bursts(torch.cat([vectors, near[None], nearer[None]])).tolist() == [*range(30), 30, 4]


def test_a_chain_of_near_duplicates_is_one_group():
    chain = [ordinary(80, width=30)]
    for step in range(3):
        every = torch.cat(chain)
        chain.append(beside(every, 4 if step == 0 else len(every) - 1, 0.1, seed=step)[None])
    assert find_bursts(torch.cat(chain)).tolist() == [*range(80), 4, 4, 4]


def test_every_image_has_the_number_of_a_row_of_its_group():
    vectors = torch.cat([ordinary(), ordinary() + 0.1 * ordinary(seed=5)])[torch.randperm(120)]
    found = find_bursts(vectors)
    assert (found[found] == found).all()
    assert (found <= np.arange(120)).all()


@pytest.mark.parametrize("moved", [lambda v: 100 * v, lambda v: v + 50, lambda v: v.double(), lambda v: 0.01 * v - 3])
def test_scale_and_place_of_the_vectors_play_no_part(moved):
    vectors = torch.cat([with_neighbour(0.05), with_neighbour(0.2)[-1:]])
    np.testing.assert_array_equal(find_bursts(moved(vectors)), find_bursts(vectors))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_images_stand_alone(count):
    assert find_bursts(torch.ones(count, 4), [5.0] * count).tolist() == list(range(count))


def test_images_that_do_not_differ_at_all_stand_alone():
    assert find_bursts(torch.ones(5, 4)).tolist() == list(range(5))
