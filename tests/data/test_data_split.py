"""Which labels are hidden."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fewtags.data import UNKNOWN, Catalogue, Names, Role, hide
from fewtags.errors import UserError


class NoImages:
    def image(self, name: str) -> Image.Image:
        raise NotImplementedError

    def fingerprint(self, name: str) -> bytes:
        raise NotImplementedError


def catalogue_of(targets: NDArray[np.int8], roles: list[Role] | None = None) -> Catalogue:
    rows, tags = targets.shape
    names = Names(str(row) for row in range(rows))
    held = np.array(roles if roles else [Role.LABELLED] * rows, np.int8)
    return Catalogue(tuple(f"t{tag}" for tag in range(tags)), names, targets, held, NoImages())


def numbers(catalogue: Catalogue, role: Role) -> list[int]:
    return [int(catalogue.names[int(row)]) for row in catalogue.rows(role)]


def test_the_paper_split_is_that_of_the_papers() -> None:
    result = hide(catalogue_of(np.zeros((5717, 1), np.int8)), 0.05, seed=1)
    assert numbers(result, Role.LABELLED)[:5] == [3343, 3639, 1412, 1528, 3906]
    assert len(result.rows(Role.LABELLED)) == 285
    assert result.rows(Role.UNLABELLED).tolist() == list(range(285, 5717))


@pytest.mark.parametrize("how", ["paper", "balanced"])
def test_only_labelled_rows_are_hidden_and_their_truth_stays(how: str) -> None:
    roles = [Role.TEST, Role.UNLABELLED, *[Role.LABELLED] * 10, Role.TEST, Role.UNLABELLED]
    before = catalogue_of(np.arange(14, dtype=np.int8)[:, None] % 2, roles)
    after = hide(before, 0.5, seed=3, how=how)
    order = [int(name) for name in after.names]
    assert len(after.rows(Role.LABELLED)) == 5
    assert sorted(order[:10]) == list(range(2, 12))
    assert order[10:] == [1, 13, 0, 12]
    assert after.roles.tolist() == [0] * 5 + [1] * 7 + [2] * 2
    assert after.targets[:, 0].tolist() == [number % 2 for number in order]
    assert before.roles.tolist() == roles
    assert order == [int(name) for name in hide(before, 0.5, seed=3, how=how).names]
    assert order != [int(name) for name in hide(before, 0.5, seed=4, how=how).names]


@given(st.integers(0, 1000), st.integers(2, 60), st.integers(1, 8), st.floats(0.02, 0.98))
def test_balanced_keeps_the_exact_number_and_a_positive_of_every_tag(
    seed: int, rows: int, tags: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    targets = rng.choice(np.array([UNKNOWN, 0, 0, 0, 1], np.int8), (rows, tags))
    kept = int(share * rows)
    if not kept:
        return
    result = hide(catalogue_of(targets), share, seed, "balanced")
    labelled = result.targets[result.rows(Role.LABELLED)]
    assert len(labelled) == kept
    assert sorted(map(int, result.names)) == list(range(rows))
    if kept >= tags:
        assert (((labelled == 1).sum(axis=0) > 0) == ((targets == 1).sum(axis=0) > 0)).all()


def test_balanced_serves_more_tags_than_it_has_rows_when_a_row_has_several() -> None:
    targets = np.zeros((40, 4), np.int8)
    targets[np.arange(40), np.arange(40) % 4] = 1
    targets[7] = [1, 1, 0, 0]
    targets[8] = [0, 0, 1, 1]
    result = hide(catalogue_of(targets), 0.05, seed=1, how="balanced")
    assert sorted(numbers(result, Role.LABELLED)) == [7, 8]


def test_balanced_keeps_the_share_of_common_tags() -> None:
    rng = np.random.default_rng(0)
    targets = (rng.random((2000, 6)) < [0.4, 0.2, 0.1, 0.05, 0.02, 0.01]).astype(np.int8)
    result = hide(catalogue_of(targets), 0.1, seed=1, how="balanced")
    counts = result.targets[result.rows(Role.LABELLED)].sum(axis=0)
    assert np.abs(counts - 0.1 * targets.sum(axis=0)).max() <= 2


@pytest.mark.parametrize("share", [1, -0.1, 1.5, float("nan"), 0.09])
def test_a_share_that_makes_no_sense_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="labelled share"):
        hide(catalogue_of(np.ones((10, 1), np.int8)), share, seed=1)


@pytest.mark.parametrize("how", ["paper", "balanced"])
def test_every_label_may_be_hidden(how: str) -> None:
    result = hide(catalogue_of(np.ones((10, 1), np.int8)), 0, seed=1, how=how)
    assert len(result.rows(Role.LABELLED)) == 0
    assert len(result.rows(Role.UNLABELLED)) == 10


def test_wrong_seed_unknown_split_and_nothing_to_hide_are_refused() -> None:
    catalogue = catalogue_of(np.ones((10, 1), np.int8))
    with pytest.raises(UserError, match="seed -1"):
        hide(catalogue, 0.5, seed=-1)
    with pytest.raises(UserError, match="did you mean 'balanced'"):
        hide(catalogue, 0.5, seed=1, how="balance")
    with pytest.raises(UserError, match="no labelled training image"):
        hide(catalogue_of(np.ones((2, 1), np.int8), [Role.TEST, Role.UNLABELLED]), 0.5, seed=1)
