"""Prepared datasets: .npy files with a manifest, written once, memory-mapped by every rank.

A folder appears whole: it is built beside its place and renamed. Ranks import this module, so it
needs nothing heavier than numpy.
"""

import json
import secrets
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import fedmpi
from fedmpi.datasets.dataset import Arrays, Dataset, Encoded
from fedmpi.datasets.options import DataOptions
from fedmpi.datasets.sources import sha256_of
from fedmpi.errors import UserError

FORMAT = 1
"""Raise it when what is stored, or how a dataset is read, changes: older folders are rebuilt."""

WINDOW_BYTES = 1 << 22

SPLITS = ("train", "test")
ARRAYS = tuple(f"{split}_{part}" for split in SPLITS for part in ("x", "y", "group"))


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset on disk; its arrays are mapped when asked for."""

    folder: Path
    dataset: str
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    notes: tuple[str, ...]
    sources: tuple[dict, ...]
    counts: dict[str, dict[str, int]]
    """Rows by split ("train", "test") and group."""
    scale: dict[str, list[float]] | None = None
    """Of images, which are stored as bytes: their "mean" and "std" by channel."""
    clients: tuple[str, ...] = ()
    """Their names, where the data say who holds which row: then there is "train_client", too."""

    @classmethod
    def open(cls, folder: Path) -> "Prepared":
        """The dataset in `folder`; UserError if its manifest and its files do not agree."""
        manifest = read_manifest(folder)
        if manifest.get("format") != FORMAT:
            raise damaged(folder, f"it has format {manifest.get('format')}, not {FORMAT}")
        try:
            prepared = cls(
                folder=folder,
                dataset=manifest["dataset"],
                counts=manifest["counts"],
                scale=manifest.get("scale"),
                clients=tuple(manifest.get("clients", ())),
                **{
                    name: tuple(manifest[name])
                    for name in ("groups", "classes", "features", "notes", "sources")
                },
            )
            for name in names_of(prepared):
                check_array(prepared, name, manifest["arrays"][name])
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(folder, f"manifest.json lacks or misspells {error}") from error
        return prepared

    def array(self, name: str) -> np.ndarray:
        """One of the arrays, memory-mapped and read-only."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    def take(self, name: str, rows: np.ndarray | slice) -> np.ndarray:
        """A copy of some rows of one of ARRAYS.

        Through a window that moves over the file: rows from everywhere touch every page, and the
        pages of a mapped file count as the memory of each rank that has touched them.
        """
        whole = self.array(name)
        if isinstance(rows, slice):
            rows = np.arange(len(whole))[rows]
        taken = np.empty((len(rows), *whole.shape[1:]), dtype=whole.dtype)
        order = np.argsort(rows, kind="stable")
        window = max(1, WINDOW_BYTES // max(1, whole[:1].nbytes))
        starts = np.arange(0, len(whole), window)
        bounds = [*np.searchsorted(rows[order], starts).tolist(), len(rows)]
        for first, last in pairwise(bounds):
            if first < last:
                places = order[first:last]
                taken[places] = self.array(name)[rows[places]]  # mapped anew, and let go
        return taken

    def rows(self, split: str) -> int:
        """The number of rows to train or to test."""
        return sum(self.counts[split].values())


def prepare(
    dataset: Dataset, data_dir: Path, options: DataOptions, progress: bool = False
) -> Prepared:
    """The prepared `dataset`, read and stored first if it is not there yet."""
    folder = data_dir / "prepared" / dataset.key(options)
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
    counts = count_rows(arrays)
    for name in arrays.groups:
        if not counts["train"][name]:
            more = ": use more --rows" if "rows" in dataset.uses else ""
            raise UserError(f"{dataset.name}: group {name!r} has no rows to train on{more}.")
        if not counts["test"][name]:
            arrays.notes.append(f"group {name!r} has no test rows: it has no test risk")


def names_of(dataset: Arrays | Prepared) -> tuple[str, ...]:
    """The arrays that a dataset has."""
    return (*ARRAYS, "train_client") if dataset.clients else ARRAYS


def codes(values: np.ndarray, size: int) -> np.ndarray:
    """`values` in 0 … size-1 in the smallest dtype that serves."""
    if values.min() < 0 or values.max() >= size:
        raise ValueError(f"codes {values.min()} … {values.max()} outside 0 … {size - 1}")
    return values.astype(np.min_scalar_type(size - 1))


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
            save_pieces(path, array, progress)
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
        "clients": arrays.clients,
        "counts": count_rows(arrays),
        "notes": arrays.notes,
        "sources": arrays.sources,
        "versions": versions,
        "arrays": described,
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")


def save_pieces(path: Path, array: Encoded, progress: bool) -> None:
    """numpy.save without the whole array in memory, nor mapped, which would count as memory."""
    from tqdm import tqdm

    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    bar = tqdm(
        desc=path.name, total=len(array), unit="row", unit_scale=True, delay=2, disable=not progress
    )
    with open(path, "wb") as file, bar:
        np.lib.format.write_array_header_1_0(file, header)
        for piece in array.pieces():
            if not np.isfinite(piece).all():
                raise ValueError(f"{path.name} has values that are not finite")
            file.write(np.ascontiguousarray(piece, dtype=array.dtype).data)
            bar.update(len(piece))


def publish(aside: Path, folder: Path) -> None:
    """Rename `aside` to `folder`; if another process came first, its copy is as good."""
    if folder.exists() and is_stale(folder):
        old = aside.with_name(f"{aside.name}-old")
        with suppress(FileNotFoundError):  # another process may be replacing it too
            folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    try:
        aside.rename(folder)
    except OSError:
        if not (folder / "manifest.json").is_file():
            raise


def is_stale(folder: Path) -> bool:
    """Whether `folder` is a whole preparation, but of another format."""
    try:
        return read_manifest(folder).get("format") != FORMAT
    except UserError:
        if folder.exists():
            raise
        return True  # another process is just replacing it


def read_manifest(folder: Path) -> dict:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(folder, f"manifest.json cannot be read ({error})") from error
    if not isinstance(manifest, dict):
        raise damaged(folder, "manifest.json is not a manifest")
    return manifest


def check_array(prepared: Prepared, name: str, described: dict) -> None:
    """UserError unless the file of array `name` is as the manifest describes it."""
    path = prepared.folder / f"{name}.npy"
    try:
        size, array = path.stat().st_size, prepared.array(name)
    except (OSError, EOFError, ValueError) as error:
        raise damaged(prepared.folder, f"{path.name} cannot be read ({error})") from error
    found = (list(array.shape), str(array.dtype), size)
    expected = (described["shape"], described["dtype"], described["bytes"])
    if found != expected or len(array) != prepared.rows(name.split("_")[0]):
        why = f"{path.name} (shape, dtype, bytes) is {found}, manifest.json says {expected}"
        raise damaged(prepared.folder, why)


def verify(folder: Path) -> Prepared:
    """Open `folder` and hash every array again; UserError if anything is not as it was written."""
    prepared = Prepared.open(folder)
    for name, described in read_manifest(folder)["arrays"].items():
        found = sha256_of(folder / f"{name}.npy")
        if found != described.get("sha256"):
            why = f"{name}.npy has SHA-256 {found}, manifest.json says {described.get('sha256')}"
            raise damaged(folder, why)
    return prepared


def damaged(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is damaged: {why}. Delete that folder to have it prepared again.")
