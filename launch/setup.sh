#!/usr/bin/env bash
# Makes the Python environment, with an MPI of its own: no root, no MPI on the machine.
#
#   ./launch/setup.sh [--mpi mpich|openmpi] [EXTRA ...]
#
# MPICH goes into .venv, Open MPI into .venv-openmpi: both bring a `mpirun`. An EXTRA is one of
# setup.cfg's (images, acs, parquet, report, tune, onnx, notebook, secure, private, test). Run the
# script as often as you like: only what has changed is installed. PYTHON=/path/to/python chooses the
# Python (3.10 or newer), FEDMPI_MPI the MPI.
#
# The other scripts source this file and call `set_up`.

fedmpi_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf 'fedmpi: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

# usage SCRIPT: prints the comment at the head of a script, which is the help text.
usage() { sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' -- "$1"; }

# print_sum FILE: prints the tests' last line, from lines of PASSED FAILED SKIPPED.
print_sum() {
    awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }' "$1"
}

# venv_of MPI: prints the environment's folder, or fails for an unknown MPI.
venv_of() {
    case $1 in
        mpich) printf '%s/.venv\n' "$fedmpi_root" ;;
        openmpi) printf '%s/.venv-openmpi\n' "$fedmpi_root" ;;
        *) fail "unknown MPI '$1'. Allowed: mpich, openmpi." ;;
    esac
}

python_version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

# find_python: prints a Python that can make an environment, or says why no Python found can.
find_python() {
    local candidate version found=""
    local candidates=(python3 python3.14 python3.13 python3.12 python3.11 python3.10)
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        # To run the candidate is the only sure test: a pyenv shim may exist without its Python.
        version=$(python_version "$candidate") || continue
        if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
            found+="; $candidate is $version, too old"
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            found+="; $candidate ($version) lacks the venv or ensurepip module"
            found+=" (on Debian and Ubuntu: the package python3-venv)"
        else
            # Not sys.executable, which may lie in the very environment that is made anew.
            "$candidate" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))'
            return
        fi
    done
    [[ -n $found ]] || found="; ${PYTHON:-python3} does not run"
    fail "needs Python 3.10 or newer with venv${found}. Set PYTHON=/path/to/python."
}

# stamp_for PYTHON EXTRAS: prints what an environment was made from, in three lines. A change of the
# first line asks for a new environment (an environment cannot be moved), a change of the second for
# an installation; the third line lists the installed extras.
stamp_for() {
    printf 'python %s in %s\n' "$(python_version "$1")" "$fedmpi_root"
    printf 'sums %s\n' "$(cat setup.cfg pyproject.toml constraints.txt | cksum)"
    printf '%s\n' "$2"
}

# union LIST...: joins comma-separated lists into one list, each word once, sorted.
union() { printf '%s\n' "$@" | tr , '\n' | sed '/^$/d' | sort -u | paste -sd, -; }

# pip_failed LOG: prints one line on what went wrong, and pip's own words, and exits.
pip_failed() {
    # "from versions: none": pip saw no release at all, so it saw no registry.
    if grep -Eq 'from versions: none|NewConnectionError|ConnectTimeout|ProxyError|SSLError' "$1"; then
        say "no package registry could be reached; pip's log is $1, and says:"
    else
        say "pip could not install; its log is $1, and says:"
    fi
    { grep 'ERROR: ' "$1" || cat -- "$1"; } | tail -n 4 | sed 's/^ */    /' >&2
    exit 1
}

# check_mpi VENV MPI: fails unless mpirun is there and mpi4py finds the library asked for.
check_mpi() {
    local wanted=MPICH vendor
    [[ $2 == openmpi ]] && wanted="Open MPI"
    [[ -x $1/bin/mpirun ]] || fail "no mpirun in $1/bin after the installation; see $1/install.log"
    vendor=$("$1/bin/python" -c '
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.get_vendor()[0])' 2>&1) || fail "mpi4py finds no MPI library: ${vendor##*$'\n'}"
    [[ $vendor == "$wanted" ]] ||
        fail "mpi4py in $1 found $vendor where $wanted was installed; is LD_LIBRARY_PATH or MPI4PY_LIBMPI set?"
}

