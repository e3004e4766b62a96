"""The first release of a package in which a case changed: `regather matrix run --case ID --stack python:ENV
--bisect-versions PACKAGE`.

    python -m regather_peers.bisection --stack python:ENV --package NAME --case ID [--from V] [--to V] [--json]

From the installed version to the newest unless told otherwise. A case changed when its outcome, phase or mechanism did.
A release that cannot be installed or used is stepped over. Exit 0 when the release is found, 4 when nothing changed
between the ends, 2 when it cannot be told.
"""

import argparse
import json
import pathlib
import sys

from regather_peers import overlay, setup

TIMEOUT = 240


def what_happened(result):
    signature = result["signature"] or {}
    return result["outcome"], signature.get("phase"), signature.get("mechanism")


def describe(happened):
    outcome, phase, mechanism = happened
    return f"{outcome}{f' in {phase}' if phase else ''}{f' ({mechanism})' if mechanism else ''}"


class Bisection:
    """`run(version)` is what happened there, or None where it cannot be told."""

    def __init__(self, versions, run):
        self.versions, self.run = versions, run
        self.seen = {}

    def at(self, index):
        version = self.versions[index]
        if version not in self.seen:
            self.seen[version] = self.run(version)
        return self.seen[version]

    def usable(self, low, high):
        """The index of a release that can be told strictly between, the nearest to the middle; None without one."""
        middle = (low + high) // 2
        for index in sorted(range(low + 1, high), key=lambda i: abs(i - middle)):
            if self.at(index) is not None:
                return index
        return None

    def first_change(self):
        """(the last version before, the first after, releases between that cannot be told); None when both ends agree."""
        low, high = 0, len(self.versions) - 1
        before = self.at(low)
        if before is None or self.at(high) is None:
            end = self.versions[low if before is None else high]
            raise setup.SetupError(f"release {end} cannot be used: choose another end with --from and --to")
        if self.at(high) == before:
            return None
        while (middle := self.usable(low, high)) is not None:
            if self.at(middle) == before:
                low = middle
            else:
                high = middle
        return self.versions[low], self.versions[high], self.versions[low + 1:high]


def between(versions, first, last):
    for end in (first, last):
        if end not in versions:
            raise setup.SetupError(f"'{end}' is not a release: the newest are {', '.join(versions[-8:])}")
    chosen = [v for v in versions if overlay.order(first) <= overlay.order(v) <= overlay.order(last)]
    if len(chosen) < 2:
        raise setup.SetupError(f"from {first} to {last} there is nothing to bisect")
    return chosen


def parse(arguments):
    parser = argparse.ArgumentParser(prog="regather matrix run --bisect-versions", description=__doc__.splitlines()[0])
    parser.add_argument("--stack", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--from", dest="first")
    parser.add_argument("--to", dest="last")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    environment = pathlib.Path(options.stack.removeprefix("python:"))

    def run(version):
        try:
            happened = what_happened(overlay.run_case(
                environment, overlay.make(environment, options.package, version), options.case, TIMEOUT))
        except setup.SetupError as error:
            setup.say(f"{options.package} {version}: cannot be used: {str(error).splitlines()[-1]}")
            return None
        setup.say(f"{options.package} {version}: {describe(happened)}")
        return happened

    try:
        versions = overlay.releases(options.package)
        first = options.first or overlay.installed(environment, options.package)
        if first is None:
            raise setup.SetupError(f"'{options.package}' is not installed: say where to begin with --from")
        bisection = Bisection(between(versions, first, options.last or versions[-1]), run)
        found = bisection.first_change()
    except setup.SetupError as error:
        setup.say(str(error))
        return 2
    last, changed, unknown = found or (None, None, [])
    if options.json:
        print(json.dumps({"case": options.case, "package": options.package, "last_before": last, "first_after": changed,
                          "before": describe(bisection.at(0)),
                          "after": describe(bisection.seen[changed]) if changed else None, "unknown": unknown,
                          "tried": {v: h and describe(h) for v, h in bisection.seen.items()}}))
    elif found is None:
        print(f"{options.case}: {describe(bisection.at(0))} from {bisection.versions[0]} to {bisection.versions[-1]}")
    else:
        print(f"{options.case}: {describe(bisection.at(0))} until {options.package} {last}, "
              f"{describe(bisection.seen[changed])} since {changed}"
              + (f"; {', '.join(unknown)} cannot be told" if unknown else ""))
    return 4 if found is None else 0


if __name__ == "__main__":
    sys.exit(main())
