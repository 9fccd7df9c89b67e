"""FewTagsClassifier: scikit-learn's own checks, and what it promises beyond them."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fewtags
from fewtags import FewTagsClassifier
from fewtags.metrics import calibration_error, f1_scores, mean_average_precision

pytestmark = pytest.mark.slow

CANNOT = {
    "check_classifiers_classes": "its labels are -1 and 1, and -1 means unlabelled, as in sklearn.semi_supervised",
    "check_classifier_multioutput": "it wants what is as likely as not; a tag has a threshold of its own here",
    "check_classifiers_train": "it wants the larger of two probabilities; a tag has a threshold of its own here",
    "check_methods_subset_invariance": "it allows 1e-7; scores are float32, logits differ by some 1e-6 between batches",
}


@parametrize_with_checks([FewTagsClassifier()], expected_failed_checks=lambda estimator: CANNOT)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def problem(labelled: int = 40, rows: int = 400, seed: int = 0):
    X, Y = make_multilabel_classification(rows + 200, n_features=30, n_classes=4, n_labels=2, random_state=seed)
    X = np.log1p(X)
    hidden = Y.copy()
    hidden[labelled:] = -1
    return X[:rows], hidden[:rows], X[rows:], Y[rows:], Y[:rows]


@pytest.fixture(scope="module")
def fitted():
    X, Y, _, _, _ = problem()
    return FewTagsClassifier().fit(X, Y)


def test_rows_without_labels_are_learned_from_and_get_labels(fitted):
    X, Y, X_new, Y_new, truth = problem()
    assert fitted.transduction_.shape == Y.shape
    assert (fitted.transduction_[:40] == Y[:40]).all()
    assert set(np.unique(fitted.transduction_)) == {0, 1}
    assert (fitted.transduction_[40:] == truth[40:]).mean() > 0.65
    alone = np.stack([LogisticRegression().fit(X[:40], Y[:40, k]).predict_proba(X_new)[:, 1] for k in range(4)], axis=1)
    assert fitted.score(X_new, Y_new) > mean_average_precision(alone, Y_new) - 0.02


def test_decisions_follow_the_thresholds(fitted):
    _, _, X_new, _, _ = problem()
    scores = fitted.predict_proba(X_new)
    assert ((scores >= fitted.thresholds_) == fitted.predict(X_new)).all()
    assert ((fitted.decision_function(X_new) >= 0) == fitted.predict(X_new)).all()
    assert not (fitted.thresholds_ == fitted.thresholds_[0]).all()


def test_quality_is_estimated_by_rows_that_were_left_out(fitted):
    assert fitted.estimate_["images"] == 40
    assert fitted.cross_fitted_scores_.shape == (40, 4)
    X, Y, *_ = problem()
    assert FewTagsClassifier(folds=0, settings={"epochs": 3}).fit(X, Y).estimate_ is None


def test_scores_are_probabilities_of_rows_that_were_learned_from_and_of_new_ones(fitted):
    _, Y, X_new, Y_new, _ = problem()
    assert calibration_error(fitted.predict_proba(X_new), Y_new) < 0.15
    assert calibration_error(fitted.cross_fitted_scores_, Y[:40]) == fitted.estimate_["calibration_error"]
    assert ((fitted.cross_fitted_scores_ >= 0) & (fitted.cross_fitted_scores_ <= 1)).all()
    given = fitted.predict(X_new)
    assert abs(given.mean() - Y_new.mean()) < 0.15


def test_the_f1_of_new_rows_is_inside_the_estimated_interval(fitted):
    _, _, X_new, Y_new, _ = problem()
    low, high = fitted.estimate_["intervals"]["of1"]
    assert low <= f1_scores(fitted.predict(X_new), Y_new)["of1"] <= high
    assert high - low < 0.5


def test_a_saved_classifier_gives_the_same_scores_and_is_an_ordinary_model(fitted, tmp_path):
    _, _, X_new, _, _ = problem()
    fitted.save(tmp_path)
    again = FewTagsClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(X_new), fitted.predict_proba(X_new))
    assert np.array_equal(again.predict(X_new), fitted.predict(X_new))
    assert again.get_params() == fitted.get_params()
    assert np.allclose(fewtags.load(tmp_path).predict_proba(X_new.astype(np.float32)), fitted.predict_proba(X_new))


def test_columns_of_a_table_name_the_tags():
    pandas = pytest.importorskip("pandas")
    X, Y, *_ = problem()
    names = ["sea", "dog", "car", "tree"]
    found = FewTagsClassifier(folds=0, settings={"epochs": 3}).fit(
        pandas.DataFrame(X), pandas.DataFrame(Y, columns=names)
    )
    assert found.classes_.tolist() == names


def test_it_stands_in_pipelines_and_searches():
    X, Y, X_new, _, truth = problem()
    pipeline = make_pipeline(StandardScaler(), FewTagsClassifier(folds=0, settings={"epochs": 3}))
    assert clone(pipeline).fit(X, Y).predict(X_new).shape == (200, 4)
    search = GridSearchCV(FewTagsClassifier(folds=0), {"settings": [{"share": 0}, {"share": 0.5}]}, cv=2)
    search.fit(X[:80], truth[:80])
    assert search.best_params_["settings"] in ({"share": 0}, {"share": 0.5})


def test_the_same_seed_gives_the_same_scores():
    X, Y, X_new, _, _ = problem(rows=120)
    first, second = (
        FewTagsClassifier(folds=0, settings={"epochs": 3}).fit(X, Y).predict_proba(X_new) for _ in range(2)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(
        first, FewTagsClassifier(folds=0, settings={"epochs": 3}, random_state=2).fit(X, Y).predict_proba(X_new)
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((60, 2), -1), "no labelled image has a tag"),
        (np.full((60, 2), 2), "1, 0, or -1"),
        (np.zeros((59, 2)), "60 rows and y 59"),
        (np.arange(60) % 3, "Only binary classification"),
        (np.full((60, 2), np.nan), "NaN"),
    ],
)
def test_labels_that_cannot_be_are_told_with_the_remedy(labels, message):
    X = np.random.default_rng(0).normal(size=(60, 5))
    with pytest.raises(ValueError, match=message):
        FewTagsClassifier().fit(X, labels)


def test_rows_cannot_be_weighed(fitted):
    _, _, X_new, Y_new, _ = problem()
    with pytest.raises(ValueError, match="cannot be weighed"):
        fitted.score(X_new, Y_new, sample_weight=np.ones(200))


def test_a_setting_that_does_not_exist_is_refused():
    X, Y, *_ = problem(rows=60)
    with pytest.raises(ValueError, match="did you mean 'share'"):
        FewTagsClassifier(settings={"shre": 0}).fit(X, Y)


def test_numpy_numbers_among_the_parameters_are_saved(tmp_path):
    X, Y, *_ = problem(rows=60)
    FewTagsClassifier(folds=0, settings={"epochs": np.int64(1)}, random_state=np.int64(3)).fit(X, Y).save(tmp_path)
    assert FewTagsClassifier.load(tmp_path).random_state == 3
    with pytest.raises(fewtags.errors.UserError, match="holds no classifier"):
        FewTagsClassifier.load(tmp_path / "nowhere")


def test_one_column_of_two_words_is_one_tag():
    pandas = pytest.importorskip("pandas")
    X, Y, *_ = problem(rows=60)
    words = np.where(Y[:, :1] == 1, "dog", "cat")
    found = FewTagsClassifier(folds=0, settings={"share": 0}).fit(X, pandas.DataFrame(words, columns=["pet"]))
    assert found.classes_.tolist() == ["cat", "dog"]
    assert found.predict_proba(X).shape == (60, 2)
    assert set(found.predict(X)) <= {"cat", "dog"}
