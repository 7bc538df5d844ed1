"""Metrics of each group beside risk and accuracy: --metrics package.module:Class[,...].

The server computes a metric from the confusion counts that evaluation sums anyway, so a metric
sends nothing more, and needs nothing but its own file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedmpi.errors import UserError, said_by
from fedmpi.plugins import load_class


class Metric:
    """One number from a group's test rows."""

    title: ClassVar[str] = ""
    """Name of the metric in result.json and in the table; the class's name, if empty."""

    def of_group(self, confusion: np.ndarray) -> float:
        """Value of the metric, from rows by true class × predicted class; NaN without rows."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return self.title or type(self).__name__


def find(names: Sequence[str]) -> list[Metric]:
    """Import the metrics that the user names; raise a UserError if that fails."""
    return [load_class("--metrics", name, Metric)() for name in names]


def figures(metrics: Sequence[Metric], confusion: np.ndarray) -> dict[str, float]:
    """Values of the metrics of one group, by name; a UserError names a metric that fails."""
    found = {}
    for metric in metrics:
        try:
            found[metric.name] = float(metric.of_group(confusion))
        except Exception as error:  # whatever somebody's code raises
            raise UserError(f"--metrics: {metric.name} failed: {said_by(error)}.") from error
    return found
