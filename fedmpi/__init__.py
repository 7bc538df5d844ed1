"""Federated learning that is fair to every demographic group, over MPI."""

__version__ = "0.1.0"
