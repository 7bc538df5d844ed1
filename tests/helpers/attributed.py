"""A dataset whose groups are an attribute and the class together, drawn without pandas."""

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset


class Attributed(Dataset):
    """Two values of A, two classes, 40 rows to train on and as many to test with."""

    groups = ("A=0 / 0", "A=0 / 1", "A=1 / 0", "A=1 / 1")

    def attribute(self, groups, options):
        return "A", tuple(name[:3] for name in groups)

    def class_of_group(self, groups, classes, options):
        return tuple(int(name[-1]) for name in groups)

    def read(self, data_dir, options, progress=False):
        group = np.arange(80) % 4
        x = np.random.default_rng(0).normal(size=(80, 1)) + (group % 2)[:, None]
        described = {"groups": self.groups, "classes": ("0", "1"), "features": ("x",)}
        return Arrays.split(x, group % 2, group, np.arange(80) >= 40, **described)
