# What the batch scripts share. They source it in the folder of the clone, after setting
#
#   environment   the Python environment to use: .venv, .venv-openmpi, or one of your own; may be empty
#   modules       environment modules to load before it, if the MPI or Python is the cluster's own
#
# FEDMPI_PMI overrides the PMI that srun is told to speak (srun --mpi=list shows what there is),
# FEDMPI_BIND how ranks are bound to cores.

set -euo pipefail

say() { printf 'fedmpi: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 2
}

if [[ ${modules:-} ]]; then
    # shellcheck disable=SC2086
    module load $modules || fail "module load $modules failed"
fi
if [[ ${environment:-} ]]; then
    [[ -x $environment/bin/python ]] ||
        fail "there is no $PWD/$environment: submit from the clone after ./launch/setup.sh, or edit" \
            "environment= in the script"
    PATH=$(cd -- "$environment" && pwd)/bin:$PATH
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

# Which MPI this Python loads, whatever the modules say; without starting it.
mpi=$(python -c 'import mpi4py; mpi4py.rc.initialize = False
from mpi4py import MPI; print(MPI.get_vendor()[0])') ||
    fail "$(command -v python) cannot load mpi4py or its MPI"

# Since Slurm 22.05 srun does not take this from the allocation by itself.
cpus=${SLURM_CPUS_PER_TASK:-1}
export SRUN_CPUS_PER_TASK=$cpus OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}

# use_srun [options of srun]: `launch` is then the command to put before python.
use_srun() {
    local pmi=pmi2
    [[ $mpi != "Open MPI" ]] || pmi=pmix
    pmi=${FEDMPI_PMI:-$pmi}
    srun --mpi=list 2>&1 | grep -qw "$pmi" ||
        fail "this Slurm has no --mpi=$pmi, which $mpi needs: use launch/slurm/mpirun.sbatch"
    # A rank that dies takes the step with it: the others would wait for it.
    launch=(srun "--mpi=$pmi" "--cpu-bind=${FEDMPI_BIND:-cores}" --kill-on-bad-exit=1 "$@")
}

# use_mpirun [options of mpirun]: the same, by the mpirun of this Python's MPI. Both read the hosts
# from Slurm.
use_mpirun() {
    command -v mpirun >/dev/null || fail "there is no mpirun: load its module, or set environment="
    launch=(mpirun -n "$SLURM_NTASKS" "$@")
    # Open MPI binds each rank to one core otherwise, also where it has several threads.
    [[ $mpi != "Open MPI" ]] || launch+=(--bind-to "${FEDMPI_BIND:-none}")
}

# run COMMAND...: run it, and ask it to save and stop on USR1 or TERM. Sets `code`, and `asked` after
# USR1. TERM is passed on as USR1: srun, and Open MPI's mpirun, take it as an order to kill the ranks.
#
# In the background: bash runs a trap only between commands, but at once while it waits.
run() {
    say "$mpi: $*"
    asked=""
    "$@" &
    local step=$!
    trap 'asked=yes; kill -USR1 "$step" 2>/dev/null || :' USR1
    trap 'kill -USR1 "$step" 2>/dev/null || :' TERM
    code=0
    wait "$step" || code=$?
    while kill -0 "$step" 2>/dev/null; do # a signal ended the wait, not the step
        code=0
        wait "$step" || code=$?
    done
    if ((code > 128)); then # perhaps the signal's: ask again for the step's own
        code=0
        wait "$step" || code=$?
    fi
    trap - USR1 TERM
}

# resume_from FOLDER: `resume` is --resume if an unfinished run is there.
resume_from() {
    resume=()
    if [[ -e $1/checkpoint.pt || -e $1/checkpoint-previous.pt ]]; then resume=(--resume); fi
}
