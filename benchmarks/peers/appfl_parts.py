"""The model, the metric and the rows, in a file that APPFL loads by its path."""

import sys
from pathlib import Path

from torch.utils.data import TensorDataset

sys.path.insert(0, str(Path(__file__).parent))
import work


class Model(work.Net):
    def __init__(self) -> None:
        super().__init__()


def accuracy(targets, scores) -> float:
    return float((scores.argmax(1) == targets).mean())


def rows(client: int, **_: object):
    return TensorDataset(*work.shards([client])[client]), None
