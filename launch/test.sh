#!/usr/bin/env bash
# Sets up and runs all tests.
#
#   ./launch/test.sh [options of pytest]
#
# Three legs: all tests in one process; the tests marked `mpi` on 3 ranks under MPICH; the same
# under Open MPI. Options go to each of them: ./launch/test.sh tests/test_simplex.py -k floor

set -euo pipefail
# shellcheck source=launch/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

case ${1:-} in -h | --help) usage "$0" && exit ;; esac
extras=(test images acs report)
failed=()

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# mpi_leg NAME MPI [pytest options]: the tests marked `mpi`, on 3 ranks.
mpi_leg() {
    local name=$1 mpi=$2 logs=$scratch/$2 log
    shift 2
    # In a subshell: a set-up that fails has said why, and the other legs still count.
    (set_up "$mpi" "${extras[@]}") || {
        failed+=("$name (no environment)")
        return
    }
    venv=$(venv_of "$mpi")
    say "tests on 3 ranks, $name"
    mkdir -- "$logs"
    (
        use_mpi "$mpi"
        PATH=$venv/bin:$PATH "$venv/bin/mpirun" -n 3 "$venv/bin/python" \
            "$fedmpi_root/launch/pytest_rank.py" "$logs" --only-mpi -q -x --color=no "$@" </dev/null
    ) && return
    failed+=("$name")
    # Rank 0 has shown its own report; a rank that passed has nothing to add.
    for log in "$logs"/rank*.log; do
        [[ -s $log ]] || continue
        tail -n 1 -- "$log" | grep -Eq '^[0-9]+ (passed|skipped)' && continue
        say "the end of $(basename -- "$log" .log):"
        tail -n 60 -- "$log" >&2
    done
}

set_up mpich "${extras[@]}"
cd -- "$fedmpi_root"

say "tests in one process"
code=0
PATH=$venv/bin:$PATH "$venv/bin/python" -m pytest "$@" </dev/null || code=$?
# Tests marked `mpi` are collected here too (and skipped), so 5 means that nothing matched at all.
((code != 5)) || fail "no test matches: $*"
((code == 0)) || failed+=("one process")

if "$venv/bin/python" -m pytest --collect-only -q "$@" -m mpi >"$scratch/collected" 2>&1 </dev/null; then
    mpi_leg MPICH mpich "$@"
    mpi_leg "Open MPI" openmpi "$@"
    legs="one process, MPICH, Open MPI"
elif (($? == 5)); then
    legs="one process; no test marked mpi among these"
else
    tail -n 3 -- "$scratch/collected" >&2
    failed+=("collecting the tests marked mpi")
fi

if ((${#failed[@]})); then
    fail "tests FAILED: $(printf '%s; ' "${failed[@]}" | sed 's/; $//')"
fi
say "all tests passed ($legs)"
