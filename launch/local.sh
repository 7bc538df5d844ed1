#!/usr/bin/env bash
# Sets up, fetches the data and trains on this machine.
#
#   ./launch/local.sh [-n RANKS] [--mpi mpich|openmpi] [--retries N] [options of fedmpi.train]
#
# Without options: Adult, setting PSG, on 41 ranks (a server and 40 clients). For example
#
#   ./launch/local.sh -n 3 --clients 40 --dataset adult --setting SSG
#
# If the job dies, the script says which clients were lost and how to go on; --retries N makes it go
# on by itself, from the last checkpoint, at most N times.
#
# With --mpi openmpi and --on-client-failure continue the run goes on without the clients of a rank
# that dies.
#
# Paths are relative to where you stand, and runs/ is written there; the data is kept in data/ of
# the clone unless --data-dir says otherwise. The options of fedmpi.train:
#
#   .venv/bin/python -m fedmpi.train --help

set -euo pipefail
# shellcheck source=launch/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

FEDMPI_COMMAND=$(printf '%q ' "$0" "$@") # what to type again, for the lines that say how to go on
export FEDMPI_COMMAND=${FEDMPI_COMMAND% }
ranks=41 retries=0 mpi=${FEDMPI_MPI:-mpich} dataset="" data_dir="" states=() flags=()
train=()
while (($#)); do
    case $1 in
        -h | --help) usage "$0" && exit ;;
        -n | --mpi | --retries) (($# > 1)) || fail "$1 needs a value; see $0 --help" ;;
    esac
    case $1 in
        -n) ranks=$2 && shift ;;
        -n*) ranks=${1#-n} ;;
        --mpi) mpi=$2 && shift ;;
        --mpi=*) mpi=${1#*=} ;;
        --retries) retries=$2 && shift ;;
        --retries=*) retries=${1#*=} ;;
        *)
            # All options are passed on to train; these few also say which data to fetch.
            case $1 in
                --dataset) dataset=${2:-} ;;
                --dataset=*) dataset=${1#*=} ;;
                --data-dir) data_dir=${2:-} ;;
                --data-dir=*) data_dir=${1#*=} ;;
                --states) states=(--states "${2:-}") ;;
                --states=*) states=("$1") ;;
                # Without this flag Open MPI's mpirun ends the job when a rank dies.
                --on-client-failure) [[ ${2:-} == continue ]] && flags=(--with-ft ulfm) ;;
                --on-client-failure=continue) flags=(--with-ft ulfm) ;;
            esac
            train+=("$1")
            ;;
    esac
    shift
done
[[ $retries =~ ^[0-9]+$ ]] || fail "--retries takes a number of times, not '$retries'"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "-n takes a positive number of ranks, not '$ranks'"

if [[ -z $dataset ]]; then
    dataset=adult
    train=(--dataset adult --setting PSG ${train[@]+"${train[@]}"})
fi
if [[ -z $data_dir ]]; then
    data_dir=$fedmpi_root/data
    # In the root folder train's own default is this folder, and the line below stays short.
    [[ $PWD -ef $fedmpi_root ]] || train+=(--data-dir "$data_dir")
fi

extras=()
case $dataset in
    fashionmnist | cifar10) extras=(images) ;;
    acs-*) extras=(acs) ;;
esac
set_up "$mpi" ${extras[@]+"${extras[@]}"}
use_mpi "$mpi"

case $dataset in
    synthetic | csv:*) ;; # nothing to fetch
    *)
        "$venv/bin/python" -m fedmpi.data fetch "$dataset" --data-dir "$data_dir" \
            ${states[@]+"${states[@]}"} </dev/null
        ;;
esac

[[ $PWD -ef $fedmpi_root ]] && venv=${venv##*/}
[[ $mpi == openmpi ]] || flags=() # train itself says that MPICH cannot go on after a death
job=("$venv/bin/mpirun" ${flags[@]+"${flags[@]}"} -n "$ranks" "$venv/bin/python" -m fedmpi.train "${train[@]}")
say "running$(printf ' %q' ${mpi_environment[@]+"${mpi_environment[@]}"} "${job[@]}")"
exec "$venv/bin/python" -m fedmpi.run.supervise --retries "$retries" -- "${job[@]}" </dev/null
