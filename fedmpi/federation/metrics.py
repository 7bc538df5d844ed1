"""Figures of each group beside risk and accuracy: --metrics auc,odds or package.module:Class.

The server computes a metric from sums by group that evaluation takes over the ranks: confusion
counts, which it takes anyway, and histograms of the scores, if a metric asks for them. So no score
of a row leaves a rank, a metric needs nothing but its own file, and runs on the server alone.

Figures are also of all rows that share a value of the dataset's attribute (sex in Adult, whose
groups are sex and income together), and numbers over the groups, as the worst and the average, are
over these values, if there is an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmpi.errors import UserError, said_by, unknown_name
from fedmpi.plugins import load_class
from fedmpi.scoring.fairness import rates, spread
from fedmpi.scoring.scores import Scores

Attribute = tuple[str, Sequence[str]]
"""Name of an attribute, and the value of it that each group has."""


@dataclass(frozen=True)
class Sums:
    """Sums over the test rows of a group, or of several."""

    confusion: np.ndarray
    """Rows by true class × predicted class."""
    ranking: np.ndarray
    """Rows by true class × bin of the log-odds of the second class (scores.RANKS)."""
    calibration: np.ndarray
    """By bin of the probability (scores.CALIBRATION_BINS): rows, sum of the probabilities, rows
    that it is right of."""

    @classmethod
    def by(cls, scores: Scores, members: dict[str, list[int]]) -> dict[str, Sums]:
        """Sums by name, each over the groups of these numbers."""
        parts = scores.confusion, scores.ranking, scores.calibration
        return {
            name: cls(*(part[mine].sum(axis=0) for part in parts)) for name, mine in members.items()
        }


class Metric:
    """One or more figures from the test rows of a group, and numbers over all groups."""

    title: ClassVar[str] = ""
    """Name of the figure in result.json and in the table; the class's name, if empty."""
    better: ClassVar[str] = ""
    """Which figures are better, "higher" or "lower": then there is a worst one."""
    histograms: ClassVar[bool] = False
    """Whether the metric needs histograms of the scores, which evaluation sums if asked to."""
    two_classes: ClassVar[bool] = False
    """Whether the metric is for two classes alone, of which the second is the yes."""

    def of_group(self, confusion: np.ndarray) -> float:
        """Figure of a group, from rows by true class × predicted class; NaN without rows."""
        raise NotImplementedError

    def of_sums(self, sums: Sums) -> dict[str, float]:
        """Figures of a group by name, from all that is summed; by default, that of `of_group`."""
        return {self.name: float(self.of_group(sums.confusion))}

    def over_groups(self, sums: dict[str, Sums]) -> dict[str, float]:
        """Numbers over groups (or values of the attribute) by name: of each figure the worst, the
        average, in which each group counts once, and the largest difference of two."""
        told: dict[str, float] = {}
        figures = [self.of_sums(mine) for mine in sums.values()]
        for name in figures[0]:
            known = [f[name] for f in figures if not np.isnan(f[name])] or [float("nan")]
            if self.better:
                told[f"worst {name}"] = min(known) if self.better == "higher" else max(known)
            told |= {f"average {name}": float(np.mean(known)), f"{name} difference": spread(known)}
        return told

    @property
    def name(self) -> str:
        return self.title or type(self).__name__


class Auc(Metric):
    """Area under the ROC curve: the chance that a yes is ranked above a no; a tie counts half.

    Rows in one bin of the log-odds are ties. A pair of a yes and a no in one bin counts 1/2, and in
    truth 0 to 1; so the error is at most half the share of such pairs, which is given as well.
    """

    title, better, histograms, two_classes = "AUC", "higher", True, True

    def of_sums(self, sums: Sums) -> dict[str, float]:
        no, yes = sums.ranking.astype(float)
        pairs = no.sum() * yes.sum()
        above = yes @ (np.cumsum(no) - no / 2)
        return {self.title: float(above / pairs) if pairs else float("nan")}

    def over_groups(self, sums: dict[str, Sums]) -> dict[str, float]:
        bounds = [self.error(mine) for mine in sums.values()]
        known = [bound for bound in bounds if not np.isnan(bound)]
        most = max(known, default=float("nan"))
        return super().over_groups(sums) | {f"{self.title} error at most": most}

    @staticmethod
    def error(sums: Sums) -> float:
        """Bound of the error, from the bins."""
        no, yes = sums.ranking.astype(float)
        pairs = no.sum() * yes.sum()
        return float(no @ yes / pairs / 2) if pairs else float("nan")


class Calibration(Metric):
    """Expected calibration error: mean over rows of |mean probability - share of yes| of their bin.

    The bins are 15, equally wide, of the second class's probability. With more than two classes, it
    is the predicted class's probability against the share that it is right (Guo et al. 2017).
    """

    title, better, histograms = "calibration error", "lower", True

    def of_sums(self, sums: Sums) -> dict[str, float]:
        rows, probability, right = sums.calibration.T
        n = rows.sum()
        return {self.title: float(np.abs(probability - right).sum() / n) if n else float("nan")}


