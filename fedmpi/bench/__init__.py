"""Speed of a round against plain torch on the same rows: `python -m fedmpi.bench`."""
