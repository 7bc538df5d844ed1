"""APPFL over MPI: `mpirun -n 3 python drive_appfl.py`; rank 0 is the server.

`optimize_memory`, on by default there, collects garbage around every message and made a round
fifty times slower: it is off here, to be fair.
"""

import copy
import tempfile
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI
from omegaconf import OmegaConf

# APPFL imports torchvision, whose wheel is built for CUDA: beside a CPU torch it misses these two.
if not torch.cuda.is_available():
    missing = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        missing.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from appfl.agent import ClientAgent, ServerAgent
from appfl.comm.mpi import MPIClientCommunicator, MPIServerCommunicator
from work import LR, ROUNDS, TASK, Clock, Net, clients

PARTS = str(Path(__file__).parent / "appfl_parts.py")


def server_settings(logs: str) -> dict:
    train = {
        "optimize_memory": False,
        "trainer": "VanillaTrainer",
        "mode": "epoch",
        "num_local_epochs": 1,
        "optim": "SGD",
        "optim_args": {"lr": LR},
        "loss_fn": "CrossEntropyLoss",
        "do_validation": False,
        "do_pre_validation": False,
        "metric_path": PARTS,
        "metric_name": "accuracy",
        "use_dp": False,
        "clip_grad": False,
        "train_batch_size": 100 if TASK == "epoch" else 10**6,
        "train_data_shuffle": False,
    }
    server = {
        "num_clients": clients(),
        "scheduler": "SyncScheduler",
        "scheduler_kwargs": {"same_init_model": True, "optimize_memory": False},
        "aggregator": "FedAvgAggregator",
        "aggregator_kwargs": {"client_weights_mode": "sample_size", "optimize_memory": False},
        "device": "cpu",
        "num_global_epochs": ROUNDS,
        "optimize_memory": False,
        "logging_output_dirname": logs,
        "logging_output_filename": "server",
    }
    return {
        "client_configs": {
            "train_configs": train,
            "model_configs": {"model_path": PARTS, "model_name": "Model"},
            "comm_configs": {"compressor_configs": {"enable_compression": False}},
        },
        "server_configs": server,
    }


def client_settings(k: int, logs: str) -> dict:
    return {
        "client_id": f"Client{k}",
        "optimize_memory": False,
        "train_configs": {
            "device": "cpu",
            "logging_output_dirname": logs,
            "logging_output_filename": "client",
        },
        "data_configs": {
            "dataset_path": PARTS,
            "dataset_name": "rows",
            "dataset_kwargs": {"client": k},
        },
    }


def host_clients(comm: MPI.Comm, logs: str) -> None:
    """The clients of this rank, round after round, until the server says that it is done."""
    mine = np.array_split(np.arange(clients()), comm.size - 1)[comm.rank - 1].tolist()
    agents = {
        f"Client{k}": ClientAgent(client_agent_config=OmegaConf.create(client_settings(k, logs)))
        for k in mine
    }
    server = MPIClientCommunicator(
        comm, server_rank=0, client_ids=list(agents), optimize_memory=False
    )
    settings = server.get_configuration()
    for agent in agents.values():
        agent.load_config(copy.deepcopy(settings))
    theta = server.get_global_model(init_model=True)
    sizes = {
        name: {"sample_size": agent.get_sample_size(), "sync": True}
        for name, agent in agents.items()
    }
    server.invoke_custom_action(action="set_sample_size", kwargs=sizes)
    clock, running = Clock(), True
    while running:
        local, extra = {}, {}
        for name, agent in agents.items():
            agent.load_parameters(theta)
            agent.train()
            found = agent.get_parameters()
            if isinstance(found, tuple):
                found, extra[name] = found
            local[name] = found
        theta, answers = server.update_global_model(local, kwargs=extra)
        clock.tick()
        running = any(answer["status"] != "DONE" for answer in answers.values())
    server.invoke_custom_action(action="close_connection")
    if comm.rank == 1:
        net = Net()
        net.load_state_dict(theta)
        clock.tell("APPFL", net)


def main() -> None:
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as logs:
        if comm.rank == 0:
            agent = ServerAgent(server_agent_config=OmegaConf.create(server_settings(logs)))
            MPIServerCommunicator(comm, agent, logger=agent.logger, optimize_memory=False).serve()
        else:
            host_clients(comm, logs)


if __name__ == "__main__":
    main()
