"""The centralized baseline: FedMinMax with one client that holds every row (Algorithm 2)."""

from fedmpi.methods.adversary import ADVERSARY, EPSILON, LR_MU
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.option import BATCH_ROWS


class Centralized(FedMinMax):
    """Training on one machine with all the data; by Lemma 2 FedMinMax gives the same model."""

    title = "Centralized"
    options = (LR_MU, EPSILON, ADVERSARY, BATCH_ROWS)
    single_client = True
    under_cohorts = False
