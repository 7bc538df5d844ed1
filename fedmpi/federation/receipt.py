"""The receipt of a run with exact sums: hashes of its theta, and what these bits depend on."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from pathlib import Path

import numpy as np
import torch

import fedmpi
from fedmpi.run.config import Config

CPU_INFO = Path("/proc/cpuinfo")


def receipt_of(config: Config, models: dict[str, dict[str, torch.Tensor]]) -> dict:
    """Contents of `receipt` in result.json, of the models that model.pt has."""
    return {
        "sha256": {name: hash_of(tensors) for name, tensors in models.items()},
        "depends_on": {
            "cpu": cpu(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "fedmpi": fedmpi.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "dtype": config.dtype,
            "autocast": config.autocast,
            "micro_batch": config.micro_batch,
            "threads": 1,
        },
    }


def hash_of(tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 of a state_dict's numbers, one tensor after the other, little-endian."""
    sha256 = hashlib.sha256()
    for tensor in tensors.values():
        table = tensor.detach().numpy()
        sha256.update(np.ascontiguousarray(table, dtype=table.dtype.newbyteorder("<")).data)
    return sha256.hexdigest()


def cpu() -> str:
    """Name of the kind of CPU."""
    with contextlib.suppress(OSError):
        for line in CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
