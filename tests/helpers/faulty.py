"""FedMinMax with a fault in round 3 on some ranks, for the tests of what a job does after it."""

import os
import signal
import time

import torch
from mpi4py import MPI

from fedmpi.methods.fedminmax import FedMinMax


class OneRaises(FedMinMax):
    """FedMinMax in which rank 2 has a bug."""

    def client_round(self, clients, now):
        if now.t == 3 and MPI.COMM_WORLD.Get_rank() == 2:
            raise ValueError("a bad day")
        super().client_round(clients, now)


class AllRaise(FedMinMax):
    """FedMinMax in which every client rank has the same bug."""

    def client_round(self, clients, now):
        if now.t == 3:
            raise ValueError("a bad day")
        super().client_round(clients, now)


class Stops(FedMinMax):
    """FedMinMax in which rank 2 stands still, as on a node that hangs."""

    def client_round(self, clients, now):
        if now.t == 3 and MPI.COMM_WORLD.Get_rank() == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        super().client_round(clients, now)


class Drifts(FedMinMax):
    """FedMinMax in which rank 2's memory is faulty: a bit of theta flips there."""

    def client_round(self, clients, now):
        if now.t == 3 and MPI.COMM_WORLD.Get_rank() == 2:
            clients.model.theta.view(torch.int32)[5] ^= 1
        super().client_round(clients, now)


class SlowRound(FedMinMax):
    """FedMinMax whose round 3 takes for ever."""

    def client_round(self, clients, now):
        if now.t == 3:
            print("round 3 begins", flush=True)
            time.sleep(600)
        super().client_round(clients, now)


class SlowStart(FedMinMax):
    """FedMinMax whose rounds do not begin."""

    def __init__(self, config):
        print("preparing", flush=True)
        time.sleep(600)
