"""What the pages of the documentation name is there: links, anchors, commands, paths."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = ("*.md", "docs/*.md", "benchmarks/**/*.md", "data/README.md", "hostfiles/*.md")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))
OF_THE_TREE = ("fedmpi/", "tests/", "docs/", "benchmarks/", "launch/", "hostfiles/", ".ci/")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")
COMMAND = re.compile(r"python3? -m (fedmpi[\w.]*)")
CODE = re.compile(r"`([^`\n]+)`")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors that a page has on GitHub: its headings, without punctuation, with hyphens."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    missing = []
    for link in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue  # on the web, where this test does not go
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_there(page):
    named = set(COMMAND.findall(page.read_text()))
    assert not [module for module in named if not importlib.util.find_spec(module)]


def test_every_package_is_in_the_architecture():
    text = (ROOT / "docs/architecture.md").read_text()
    parts = {path.stem for path in (ROOT / "fedmpi").iterdir() if path.suffix in ("", ".py")}
    assert not [part for part in parts if part[0] != "_" and f"`{part}`" not in text]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_are_there(page):
    """Paths in backticks from the root of the clone, and modules of fedmpi with their package."""
    missing = []
    for code in CODE.findall(page.read_text()):
        for word in re.split(r"[\s,:]+", code):
            word = word.removeprefix("./")
            in_package = re.fullmatch(r"[a-z_]+/[a-z_/]+\.py", word)
            if word.startswith(OF_THE_TREE) or in_package:
                here = (ROOT, ROOT / "fedmpi", page.parent)
                if not any((place / word).exists() for place in here):
                    missing.append(word)
    assert not missing
