"""The file, and the command that writes it."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from reports import NASTY
from runs import launcher, limit

from fedmpi.report.__main__ import main
from fedmpi.report.collect import collect
from fedmpi.report.page import page
from fedmpi.run.record import find_records


class Scripts(HTMLParser):
    """The text of each script element, as a browser would cut it out."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def test_the_data_survive_names_that_are_html(nasty):
    data = collect(find_records([nasty]), [nasty])
    assert sorted(data["sections"][0]["groups"]) == sorted(NASTY)
    text = page(data)
    embedded, script = Scripts(text).scripts
    assert json.loads(embedded) == data
    assert "JSON.parse" in script and "{{" not in text.replace(embedded, "").replace(script, "")


def test_nothing_in_the_file_points_elsewhere(runs):
    text = page(collect(find_records([runs]), [runs]))
    assert set(re.findall(r"\w+://[^\s\"'`)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|<link(?! rel=\"icon\" href=\"data:)|<script src|<img", text)


def test_the_report_goes_beside_a_single_folder_else_here(
    runs, nasty, tmp_path, monkeypatch, capsys
):
    assert main([str(runs)]) == 0
    assert (runs / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "Synthetic: 10 runs" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main([str(runs), str(nasty)]) == 0
    assert (tmp_path / "report.html").is_file()
    assert main([str(runs), "--output", "new/all.html"]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["all.html"]


def test_bad_input_is_one_line_and_changes_nothing(nasty, tmp_path, capsys):
    result = nasty / "result.json"
    before = result.read_bytes()
    (tmp_path / "folder.html").mkdir()
    cases = {
        "no such folder": [tmp_path / "absent"],
        "no finished run": [tmp_path / "folder.html"],
        r"ends in \.html": [nasty, "--output", result],
        "that is a folder": [nasty, "--output", tmp_path / "folder.html"],
        "cannot make the folder": [nasty, "--output", result / "x.html"],
        "give a folder": [nasty, "--format", "png", "--output", result],
        "leave --format png out": [nasty, "--format", "png", "--open"],
        "invalid choice: 'gif'": [nasty, "--format", "gif"],
        "required: RUN": [],
    }
    for expected, arguments in cases.items():
        assert main([str(a) for a in arguments]) == 2
        error = capsys.readouterr().err
        assert re.fullmatch(rf"fedmpi: .*{expected}.*\n", error), error
    assert result.read_bytes() == before
    assert not list(tmp_path.rglob("report.html"))


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for a browser is a shell script")
def test_open_hands_the_file_to_the_browser(nasty, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/opened"\n')
    browser.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "fedmpi.report", str(nasty), "--open"],
        env=launcher() | {"BROWSER": f"{browser} %s"},
        check=True,
        timeout=limit(),
    )
    assert (tmp_path / "opened").read_text().strip() == (nasty / "report.html").as_uri()


def test_the_title_is_as_asked(run, tmp_path):
    page = tmp_path / "named.html"
    assert main([str(run), "--output", str(page), "--title", "Loans & groups"]) == 0
    assert "<title>Loans &amp; groups</title>" in page.read_text(encoding="utf-8")
