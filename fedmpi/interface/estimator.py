"""FedMinMax as an estimator of scikit-learn's, for a Pipeline, a cross-validation, a search."""

from __future__ import annotations

import secrets
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmpi import data, methods, models
from fedmpi.errors import UserError
from fedmpi.interface.run import Run, named
from fedmpi.interface.training import train_here

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ImportError:
    raise UserError(
        "FedMinMaxClassifier needs scikit-learn 1.6 or newer: ./launch/setup.sh notebook, or "
        "pip install '.[notebook]'."
    ) from None

if TYPE_CHECKING:
    from fedmpi.data.dataset import Arrays

EVERYBODY = "everybody"
BATCH = 1 << 13
SEPARATOR = " / "


class FedMinMaxClassifier(ClassifierMixin, BaseEstimator):
    """Classifier whose worst-off group has the smallest risk; in one process, without mpirun.

    `fit` takes the group of each row and, where that matters to the method, the client that holds
    it. Inputs are numbers without gaps, standardised here: a Pipeline with an encoder or an
    imputer before this makes them of anything else. `options` are further ones of fedmpi.train.
    """

    def __init__(
        self,
        *,
        method: str = "fedminmax",
        model: str = "mlp",
        loss: str = "cross-entropy",
        solver: str = "fast",
        rounds: int | None = None,
        lr: float | None = None,
        random_state: Any = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.model = model
        self.loss = loss
        self.solver = solver
        self.rounds = rounds
        self.lr = lr
        self.random_state = random_state
        self.options = options

    def fit(self, X: Any, y: Any, groups: Any = None, clients: Any = None) -> FedMinMaxClassifier:
        """Train on all rows of X, and return self.

        `groups` has a label for each row, or a row of labels whose combinations are the groups;
        without it all rows are one group. `clients` has the owner of each row; without it one
        client holds all rows, which for FedMinMax gives the same model (Lemma 2 of the paper).
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}: two or more are needed")
        self._scaler = StandardScaler().fit(X)
        alone = methods.find(named(self.method)).single_client
        arrays = arrays_of(
            self._scaler.transform(X).astype(np.float32),
            codes,
            tuple(map(str, self.classes_)),
            labels_of("groups", groups, X),
            None if alone else labels_of("clients", clients, X),
        )
        run = self._train(arrays)
        self.groups_, self.history_ = (
            run.groups[["n_train", "risk", "accuracy", "weight"]],
            run.history,
        )
        self.n_iter_ = run.result["rounds"]
        self._network = network_of(run, arrays.train_x.shape[1:], len(self.classes_))
        return self

    def _train(self, arrays: Arrays) -> Run:
        """Train on `arrays` in temporary folders, of which the caller sees nothing."""
        from fedmpi.data.datasets.memory import Memory

        name = f"memory:{secrets.token_hex(6)}"
        data.PLACED[name] = Memory(name, arrays)
        options = {
            "model": self.model,
            "loss": self.loss,
            "solver": self.solver,
            "rounds": self.rounds,
            "lr": self.lr,
            "seed": int(check_random_state(self.random_state).randint(2**31)),
            "clients": None if arrays.clients else 1,
        } | (self.options or {})
        try:
            with tempfile.TemporaryDirectory(prefix="fedmpi-data-") as folder:
                options |= {"data_dir": folder, "output": None}
                run = train_here(name, self.method, options, alone=True)
        finally:
            del data.PLACED[name]
        assert run
        return run

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        import torch

        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        found = []
        with torch.inference_mode():
            for start in range(0, len(X), BATCH):
                rows = torch.from_numpy(self._scaler.transform(X[start : start + BATCH]))
                found.append(self._network(rows).softmax(dim=1).numpy())
        return np.concatenate(found)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


def labels_of(name: str, given: Any, X: np.ndarray) -> np.ndarray | None:
    """`groups` or `clients` as one text for each row; ValueError for what cannot be that."""
    if given is None:
        return None
    labels = np.asarray(given, dtype=object)
    if labels.ndim not in (1, 2) or not labels.size:
        raise ValueError(f"{name} has shape {labels.shape}: give a label, or labels, for each row")
    check_consistent_length(X, labels)
    rows = labels.reshape(len(labels), -1)
    if missing := int(sum(label is None or label != label for label in rows.ravel())):
        raise ValueError(
            f"{name} has {missing} missing values: give them a label, or leave the rows out"
        )
    return np.array([SEPARATOR.join(map(str, row)) for row in rows])


def arrays_of(
    x: np.ndarray,
    y: np.ndarray,
    classes: tuple[str, ...],
    groups: np.ndarray | None,
    clients: np.ndarray | None,
) -> Arrays:
    """The rows as a dataset; its test rows, which a run must have, are the training rows."""
    from fedmpi.data.dataset import Arrays

    names, group = np.unique(
        groups if groups is not None else [EVERYBODY] * len(x), return_inverse=True
    )
    owners: dict[str, Any] = {}
    if clients is not None:
        known, client = np.unique(clients, return_inverse=True)
        owners = {"clients": tuple(known.tolist()), "train_client": client}
        order = np.argsort(client, kind="stable")
        x, y, group = x[order], y[order], group[order]
        owners["train_client"] = client[order]
    return Arrays(
        *(x, y, group) * 2,
        groups=tuple(names.tolist()),
        classes=classes,
        features=tuple(f"x{i}" for i in range(x.shape[1])),
        **owners,
    )


def network_of(run: Run, row_shape: tuple[int, ...], classes: int) -> Any:
    """The trained network in float64, in which a row gives the same alone as among others."""
    import torch

    states = torch.load(run.folder / "model.pt", weights_only=True)
    network = models.build(run.config["model"], row_shape, classes, seed=0)
    network.load_state_dict(states[run.result["model"]])
    return network.double().eval()
