#!/usr/bin/env bash
# Sets up and runs all tests except the slow ones (-m slow runs those) and the ones that make a
# cluster of this machine (-m cluster; see docs/testing.md).
#
#   ./launch/test.sh [options of pytest]
#
# All tests run under MPICH, and those that depend on the MPI also under Open MPI: the tests marked
# `launch`, which start a mpirun of their own, and the tests marked `mpi`, which run on 3 ranks. What
# launches runs beside the rest, and its output is shown when the rest has ended.
# Options go to each pytest: ./launch/test.sh tests/methods/test_simplex.py -k floor
#
# The last line is the sum over all tests: N passed, N failed, N skipped

set -euo pipefail
# shellcheck source=launch/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

quick="not slow and not cluster"
marks=$quick
options=()
while (($#)); do
    case $1 in
        -h | --help) usage "$0" && exit ;;
        # -m is taken out of the options, because each leg joins its value with a mark of its own.
        -m) (($# > 1)) || fail "-m needs a value" && marks=$2 && shift ;;
        *) options+=("$1") ;;
    esac
    shift
done

extras=(test images acs report onnx notebook)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
sums=$scratch/sums
touch "$scratch/legs" "$scratch/failed" "$sums" # files of a line for each leg: three shells write them

# run_pytest MARKS [options]: runs pytest in one process of the environment in $venv.
run_pytest() {
    local only=$1
    shift
    PATH=$venv/bin:$PATH "$venv/bin/python" -m pytest -m "$only" --durations=15 --durations-min=5 "$@" \
        ${options[@]+"${options[@]}"} </dev/null
}

# any_test MARK: tests whether any test that was asked for has this mark.
any_test() { run_pytest "$1 and ($marks)" --collect-only -q >/dev/null 2>&1; }

# note_failure NAME PASSED FAILED SKIPPED: keeps a failure for the last two lines.
note_failure() {
    echo "$1" >>"$scratch/failed"
    echo "${@:2}" >>"$sums"
}

# leg NAME COMMAND...: runs the command, and keeps its outcome for the last two lines.
leg() {
    local name=$1 code=0 passed=0 failed=0 skipped=0
    local -x FEDMPI_COUNTS=$scratch/counts-$1 # written by tests/conftest.py
    shift
    say "tests: $name"
    echo "$name" >>"$scratch/legs"
    "$@" || code=$?
    # A leg without counts broke off, whatever its exit code.
    { read -r passed failed skipped <"$FEDMPI_COUNTS"; } 2>/dev/null || ((code)) || code=1
    # 5 is "no tests": the tests asked for may all be in another leg. If no leg has any, see below.
    if ((code == 0 || code == 5)); then
        echo "$passed $failed $skipped" >>"$sums"
    else
        # A leg that counted no failure, as it broke off, counts as one failure.
        note_failure "$name" "$passed" "$((failed ? failed : 1))" "$skipped"
    fi
}

# on_ranks MPI: runs the tests marked `mpi` on 3 ranks.
on_ranks() {
    local logs=$scratch/$1 log what=(${options[@]+"${options[@]}"})
    mkdir -- "$logs"
    # Only the files that have such a test: each rank takes 3 s to read the others.
    ((${#what[@]})) || mapfile -t what < <(grep -rl --include='test_*.py' 'mark\.mpi\b' tests)
    (
        use_mpi "$1"
        PATH=$venv/bin:$PATH "$venv/bin/mpirun" -n 3 "$venv/bin/python" \
            "$fedmpi_root/launch/pytest_rank.py" "$logs" --with-mpi -m "mpi and ($marks)" \
            -o faulthandler_timeout=1200 -q -x --color=no "${what[@]}" </dev/null
    ) && return
    # Rank 0 has shown its own report; a rank that passed has nothing to add.
    for log in "$logs"/rank*.log; do
        [[ -s $log ]] || continue
        tail -n 1 -- "$log" | grep -Eq '^[0-9]+ (passed|skipped)' && continue
        say "the end of $(basename -- "$log" .log):"
        tail -n 60 -- "$log" >&2
    done
    return 1
}

# both_legs MPI NAME MARKS: runs a leg in one process, and a leg on 3 ranks, each if it has tests. The
# tests of the leg on ranks would only be skipped in one process.
both_legs() {
    if [[ $3 ]]; then leg "$2" run_pytest "not mpi and ($3)"; fi
    if [[ $mpi ]]; then leg "3 ranks of $2" on_ranks "$1"; fi
}

# under_open_mpi: runs the legs of Open MPI, in a shell of its own.
under_open_mpi() {
    set_up openmpi "${extras[@]}" || exit # set_up has said why
    both_legs openmpi "Open MPI" "${launch:+launch and not once and ($marks)}"
}

# launches: runs what starts a mpirun of its own, under both MPIs at once, beside the rest.
launches() {
    local code=0 other
    (under_open_mpi) >"$scratch/open-mpi.log" 2>&1 &
    other=$!
    if [[ $launch ]]; then leg "launches of MPICH" run_pytest "not mpi and launch and ($marks)"; fi
    wait "$other" || code=$?
    cat -- "$scratch/open-mpi.log"
    return "$code"
}

set_up mpich "${extras[@]}" tensorboard mlflow wandb
cd -- "$fedmpi_root"
mpi=yes launch=yes
if ((${#options[@]})) || [[ $marks != "$quick" ]]; then # else there are: to look takes 5 s each
    mpi=$(any_test mpi && echo yes || true)
    launch=$(any_test launch && echo yes || true)
fi
beside=""
# Three at a time: a test that launches mostly waits for processes to start. Not so the slow tests, and
# the tests that make hosts of this machine.
if [[ ($mpi || $launch) && $marks == "$quick" ]]; then
    set -m # gives it a process group of its own, which the trap ends on Ctrl-C
    launches >"$scratch/launches.log" 2>&1 </dev/null &
    beside=$!
    set +m
    trap 'kill -- "-$beside" 2>/dev/null || true; rm -rf -- "$scratch"' EXIT
fi
both_legs mpich MPICH "${beside:+not launch and }($marks)"
if [[ $beside ]]; then
    wait "$beside" || note_failure "Open MPI (broken off)" 0 1 0
    cat -- "$scratch/launches.log"
elif [[ $mpi || $launch ]]; then
    (under_open_mpi) || note_failure "Open MPI (not installed)" 0 1 0
fi
grep -Eqv '^0 0 0$' -- "$sums" || note_failure "no test was found" 0 1 0

list() { paste -sd, -- "$1" | sed 's/,/, /g'; }
if [[ -s $scratch/failed ]]; then
    say "tests FAILED: $(list "$scratch/failed")"
else
    say "all tests passed: $(list "$scratch/legs")"
fi
# .ci/run, which has further tests, prints the last line itself.
if [[ ${FEDMPI_TEST_SUMS:-} ]]; then cat -- "$sums" >>"$FEDMPI_TEST_SUMS"; else print_sum "$sums"; fi
[[ ! -s $scratch/failed ]]
