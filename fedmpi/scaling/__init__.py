"""How the time of a round grows with ranks, rows, clients, models: `python -m fedmpi.scaling`."""
