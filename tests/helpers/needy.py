"""Small methods, each of which needs something beside weights and a sum."""

import numpy as np

from fedmpi.methods.ditto import Ditto
from fedmpi.methods.fedavg import FedAvg
from fedmpi.methods.fedmgda import FedMGDA
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.option import LOCAL_TRAINING, Option
from fedmpi.methods.scaffold import Scaffold

CLIENTS = 5
"""Number of clients of the runs of test_needs.py."""


class Momentum(FedMinMax):
    """State of every rank: v <- beta v + change, theta <- theta + v."""

    title = "FedMinMax with momentum"
    options = (*FedMinMax.options, Option("beta", default=0.5, at_least=0, below=1))

    def shared_state(self, model):
        return {"v": model.theta.new_zeros(model.size)}

    def apply(self, model, t):
        model.theta.add_(self.shared["v"].mul_(self.config.beta).add_(model.change))


class Remembering(FedAvg):
    """State of a client: each client adds half of its last change to its change."""

    def client_state(self, model):
        return {"last": model.theta.new_zeros(model.size)}

    def client_round(self, clients, now):
        if now.evaluate:
            now.report(clients.loss_sums())
        for i, change in clients.local_changes(now.t, self.config):
            last = self.of_clients["last"][clients.places[i]]
            new = change + 0.5 * last
            last.copy_(change)
            clients.add(new, clients.sizes[i] / now.total_rows)


class Proximal(FedAvg):
    """A correction of every local step, FedProx: the gradient, and pull times the drift."""

    options = (*LOCAL_TRAINING, Option("pull", default=1.0, at_least=0))

    def client_round(self, clients, now):
        if now.evaluate:
            now.report(clients.loss_sums())
        steps = clients.local_changes(
            now.t, self.config, correction=lambda i, drift: self.config.pull * drift
        )
        for i, change in steps:
            clients.add(change, clients.sizes[i] / now.total_rows)


class Squares(FedAvg):
    """A further vector in the sum: theta moves by the mean change over the root mean square."""

    vectors = 1

    def client_round(self, clients, now):
        if now.evaluate:
            now.report(clients.loss_sums())
        for i, change in clients.local_changes(now.t, self.config):
            share = clients.sizes[i] / now.total_rows
            clients.add(change, share)
            clients.model.vectors[0].add_(change.square(), alpha=share)

    def apply(self, model, t):
        model.theta.add_(0.1 * model.change / (model.vectors[0].sqrt() + 1e-3))


class Sampled(FedAvg):
    """A cohort: two clients in each round, weighed by their shares of the two clients' rows."""

    scalars = 1

    def cohort(self, t):
        rng = np.random.default_rng([self.config.seed, t])
        return np.sort(rng.choice(CLIENTS, 2, replace=False))

    def client_round(self, clients, now):
        if now.evaluate:
            now.report(clients.loss_sums())
        for i, change in clients.local_changes(now.t, self.config):
            clients.add(change, float(clients.sizes[i]))
        clients.model.scalars[0] = float(clients.sizes.sum())

    def apply(self, model, t):
        model.theta.add_(model.change / model.scalars[0])


class ThreeOfThem:
    """Cohort of three clients in each round, for methods of fedmpi."""

    def cohort(self, t):
        rng = np.random.default_rng([self.config.seed, t])
        return np.sort(rng.choice(self.config.clients, 3, replace=False))


class SampledScaffold(ThreeOfThem, Scaffold):
    pass


class SampledDitto(ThreeOfThem, Ditto):
    pass


class SampledFedMGDA(ThreeOfThem, FedMGDA):
    pass


NEEDY = {
    "Momentum": "--beta 0.7",
    "Remembering": "--local-epochs 2 --batch-size 7",
    "Proximal": "--local-epochs 2 --batch-size 7 --pull 0.3",
    "Squares": "--local-epochs 2 --batch-size 7",
    "Sampled": "--local-epochs 2 --batch-size 7",
}
