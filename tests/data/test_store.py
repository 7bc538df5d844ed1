import json
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
from runs import limit

from fedmpi.data import prepare as preparing
from fedmpi.data.dataset import Arrays, Dataset, Encoded
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare, verify
from fedmpi.data.store import ARRAYS, FORMAT, Prepared
from fedmpi.errors import UserError

OPTIONS = DataOptions()


class Tiny(Dataset):
    """Three rows of each split; `before` runs when it is read."""

    name = "tiny"

    def __init__(self, before=lambda: None, **changes):
        self.before, self.changes = before, changes

    def read(self, data_dir, options, progress=False):
        self.before()
        x = np.arange(6, dtype=np.float64).reshape(3, 2)
        y, group = np.array([0, 1, 2]), np.array([0, 1, 1])
        fields = {
            "groups": ("a", "b"),
            "classes": ("p", "q", "r"),
            "features": ("f", "g"),
            "notes": ["a note"],
            "sources": [{"file": "f", "sha256": "0", "origin": "here"}],
        }
        return Arrays(x, y, group, x + 1, y, group, **(fields | self.changes))


def never():
    raise AssertionError("read again")


def test_what_is_prepared_is_what_was_read_and_is_read_once(tmp_path):
    prepare(Tiny(), tmp_path, OPTIONS)
    tiny = prepare(Tiny(before=never), tmp_path, OPTIONS)
    for name in ARRAYS:
        array = tiny.array(name)
        assert isinstance(array, np.memmap) and not array.flags.writeable
        np.testing.assert_array_equal(array, getattr(Tiny().read(tmp_path, OPTIONS), name))
    assert tiny.array("train_x").dtype == np.float32
    assert tiny.array("train_y").dtype == tiny.array("test_group").dtype == np.uint8
    assert (tiny.groups, tiny.notes, tiny.counts["test"]) == (
        ("a", "b"),
        ("a note",),
        {"a": 1, "b": 2},
    )
    assert tiny.rows("train") == 3
    assert verify(tiny.folder) == tiny
    manifest = json.loads((tiny.folder / "manifest.json").read_text())
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest["sources"][0]["origin"] == "here"


@pytest.mark.parametrize("window", [1, 8, 20, 1 << 22])
def test_rows_are_taken_in_the_order_asked_for(tmp_path, monkeypatch, window):
    monkeypatch.setattr("fedmpi.data.store.WINDOW_BYTES", window)
    tiny = prepare(Tiny(), tmp_path, OPTIONS)
    for rows in ([2, 0, 1, 2], [1], [], slice(None), slice(1, 3)):
        wanted = rows if isinstance(rows, slice) else np.array(rows, dtype=np.int64)
        for name in ARRAYS:
            taken = tiny.take(name, wanted)
            np.testing.assert_array_equal(taken, tiny.array(name)[wanted])
            assert type(taken) is np.ndarray and taken.flags.writeable
            assert taken.dtype == tiny.array(name).dtype


class Large(Tiny):
    """Tiny, its inputs made of codes a row at a time."""

    def read(self, data_dir, options, progress=False):
        bad = self.changes.pop("bad", 0.0)
        arrays = super().read(data_dir, options, progress)
        for name in ("train_x", "test_x"):
            x = getattr(arrays, name)
            encoded = Encoded(np.arange(3), lambda rows, x=x: (x + bad).astype(np.float32)[rows], 2)
            encoded = encoded[np.array([True, True, True])]
            setattr(arrays, name, encoded)
        return arrays


def test_inputs_written_in_batches_are_the_same_file(tmp_path, monkeypatch):
    whole = prepare(Tiny(), tmp_path / "whole", OPTIONS)
    batches = Encoded.batches
    monkeypatch.setattr(Encoded, "batches", lambda self: batches(self, rows=2))
    large = prepare(Large(), tmp_path / "batches", OPTIONS)
    assert verify(large.folder).counts == whole.counts
    for name in ARRAYS:
        path = f"{name}.npy"
        assert (large.folder / path).read_bytes() == (whole.folder / path).read_bytes()


def test_batches_that_are_not_finite_are_not_stored(tmp_path):
    with pytest.raises(ValueError, match="not finite"):
        prepare(Large(bad=np.nan), tmp_path, OPTIONS)
    assert not list(tmp_path.glob("prepared/*"))


