"""Fairness metrics beside the risks: rates by attribute, and the differences of these rates.

The metrics come from confusion counts alone, so nothing leaves a rank but the sums that evaluation
takes anyway. Names and definitions are fairlearn's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.intervals import pair, wilson

if TYPE_CHECKING:
    from fedmpi.data.dataset import Dataset
    from fedmpi.data.options import DataOptions

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
DIFFERENCES = ("demographic_parity_difference", "equalized_odds_difference")


def fairness_of(
    dataset: Dataset,
    options: DataOptions,
    groups: tuple[str, ...],
    classes: Sequence[str],
    confusion: np.ndarray,
) -> dict | None:
    """Rates by the dataset's attribute, from the groups' confusion; None without an attribute.

    The rates are about saying yes, so the result is None unless there are two classes, of which
    the second is the yes.
    """
    known = dataset.attribute(groups, options)
    if known is None or len(classes) != 2:
        return None
    name, value_of_group = known
    counts = by_value(value_of_group, confusion)
    return {"attribute": name, "positive": classes[1]} | rates(counts)


def by_value(value_of_group: Sequence[str], confusion: np.ndarray) -> dict[str, np.ndarray]:
    """Confusion summed over the groups that have the same value, in the order of the values."""
    values = sorted(set(value_of_group))
    return {
        value: np.sum(
            [table for v, table in zip(value_of_group, confusion, strict=True) if v == value],
            axis=0,
        )
        for value in values
    }


def rates(counts: dict[str, np.ndarray]) -> dict:
    """Compute the rates of each value, and the largest differences between two values.

    A rate without rows to count is NaN, and takes no part in the differences. The equalized odds
    difference is the larger of the differences in the true and in the false positive rate.
    """
    values = {value: _rates_of(table) for value, table in counts.items()}
    spreads = {rate: spread([v[rate] for v in values.values()]) for rate in RATES}
    odds = [spreads["true_positive_rate"], spreads["false_positive_rate"]]
    return {
        "values": values,
        "demographic_parity_difference": spreads["selection_rate"],
        "equalized_odds_difference": float("nan") if np.isnan(odds).any() else max(odds),
    }


def _rates_of(table: np.ndarray) -> dict:
    (_, false_yes), (false_no, true_yes) = table = np.asarray(table)
    no, yes = table.sum(axis=1)
    counts = {
        "selection_rate": (false_yes + true_yes, no + yes),
        "true_positive_rate": (true_yes, false_no + true_yes),
        "false_positive_rate": (false_yes, no),
    }
    rates: dict = {"n_test": int(no + yes)}
    for name, of in counts.items():
        rates |= {name: _share(*of), f"{name}_interval": pair(wilson(*of))}
    return rates


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else float("nan")


def spread(numbers: list[float]) -> float:
    """The largest difference of two known numbers; NaN if fewer than two are known."""
    known = [x for x in numbers if not np.isnan(x)]
    return float(max(known) - min(known)) if len(known) > 1 else float("nan")
