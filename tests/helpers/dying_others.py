"""The same as dying.py, with the methods that the paper does not have.

mpirun --with-ft ulfm -n 16 python tests/helpers/dying_others.py OUT CSV ROUNDS
"""

import dying

from fedmpi.federation.exchange import Exchange
from fedmpi.federation.rounds import Training
from fedmpi.mpi.start import run

CLIENTS = 16
ATTRIBUTE = f"{dying.LOCAL} --group g,y"
OPTIONS = {
    "fedprox": dying.LOCAL,
    "scaffold": dying.LOCAL,
    "ditto": dying.LOCAL,
    "fedmgda": dying.LOCAL,
    "propfair": dying.LOCAL,
    "scaffpd": f"{dying.LOCAL} --lr-mu 0.1",
    "drfa": f"{dying.LOCAL} --lr-mu 0.1 --draws 3",
    "gifair": dying.LOCAL,
    "bgl": "--lr-mu 0.1 --gamma 0.3",
    "fedfb": f"{ATTRIBUTE} --lr-mu 0.05",
    "fairfed": f"{ATTRIBUTE} --debias reweigh",
    "eominmax": "--lr-mu 0.1 --group g,y",
}
DEATH = 3
"""Round in which a rank dies; of every third run the survivors are stopped, and resume it."""


def main() -> int:
    which = f"--setting PSG --clients {CLIENTS} --method"
    dying.RUNS = {method: f"{which} {method} {given}" for method, given in OPTIONS.items()}
    calls = ((Training, "one_round"), (Exchange, "sum_changes"))
    dying.WHEN = {method: (DEATH, *calls[i % 2]) for i, method in enumerate(OPTIONS)}
    dying.STOPS = dict.fromkeys(list(OPTIONS)[::3], DEATH + 2)
    return dying.main()


if __name__ == "__main__":
    run(main)
