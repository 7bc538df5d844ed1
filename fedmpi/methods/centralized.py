"""The centralized baseline: FedMinMax with one client that holds every row (Algorithm 2)."""

from fedmpi.methods.adversary import ADVERSARY, EPSILON, LR_MU
from fedmpi.methods.fedminmax import FedMinMax


class Centralized(FedMinMax):
    """Training on one machine with all the data; by Lemma 2 FedMinMax gives the same model."""

    title = "Centralized"
    options = (LR_MU, EPSILON, ADVERSARY)
    single_client = True
