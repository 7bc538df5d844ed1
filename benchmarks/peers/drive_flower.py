"""Flower, its simulation on Ray with one actor a core: `python drive_flower.py`."""

import sys
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
import work  # noqa: E402

client, server, clock = ClientApp(), ServerApp(), work.Clock()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One client's local epoch, from slices of tensors: cheaper than the tutorial's DataLoader."""
    import sys

    if HERE not in sys.path:  # this runs in an actor of Ray
        sys.path.insert(0, HERE)
    import work

    if not hasattr(work, "kept"):
        work.kept = work.shards()
    x, y = work.kept[int(context.node_config["partition-id"])]
    net = work.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=work.LR)
    size = 100 if message.content["config"]["epoch"] else len(y)
    for xs, ys in zip(x.split(size), y.split(size), strict=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(xs), ys).backward()
        optimizer.step()
    answer = {"arrays": ArrayRecord(net.state_dict())}
    answer["metrics"] = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict(answer), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    def tick(number: int, arrays: ArrayRecord) -> None:
        if number:
            clock.tick()

    everyone = work.clients()
    strategy = FedAvg(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=everyone,
        min_available_nodes=everyone,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(work.Net().state_dict()),
        num_rounds=work.ROUNDS,
        train_config=ConfigRecord({"epoch": work.TASK == "epoch"}),
        evaluate_fn=tick,
    )
    net = work.Net()
    net.load_state_dict(result.arrays.to_torch_state_dict())
    clock.tell("Flower", net)


if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=work.clients(),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
