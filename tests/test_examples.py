"""The notebooks of examples/ run from top to bottom, and show their figures."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from runs import limit

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def name(path: Path) -> str:
    return path.stem


QUICK = ("quick_start", "own_method")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if name(path) in QUICK else [pytest.mark.slow], id=name(path))
        for path in NOTEBOOKS
    ],
)
def test_notebook_runs_and_shows_figures(path, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # and nothing in the user's home
    notebook = nbformat.read(path, as_version=4)
    (tmp_path / "cwd").mkdir()
    NotebookClient(
        notebook, timeout=int(limit()), resources={"metadata": {"path": str(tmp_path / "cwd")}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    drawn = [cell for cell in notebook.cells if re.search(r"\.plot\b", cell.source)]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) == len(drawn) > 0
    errors = [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert not errors


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_kept_without_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)
