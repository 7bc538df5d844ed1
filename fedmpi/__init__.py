"""Federated learning that is fair to every demographic group, over MPI.

The Python interface, each name imported when it is asked for (docs/python.md):

    run = fedmpi.train("adult", setting="PSG", solver="fast")   # or csv:FILE, or a DataFrame
    run = fedmpi.load("runs/adult-PSG-fedminmax-s0")
    run.groups, run.history, run.partition, run.plot.risks()
    run.model.predict(frame), run.evaluate(frame)
    fedmpi.FedMinMaxClassifier().fit(X, y, groups=groups)
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "FedMinMaxClassifier": "fedmpi.interface.estimator",
    "Run": "fedmpi.interface.run",
    "UserError": "fedmpi.errors",
    "load": "fedmpi.interface.run",
}


def __getattr__(name: str) -> Any:
    if name == "train":
        return import_module("fedmpi.train")  # which can be called
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'fedmpi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "train"})
