"""The centralized baseline: FedMinMax with one client that holds every row (Algorithm 2)."""

from typing import ClassVar

from fedmpi.methods.fedminmax import FedMinMax


class Centralized(FedMinMax):
    """What one machine with all the data would do; Lemma 2 says FedMinMax gives the same model."""

    options: ClassVar[tuple[str, ...]] = ("lr_mu", "epsilon", "adversary")
    single_client = True
