"""Groups that are an attribute's values and classes together: men who earn more, women who do.

Methods that go by rates (demographic parity, equal opportunity, equalized odds) need such groups: a
rate is of the rows of one value, or of one value and one class. The attribute is the dataset's (the
group columns of a CSV file but the target), and the class that matters is the second, as in the
rates of result.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.errors import UserError
from fedmpi.methods.option import Option

if TYPE_CHECKING:
    from fedmpi.data.dataset import Dataset
    from fedmpi.data.options import DataOptions

PARITY, OPPORTUNITY, ODDS = "parity", "opportunity", "odds"

FAIRNESS = Option(
    "fairness",
    str,
    PARITY,
    choices=(PARITY, OPPORTUNITY, ODDS),
    label={
        PARITY: "demographic parity",
        OPPORTUNITY: "equal opportunity",
        ODDS: "equalized odds",
    },
    variant={OPPORTUNITY: "opportunity", ODDS: "odds"},
    help="rates that fedfb and fairfed go by: parity, opportunity or odds (fedfb parity, fairfed "
    "opportunity)",
)


@dataclass(frozen=True)
class Attribute:
    """Value of the attribute and class of each group."""

    value: np.ndarray
    """Number of the value of each group, from 0."""
    positive: np.ndarray
    """Whether the rows of each group are of the second class."""

    @property
    def values(self) -> int:
        return int(self.value.max()) + 1

    def sums(self, of_groups: np.ndarray) -> np.ndarray:
        """Sum numbers of groups (the last axis) by value: ... × values."""
        return of_groups @ np.eye(self.values)[self.value]


def attribute_of(
    method: str,
    dataset: Dataset,
    options: DataOptions,
    groups: tuple[str, ...],
    classes: tuple[str, ...],
) -> Attribute:
    """Return the attribute of the groups; raise a UserError for groups of another kind."""
    known = dataset.attribute(groups, options)
    of_class = dataset.class_of_group(groups, classes, options)
    if known is None or of_class is None or len(classes) != 2 or len(set(known[1])) < 2:
        raise refusal(method, f"those of {dataset.name} are {', '.join(groups[:4])}")
    values = sorted(set(known[1]))
    value = np.array([values.index(name) for name in known[1]])
    return Attribute(value, np.array(of_class) == 1)


def check_groups(method: str, dataset: Dataset, options: DataOptions) -> None:
    """Raise a UserError for groups of another kind, as far as they are known before the rows."""
    if dataset.groups:
        attribute_of(method, dataset, options, dataset.groups, ("no", "yes"))
    elif options.group and options.target and options.target_column not in options.group_columns:
        raise refusal(method, f"--group {','.join(options.group)} is without --target")


def refusal(method: str, why: str) -> UserError:
    return UserError(
        f"--method {method} needs groups that are an attribute and one of two classes, as adult's "
        f"are; {why}. For a table, name the target among the groups, as in --target paid "
        "--group sex,paid."
    )
