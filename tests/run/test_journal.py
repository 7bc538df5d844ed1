"""A journal grows at its end, and goes back to a mark."""

import contextlib
import resource

import pytest

from fedmpi.errors import UserError
from fedmpi.run.journal import Journal


@contextlib.contextmanager
def files_of_at_most(size: int):
    """As if the disk were full: a write beyond `size` bytes of a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def journal_of(path, *lines: bytes) -> Journal:
    journal = Journal(path)
    for line in lines:
        journal.add(line)
    journal.keep()
    return journal


def test_it_goes_back_to_a_mark_and_on_from_there(tmp_path):
    path = tmp_path / "h.csv"
    journal = journal_of(path, b"one\n", b"two\n")
    mark = journal.mark()
    journal.add(b"three, which the resumed run will write otherwise\n")
    journal.keep()
    resumed = Journal(path)
    assert resumed.restore(mark) and path.read_bytes() == b"one\ntwo\n"
    resumed.add(b"3\n")
    resumed.keep()
    assert path.read_bytes() == b"one\ntwo\n3\n"
    assert resumed.mark() == journal_of(tmp_path / "same", b"one\ntwo\n3\n").mark()


@pytest.mark.parametrize("content", [None, b"one\n", b"onE\ntwo\n"])
def test_a_file_that_was_changed_begins_anew(tmp_path, content):
    path = tmp_path / "h.csv"
    mark = journal_of(path, b"one\n", b"two\n").mark()
    path.unlink() if content is None else path.write_bytes(content)
    journal = Journal(path)
    assert not journal.restore(mark) and not journal
    journal.add(b"new\n")
    journal.keep()
    assert path.read_bytes() == b"new\n"


def test_a_full_disk_leaves_what_was_there_and_loses_nothing(tmp_path):
    path = tmp_path / "h.csv"
    journal = journal_of(path, b"one\n")
    journal.add(b"x" * 5000)
    with (
        files_of_at_most(1000),
        pytest.raises(UserError, match=r"cannot write .*h\.csv: File too large"),
    ):
        journal.keep()
    assert path.read_bytes() == b"one\n"
    journal.keep()
    assert path.read_bytes() == b"one\n" + b"x" * 5000


def test_a_row_costs_what_it_costs_however_many_there_are(tmp_path, monkeypatch):
    """Bytes written, not time: the machine may be busy."""
    journal, written = journal_of(tmp_path / "h.csv", b"x" * 10**6), 0
    import fedmpi.run.journal

    class Counted:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            self.file.__enter__()
            return self

        def __exit__(self, *error):
            return self.file.__exit__(*error)

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            nonlocal written
            written += len(data)
            return self.file.write(data)

    def counting(*arguments, **options):
        return Counted(open(*arguments, **options))

    monkeypatch.setattr(fedmpi.run.journal, "open", counting, raising=False)
    journal.add(b"row\n")
    journal.keep()
    assert written == 4
