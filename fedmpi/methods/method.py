"""Interface of a method: what a client computes, what is summed, what the server does with sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from fedmpi.methods import optimizer
from fedmpi.methods.option import COHORTS, LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.methods.attribute import Attribute
    from fedmpi.models.flat import FlatModel
    from fedmpi.run.config import Config


AVERAGES = ("all", "tail", "last")
AVERAGE = Option(
    "average",
    str,
    choices=AVERAGES,
    label={"all": "mean of all θ", "tail": "mean of the last quarter", "last": "last θ"},
    help="the model that is reported: all (the mean of all theta), tail (of the last quarter of "
    "the rounds) or last (the last theta) (the solver's or the method's)",
)

Reports = Literal["groups", "clients", "cells"] | None
"""Losses that the server's weights depend on: sums over all clients' rows of a group, or per
client, or per group and client. None: the server weighs nothing."""


class Report(Protocol):
    """Function that sends what the clients of a rank report."""

    def __call__(self, losses: np.ndarray | None, instead: np.ndarray | None = None) -> None: ...


@dataclass(frozen=True)
class Round:
    """One round, as the clients of a rank see it."""

    t: int
    evaluate: bool
    """Whether the server wants the losses for a row of the history, whatever the method."""
    total_rows: int
    """Number n of the training rows of all clients."""
    shares: np.ndarray
    """Share of each of this rank's clients in a mean over the clients of the round: n_k / n, or of
    a cohort n_k / n_S. With unequal probabilities of inclusion pi_k, n_k / pi_k takes the place of
    n_k."""
    report: Report
    """Send the losses at theta, hosted clients × groups, to the server. A second table of this
    shape, where there is one, takes their place in the risks of clients and cells that the server
    weighs by; then the losses are for the history alone, and None where nobody asks for these."""
    weights: Callable[[], np.ndarray]
    """Wait for the server's weights: per group, or one row for each hosted client."""
    weigh: Callable[[Tensor], np.ndarray]
    """Send the hosted clients' vectors, a row each, to the server, which compares them; return the
    server's weight of each (Method.compares_changes)."""


def among_the_rest(weights: np.ndarray, anew: np.ndarray) -> np.ndarray:
    """Scale the `weights` where `anew` is above 0 to sum to one; set the other weights to 0.

    `anew` has the weights at which the surviving clients or groups would start.
    """
    left = np.where(anew > 0, weights, 0.0)
    return left / left.sum() if left.sum() > 0 else anew


