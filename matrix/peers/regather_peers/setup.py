"""Makes an environment of the real packages from PyPI, once: `regather peers setup`.

    regather peers setup [--set supported|newest] [--torch V --deepspeed V --trl V --liger V ...] [--lock]

A set is a lock file beside this package (locks/NAME.txt: every package with its version and hashes). With versions of
one's own the environment starts from the set's pins, and pip resolves what they leave open. Prints the stack's name for
`--stack`. Environments live in $REGATHER_PEERS_HOME; one that is whole is used again, one that is not is made anew.

Exit 0; 2 when what was asked for cannot be had, standard error says why.
"""

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

PEERS = pathlib.Path(__file__).resolve().parents[1]
LOCKS = PEERS / "locks"
# What the option says, and what PyPI calls it.
CHOSEN = {"torch": "torch", "deepspeed": "deepspeed", "trl": "trl", "liger": "liger-kernel", "transformers": "transformers",
          "peft": "peft", "accelerate": "accelerate"}
# What DeepSpeed's own build and GRPOTrainer need without saying so.
UNSAID = ("numpy", "ninja", "py-cpuinfo", "setuptools", "wheel", "packaging", "requests")
VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]*")
MARK = "regather.json"  # written last: what has it is whole


class SetupError(Exception):
    pass


def parse(arguments):
    parser = argparse.ArgumentParser(prog="regather peers setup", description="An environment of the real packages")
    sets = sorted(path.stem for path in LOCKS.glob("*.txt"))
    parser.add_argument("--set", default="supported", choices=sets, help="the pins to start from (default: supported)")
    for name in CHOSEN:
        parser.add_argument(f"--{name}", metavar="V", help=f"another version of {CHOSEN[name]}")
    parser.add_argument("--name", help="the environment's name; default: the set, or its versions")
    parser.add_argument("--lock", metavar="FILE", help="write what is installed as a lock file")
    return parser.parse_args(arguments)


def read_lock(name):
    """PyPI name -> version."""
    pins = {}
    for line in (LOCKS / f"{name}.txt").read_text().splitlines():
        found = re.match(r"([A-Za-z0-9._-]+)==(\S+)", line)
        if found:
            pins[canonical(found[1])] = found[2]
    return pins


def canonical(package):
    """One spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", package).lower()


def wanted(options):
    """(the environment's name, the versions that differ from the set's)."""
    pins = read_lock(options.set)
    differing = {}
    for option, package in CHOSEN.items():
        version = getattr(options, option)
        if version is None or version == pins.get(package):
            continue
        if not VERSION.fullmatch(version):
            raise SetupError(f"--{option} '{version}': expected a version, as in {pins.get(package, '1.2.3')}")
        differing[package] = version
    name = options.name or "-".join([options.set, *(f"{package}{version}" for package, version in differing.items())])
    if not re.fullmatch(r"[A-Za-z0-9._+!-]+", name) or name.startswith("."):
        raise SetupError(f"--name '{name}': expected letters, digits, '.', '_', '+' and '-'")
    return name, differing


def home():
    return pathlib.Path(os.environ.get("REGATHER_PEERS_HOME") or pathlib.Path.home() / ".cache/regather/peers")


@contextlib.contextmanager
def locked(folder):
    """One at a time for an environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(*command, **settings):
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"} | settings
    environment.pop("PYTHONSAFEPATH", None)  # ours alone: DeepSpeed's setup.py imports what lies beside it
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise SetupError(f"'{' '.join(str(part) for part in command[:6])} ...' failed:\n{said}")
    return done.stdout


def pip(folder, *arguments, **settings):
    """pip on an environment, which has none of its own: ours, or that of the Python beneath where such a one runs this."""
    ours = sys.executable if importlib.util.find_spec("pip") else sys._base_executable
    return run(ours, "-m", "pip", "--python", str(folder / "bin/python"), *arguments, **settings)


def describe(folder):
    """What the environment says of itself (environment.py)."""
    return json.loads(run(str(folder / "bin/python"), "-m", "regather_peers.environment", PYTHONPATH=str(PEERS)))


def install_locked(folder, name):
    """DeepSpeed has no wheel: it is built in the finished environment, without its compiled operators."""
    lines = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ").splitlines()
    ours = [line for line in lines if line and not line.startswith("#")]
    wheels = folder / "wheels.txt"
    source = folder / "source.txt"
    wheels.write_text("\n".join(line for line in ours if not line.startswith("deepspeed==")) + "\n")
    source.write_text("\n".join(line for line in ours if line.startswith("deepspeed==")) + "\n")
    pip(folder, "install", "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(wheels))
    pip(folder, "install", "--no-deps", "--require-hashes", "--no-build-isolation", "-r", str(source), **BUILD)


BUILD = {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def install_resolved(folder, name, differing):
    """The set's own choices as requirements, with the user's in their place; pip finds the rest."""
    pins = {package: version for package, version in read_lock(name).items() if package in CHOSEN.values()} | differing
    deepspeed = pins.pop("deepspeed")
    pip(folder, "install", *(f"{package}=={version}" for package, version in pins.items()), "datasets", *UNSAID)
    pip(folder, "install", "--no-build-isolation", f"deepspeed=={deepspeed}", **BUILD)


def make(folder, options, differing):
    shutil.rmtree(folder, ignore_errors=True)
    say(f"making '{folder.name}' (several GB of wheels, some minutes)")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    if differing:
        install_resolved(folder, options.set, differing)
    else:
        install_locked(folder, options.set)
    run(str(folder / "bin/python"), "-c", "import torch, deepspeed, trl, transformers, liger_kernel", **BUILD)
    (folder / MARK).write_text(json.dumps({"set": options.set, "packages": describe(folder)["packages"]}) + "\n")


def write_lock(folder, file):
    """Every installed package with the hashes that PyPI gives for the files that pip would take."""
    frozen = [f"{p['name']}=={p['version']}" for p in json.loads(pip(folder, "list", "--format", "json"))
              if p["name"] != "pip"]
    report = json.loads(pip(folder, "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps",
                            "--no-build-isolation", "--report", "-", *frozen, **BUILD))
    lines = []
    for item in report["install"]:
        digests = item["download_info"]["archive_info"]["hashes"]
        lines.append(f"{canonical(item['metadata']['name'])}=={item['metadata']['version']} "
                     f"--hash=sha256:{digests['sha256']}")
    text = "# Made by `regather peers setup --lock`: every package of the set, pinned by hash.\n"
    pathlib.Path(file).write_text(text + "\n".join(sorted(lines)) + "\n")


def say(text):
    sys.stderr.write(f"regather: {text}\n")
    sys.stderr.flush()


def setup(arguments):
    """The environment's folder."""
    options = parse(arguments)
    name, differing = wanted(options)
    folder = home() / name
    with locked(folder):
        if not (folder / MARK).is_file():
            try:
                make(folder, options, differing)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        if options.lock:
            write_lock(folder, options.lock)
    return folder


def main():
    try:
        folder = setup(sys.argv[1:])
    except (SetupError, OSError) as error:
        say(f"peers setup: {error}")
        return 2
    packages = json.loads((folder / MARK).read_text())["packages"]
    say(", ".join(f"{package} {version}" for package, version in packages.items() if version))
    print(f"python:{folder}" if folder.parent != home() else f"python:{folder.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
