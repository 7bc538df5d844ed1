#!/usr/bin/env bash
# Makes an environment for each peer in DIR, with the torch that fedmpi is tested with.
#
#   benchmarks/peers/setup.sh DIR [pfl|appfl|flower ...]
#
# PYTHON=/path/to/python chooses the Python. Each takes some minutes and up to 2 GB.

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
(($#)) || { sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' -- "$0" && exit 2; }
folder=$1 && shift
(($#)) || set -- pfl appfl flower

for peer in "$@"; do
    case $peer in
        pfl) packages=("pfl[pytorch]==0.6.*") ;;
        appfl) packages=("appfl[mpi]==1.12.*" mpi4py mpich) ;;
        flower) packages=("flwr[simulation]==1.41.*") ;;
        *) echo "unknown peer '$peer'. Allowed: pfl, appfl, flower." >&2 && exit 2 ;;
    esac
    venv=$folder/$peer
    [[ -e $venv/ready ]] && continue
    "${PYTHON:-python3}" -m venv --clear "$venv"
    # torch first, in the tested version: a peer that asks for another would bring it.
    grep '^torch==' "$root/constraints.txt" >"$venv/torch.txt"
    "$venv/bin/pip" install -q numpy -r "$venv/torch.txt"
    "$venv/bin/pip" install -q -c "$venv/torch.txt" "${packages[@]}"
    "$venv/bin/pip" freeze >"$venv/versions.txt"
    touch "$venv/ready"
done
