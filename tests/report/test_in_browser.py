"""The report in a real, headless Chromium: drawn without a complaint, and it answers."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from browser import Browser, chromium
from reports import NASTY

from fedmpi.report.__main__ import main

pytestmark = pytest.mark.skipif(not chromium(), reason="there is no Chromium on this machine")

PAUSE = "new Promise(done => setTimeout(done, 50))"
NOTHING_FADES = "{ const f = setTimeout; window.setTimeout = (g, ms) => ms < 1000 ? f(g, ms) : 0; }"
"""A message that goes away by itself may be gone before a busy machine has looked."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Make the report of some folders, and open it."""

    def open_report(*folders, **options):
        file = tmp_path / "report.html"
        assert main([*map(str, folders), "--output", str(file)]) == 0
        browser.events.clear()
        browser.open(file, **options)
        assert browser.run("document.documentElement.dataset.ready") == "yes", browser.complaints()
        return file

    return open_report


CHECKS = [{"verdict": "pass", "figures": "0"}, {"verdict": "fail", "figures": ".5 over .4"}]


def count(browser, selector: str) -> int:
    return browser.run(f"document.querySelectorAll({selector!r}).length")


def test_a_set_of_runs(browser, show, runs, nasty):
    claim = {"number": 1, "claim": "c", "verdict": "fail", "checks": CHECKS, "paper_tables": "pass"}
    (runs / "claims.json").write_text(json.dumps({"claims": [claim]}))
    file = show(runs, nasty)
    assert count(browser, "section") == 2
    first = 'section[data-dataset="synthetic"] '
    risk, accuracy = f'{first}[data-figure="bars-risk"] ', f'{first}[data-figure="bars-accuracy"] '
    # Two settings, three methods in each (the baseline is in both), three bars.
    assert count(browser, f"{risk}.panel") == 2
    assert count(browser, f"{risk}rect.bar") == count(browser, f"{accuracy}rect.bar") == 18
    assert count(browser, f"{risk}path.error") == 18
    assert count(browser, f'{first}[data-figure="hypothesis"] .panel') == 3  # and that of the run
    trend = f'{first}[data-figure="trend"] '
    assert count(browser, f"{trend}.panel") == 2 and count(browser, f"{trend}path.curve") == 6
    browser.click(f"{trend}.legend button", 0)
    assert count(browser, f"{trend}path.curve") == 4
    told = browser.run(f"document.querySelector('{first}').textContent")
    assert "✓ pass" in told and "1 of 2 checks passed" in told and "✗ fail: .5 over .4" in told

    # A bar's length is its value.
    ratios = browser.run(
        f"[...document.querySelectorAll('{risk}.panel:first-child rect.bar')]"
        ".map(bar => bar.getAttribute('width') / bar.dataset.value)"
    )
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-6)

    browser.point(f"{risk}rect.bar")
    assert browser.run("!document.getElementById('tip').hidden")
    assert "FedAvg, ESG" in browser.run("document.getElementById('tip').textContent")

    browser.click(f"{risk}.legend button", 2)
    assert count(browser, f"{risk}rect.bar") == count(browser, f"{accuracy}rect.bar") == 12
    assert count(browser, f'{risk}rect[data-bar="best"]') == 0
    browser.click(f"{risk}.legend button", 2)
    assert count(browser, f"{risk}rect.bar") == 18

    # Another run.
    browser.run(
        f"(() => {{ const s = document.querySelector('{first}select');"
        "s.value = [...s.options].find(o => o.text === 'FedAvg, SSG, seed 1').value;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    shown = browser.run(f"document.querySelector('{first}[data-run]').textContent")
    assert "no weights of groups" in shown and "Groups: FedAvg, SSG, seed 1" in shown

    assert browser.complaints() == []
    assert set(browser.requests()) == {file.as_uri()}


def test_one_run_of_two_owners(browser, show, owned):
    show(owned)
    names = "[...document.querySelectorAll('text.client')].map(t => t.textContent)"
    assert browser.run(names) == ["First Bank", "Second Bank"]
    assert count(browser, '[data-figure="groups-risk"] path.error') == 3  # a group each
    told = browser.run("document.body.textContent")
    assert "groups by" in told and "the data say who holds which row" in told
    assert count(browser, "details.model-card h3") > 5 and "Who is worst off" in told
    # Marks are within their figure.
    outside = (
        "[...document.querySelectorAll('svg path[transform]')].filter(mark => {"
        "const a = mark.getBoundingClientRect(), b = mark.ownerSVGElement.getBoundingClientRect();"
        "return a.left < b.left || a.right > b.right || a.top < b.top || a.bottom > b.bottom; })"
    )
    assert browser.run(f"{outside}.length") == 0 and browser.complaints() == []


def test_the_headline_compares_runs_of_one_number_of_clients(browser, show, runs, edit):
    """The best of all has two clients, where the others have four: it does not count."""
    other = runs / "two"
    shutil.copytree(runs / "ESG-fedminmax-s0", other)
    for name in ("config.json", "result.json"):
        edit(other / name, clients=2, seed=7)
    edit(other / "result.json", worst_risk=0.001)
    show(runs)
    told = browser.run("document.querySelector('[data-figure=bars-risk] .panel .sub').textContent")
    assert told.startswith("with 4 clients, lowest") and "(2 clients)" not in told


def test_tables_are_sorted_and_copied(browser, show, runs):
    show(runs)
    table = '[data-table="Methods and settings"] '
    column = (
        f"[...document.querySelectorAll('{table}tbody tr')].map(row => row.cells[3].textContent)"
    )
    before = browser.run(column)
    browser.click(f"{table}thead button", 3)
    falling = [float(text.split(" ±")[0]) for text in browser.run(column)]
    assert falling == sorted(falling, reverse=True) and len(set(falling)) > 1
    browser.click(f"{table}thead button", 3)
    rising = [float(text.split(" ±")[0]) for text in browser.run(column)]
    assert rising == sorted(rising)

    # The clipboard, and without it the old way; without both, text to copy by hand.
    browser.run(NOTHING_FADES)
    for separator, number in ((",", 0), ("\t", 1)):
        browser.run(
            "navigator.clipboard.writeText = async text => { window.copied = text; }; undefined"
        )
        browser.click(f"{table}.tools button", number)
        browser.run(PAUSE)
        rows = list(csv.DictReader(io.StringIO(browser.run("copied")), delimiter=separator))
        assert [round(float(row["worst risk"]), 4) for row in rows] == rising
        assert all(float(row["worst risk std"]) >= 0 for row in rows)
    refused = "navigator.clipboard.writeText = async () => { throw new Error('refused'); };"
    browser.run(f"{refused} document.execCommand = () => true; undefined")
    browser.click(f"{table}.tools button", 0)
    browser.run(PAUSE)
    assert "5 rows copied" in browser.run(f"document.querySelector('{table}output').textContent")
    assert count(browser, f"{table}.by-hand") == 0
    browser.run("document.execCommand = () => false; undefined")
    browser.click(f"{table}.tools button", 0)
    browser.run(PAUSE)
    text = browser.run(f"document.querySelector('{table}.by-hand').value")
    assert text.startswith("method,setting,seeds,worst risk,worst risk std,")

    browser.click(f"{table}thead button", 3)
    assert browser.run(column) == before


def test_a_run_whose_groups_are_named_in_html_tex_and_unicode(browser, show, nasty):
    show(nasty)
    assert count(browser, "#report b") == 5  # the tiles: no name became an element
    history = '[data-figure="history"] '
    names = browser.run(
        f"[...document.querySelectorAll('{history}.legend button')].map(b => b.textContent)"
    )
    assert sorted(names) == sorted(NASTY)
    assert count(browser, f"{history}path.curve") == 6  # three groups: risk and weight
    browser.click(f"{history}.legend button", 1)
    assert count(browser, f"{history}path.curve") == 4
    assert (
        browser.run(f"document.querySelectorAll('{history}.legend button')[1].ariaPressed")
        == "false"
    )
    browser.point(f"{history}svg[role=img]")
    assert "round" in browser.run("document.getElementById('tip').textContent")
    assert count(browser, '[data-figure="partition"] path.cells') > 0
    assert count(browser, '[data-figure="time"] path.time') == 3
    assert browser.complaints() == []


def test_what_is_missing_is_said(browser, show, run):
    for name in ("history.csv", "partition.npz", "model.pt"):
        (run / name).unlink()
    show(run)
    text = browser.run("document.body.innerText")
    for name in ("no history.csv", "no partition.npz", "no model.pt"):
        assert name in text
    assert count(browser, "svg[role=img]") == 2  # risk and weight of the groups
    assert browser.complaints() == []


def test_committed_results_without_their_runs(browser, show):
    """Adult: the printed numbers are those of risks.csv. ACS has no shares of the groups either."""
    results = Path(__file__).parents[2] / "results/paper-steps"
    show(results / "adult", width=1300)
    table = '[data-table="Methods and settings"] '
    rows = browser.run(
        f"[...document.querySelectorAll('{table}tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    printed = {(method, setting): worst for method, setting, _, worst, *_ in rows}
    with open(results / "adult/risks.csv", encoding="utf-8", newline="") as file:
        worst = [r for r in csv.DictReader(file) if r["group"] == "worst"]
    assert len(worst) == 22
    for row in worst:
        names = [n for n in printed if n[1] == (row["setting"] or "–")]
        said = {printed[name] for name in names}
        assert f"{float(row['mean']):.4f} ± {float(row['std']):.4f}" in said, row
    assert printed["FedMinMax (40 clients)", "PSG"] == "0.4484 ± 0.0013"
    assert count(browser, '[data-figure="trend"]') == 0
    assert "curves over the rounds" in browser.run("document.querySelector('.note').textContent")
    assert browser.complaints() == []
    show(results, width=1300)
    assert count(browser, "section") == 5
    assert browser.complaints() == []


def test_it_fits_a_phone_and_prints(browser, show, runs):
    show(runs, width=390)
    # Wide tables scroll in their own boxes, not the page.
    assert browser.run("document.documentElement.scrollWidth") <= 390
    wide = "[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    assert browser.run(wide)
    assert browser.print().startswith(b"%PDF")
    show(runs, dark=True)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"
    assert browser.complaints() == []
