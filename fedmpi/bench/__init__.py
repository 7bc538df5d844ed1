"""How fast a round is, against plain torch on the same rows: `python -m fedmpi.bench`."""
