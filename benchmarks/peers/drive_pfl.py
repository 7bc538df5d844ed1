"""pfl: `python drive_pfl.py`, or `torchrun --nproc_per_node=2 drive_pfl.py`."""

import os

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy
from work import LR, ROUNDS, TASK, Clock, Net, shards

torch.set_num_threads(1)


class PflNet(Net):
    """The model with the two methods that pfl calls."""

    def loss(self, x, y, eval=False):
        return cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x, y, eval=False):
        return {"loss": Weighted(float(cross_entropy(self(x), y, reduction="sum")), len(y))}


class Ticks(TrainingProcessCallback):
    """The clock, after each round."""

    def __init__(self) -> None:
        self.clock = Clock()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.clock.tick()
        return False, Metrics()


def main() -> None:
    rows, net, ticks = shards(), PflNet(), Ticks()
    users = list(rows)
    federation = FederatedDataset(
        lambda user: Dataset(list(rows[user]), user_id=user),
        get_user_sampler("minimize_reuse", users),
        user_id_to_weight={k: len(y) for k, (_, y) in rows.items()},  # balances the processes
    )
    model = PyTorchModel(
        model=net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=10**9,
            train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(
            training_data=federation, val_data=federation, postprocessors=[WeightByDatapoints()]
        ),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=LR,
            local_num_epochs=1,
            local_batch_size=100 if TASK == "epoch" else None,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[ticks],
    )
    if int(os.environ.get("RANK", "0")) == 0:
        ticks.clock.tell("pfl", net)


if __name__ == "__main__":
    main()
