"""Generate Census files, in the format of the real ones: persons, 286 columns, 2018.

python tests/helpers/census_files.py FOLDER ROWS     all states and Puerto Rico, ROWS in all
"""

import sys
import zipfile
from pathlib import Path

import numpy as np

from fedmpi.data.datasets.census import STATES

# Codes that the survey allows: "" is a blank; None stands for any number.
CODES = {
    "AGEP": None,
    "SCHL": ["", *range(1, 25)],
    "MAR": range(1, 6),
    "RELP": range(18),
    "DIS": (1, 2),
    "ESP": ["", *range(1, 9)],
    "CIT": range(1, 6),
    "MIG": ["", 1, 2, 3],
    "MIL": ["", 1, 2, 3, 4],
    "ANC": range(1, 5),
    "NATIVITY": (1, 2),
    "DEAR": (1, 2),
    "DEYE": (1, 2),
    "DREM": ["", 1, 2],
    "SEX": (1, 2),
    "RAC1P": range(1, 10),
    "ESR": ["", 1, 2, 3, 4, 5, 6],
}
RACE_SHARES = (0.75, 0.1, 0.01, 0.002, 0.003, 0.06, 0.005, 0.04, 0.03)
FIRST = ("RT", "SERIALNO", "DIVISION", "SPORDER", "PUMA", "REGION", "ST", "ADJINC", "PWGTP")
FILLER = 286 - len(FIRST) - len(CODES)


def write_state(
    folder: Path, state: str, rows: int, seed: int = 0, packed: bool = False, quoted: bool = False
) -> Path:
    """Write psam_pNN.csv, or csv_pxx.zip with this file inside; `quoted`: text in quotes."""
    rng = np.random.default_rng([seed, int(STATES[state])])
    columns = {
        name: (
            rng.integers(0, 96, rows).astype(str)
            if allowed is None
            else np.array([str(code) for code in allowed])[
                rng.choice(len(allowed), rows, p=RACE_SHARES if name == "RAC1P" else None)
            ]
        )
        for name, allowed in CODES.items()
    }
    quote = '"' if quoted else ""
    names = [*FIRST, *columns, *(f"PWGTP{i}" for i in range(1, FILLER + 1))]
    header = ",".join(f"{quote}{name}{quote}" for name in names)
    cells = np.array(list(columns.values())).T
    filler = ",".join(f"{100 + i % 100}" for i in range(FILLER))
    start = f",1,01,00302,1,{STATES[state]},1013097,00018,"
    lines = (
        f"{quote}P{quote},{quote}2018HU{i:07d}{quote}{start}{','.join(cells[i])},{filler}\n"
        for i in range(rows)
    )
    name = f"psam_p{STATES[state]}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        path = folder / f"csv_p{state.lower()}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, header + "\n" + "".join(lines))
            archive.writestr("ACS2018_PUMS_README.pdf", b"%PDF")
        return path
    with open(folder / name, "w") as file:
        file.write(header + "\n")
        file.writelines(lines)
    return folder / name


def write_all(folder: Path, rows: int) -> None:
    """Write every state; California has an eighth of all rows, as in the real survey."""
    others = (rows - rows // 8) // (len(STATES) - 1)
    sizes = dict.fromkeys(STATES, others)
    sizes["CA"] = rows - others * (len(STATES) - 1)
    for state, size in sizes.items():
        write_state(folder, state, size)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), int(sys.argv[2]))
