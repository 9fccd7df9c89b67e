"""scikit-learn's way in: semi-supervised multi-label learning on vectors, `FewTagsClassifier().fit(X, Y)`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewtags.errors import UserError
from fewtags.utils.extras import install_command

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"FewTagsClassifier needs scikit-learn 1.6 or later; run: {install_command('sklearn')}"
    ) from error

PARAMETERS = "classifier.json"
ROWS = 4096  # scored at a time


class FewTagsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from rows with labels and from rows without; every tag has its own threshold.

    Parameters
    ----------
    method : what learns; "auto" is `neighbours`: logistic regression, smoothed over a graph of neighbours, teaches a
        small network, or tags by itself where every row is labelled. `fewtags methods` lists the others.
    prefer : "precision", "balance" or "recall": what the thresholds serve.
    folds : parts of the labelled rows, each left out once to set thresholds and to estimate quality; 0 for neither.
    settings : settings of the method, as in `fewtags methods NAME`.
    random_state : decides everything random.
    verbose : show progress.

    Attributes
    ----------
    classes_ : the tags [k]: the columns of Y by name, or their numbers.
    thresholds_ : the score [k] from which a tag is given; infinite for a tag that no labelled row has.
    transduction_ : [n, k] the labels of the training rows, unknown ones filled in.
    estimate_ : quality to expect with 95 % intervals, per tag and over all; None where labels are too few.
    cross_fitted_scores_ : [labelled rows, k] scores by models that never saw the row's labels, or None.

    >>> FewTagsClassifier().fit(X, Y).predict(X_new)    # doctest: +SKIP
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        prefer: str = "balance",
        folds: int = 5,
        settings: dict[str, Any] | None = None,
        random_state: int = 1,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.prefer = prefer
        self.folds = folds
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Several labels per row, or one tag that is there or not."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: ArrayLike, Y: ArrayLike) -> "FewTagsClassifier":
        """Learn from vectors X [n, d] and labels Y [n, k]: 1, 0, or -1 for unknown; a row of -1 is unlabelled.

        One tag alone may also be given as y [n] of any two values, -1 for unlabelled rows.
        """
        from fewtags.data.readers.vectors import catalogue_of_arrays
        from fewtags.training.build import make_fabric
        from fewtags.training.options import TrainOptions
        from fewtags.training.prepare import prepare
        from fewtags.training.resolve import resolve
        from fewtags.training.results import figures, model_of
        from fewtags.training.train import learn
        from fewtags.utils.progress import reporting
        from fewtags.utils.stopping import StopRequest

        columns = getattr(Y, "columns", None)
        vectors = validate_data(self, X, dtype=(np.float32, np.float64), ensure_min_samples=2)
        labels, single = _checked_labels(Y, len(vectors))
        names = [str(one) for one in columns] if columns is not None else None
        settings = {"folds": self.folds, **(self.settings or {})}
        method, every_row_known = self.method, bool((labels >= 0).any(axis=1).all())
        if method == "auto" and every_row_known:
            method, settings = "neighbours", {"learner": "regression", **settings}
        try:
            catalogue = catalogue_of_arrays(vectors, labels, None, names)
            options = {"data": "vectors:memory", "method": method, "prefer": self.prefer, "tune": "heads"}
            job = resolve(
                TrainOptions.of({**options, "seed": self.random_state, "settings": settings}), catalogue=catalogue
            )
            with reporting(self.verbose):
                fabric, stop = make_fabric(job.recipe), StopRequest()
                prepared = prepare(job.catalogue, job.preparation(fabric, stop))
                outcome = learn(job, prepared, fabric, stop)
                self.estimate_ = figures(job.config, prepared, outcome, stop).get("estimate")
        except UserError as error:
            raise ValueError(str(error)) from error
        self._single = single
        self._dtype = np.asarray(Y).dtype
        self.classes_ = single if single is not None else np.arange(labels.shape[1])
        self.classes_ = np.asarray(columns) if columns is not None and single is None else self.classes_
        self.thresholds_: NDArray[np.float32] = outcome.thresholds
        self.cross_fitted_scores_ = None if outcome.held_out is None else outcome.held_out_scores
        self._model = model_of(job.config, prepared, outcome)
        filled = np.where(labels >= 0, labels, self._scores(vectors) >= self.thresholds_)
        self.transduction_ = self._as_given(filled)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores [n, k] in 0..1; of one tag given as y [n] the probabilities [n, 2] of its two values."""
        scores = self._scores(self._checked(X))
        return scores if self._single is None else np.hstack([1 - scores, scores])[:, -len(self.classes_) :]

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """How far each score [n, k] is above its threshold, in logits; [n] for one tag given as y [n]."""
        margin = _logit(self._scores(self._checked(X))) - _logit(self.thresholds_.astype(np.float64))
        return margin if self._single is None else margin[:, 0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """1 where a tag's score reaches its threshold, else 0 [n, k]; in the values of y where y was given."""
        return self._as_given(self._scores(self._checked(X)) >= self.thresholds_)

    def _checked(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        check_is_fitted(self)
        vectors: NDArray[np.floating[Any]] = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        return vectors

    def _scores(self, vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        import torch

        scores = np.empty((len(vectors), len(self.thresholds_)))
        with torch.inference_mode():
            for start in range(0, len(vectors), ROWS):
                some = np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float32)
                scores[start : start + ROWS] = self._model(torch.from_numpy(some)).double().numpy()
        return scores

    def _as_given(self, decisions: NDArray[Any]) -> NDArray[Any]:
        """Decisions [n, k] in the form in which labels were given."""
        if self._single is None:
            return decisions.astype(self._dtype)
        found: NDArray[Any] = self._single[np.where(decisions[:, 0].astype(bool), len(self._single) - 1, 0)]
        return found

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: None = None) -> float:
        """Mean average precision over the tags; -1 is left out."""
        from fewtags.metrics import mean_average_precision

        if sample_weight is not None:
            raise ValueError("rows cannot be weighed: mean average precision has no agreed weighted form")
        vectors = self._checked(X)
        return float(mean_average_precision(self._scores(vectors), _checked_labels(y, len(vectors), self._single)[0]))

    def save(self, folder: str | Path) -> None:
        """Write model.safetensors, model.json and classifier.json; no pickle. `fewtags tag` reads the folder too."""
        from fewtags.model.saved import save_model
        from fewtags.utils.files import write_json

        check_is_fitted(self)
        single = None if self._single is None else self._single.tolist()
        fitted = {"classes": self.classes_.tolist(), "values": single, "estimate": self.estimate_}
        about = {"parameters": self.get_params(), **fitted}
        write_json(Path(folder) / PARAMETERS, json.loads(json.dumps(about, default=lambda value: value.item())))
        save_model(Path(folder), self._model)

    @classmethod
    def load(cls, folder: str | Path, methods: Sequence[str] = ()) -> "FewTagsClassifier":
        """What `save` wrote, ready to predict; what belongs to the training rows is not kept.

        methods: modules of methods that are not part of fewtags, as for `fewtags.load`.
        """
        from fewtags.model.saved import load_model

        try:
            about = json.loads((Path(folder) / PARAMETERS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} holds no classifier that `save` wrote ({error})") from error
        found = cls(**about["parameters"])
        found._model = load_model(Path(folder), methods)
        found.classes_ = np.array(about["classes"])
        found._single = None if about["values"] is None else np.array(about["values"])
        found._dtype = np.dtype(np.int64)
        found.estimate_ = about["estimate"]
        found.thresholds_ = np.array(found._model.info.threshold_values(), np.float32)
        found.n_features_in_ = found._model.info.numbers
        return found


def _checked_labels(
    Y: ArrayLike, rows: int, single: NDArray[Any] | None = None
) -> tuple[NDArray[np.int8], NDArray[Any] | None]:
    """Labels [n, k] of 1, 0 and -1, and the two values of one tag that was given as y [n]. Raises ValueError."""
    if Y is None:
        raise ValueError("requires y to be passed, but the target y is None: labels [n, k] of 1, 0, or -1 for unknown")
    labels = np.asarray(Y)
    if len(labels) != rows:
        raise ValueError(f"X has {rows} rows and y {len(labels)}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("Input y contains NaN or infinity; labels must be finite, -1 for unknown")
    if labels.ndim == 1 or (labels.ndim == 2 and labels.shape[1] == 1 and not np.isin(labels, (-1, 0, 1)).all()):
        return _one_tag(labels.ravel(), single)
    if labels.ndim != 2:
        raise ValueError(f"y should be a 2d array, one column per tag; got an array of shape {labels.shape} instead")
    if labels.dtype.kind not in "biuf" or not np.isin(labels, (-1, 0, 1)).all():
        raise ValueError("Unknown label type: labels must be 1, 0, or -1 for unknown")
    return labels.astype(np.int8), None


def _one_tag(y: NDArray[Any], values: NDArray[Any] | None) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """y [n] of two values, or -1 for unlabelled -> labels [n, 1], and the two values in order."""
    if y.dtype.kind == "f" and not (y == np.round(y)).all():
        raise ValueError("Unknown label type: continuous; labels must be classes")
    unknown = y == -1 if y.dtype.kind in "iuf" else np.zeros(len(y), bool)
    if values is None:
        values = np.unique(y[~unknown])
    if len(values) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass; "
            "give several tags as labels [n, k] of 1, 0 and -1"
        )
    labels = np.where(unknown, -1, y == values[-1]).astype(np.int8)
    return labels[:, None], values


def _logit(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.clip(scores, 1e-9, 1 - 1e-9)
    logits: NDArray[np.float64] = np.log(clipped) - np.log1p(-clipped)
    return logits
