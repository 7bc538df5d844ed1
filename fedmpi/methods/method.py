"""What a method is: what a client computes, what is summed, what the server does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedmpi.methods import optimizer
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.models.flat import FlatModel
    from fedmpi.run.config import Config


AVERAGES = ("all", "tail", "last")
AVERAGE = Option(
    "average",
    str,
    choices=AVERAGES,
    label="mean of {}",
    help="the model that is reported: the mean of all theta, of the last quarter of the rounds, "
    "or the last theta (the method's: all or last)",
)

Reports = Literal["groups", "clients", "cells"] | None
"""Whose losses the server's weights depend on: sums over everybody's rows of a group, or per
client, or per group and client. None: the server weighs nothing."""


@dataclass(frozen=True)
class Round:
    """One round, as the clients of a rank see it."""

    t: int
    evaluate: bool
    """Whether the server wants the losses for a row of the history, whatever the method."""
    total_rows: int
    """n, of all clients."""
    report: Callable[[np.ndarray], None]
    """Sends the losses at theta, hosted clients × groups, to the server."""
    weights: Callable[[], np.ndarray]
    """Waits for the server's weights: per group, or one row for each hosted client."""


def among_the_rest(weights: np.ndarray, anew: np.ndarray) -> np.ndarray:
    """`weights` of those who are left, for which `anew` is above 0, scaled to sum to one."""
    left = np.where(anew > 0, weights, 0.0)
    return left / left.sum() if left.sum() > 0 else anew


class Method:
    """One federated method. A subclass, in a file of its own, overrides what differs.

    A round is the same for all of them: the clients report their losses at the theta that they
    received, the server answers with weights, and a weighted sum of the clients' changes of theta
    closes the round. Every rank has an instance; only the server's has called `start`.
    """

    title: ClassVar[str] = ""
    """Its name in tables and figures; that of the class, if there is none."""

    options: ClassVar[tuple[Option, ...]] = ()
    """Its hyper-parameters, beside --rounds and --lr; `self.config` has their values by name."""

    reports: Reports = None
    """The losses that the server's weights depend on."""

    weighs_next_round: ClassVar[bool] = True
    """Whether the weights that answer a report are for the next round, or for this one."""

    scalars: ClassVar[int] = 0
    """How many numbers are summed over the clients beside the change of theta: model.scalars."""

    vectors: ClassVar[int] = 0
    """How many vectors of theta's length are summed beside the change: model.vectors."""

    averages_theta: ClassVar[bool] = False
    """Whether the model is the mean of theta over the rounds, or the last theta, if the user does
    not say so by --average."""

    trains_locally: ClassVar[bool] = False
    """Whether clients train local epochs; these methods have a number of rounds of their own."""

    single_client: ClassVar[bool] = False
    """Whether one client holds all rows, whatever the setting."""

    shared: dict[str, Tensor]
    """What `shared_state` gave, as it is now."""

    of_clients: dict[str, Tensor]
    """What `client_state` gave, as it is now: a row for each client that the rank hosts."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.optimizer = optimizer.find(config.options.get("optimizer"))(config)
        self.shared, self.of_clients = {}, {}

    @classmethod
    def all_options(cls) -> tuple[Option, ...]:
        """Its own options, and those of the step of theta, which every method has."""
        return (*cls.options, *optimizer.STEP_OPTIONS, AVERAGE)

    @classmethod
    def option(cls, name: str) -> Option | None:
        """The option of that name, if the method has it."""
        return next((option for option in cls.all_options() if option.name == name), None)

    @classmethod
    def sets_by_itself(cls, option: Option) -> bool:
        """Whether `option` has a default: local training only in methods that are made for it."""
        return cls.trains_locally or option not in LOCAL_TRAINING

    @property
    def average(self) -> str:
        """Of what the reported model is the mean: one of AVERAGES."""
        return self.config.options.get("average") or ("all" if self.averages_theta else "last")

    # The server's part.

    def start(self, counts: np.ndarray) -> None:
        """Set the weights before the first round, from n_{a,k}, groups × clients."""

    def weights(self) -> np.ndarray:
        """What the clients are sent: a number per group, per client or per cell, as `reports`."""
        raise NotImplementedError

    def update_weights(self, risks: np.ndarray) -> None:
        """Go from the weights of this round to the next ones, given the risks reported."""

    def group_weights(self) -> np.ndarray | None:
        """The weight of each group, for the tables; None where the method has none."""
        return None

    def client_weights(self) -> np.ndarray | None:
        """The weight of each client, or clients × groups; None where the method has none."""
        return None

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint has to keep of the server's part."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        for name, value in state.items():
            setattr(self, name, np.array(value))

    def lose(self, counts: np.ndarray) -> None:
        """Go on without clients that were lost: in `counts` they have no rows.

        What `state` gives is taken for weights that sum to one: those of the lost, and of groups
        that nobody has any more, become 0, the others are scaled to sum to one again. Where they
        were all 0 they begin anew. A method that keeps anything else overrides this.
        """
        before = {name: np.array(value) for name, value in self.state().items()}
        self.start(counts)
        anew = {name: np.array(value) for name, value in self.state().items()}
        self.restore({name: among_the_rest(before[name], anew[name]) for name in before})

    # State beside theta and the server's weights.

    def shared_state(self, model: FlatModel) -> dict[str, Tensor]:
        """The first value of what every rank has, and `apply` changes alike on all of them.

        A server optimizer's momentum is such a state. It comes from the server with theta, is kept
        in checkpoints, and goes back with theta when a round is done again after a death.
        """
        return {}

    def client_state(self, model: FlatModel) -> dict[str, Tensor]:
        """The first value of what a client keeps from round to round: a control variate.

        It lives on the client's rank, in `of_clients`. The server sees it when it writes a
        checkpoint, from which it goes to whichever rank hosts the client then.
        """
        return {}

    def cohort(self, t: int) -> np.ndarray | None:
        """The numbers of the clients that take part in round `t`; None if all do.

        It is asked on every rank, and must be the same on all: take it from the seed and `t`.
        """
        return None

    @classmethod
    def has_cohorts(cls) -> bool:
        return cls.cohort is not Method.cohort

    # The clients' part.

    def client_round(self, clients: Clients, now: Round) -> None:
        """Report the losses at theta, and leave this rank's share of the sum in the change.

        `clients` are those of the round's cohort; `clients.places` are their rows in `of_clients`.
        `now.report` is called once, in every round of a method that `reports`, and otherwise where
        `now.evaluate` is set: the server counts on it.
        """
        raise NotImplementedError

    # Everybody's part.

    def update(self, model: FlatModel) -> Tensor:
        """The change of theta that the sums over all clients ask for."""
        return model.change

    def apply(self, model: FlatModel, t: int) -> None:
        """Go from theta to the next theta, by the optimizer, in round `t`."""
        self.optimizer.step(model.theta, self.update(model), self.shared, t)
