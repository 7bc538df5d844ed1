"""A hyper-parameter of a method, declared once, where it is used.

    class QFedAvg(Method):
        options = (Option("q", float, 0.2, at_least=0, grid=(0.2, 0.5, 1, 2, 5), label="q = {}"),)

From the declaration follow the flag of the command line (`--q`) with its help, the default, the
check, the grid of fedmpi.tune, and the option's label in tables and the report. The method reads
`self.config.q`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedmpi.data.dataset import Preset

LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Option:
    """A hyper-parameter: its flag, its default, the values that are allowed, and its label."""

    name: str
    """Name in Python: lr_mu is --lr-mu on the command line."""
    type: type = float
    default: Any = None
    preset: str = ""
    """The field of the dataset's Preset that has the default, where it depends on the dataset."""
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    at_most: float | None = None
    grid: tuple[float, ...] = ()
    """Values that fedmpi.tune tries, unless the user gives others."""
    help: str = ""
    label: str | Mapping[str, str] = ""
    """Format of the value beside the method's name, as "q = {}"; or a text for each value."""
    variant: str | Mapping[str, str] = ""
    """Format of the value that tells two rows of the paper's tables apart, as "q={}"; or a text for
    each value."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def default_for(self, preset: Preset) -> Any:
        return getattr(preset, self.preset) if self.preset else self.default

    def check(self, value: Any) -> None:
        """Raise a UserError for a value that is not allowed."""
        if self.choices and value not in self.choices:
            raise unknown_name(self.flag, value, self.choices)
        if not isinstance(value, int | float):
            return
        allowed = {"at least": self.at_least, "above": self.above, "below": self.below}
        allowed |= {"at most": self.at_most}
        bounds = " and ".join(f"{how} {v:g}" for how, v in allowed.items() if v is not None)
        good = (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )
        if not good:
            number = "" if math.isfinite(value) else "a finite number, "
            raise UserError(f"{self.flag} {value}: must be {number}{bounds}.".replace(", .", "."))
        if isinstance(value, int) and value > LARGEST:
            raise UserError(f"{self.flag} {value}: must be at most {LARGEST}.")

    def said(self, value: Any) -> str:
        """Format the value as tables and the report show it."""
        text = f"{value:g}" if isinstance(value, float) else str(value)
        if not isinstance(self.label, str):
            return self.label[text]
        return (self.label or f"{self.name} = {{}}").format(text)


STEPS = (0.001, 0.005, 0.01, 0.05, 0.1)
"""The paper's grid of step sizes."""

LOCAL_TRAINING = (
    Option(
        "local_epochs",
        int,
        preset="local_epochs",
        at_least=1,
        grid=(3, 10, 15),
        label="E = {}",
        help="E; FedMinMax then trains locally, too",
    ),
    Option(
        "batch_size",
        int,
        100,
        at_least=1,
        label="batch {}",
        help="rows of a local batch (100); likewise",
    ),
)
"""Options of methods whose clients train local epochs: see Clients.local_changes."""

BATCH_ROWS = Option(
    "batch_rows",
    int,
    at_least=1,
    label="{} rows a round",
    help="take a round's step on B rows of all clients together, by the seed (all rows)",
)
"""Of methods that take one step a round: see federation/batches.py."""

COHORTS = (
    Option(
        "participation",
        above=0,
        at_most=1,
        label="{} of the clients a round",
        help="share of the clients that take part in a round, drawn by the seed (1)",
    ),
    Option(
        "cohort",
        int,
        at_least=1,
        label="{} clients a round",
        help="the same as a number of clients (all)",
    ),
    Option(
        "availability",
        str,
        label="availability {}",
        help="CSV of client,probability: how often each client can take part (always)",
    ),
    Option(
        "availability_correction",
        str,
        choices=("yes", "no"),
        label={"yes": "corrected", "no": "not corrected"},
        help="weigh clients by 1 / how often they take part, so that sums are unbiased (yes)",
    ),
)
"""Of methods that are defined where only some clients take part: see federation/cohorts.py."""
