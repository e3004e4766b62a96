#!/bin/sh
# The Python worker as one program, as the runner starts it. REGATHER_STACK=python:ENV says which environment.
folder=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}" exec "${REGATHER_STACK#python:}/bin/python" -W ignore -m regather_peers.worker "$@"
