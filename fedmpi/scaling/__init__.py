"""Growth of a round's time with ranks, rows, clients, models: `python -m fedmpi.scaling`."""
