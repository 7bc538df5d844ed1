"""Methods whose theta stays where it is, so that the sums of many cohorts are of the same theta."""

from fedmpi.methods.afl import AFL
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.localfedminmax import LocalFedMinMax


class Standing:
    """Keep the sums that each round would step on."""

    def __init__(self, config):
        super().__init__(config)
        self.changes, self.risks, self.counted = [], [], []

    def update_weights(self, risks):
        of_groups = self.reports == "groups"
        self.risks.append((risks if of_groups else self.unbiased(risks)).ravel())
        self.counted.append(self.counts_for)

    def apply(self, model, t):
        self.changes.append(model.change.numpy().copy())


class StandingFedMinMax(Standing, FedMinMax):
    pass


class StandingAFL(Standing, AFL):
    pass


class StandingLocal(Standing, LocalFedMinMax):
    pass