class Method:
    """One federated method. A subclass, in a file of its own, overrides what differs.

    A round is the same for all methods: the clients report their losses at the theta that they
    received, the server answers with weights, and a weighted sum of the clients' changes of theta
    closes the round. Every rank has an instance; `start` is called on the server's instance alone.
    """

    title: ClassVar[str] = ""
    """Name of the method in tables and figures; the class's name, if empty."""

    options: ClassVar[tuple[Option, ...]] = ()
    """Hyper-parameters beside --rounds and --lr; `self.config` has their values by name."""

    aim: ClassVar[str] = "average"
    """Risk that the method is there to lower, of the "worst" group or their "average". A comparison
    chooses its options by it, unless told otherwise."""

    reports: Reports = None
    """The losses that the server's weights depend on."""

    weighs_next_round: bool = True
    """Whether the weights that answer a report are for the next round or for the same round."""

    scalars: ClassVar[int] = 0
    """Number of scalars summed over the clients beside the change of theta: model.scalars."""

    vectors: ClassVar[int] = 0
    """Number of vectors of theta's length summed beside the change of theta: model.vectors."""

    compares_changes: ClassVar[bool] = False
    """Whether the server weighs the clients' changes, before they are summed, by the inner products
    of all pairs: see `weigh_changes`."""

    personal: ClassVar[str] = ""
    """Name of the client state that is a model of each client's own, which is scored at the end on
    rows of that client; "" where clients have none."""

    averages_theta: ClassVar[bool] = False
    """Whether the model is the mean of theta over the rounds, or the last theta, if the user does
    not say so by --average."""

    trains_locally: ClassVar[bool] = False
    """Whether clients train local epochs; datasets preset another number of rounds for that."""

    single_client: ClassVar[bool] = False
    """Whether one client holds all rows, whatever the setting."""

    under_cohorts: ClassVar[bool] = False
    """Whether the method is defined where only a cohort of the clients takes part in a round, so
    that a run may have --participation, --cohort and --availability."""

    counts_for: np.ndarray | None = None
    """Of each client, for how many clients it counts in this round: 1 / pi_k, the inverse of its
    probability to be in the cohort, and 0 if it is not. None: all take part in every round."""
    needs_attribute: ClassVar[bool] = False
    """Whether each group has to be a value of an attribute and one of two classes together."""

    attribute: Attribute
    """Attribute and class of each group, if the method needs them; on the server."""

    shared: dict[str, Tensor]
    """Current value of the state that `shared_state` began."""

    of_clients: dict[str, Tensor]
    """Current value of the state that `client_state` began: a row for each hosted client."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.optimizer = optimizer.find(config.options.get("optimizer"))(config)
        self.shared, self.of_clients = {}, {}

    @classmethod
    def all_options(cls) -> tuple[Option, ...]:
        """Options of the method, of the step of theta and of cohorts, as far as it has these.

        A method that steps theta itself has no options of the step, and one that draws its own
        cohorts none of cohorts.
        """
        step = optimizer.STEP_OPTIONS if cls.apply is Method.apply else ()
        cohorts = COHORTS if cls.under_cohorts and not cls.has_cohorts() else ()
        return (*cls.options, *step, AVERAGE, *cohorts)

    @classmethod
    def option(cls, name: str) -> Option | None:
        """The option of that name, if the method has it."""
        return next((option for option in cls.all_options() if option.name == name), None)

    @classmethod
    def sets_by_itself(cls, option: Option) -> bool:
        """Whether `option` has a default: local training only where `trains_locally` is set."""
        return cls.trains_locally or option not in LOCAL_TRAINING

    @property
    def average(self) -> str:
        """Of what the reported model is the mean: one of AVERAGES."""
        return self.config.options.get("average") or ("all" if self.averages_theta else "last")

    # The server's part.

    def start(self, counts: np.ndarray) -> None:
        """Set the weights before the first round, from n_{a,k}, groups × clients."""

    def weights(self) -> np.ndarray:
        """Weights to send to the clients: one per group, per client or per cell, as `reports`."""
        raise NotImplementedError

    def update_weights(self, risks: np.ndarray) -> None:
        """Go from the weights of this round to the next weights, given the risks reported.

        If a cohort takes part, the risks of groups are unbiased estimates of the risks over all
        clients; those of clients and cells are of the cohort, and NaN elsewhere: see `unbiased`.
        """

    def unbiased(self, of_clients: np.ndarray) -> np.ndarray:
        """Estimate what all clients have, from what the cohort's have: a number or a row for each.

        These are the terms of Horvitz and Thompson's estimate of any sum over all clients: 1 / pi_k
        times what client k of the cohort has, and 0 for the others.
        """
        if self.counts_for is None:
            return of_clients
        counts_for = self.counts_for.reshape(-1, *[1] * (of_clients.ndim - 1))
        return np.where(counts_for > 0, of_clients * counts_for, 0.0)

    def weigh_changes(self, gram: np.ndarray) -> np.ndarray:
        """Weight of each client's vector, given the inner products of the vectors of all clients.

        Clients that take no part have products of 0: see `counts_for`.
        """
        raise NotImplementedError

    def group_weights(self) -> np.ndarray | None:
        """The weight of each group, for the tables; None where the method has none."""
        return None

    def client_weights(self) -> np.ndarray | None:
        """The weight of each client, or clients × groups; None where the method has none."""
        return None

    def state(self) -> dict[str, np.ndarray]:
        """State of the server's part that a checkpoint has to keep."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Set the state to one that `state` returned before."""
        for name, value in state.items():
            setattr(self, name, np.array(value))

    def lose(self, counts: np.ndarray) -> None:
        """Go on without the clients of dead ranks, which have no rows in `counts`.

        The arrays in `state` are taken for weights that sum to one: the weights of clients of dead
        ranks, and of groups that no client has any more, become 0; the other weights are scaled to
        sum to one again. Where the other weights were all 0, they start again as `start` sets
        them. A method whose state is anything else overrides `lose`.
        """
        before = {name: np.array(value) for name, value in self.state().items()}
        self.start(counts)
        anew = {name: np.array(value) for name, value in self.state().items()}
        self.restore({name: among_the_rest(before[name], anew[name]) for name in before})

    # State beside theta and the server's weights.

    def shared_state(self, model: FlatModel) -> dict[str, Tensor]:
        """Initial value of the state that every rank has, and that `apply` changes alike on all.

        A server optimizer's momentum is such a state. The state is broadcast from the server with
        theta, kept in checkpoints, and rolled back with theta when a round is repeated after a
        death.
        """
        return {}

    def client_state(self, model: FlatModel) -> dict[str, Tensor]:
        """Initial value of the state that a client keeps from round to round: a control variate.

        The state lives on the client's rank, in `of_clients`. The server sees the state when it
        writes a checkpoint; a resumed run sends the state to whichever rank then hosts the client.
        """
        return {}

    def vectors_of(self, size: int, groups: int) -> int:
        """Number of vectors summed beside the change, of a theta of `size`: of method and step."""
        return self.vectors + self.optimizer.vectors_of(size, groups)

    def cohort(self, t: int) -> np.ndarray | None:
        """Numbers of the clients that take part in round `t`; None if all do.

        For a method that draws its own cohorts. Every rank calls `cohort` and must get the same
        numbers: draw them from the seed and `t`. In the sums by group they are taken for a uniform
        draw without replacement.
        """
        return None

    @classmethod
    def has_cohorts(cls) -> bool:
        return cls.cohort is not Method.cohort

    @classmethod
    def has_client_state(cls) -> bool:
        return cls.client_state is not Method.client_state

    # The clients' part.

    def client_round(self, clients: Clients, now: Round) -> None:
        """Report the losses at theta; leave this rank's share of the sum in the model's change.

        `clients` are those of the round's cohort; `clients.places` are their rows in `of_clients`,
        `clients.counts_for` the inverses of their probabilities of inclusion.
        Call `now.report` once: in every round of a method that `reports`, and otherwise where
        `now.evaluate` is set, because the server waits for this report.
        """
        raise NotImplementedError

    # Everybody's part.

    def update(self, model: FlatModel) -> Tensor:
        """The change of theta that the sums over all clients ask for."""
        return model.change

    def apply(self, model: FlatModel, t: int) -> None:
        """Go from theta to the next theta, by the optimizer, in round `t`.

        A method that overrides this does without --optimizer; `update` is enough for most.
        """
        self.optimizer.apply(self, model, t)

    def kept_everywhere(self) -> dict[str, Tensor]:
        """State that every rank has, of the method and of its optimizer, by name."""
        of_optimizer = {f"optimizer/{name}": v for name, v in self.optimizer.shared.items()}
        return self.shared | of_optimizer
