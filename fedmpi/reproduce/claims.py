"""The paper's claims, each decided by figures: pass, fail, or not decided here.

By tests, where the runs have replicates of their test rows: paired over seeds and rows, at 5%
(scoring/comparison.py). Each check has two, one that finds it as claimed and one that finds it
otherwise; both kinds are Holm-corrected over the checks of a claim, so that a check of it passes
wrongly, or fails wrongly, with a probability of 5% each. "Equal" is less than .01 apart. A check of
which neither is found decides nothing. Weights have no rows: of them the seeds alone are tested.

By the rule, which is shown beside, and decides where there is no test (claim 6, of distances; runs
without replicates; the paper's own tables): two figures are equal if they differ by at most
max(.01, 2 standard deviations), the larger of the two deviations over seeds; .01 alone where there
is one seed. Both were fixed before the runs that they decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fedmpi.errors import UserError
from fedmpi.reproduce.paper import CLIENTS
from fedmpi.reproduce.statistics import HETEROGENEITY, Figures, Mean, Run
from fedmpi.scoring import comparison
from fedmpi.scoring.comparison import ALPHA, Difference, over_seeds
from fedmpi.significance import holm

LEAST = 0.01
SLACK = 1e-9
"""Added to each limit, for figures of three digits whose difference is .01 but for rounding."""
PASS, FAIL, OPEN = "pass", "fail", "not decided here"
QUICK = "A quick look: few rounds and local epochs, one seed. Not a result."


def allowed(a: Mean, b: Mean) -> float:
    """The largest difference between two figures that still count as equal."""
    return max(LEAST, 2 * max(a.std or 0.0, b.std or 0.0)) + SLACK


Holds = Callable[[float, float], bool]
"""Whether a difference is as claimed, given the largest difference of what counts as equal."""
WORDS = {True: PASS, False: FAIL, None: OPEN}


@dataclass
class Claim:
    """A claim and its checks: the claim passes if all checks do, and fails if one check does."""

    number: int
    text: str
    checks: list[tuple[bool | None, str]] = field(default_factory=list)
    tests: dict[int, tuple[Holds, Difference]] = field(default_factory=dict)
    """What a check claims, and the difference that tests it, by the number of the check."""

    def check(self, holds: bool | None, figures: str) -> None:
        self.checks.append((holds, figures))

    def compare(
        self,
        figures: Figures,
        what: str,
        names: tuple[str, str],
        runs: tuple[Run | None, Run | None],
        holds: Holds,
        kind: str = "risk",
        column: str = "worst",
    ) -> None:
        """Check `holds(a - b, allowed difference)`; the check is open if a or b is missing."""
        a, b = (figures.get(kind, run, column) for run in runs)
        if a is None or b is None:
            missing = " and ".join(
                name for name, cell in zip(names, (a, b), strict=True) if not cell
            )
            self.check(None, f"{what}: no run of {missing}")
            return
        if difference := paired(figures, runs, kind, column):
            self.tests[len(self.checks)] = holds, difference
        limit = allowed(a, b)
        text = f"{what}: {names[0]} {show(a)}, {names[1]} {show(b)}, difference "
        self.check(
            holds(a.mean - b.mean, limit), f"{text}{a.mean - b.mean:+.3f}, allowed {limit:.3f}"
        )

    @property
    def rule(self) -> str:
        """Verdict by the rule."""
        return _verdict([holds for holds, _ in self.checks])

    @property
    def verdict(self) -> str:
        """Verdict by tests if there is any, else by the rule."""
        tested = self.tested
        return _verdict([tested.get(i) for i in range(len(self.checks))]) if tested else self.rule

    @property
    def tested(self) -> dict[int, bool | None]:
        """What the tests find of the checks that have one, by the number of the check."""
        tests = [(TESTS[holds], difference) for holds, difference in self.tests.values()]
        passed, failed = (
            [p <= ALPHA for p in holm([getattr(kinds, kind)(d) for kinds, d in tests])]
            for kind in ("passes", "fails")
        )
        found: dict[int, bool | None] = {}
        for i, (kinds, _), yes, no in zip(self.tests, tests, passed, failed, strict=True):
            found[i] = kinds.within if yes and no else yes or (False if no else None)
        return found

    def as_dict(self) -> dict:
        tested = self.tested
        checks: list[dict] = []
        for i, (holds, text) in enumerate(self.checks):
            verdict = WORDS[tested.get(i) if tested else holds]
            checks.append({"verdict": verdict, "rule": WORDS[holds], "figures": text})
            if i in self.tests:
                checks[i]["test"] = told(*self.tests[i])
        claim = {"number": self.number, "claim": self.text, "verdict": self.verdict}
        return claim | {"rule": self.rule, "checks": checks}


def _verdict(held: list[bool | None]) -> str:
    if False in held:
        return FAIL
    return OPEN if None in held or not held else PASS


def paired(
    figures: Figures, runs: tuple[Run | None, Run | None], kind: str, column: str
) -> Difference | None:
    """Difference of a figure of two runs, in pairs of seeds and test rows; None if it has none."""
    a, b = runs
    if a is None or b is None:
        return None
    if kind == "weight":
        return _of_weights(figures, a, b, column)
    try:
        first, second = (figures.replicates.get(run, {}) for run in (a, b))
        return comparison.difference(first, second, column, kind)
    except UserError:  # no replicates, no seed in common, or other test rows
        return None


def _of_weights(figures: Figures, a: Run, b: Run, name: str) -> Difference | None:
    first, second = (
        {seed: result["groups"][name].get("weight") for seed, result in results.items()}
        for results in (figures.results.get(run, {}) for run in (a, b))
    )
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    known = [x - y for x, y in pairs if x is not None and y is not None]
    return over_seeds(np.array(known)) if len(known) > 1 else None


def told(holds: Holds, difference: Difference) -> str:
    """Text of a difference: its interval, and the p-values of what is claimed and the opposite."""
    low, high = difference.interval()
    seeds = f"{difference.seeds} seeds" if difference.seeds > 1 else "one seed, so of these models"
    ends = f"{difference.value:+.3f} [{low:+.3f}, {high:+.3f}]"
    kinds = TESTS[holds]
    return (
        f"{ends}, p {kinds.passes(difference):.2g} for it, {kinds.fails(difference):.2g} against; "
        f"{seeds}"
    )


def show(cell: Mean) -> str:
    """Text of a figure, to three digits."""
    return f"{cell.mean:.3f}" + (f"±{cell.std:.3f}" if cell.std is not None else "")


def equal(difference: float, limit: float) -> bool:
    return abs(difference) <= limit


def above(difference: float, limit: float) -> bool:
    return difference > limit


def not_above(difference: float, limit: float) -> bool:
    return difference <= limit


def below(difference: float, limit: float) -> bool:
    return difference < -limit


@dataclass(frozen=True)
class Tests:
    """P-values of what a check claims, and of the opposite."""

    passes: Callable[[Difference], float]
    fails: Callable[[Difference], float]
    within: bool
    """What a check is if both are found: a difference that is there, and within the margin."""


TESTS: dict[Holds, Tests] = {
    equal: Tests(Difference.p_equal, lambda d: d.p_different, True),
    not_above: Tests(Difference.p_not_above, lambda d: d.p_higher, True),
    above: Tests(lambda d: d.p_higher, Difference.p_not_above, False),
    below: Tests(lambda d: d.p_lower, Difference.p_not_below, False),
}


def decide(figures: Figures) -> list[Claim]:
    """All claims, decided. With two groups PSG would be SSG, so "every setting" is without PSG."""
    settings = [s for s in HETEROGENEITY if s != "PSG" or len(figures.groups) > 2]
    claims = [decider(figures, settings) for decider in DECIDERS]
    for number, claim in enumerate(claims, 1):
        claim.number = number
    return claims


def _worst(figures: Figures, run: Run | None) -> Mean | None:
    return figures.get("risk", run, "worst")


def equals_centralized(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(1, "FedMinMax equals the centralized baseline in every setting")
    baseline = figures.find("centralized", "")
    for setting in settings:
        run = figures.find("fedminmax", setting)
        for column in ("worst", *(g for g in figures.groups if g != "worst")):
            what, names = f"{setting}, risk of {column}", ("FedMinMax", "centralized")
            claim.compare(figures, what, names, (run, baseline), equal, column=column)
    return claim


def afl_equals_in_ssg(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(2, "AFL equals FedMinMax only in SSG (worst group's risk)")
    for setting in settings:
        runs = figures.find("afl", setting), figures.find("fedminmax", setting)
        what = f"{setting}, {'equal' if setting == 'SSG' else 'AFL worse'}"
        holds = equal if setting == "SSG" else above
        claim.compare(figures, what, ("AFL", "FedMinMax"), runs, holds)
    return claim


def fedavg_falls(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(3, "FedAvg's worst-group accuracy falls as shards get more heterogeneous")
    runs = {setting: figures.find("fedavg", setting) for setting in settings}

    def compare(first: str, second: str, holds: Holds, word: str) -> None:
        risks = [_worst(figures, runs[s]) for s in (first, second)]
        beside = " and ".join(show(cell) if cell else "-" for cell in risks)
        what = f"{second} {word} {first} (worst risk in {first}, {second}: {beside})"
        pair = runs[second], runs[first]
        claim.compare(figures, what, (second, first), pair, holds, "accuracy")

    for first, second in pairwise(settings) if len(settings) > 2 else ():
        compare(first, second, not_above, "not above")
    compare(settings[0], settings[-1], below, "below")
    return claim


def best_worst_group(figures: Figures, settings: list[str]) -> Claim:
    """Claim 4, against the methods of the paper's figures: LocalFedMinMax is in claim 7 alone."""
    claim = Claim(4, "FedMinMax has the lowest risk of the worst group, or ties for it, everywhere")
    for setting in settings:
        ours = figures.find("fedminmax", setting)
        others = [
            run
            for run in figures.runs
            if (run.clients, run.setting) == (figures.clients, setting)
            and run.method not in ("fedminmax", "localfedminmax")
        ]
        if not others:
            claim.check(None, f"{setting}: no run of another method")
        for run in others:
            name = f"{run.method} {run.parameter}".strip()
            what, names = f"{setting}, not above {name}", ("FedMinMax", name)
            claim.compare(figures, what, names, (ours, run), not_above)
    return claim