def test_the_folder_has_the_rights_of_any_new_folder(tmp_path):
    (tmp_path / "plain").mkdir()
    folder = prepare(Tiny(), tmp_path, OPTIONS).folder
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda folder: (folder / "train_x.npy").unlink(), "train_x.npy cannot be read"),
        (lambda folder: os.truncate(folder / "test_y.npy", 100), "test_y.npy"),
        (lambda folder: os.truncate(folder / "test_y.npy", 0), "test_y.npy"),
        (lambda folder: np.save(folder / "train_y.npy", np.zeros(4, np.uint8)), "train_y.npy"),
        (lambda folder: np.save(folder / "train_y.npy", np.zeros(3, np.int8)), "int8"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest.json"),
        (
            lambda folder: (folder / "manifest.json").write_text(f'{{"format": {FORMAT}}}'),
            "dataset",
        ),
    ],
)
def test_damage_is_refused_with_the_folder_to_delete(tmp_path, damage, message):
    folder = prepare(Tiny(), tmp_path, OPTIONS).folder
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        prepare(Tiny(), tmp_path, OPTIONS)
    assert str(folder) in str(error.value) and "Delete" in str(error.value)


def test_columns_to_split_by_are_kept_as_codes(tmp_path):
    words = np.array(["up", "down", "up"], dtype=object)
    by = {"way": words, "floor": np.array([10, 2, 10]), "id": np.arange(3) / 7}
    tiny = prepare(Tiny(by=by), tmp_path, OPTIONS)
    assert tiny.by_values["way"] == ["down", "up"] and tiny.by_values["floor"] == ["2", "10"]
    assert tiny.array("train_by").tolist() == [[1, 1, 0], [0, 0, 1], [1, 1, 2]]
    assert tiny.array("train_by").dtype == np.uint8
    assert verify(tiny.folder).by_values == tiny.by_values
    assert prepare(Tiny(), tmp_path / "without", OPTIONS).by_values == {}
    with pytest.raises(ValueError, match="has 2 rows"):
        prepare(Tiny(by={"way": words[:2]}), tmp_path / "short", OPTIONS)


def test_verify_sees_one_changed_byte(tmp_path):
    folder = prepare(Tiny(), tmp_path, OPTIONS).folder
    data = bytearray((folder / "train_x.npy").read_bytes())
    data[-1] ^= 1
    (folder / "train_x.npy").write_bytes(data)
    Prepared.open(folder)  # the sizes agree: opening alone cannot see it
    with pytest.raises(UserError, match=r"train_x\.npy has SHA-256"):
        verify(folder)


def test_another_format_is_rebuilt(tmp_path):
    folder = prepare(Tiny(), tmp_path, OPTIONS).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": FORMAT - 1}))
    tiny = prepare(Tiny(notes=["anew"]), tmp_path, OPTIONS)
    assert tiny.notes == ("anew",)
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"groups": ("a", "b", "c")}, UserError, "'c' has no rows to train on"),
        ({"groups": ("a", "a")}, UserError, "same name"),
        ({"classes": ("p", "q")}, ValueError, "outside 0 … 1"),
    ],
)
def test_arrays_that_cannot_be_are_not_stored(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        prepare(Tiny(**changes), tmp_path, OPTIONS)
    assert not list(tmp_path.glob("prepared/*"))


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    def full(path, array):
        raise OSError("No space left on device")

    monkeypatch.setattr(preparing.np, "save", full)
    with pytest.raises(UserError, match="No space left"):
        prepare(Tiny(), tmp_path, OPTIONS)
    assert not list((tmp_path / "prepared").iterdir())


def die_half_way(data_dir):
    save, preparing.np.save = np.save, lambda *arguments: (save(*arguments), os._exit(9))
    prepare(Tiny(), data_dir, OPTIONS)


def prepare_together(data_dir, barrier, note):
    prepare(Tiny(before=barrier.wait, notes=[note]), data_dir, OPTIONS)


def run(target, *arguments):
    # Spawned, not forked: a fork of a process that has MPI open is not safe.
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


def test_a_process_killed_half_way_leaves_nothing_that_is_used(tmp_path):
    process = run(die_half_way, tmp_path)
    process.join()
    assert process.exitcode == 9
    assert not (tmp_path / "prepared/tiny").exists()
    assert prepare(Tiny(notes=["whole"]), tmp_path, OPTIONS).notes == ("whole",)


@pytest.mark.parametrize("stale", [False, True])
def test_two_processes_at_once_both_succeed(tmp_path, stale):
    if stale:
        folder = prepare(Tiny(), tmp_path, OPTIONS).folder
        (folder / "manifest.json").write_text('{"format": 0}')
    barrier = multiprocessing.get_context("spawn").Barrier(2, timeout=limit())
    processes = [run(prepare_together, tmp_path, barrier, note) for note in ("one", "two")]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert verify(tmp_path / "prepared/tiny").notes[0] in ("one", "two")
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == ["tiny"]


def test_ranks_import_nothing_heavy():
    code = "import fedmpi.data.prepare, sys; print([m in sys.modules for m in %r])"
    heavy = ("pandas", "torch", "tqdm", "urllib.request")
    output = subprocess.check_output([sys.executable, "-c", code % (heavy,)], text=True)
    assert output.strip() == str([False] * len(heavy))
