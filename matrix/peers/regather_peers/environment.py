"""Which environment this is: `python -m regather_peers.environment` prints it as one JSON object."""

import importlib.metadata
import json
import os
import platform
import sys

PACKAGES = ("torch", "transformers", "peft", "safetensors", "accelerate", "deepspeed", "trl", "liger_kernel")


def versions():
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def stack():
    """The name of this stack in a result line: what `--stack` was given, or where this Python lives."""
    return os.environ.get("REGATHER_STACK") or f"python:{sys.prefix}"


def describe():
    return {"stack": stack(), "python": platform.python_version(), "packages": versions()}


if __name__ == "__main__":
    print(json.dumps(describe()))