# is_current STAMP VENV EXTRAS: tests whether the stamp is of the current files and has the extras.
is_current() {
    local have
    [[ -x $2/bin/python && -f $1 ]] || return 1
    have=$(sed -n 3p -- "$1")
    [[ $(union "$have" "$3") == "$have" ]] &&
        [[ $(cat -- "$1") == "$(stamp_for "${PYTHON:-$2/bin/python}" "$have")" ]]
}

# install MPI VENV EXTRAS: makes or updates the environment, in the root folder, under set_up's lock.
install() {
    local venv=$2 extras=$3 stamp=$2/fedmpi-stamp log=$2/install.log python before=""
    is_current "$stamp" "$venv" "$extras" && return # the set-up that held the lock has installed it

    if [[ -f $stamp ]]; then
        before=$(cat -- "$stamp")
        extras=$(union "$extras" "$(sed -n 3p -- "$stamp")")
    fi
    python=${PYTHON:-$venv/bin/python}
    if ! python_version "$venv/bin/python" >/dev/null ||
        [[ -n $before && ${before%%$'\n'*} != "$(stamp_for "$python" "" | sed -n 1p)" ]]; then
        python=$(find_python) || exit
        say "making ${venv##*/} with $python ..."
        # Without a good stamp an environment is made anew: an interrupted set-up never counts as done.
        mkdir -p -- "$venv"
        echo unfinished >"$stamp"
        find "$venv/" -mindepth 1 -maxdepth 1 ! -name fedmpi-stamp -exec rm -rf -- {} +
        "$python" -m venv "$venv" >"$log" 2>&1 || pip_failed "$log"
        before=unfinished
    fi

    say "installing $extras (the first time this takes some minutes) ..."
    echo unfinished >"$stamp"
    if ! PIP_USER=0 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
        -e ".[$extras]" -c constraints.txt >"$log" 2>&1 </dev/null; then
        # If pip fails before it touches anything, the environment is as good as it was.
        grep -q '^Installing collected packages' "$log" || printf '%s\n' "$before" >"$stamp"
        pip_failed "$log"
    fi
    check_mpi "$venv" "$1"
    stamp_for "$venv/bin/python" "$extras" >"$stamp.new"
    mv -f -- "$stamp.new" "$stamp"
}

# set_up MPI [EXTRA ...]: leaves the environment ready and its folder in $venv.
set_up() {
    local mpi=$1 extras
    shift
    venv=$(venv_of "$mpi") || exit
    extras=$(union "$mpi" "$@")
    (
        cd -- "$fedmpi_root" || exit
        is_current "$venv/fedmpi-stamp" "$venv" "$extras" && exit
        # One lock for both environments: the editable installs of both write the same egg-info.
        if command -v flock >/dev/null; then
            exec 9>.venv.lock
            flock -n 9 || { say "waiting for another set-up in this folder ..." && flock 9; }
        fi
        install "$mpi" "$venv" "$extras"
    )
}

# use_mpi MPI: exports what this mpirun needs to run more ranks than cores, and as root.
use_mpi() {
    mpi_environment=()
    [[ $1 == openmpi ]] || return 0
    local policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
    mpi_environment=("PRTE_MCA_rmaps_default_mapping_policy=$policy")
    if [[ $(id -u) == 0 ]]; then
        mpi_environment+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    fi
    export "${mpi_environment[@]}"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    set -euo pipefail
    mpi=${FEDMPI_MPI:-mpich}
    extras=()
    while (($#)); do
        case $1 in
            -h | --help) usage "$0" && exit ;;
            --mpi) mpi=${2:-} && shift ;;
            --mpi=*) mpi=${1#*=} ;;
            -*) fail "unknown option '$1'; see $0 --help" ;;
            *) extras+=("$1") ;;
        esac
        shift
    done
    set_up "$mpi" ${extras[@]+"${extras[@]}"}
    say "ready; for your shell: source $(printf '%q' "$venv/bin/activate")"
fi
