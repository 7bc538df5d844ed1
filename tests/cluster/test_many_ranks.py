"""41 ranks on three hosts, by every launcher."""

import subprocess

import pytest
from bed import environment
from runs import Run
from starts import LONG, difference, mpirun, pmi, train

pytestmark = [pytest.mark.cluster, pytest.mark.slurm, pytest.mark.launch, pytest.mark.slow]

ROUNDS = 5
SCRIPT = "#!/bin/bash\nexec mpirun -n 41 {options} {program}\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """40 clients in one process."""
    folder = tmp_path_factory.mktemp("alone")
    command = list(map(str, train(folder, "run", "--clients", 40, rounds=ROUNDS)))
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=LONG)
    return Run(folder / "run")


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "mpirun in sbatch"])
def test_41_ranks_give_the_theta_of_one_process(bed, slurm, tmp_path, alone, launcher):
    program = train(tmp_path, "run", "--clients", 40, rounds=ROUNDS)
    if launcher == "mpirun":
        done = bed.run(*mpirun(bed, 41, slots=14), *program, timeout=3 * LONG)
        assert done.returncode == 0, done.stdout + done.stderr
    elif launcher == "srun":
        done = slurm.run("srun", pmi(), "-N3", "-n41", *program, timeout=3 * LONG)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        script, log = tmp_path / "job.sbatch", tmp_path / "job.out"
        options = "--bind-to none" if pmi() == "--mpi=pmix" else ""
        script.write_text(SCRIPT.format(options=options, program=" ".join(map(str, program))))
        job = slurm.submit(script, "-N3", "-n41", log)
        assert slurm.wait(job, 3 * LONG) == "COMPLETED", log.read_text()
    run = Run(tmp_path / "run")
    assert run.config["layout"]["ranks"] == 41
    assert set(run.config["layout"]["hosts"]) == {"n1", "n2", "n3"}
    assert difference(run.theta(), alone.theta()) < 1e-9
