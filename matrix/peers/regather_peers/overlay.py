"""Another release of one package on top of an environment, without changing it: a folder that stands first on Python's
path, made once and kept beside the environments."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from regather_peers import setup

FINAL = re.compile(r"\d+(\.\d+)*(\.post\d+)?")


def releases(package):
    """Final releases as PyPI lists them, oldest first."""
    said = setup.run(sys.executable, "-m", "pip", "index", "versions", setup.canonical(package))
    listed = re.search(r"Available versions: (.*)", said)
    if not listed:
        raise setup.SetupError(f"PyPI lists no versions of '{package}'")
    return sorted((v for v in listed[1].split(", ") if FINAL.fullmatch(v)), key=order)


def order(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def make(environment, package, version):
    """The folder that holds the release. Throws SetupError when it cannot be installed."""
    package = setup.canonical(package)
    # What is built against an environment's torch and Python is of no use to another's.
    folder = setup.home() / "overlays" / f"{environment.name}-{package}-{version}"
    with setup.locked(folder):
        if (folder / setup.MARK).is_file():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        built = ["--no-build-isolation"] if package == "deepspeed" else []
        try:
            setup.pip(environment, "install", "--no-deps", "--target", str(folder), *built, f"{package}=={version}",
                      **setup.BUILD)
        except setup.SetupError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / setup.MARK).write_text(json.dumps({"package": package, "version": version}) + "\n")
    return folder


def installed(environment, package):
    """The version in the environment itself, None without."""
    packages = {setup.canonical(name): version for name, version in setup.describe(environment)["packages"].items()}
    return packages.get(setup.canonical(package))


def run_case(environment, folder, case, timeout, seed=1):
    """The result line of one case with the overlay in front, as a dictionary; UsageError's text when it cannot be run."""
    settings = os.environ | {"REGATHER_STACK": f"python:{environment}",
                             "REGATHER_WORKER": os.environ.get("REGATHER_WORKER") or beside_program()}
    if folder is not None:
        settings["PYTHONPATH"] = str(folder)
    request = json.dumps({"id": case, "timeout": timeout, "seed": seed}) + "\n"
    done = subprocess.run([setup.PEERS / "worker.sh"], input=request, env=settings, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 1:
        raise setup.SetupError(f"the worker ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return json.loads(lines[0])


def beside_program():
    program = os.environ.get("REGATHER_PROGRAM", "")
    return str(pathlib.Path(program).with_name("regather-worker")) if program else ""


def make_tools(environment, *packages):
    """A folder with packages that a stack needs for one purpose only, and what these need."""
    folder = setup.home() / "overlays" / f"{environment.name}-tools-{'-'.join(packages)}"
    with setup.locked(folder):
        if not (folder / setup.MARK).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            setup.pip(environment, "install", "--target", str(folder), *packages)
            (folder / setup.MARK).write_text(json.dumps({"packages": packages}) + "\n")
    return folder
