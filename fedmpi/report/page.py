"""The HTML file: script, style and data inlined into the template."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files


def page(data: dict) -> str:
    """Text of the whole file, which asks for nothing from elsewhere: its policy forbids that."""
    parts = {
        "title": html.escape(data["title"]),
        "style": _file("report.css"),
        "script": _file("report.js"),
        # Names come from the user's data: none of them may end the script element.
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("template.html"))


def _file(name: str) -> str:
    return (files("fedmpi.report") / name).read_text(encoding="utf-8")
