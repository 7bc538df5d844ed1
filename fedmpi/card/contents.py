"""What a model card says of a run, as plain data: Markdown and the report are made of it.

All of it is from the folder of the run, and from the manifest of its prepared rows where that is
still there. What only people can know (what the model is for, who decides by it) is left to them,
and said to be.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedmpi import data as datasets
from fedmpi.data.settings import in_words
from fedmpi.intervals import FEW
from fedmpi.reproduce.statistics import dataset_title, method_title, number, option_facts, run_of
from fedmpi.run.config import IDENTITY
from fedmpi.run.display import extreme
from fedmpi.run.record import Record
from fedmpi.scoring.fairness import DIFFERENCES, RATES


@dataclass
class Part:
    """A part of the card: a heading, paragraphs, a list of items, and tables."""

    title: str
    text: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    tables: list[dict[str, list]] = field(default_factory=list)
    """Each with the names of its `columns` and its `rows`, of text."""


def card_of(record: Record, baseline: Record | None = None) -> list[dict]:
    """Parts of the card of a run; `baseline` is the same run without weights, to compare with."""
    run_of(record.config)  # which reads the title of a method of the user's own
    manifest = _manifest(record.config)
    parts = [
        _purpose(record, manifest),
        _data(record, manifest),
        _groups(record),
        *_rates(record),
        _worst(record),
        _cost(record, baseline),
        _training(record),
        _limits(record),
    ]
    return [asdict(part) for part in parts]


def title_of(record: Record) -> str:
    """Heading of the card."""
    run_of(record.config)
    return f"Model card: {dataset_title(record.result['dataset'])}, " + method_title(
        record.result["method"]
    )


def data_facts(record: Record) -> list[tuple[str, str]]:
    """Where the rows are from, the target, and the columns of the groups, as far as is known."""
    config, dataset = record.config, record.result["dataset"]
    known = datasets.find(dataset) if dataset in datasets.FILES else None
    columns = config.get("group")
    facts = [
        ("data", known.summary if known else dataset),
        ("target", config.get("target")),
        ("groups by", " × ".join(map(str, columns)) if isinstance(columns, list) else None),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _manifest(config: dict) -> dict:
    """Manifest of the prepared rows; {} if it is gone, as for files that stay with their owners."""
    try:
        found = json.loads((Path(str(config.get("prepared"))) / "manifest.json").read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _purpose(record: Record, manifest: dict) -> Part:
    config, result = record.config, record.result
    classes = manifest.get("classes") or []
    target = config.get("target") or "the target of " + dataset_title(result["dataset"])
    among = f" ({', '.join(map(str, classes))})" if 0 < len(classes) <= 12 else ""
    method = method_title(result["method"])
    return Part(
        "What it is",
        [
            f"A model ({config.get('model')}, {config.get('parameters') or 0:,} parameters) that "
            f"predicts {target}{among}, trained by {method} over {result.get('clients')} client(s) "
            f"and looked at for {len(result['groups'])} groups.",
            "To be filled in by whoever uses it: the decision that it helps with, the people it is "
            "about, what it must not be used for, who answers for it.",
        ],
    )


def _data(record: Record, manifest: dict) -> Part:
    groups = record.result["groups"].values()
    items = [f"{name}: {value}" for name, value in data_facts(record)]
    for title, key in (("rows to train on", "n_train"), ("rows to test with", "n_test")):
        counts = [number(group.get(key)) for group in groups]
        if None not in counts:
            items.append(f"{title}: {sum(counts):,}")  # type: ignore[arg-type]
    if manifest.get("features"):
        items.append(f"inputs: {len(manifest['features']):,}")
    for source in manifest.get("sources") or []:
        items.append(
            f"file {source.get('file')}, SHA-256 {source.get('sha256')}, from "
            f"{source.get('origin')}"
        )
    identity = record.config.get(IDENTITY) or {}
    if identity.get("data"):
        items.append(f"name of the prepared rows: {identity['data']}")
    items += [f"note: {note}" for note in record.config.get("notes") or []]
    return Part("Data", items=items)


def _groups(record: Record) -> Part:
    groups = record.result["groups"]
    rows = [
        [
            name,
            _count(group.get("n_train")),
            _count(group.get("n_test")),
            figure(group, "risk"),
            figure(group, "accuracy"),
            _number(group.get("weight")),
        ]
        for name, group in groups.items()
    ]
    columns = ["group", "train rows", "test rows", "test risk", "accuracy", "weight at the end"]
    text = f"Test risk is the mean {record.config.get('loss')} of a group's test rows; in brackets"
    text += " 95% intervals by these rows."
    return Part("Groups", [text], tables=[{"columns": columns, "rows": rows}])


def _rates(record: Record) -> list[Part]:
    """Rates by attribute, if the dataset has one and two classes."""
    fairness = record.result.get("fairness")
    if not (isinstance(fairness, dict) and isinstance(fairness.get("values"), dict)):
        return []
    attribute = str(fairness.get("attribute"))
    rows = [
        [value, *(figure(rates, rate) for rate in RATES)]
        for value, rates in fairness["values"].items()
    ]
    text = "; ".join(f"{_words(d)} {_number(fairness.get(d))}" for d in DIFFERENCES)
    text = f"Saying “{fairness.get('positive')}” is the positive; {text}."
    columns = [attribute, *map(_words, RATES)]
    return [Part(f"Rates by {attribute}", [text], tables=[{"columns": columns, "rows": rows}])]


def _worst(record: Record) -> Part:
    result, groups = record.result, record.result["groups"]
    text = []
    for what in ("risk", "accuracy"):
        worst, best = (extreme(groups, kind, what) for kind in ("worst", "best"))
        if not worst:
            continue
        ends = result.get(f"worst_{what}_interval")
        between = f", 95% interval for all groups at once {_between(ends)}" if ends else ""
        text.append(
            f"By {what}: {worst}, with {_number(groups[worst][what])}{between}. The best-off group "
            f"is {best}, with {_number(groups[best][what])}."
        )
        rows = groups[worst].get("n_test")
        if rows is not None and rows < FEW:
            text.append(f"That rests on {rows} test row(s) of {worst}: too few to rely on.")
    return Part("Who is worst off", text)


def _cost(record: Record, baseline: Record | None) -> Part:
    title = "What it costs the others"
    if baseline is None:
        return Part(
            title,
            [
                "Not known: python -m fedmpi.card RUN --baseline trains the same model without "
                "weights, and compares."
            ],
        )
    groups, plain = record.result["groups"], baseline.result["groups"]
    rows = []
    for name, group in groups.items():
        other = plain.get(name, {})
        row = [name]
        for what in ("risk", "accuracy"):
            row += [figure(other, what), figure(group, what), _difference(group, other, what)]
        rows.append(row)
    columns = ["group"]
    columns += [f"{what}, {which}" for what in ("risk", "accuracy") for which in OF_COST]
    lower = [n for n, g in groups.items() if _is_less(g.get("risk"), plain.get(n, {}).get("risk"))]
    said = (
        f"Against the same model trained without weights ({baseline.folder.name}): the worst "
        f"group's risk is {_number(record.result.get('worst_risk'))}, and "
        f"{_number(baseline.result.get('worst_risk'))} without; the average of the groups "
        f"{_number(record.result.get('average_risk'))}, and "
        f"{_number(baseline.result.get('average_risk'))} without. "
        f"{len(lower)} of {len(groups)} groups have a lower risk than without weights, the others "
        "pay for it."
    )
    same = "Both are on the same test rows, so their difference is surer than the intervals look."
    return Part(title, [said, same], tables=[{"columns": columns, "rows": rows}])


OF_COST = ("without weights", "this model", "difference")


def _training(record: Record) -> Part:
    config, result = record.config, record.result
    versions, layout = config.get("versions") or {}, config.get("layout") or {}
    setting = run_of(config).setting
    facts: list[tuple[str, Any]] = [
        ("method", method_title(result["method"])),
        ("setting", f"{setting}: {in_words(setting)}" if setting else None),
        ("rounds", result.get("rounds")),
        ("step size", config.get("lr")),
        *option_facts(config),
        ("model reported", {"averaged": "mean of the rounds", "last": "last"}.get(result["model"])),
        ("seed", result.get("seed")),
        ("precision", config.get("dtype")),
        ("training passes in", config.get("autocast")),
        ("ranks", layout.get("ranks")),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return Part("How it was trained", items=[f"{n}: {v}" for n, v in facts if v not in (None, "")])


def _limits(record: Record) -> Part:
    result = record.result
    few = [n for n, g in result["groups"].items() if (g.get("n_test") or 0) < FEW]
    weighs = any(number(g.get("weight")) is not None for g in result["groups"].values())
    fair = "It was not trained to be fair to groups."
    if weighs:
        fair = "It is fair in one sense: training went after the risk of the worst-off of these "
        fair += "groups (or clients). Rates need not be equal."
    items = [
        f"{fair} Nothing is known of groups that were not named, or of people within a group.",
        "The figures are of test rows that were drawn like those it was trained on, and of one "
        "seed. They need not hold for other places, times or people.",
        "A model can give away what it was trained on: no noise was added.",
    ]
    if few:
        items.append(f"Fewer than {FEW} test rows: {', '.join(few)}.")
    if result.get("lost"):
        items.append("Some clients were lost while it was trained, and their rows with them.")
    return Part("Limits", items=items)


def figure(values: dict, name: str) -> str:
    """A figure with its interval in brackets, as far as they are known."""
    value, ends = number(values.get(name)), values.get(f"{name}_interval")
    return _number(value) + (f" ({_between(ends)})" if value is not None and ends else "")


def _difference(group: dict, other: dict, what: str) -> str:
    mine, theirs = number(group.get(what)), number(other.get(what))
    return "–" if mine is None or theirs is None else f"{mine - theirs:+.4f}"


def _is_less(a: Any, b: Any) -> bool:
    return number(a) is not None and number(b) is not None and a < b


def _number(value: Any) -> str:
    return "–" if number(value) is None else f"{value:.4f}"


def _count(value: Any) -> str:
    return "–" if number(value) is None else f"{value:,}"


def _between(ends: list[float]) -> str:
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def _words(name: str) -> str:
    return name.replace("_", " ")