def same_weights(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(5, "FedMinMax ends with the same group weights in every setting")
    runs = {setting: figures.find("fedminmax", setting) for setting in settings}
    for i, first in enumerate(settings):
        for second in settings[i + 1 :]:
            for name in figures.groups:
                pair, what = (runs[first], runs[second]), f"weight of {name}"
                claim.compare(figures, what, (first, second), pair, equal, "weight", name)
    return claim


def afl_weights_move(figures: Figures, settings: list[str]) -> Claim:
    """Claim 6: "near" is at most a tenth of the way of FedMinMax's weights from the priors, or .01.

    A way is half the sum of the differences over the groups.
    """
    claim = Claim(
        6, "AFL's group weights stay near the priors in ESG, and move to the minimax ones"
    )
    priors = figures.priors if len(figures.priors) == len(figures.groups) else None
    afl, ours = ({s: _weights(figures, m, s) for s in settings} for m in ("afl", "fedminmax"))
    way, whole = _distance(afl["ESG"], priors), _distance(ours["ESG"], priors)
    if way is None or whole is None:
        claim.check(None, "ESG, way from the priors: no priors, or no run of AFL and FedMinMax")
    else:
        figures_text = f"AFL {way:.3f}, FedMinMax {whole:.3f}, allowed {max(LEAST, whole / 10):.3f}"
        claim.check(
            way <= max(LEAST, whole / 10) + SLACK, f"ESG, way from the priors: {figures_text}"
        )
    ways = {s: d for s in settings if (d := _distance(afl[s], ours[s])) is not None}
    text = ", ".join(f"{setting} {d:.3f}" for setting, d in ways.items()) or "no runs"
    text = f"way from AFL's weights to FedMinMax's: {text}"
    if len(ways) < len(settings) or ways["ESG"] <= LEAST:
        claim.check(None, text)
    else:
        shrinks = all(b <= a + LEAST for a, b in pairwise(ways.values()))
        claim.check(shrinks and ways["SSG"] < ways["ESG"] - LEAST, text)
    return claim


def _weights(figures: Figures, method: str, setting: str) -> dict[str, float] | None:
    """Mean final weight of each group, if the method was run."""
    run = figures.find(method, setting)
    cells = {name: figures.get("weight", run, name) for name in figures.groups}
    weights = {name: cell.mean for name, cell in cells.items() if cell}
    return weights if len(weights) == len(cells) else None


def _distance(a: dict[str, float] | None, b: dict[str, float] | None) -> float | None:
    """Total variation between two distributions over the groups, if both are known."""
    return sum(abs(a[name] - b[name]) for name in a) / 2 if a and b else None


def local_is_worse(figures: Figures, settings: list[str]) -> Claim:
    claim = Claim(
        7, "LocalFedMinMax is worse than FedMinMax at 40 clients in ESG and PSG, equal in SSG"
    )
    for setting in settings:
        names = ("localfedminmax", "fedminmax")
        local, ours = (figures.find(method, setting, CLIENTS) for method in names)
        what = f"{setting}, {'equal' if setting == 'SSG' else 'worse'}"
        holds = equal if setting == "SSG" else above
        claim.compare(figures, what, ("LocalFedMinMax", "FedMinMax"), (local, ours), holds)
    return claim


DECIDERS = (
    equals_centralized,
    afl_equals_in_ssg,
    fedavg_falls,
    best_worst_group,
    same_weights,
    afl_weights_move,
    local_is_worse,
)
