"""The floor of a launch: time and memory of the least that a rank of fedmpi could do at its start.

mpirun -n 41 python fedmpi/bench/bare.py
"""

import json
import resource
import time

import numpy
import torch
from mpi4py import MPI

comm = MPI.COMM_WORLD
comm.Barrier()
now = time.time()
memory = comm.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
if memory:
    versions = {"numpy": numpy.__version__, "torch": torch.__version__}
    result = {"time": now, "memory_mb": max(memory[1:] or memory), **versions}
    print("fedmpi.bench: " + json.dumps(result), flush=True)
