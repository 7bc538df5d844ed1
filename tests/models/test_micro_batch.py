"""The default of --micro-batch: from the model and the cache."""

import pytest

from fedmpi import models
from fedmpi.federation import plan
from fedmpi.federation.clients import split_run
from fedmpi.models import micro_batch
from fedmpi.models.micro_batch import USUAL_CACHE, cache_of_a_core, rows_of_a_pass


def test_the_cache_is_read_where_the_system_tells(tmp_path):
    for i, (level, size) in enumerate([("1", "48K"), ("1", "32K"), ("2", "2048K"), ("3", "9M")]):
        (tmp_path / f"index{i}").mkdir()
        (tmp_path / f"index{i}" / "level").write_text(level + "\n")
        (tmp_path / f"index{i}" / "size").write_text(size + "\n")
    assert cache_of_a_core(tmp_path) == 2**21
    (tmp_path / "index2" / "size").write_text("large\n")
    assert cache_of_a_core(tmp_path) == USUAL_CACHE == cache_of_a_core(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "shape", "cache", "size", "rows"),
    [
        ("mlp", (91,), 2**20, 4, 768),
        ("mlp", (91,), 2**20, 8, 384),
        ("mlp", (1, 28, 28), 2**20, 4, 384),  # the inputs are the widest
        ("mlp4", (1,), 2**21, 4, 1536),
        ("mlp", (91,), 2**17, 4, 256),
        ("logistic", (16,), 2**20, 4, 4096),
        ("cnn", (1, 28, 28), 2**17, 4, 128),
    ],
)
def test_wide_layers_and_small_caches_take_fewer_rows(monkeypatch, name, shape, cache, size, rows):
    monkeypatch.setattr(micro_batch, "cache_of_a_core", lambda: cache)
    assert rows_of_a_pass(name, models.build(name, shape, 2, seed=0), size) == rows


@pytest.mark.parametrize("rows", [1, 49, 50, 51, 101, 1000])
def test_pieces_are_as_few_as_may_be_and_even(rows):
    batches = split_run(7, 7 + rows, 50)
    assert batches[0].start == 7 and batches[-1].stop == 7 + rows
    lengths = [batch.stop - batch.start for batch in batches]
    assert sum(lengths) == rows and len(lengths) == -(-rows // 50)
    assert max(lengths) <= 50 and max(lengths) - min(lengths) <= 1


def test_a_resume_on_another_machine_keeps_the_size(train, cut, monkeypatch):
    """The bits of theta depend on it."""
    there = train(*cut, output="whole")
    monkeypatch.setattr(plan, "rows_of_a_pass", lambda *_: 7)
    resumed = train(*cut, "--resume")
    assert resumed.config["micro_batch"] == there.config["micro_batch"] != 7
    assert (resumed.theta() == there.theta()).all()
