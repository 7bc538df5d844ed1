"""Read a dataset and store its arrays, once: see store.py.

A folder appears whole: it is built beside its place and renamed.
"""

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import fedmpi
from fedmpi.data.dataset import Arrays, Dataset, Encoded
from fedmpi.data.download import sha256_of
from fedmpi.data.options import DataOptions
from fedmpi.data.store import (
    FORMAT,
    MOST_CLIENTS,
    SPLITS,
    Prepared,
    damaged,
    is_stale,
    names_of,
    read_manifest,
)
from fedmpi.errors import UserError

try:
    import fcntl
except ImportError:  # where there is no flock, two processes are not kept apart
    fcntl = None  # type: ignore[assignment]


def prepare(
    dataset: Dataset,
    data_dir: Path,
    options: DataOptions,
    progress: bool = False,
    key: str | None = None,
) -> Prepared:
    """Return the prepared `dataset`, read and stored first if it is not there yet.

    `key` is the dataset's for these options, where it is known already.
    """
    folder = data_dir / "prepared" / (key or dataset.key(options))
    if not folder.exists() or is_stale(folder):
        arrays = dataset.read(data_dir, options, progress)
        tidy(dataset, arrays)
        aside = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        try:
            aside.mkdir(parents=True)
            store(arrays, aside, dataset.name, dataset.used(options), progress)
            publish(aside, folder)
        except OSError as error:
            why = error.strerror or error
            raise UserError(f"cannot write {folder}: {why}. Choose a --data-dir.") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return Prepared.open(folder)
    return verify(folder)  # on the server alone: a rank trusts what has just been hashed


def tidy(dataset: Dataset, arrays: Arrays) -> None:
    """Check what `read` returned, and give it the dtypes that are stored, in place."""
    if len(set(arrays.groups)) < len(arrays.groups):
        raise UserError(f"{dataset.name}: two groups have the same name: {arrays.groups}.")
    for split in SPLITS:
        x, y, group = (getattr(arrays, f"{split}_{part}") for part in ("x", "y", "group"))
        if not len(x) == len(y) == len(group) > 0:
            raise ValueError(f"{dataset.name}: {split} has {len(x)}, {len(y)}, {len(group)} rows")
        if not isinstance(x, Encoded):  # which is checked as it is written
            if not np.isfinite(x).all():
                raise ValueError(f"{dataset.name}: {split}_x has values that are not finite")
            # Bytes that come with a scale stay bytes: a quarter of the disk and of the memory.
            dtype = np.uint8 if arrays.scale else np.float32
            setattr(arrays, f"{split}_x", np.ascontiguousarray(x, dtype=dtype))
        setattr(arrays, f"{split}_y", codes(y, len(arrays.classes)))
        setattr(arrays, f"{split}_group", codes(group, len(arrays.groups)))
    if arrays.train_client is not None:
        arrays.train_client = codes(arrays.train_client, len(arrays.clients))
    code_columns(dataset, arrays)
    counts = count_rows(arrays)
    for name in arrays.groups:
        if not counts["train"][name]:
            more = ": use more --rows" if "rows" in dataset.uses else ""
            raise UserError(f"{dataset.name}: group {name!r} has no rows to train on{more}.")
        if not counts["test"][name]:
            arrays.notes.append(f"group {name!r} has no test rows: it has no test risk")


def codes(values: np.ndarray, size: int) -> np.ndarray:
    """Return `values`, in 0 … size-1, in the smallest dtype that serves."""
    if values.min() < 0 or values.max() >= size:
        raise ValueError(f"codes {values.min()} … {values.max()} outside 0 … {size - 1}")
    return values.astype(np.min_scalar_type(size - 1))