class Rates(Metric):
    """Rates of saying yes, from confusion counts, and what their largest differences are called."""

    two_classes = True
    rates: ClassVar[tuple[str, ...]]
    difference: ClassVar[str]

    def of_sums(self, sums: Sums) -> dict[str, float]:
        told = rates({"": sums.confusion})["values"][""]
        return {rate.replace("_", " "): told[rate] for rate in self.rates}

    def over_groups(self, sums: dict[str, Sums]) -> dict[str, float]:
        told = super().over_groups(sums)
        names = [f"{rate.replace('_', ' ')} difference" for rate in self.rates]
        return told | self.differences([told.pop(name) for name in names])

    def differences(self, spreads: list[float]) -> dict[str, float]:
        """Numbers over groups, from the largest difference of each rate."""
        return {self.difference: spreads[0]}


class Parity(Rates):
    """Selection rate, the share of rows that get a yes; and the demographic parity difference."""

    rates = ("selection_rate",)
    difference = "demographic parity difference"


class Opportunity(Rates):
    """True positive rate, and the equal opportunity difference."""

    better = "higher"
    rates = ("true_positive_rate",)
    difference = "equal opportunity difference"


class Odds(Rates):
    """True and false positive rate, and the equalized odds difference.

    That is the larger of the two rates' largest differences; their mean is given, too.
    """

    rates = ("true_positive_rate", "false_positive_rate")
    difference = "equalized odds difference"

    def differences(self, spreads: list[float]) -> dict[str, float]:
        largest = float("nan") if np.isnan(spreads).any() else max(spreads)
        return {self.difference: largest, f"average {self.difference}": float(np.mean(spreads))}


BUILT_IN: dict[str, type[Metric]] = {
    "auc": Auc,
    "calibration": Calibration,
    "odds": Odds,
    "opportunity": Opportunity,
    "parity": Parity,
}


def find(names: Sequence[str]) -> list[Metric]:
    """The metrics by name, of ours or of the user's own; raise a UserError for what is none."""
    for name in names:
        if name not in BUILT_IN and ":" not in name:
            raise unknown_name("name in --metrics", name, (*BUILT_IN, "package.module:Class"))
    return [
        BUILT_IN[name]() if name in BUILT_IN else load_class("--metrics", name, Metric)()
        for name in names
    ]


def check(metrics: Sequence[Metric], names: Sequence[str], groups: int, classes: int) -> None:
    """Raise a UserError for a metric that is not for so many classes, or fails without rows."""
    for metric, name in zip(metrics, names, strict=True):
        if metric.two_classes and classes != 2:
            raise UserError(f"--metrics {name} is for two classes, and there are {classes}.")
    without_rows(metrics, groups, classes)


def without_rows(metrics: Sequence[Metric], groups: int, classes: int) -> dict[str, float]:
    """The numbers over groups of which no row is known: NaN, by their names."""
    empty = Scores(groups, classes, need_histograms(metrics))
    names = [str(a) for a in range(groups)]
    with np.errstate(all="ignore"):
        return section(metrics, empty, names, None)["over_values"]


def need_histograms(metrics: Sequence[Metric]) -> bool:
    return any(metric.histograms for metric in metrics)


def figures(metrics: Sequence[Metric], sums: Sums) -> dict[str, float]:
    """Figures of one group, by name; a UserError names a metric that fails."""
    found: dict[str, float] = {}
    for metric in metrics:
        try:
            found |= metric.of_sums(sums)
        except Exception as error:  # whatever somebody's code raises
            raise _failed(metric, error) from error
    return found


def section(
    metrics: Sequence[Metric], scores: Scores, groups: Sequence[str], attribute: Attribute | None
) -> dict:
    """Part of result.json: figures by value of the attribute, of all rows, and over the values."""
    by, value_of_group = attribute or ("group", groups)
    members: dict[str, list[int]] = {}
    for a, value in enumerate(value_of_group):
        members.setdefault(value, []).append(a)
    sums = Sums.by(scores, members)
    everybody = Sums.by(scores, {"": list(range(len(groups)))})[""]
    return {
        "by": by,
        "values": {value: figures(metrics, mine) for value, mine in sums.items()},
        "all": figures(metrics, everybody),
        "over_values": numbers_over(metrics, sums),
    }


def numbers_over(metrics: Sequence[Metric], sums: dict[str, Sums]) -> dict[str, float]:
    """Numbers over groups or values, by name; a UserError names a metric that fails."""
    found: dict[str, float] = {}
    for metric in metrics:
        try:
            found |= {name: float(x) for name, x in metric.over_groups(sums).items()}
        except Exception as error:  # whatever somebody's code raises
            raise _failed(metric, error) from error
    return found


def _failed(metric: Metric, error: Exception) -> UserError:
    return UserError(f"--metrics: {metric.name} failed: {said_by(error)}.")
