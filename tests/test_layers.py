"""The layers of fedmpi: a module imports from its own layer and from earlier ones, not from later.

Imports within functions count; those for type checkers alone do not, since nothing is loaded then.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import fedmpi

LAYERS = (
    *("errors", "intervals significance", "plugins", "mpi", "privacy", "data models", "methods"),
    *("run", "scoring", "federation", "commands"),
)
"""What shares a layer, as `data` and `models` do, must do without each other."""
COMMANDS = (
    "train",
    "predict",
    "evaluate",
    "verify",
    "tune",
    "reproduce",
    "compare",
    "report",
    "card",
    "bench",
    "scaling",
    "keys",
    "interface",
    "__init__",
)
"""One part: a command may use another's modules. The Python interface is above all, too."""
ROOT = Path(fedmpi.__file__).parent
LAYER_OF = {part: i for i, layer in enumerate(LAYERS) for part in layer.split()}


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the modules of fedmpi that are imported in `node`, without the leading "fedmpi."."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "a relative import, which this test cannot place"
        package = node.module == "fedmpi"
        names = [f"fedmpi.{a.name}" for a in node.names] if package else [str(node.module)]
    yield from (name.removeprefix("fedmpi.") for name in names if name.startswith("fedmpi."))
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def part(module: str) -> str:
    """Return the first name of a module, or "commands" for that of any command."""
    first = module.partition(".")[0]
    return "commands" if first in COMMANDS else first


def test_no_module_imports_from_a_later_layer():
    found = set()
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for imported in imports(ast.parse(path.read_text(encoding="utf-8"))):
            here, there = part(module), part(imported)
            if here != there and LAYER_OF[here] <= LAYER_OF[there]:
                found.add((module, imported))
    assert not found


def test_mpi_is_imported_where_its_settings_are_made():
    """Whoever imports mpi4py.MPI first starts it: without our settings, and maybe apart."""
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "from mpi4py import MPI" in path.read_text(encoding="utf-8")
    }
    # bench/bare.py measures MPI without fedmpi; scaling asks for the vendor, and starts nothing.
    assert found == {"mpi/init.py", "bench/bare.py", "scaling/__main__.py"}
