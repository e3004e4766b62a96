#!/bin/sh
# The Python worker as one program, as the runner starts it. REGATHER_STACK=python:ENV says which environment.
# worker.sh --environment prints what is installed there instead.
folder=$(cd "$(dirname "$0")" && pwd)
module=worker
[ "${1:-}" != --environment ] || { module=environment; shift; }
# Not the current folder: a checkout of TRL there would stand before the environment's.
PYTHONSAFEPATH=1 PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}" exec "${REGATHER_STACK#python:}/bin/python" -W ignore -m "regather_peers.$module" "$@"