def code_columns(dataset: Dataset, arrays: Arrays) -> None:
    """Turn the columns for --setting by:COLUMN into codes; of many values, keep their number."""
    coded = []
    for name, values in arrays.by.items():
        if len(values) != len(arrays.train_y):
            raise ValueError(f"{dataset.name}: by[{name!r}] has {len(values)} rows")
        found, numbers = distinct(values)
        arrays.by_values[name] = len(found)
        if len(found) <= MOST_CLIENTS:
            arrays.by_values[name] = found
            coded.append(codes(numbers, len(found)))
    if coded:
        arrays.train_by = np.column_stack(coded)


def distinct(values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The different values, in order and as text; and for each of `values` its place among them."""
    if values.dtype != object:
        found, numbers = np.unique(values, return_inverse=True)
        return [str(value) for value in found.tolist()], numbers
    # numpy would make room for the longest text in every row.
    texts = list(map(str, values))
    place = {text: i for i, text in enumerate(sorted(set(texts)))}
    return list(place), np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))


def count_rows(arrays: Arrays) -> dict[str, dict[str, int]]:
    return {
        split: dict(zip(arrays.groups, map(int, count), strict=True))
        for split in SPLITS
        for count in [np.bincount(getattr(arrays, f"{split}_group"), minlength=len(arrays.groups))]
    }


def store(
    arrays: Arrays, folder: Path, dataset: str, options: dict, progress: bool = False
) -> None:
    """Write the arrays and, last, the manifest that describes them."""
    described = {}
    for name in names_of(arrays):
        array, path = getattr(arrays, name), folder / f"{name}.npy"
        if isinstance(array, Encoded):
            save_batches(path, array, progress)
        else:
            np.save(path, array)
        described[name] = {
            "file": path.name,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "bytes": path.stat().st_size,
            "sha256": sha256_of(path),
        }
    versions = {"fedmpi": fedmpi.__version__, "numpy": np.__version__}
    if pandas := sys.modules.get("pandas"):
        versions["pandas"] = pandas.__version__
    manifest = {
        "format": FORMAT,
        "dataset": dataset,
        "options": options,
        "groups": arrays.groups,
        "classes": arrays.classes,
        "features": arrays.features,
        "scale": arrays.scale,
        "encoding": arrays.encoding,
        "columns": arrays.columns,
        "clients": arrays.clients,
        "by_values": arrays.by_values,
        "counts": count_rows(arrays),
        "notes": arrays.notes,
        "sources": arrays.sources,
        "versions": versions,
        "arrays": described,
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")


def save_batches(path: Path, array: Encoded, progress: bool) -> None:
    """Save as numpy.save does, but a batch at a time: a mapped array would count as memory."""
    from tqdm import tqdm

    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    bar = tqdm(
        desc=path.name, total=len(array), unit="row", unit_scale=True, delay=2, disable=not progress
    )
    with open(path, "wb") as file, bar:
        np.lib.format.write_array_header_1_0(file, header)
        for batch in array.batches():
            if not np.isfinite(batch).all():
                raise ValueError(f"{path.name} has values that are not finite")
            file.write(np.ascontiguousarray(batch, dtype=array.dtype).data)
            bar.update(len(batch))


def publish(aside: Path, folder: Path) -> None:
    """Rename `aside` to `folder`; if another process came first, its copy is as good."""
    with one_process_at_a_time(folder.parent):
        if folder.exists() and is_stale(folder):
            old = aside.with_name(f"{aside.name}-old")
            folder.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        try:
            aside.rename(folder)
        except OSError:
            if not (folder / "manifest.json").is_file():
                raise


@contextmanager
def one_process_at_a_time(folder: Path) -> Iterator[None]:
    """Lock the folder: what is stale when it is looked at must not be new when it is moved."""
    if fcntl is None:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def verify(folder: Path) -> Prepared:
    """Open `folder` and hash every array again; UserError if anything is not as it was written."""
    prepared = Prepared.open(folder)
    for name, described in read_manifest(folder)["arrays"].items():
        found = sha256_of(folder / f"{name}.npy")
        if found != described.get("sha256"):
            why = f"{name}.npy has SHA-256 {found}, manifest.json says {described.get('sha256')}"
            raise damaged(folder, why)
    return prepared
