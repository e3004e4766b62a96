"""python -m regather_peers.trainers --trainer dpo --fused liger --backend zero3 [--json] [--keep DIR]

Each option takes several names, joined by commas: every combination is run. Exit 1 when a run's outcome is neither pass
nor unsupported.
"""

import argparse
import json
import sys
import tempfile

from regather_peers.environment import versions
from regather_peers.trainers import BACKENDS, FUSED, TRAINERS, launch


def names(known):
    def parse(text):
        given = known if text == "all" else tuple(text.split(","))
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}, all")
        return given
    return parse


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="regather_peers.trainers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=names(TRAINERS), default=("dpo",))
    parser.add_argument("--fused", type=names(FUSED), default=("liger",))
    parser.add_argument("--backend", type=names(BACKENDS), default=("ddp",))
    parser.add_argument("--json", action="store_true", help="a line for each run")
    parser.add_argument("--keep", metavar="DIR", help="logs and what was seen of the head, of each run")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="regather-models-") as models:
        return run_all(options, models)


def run_all(options, models):
    installed, ready, red = versions(), False, False
    for spec in ({"trainer": t, "fused": f, "backend": b} for t in options.trainer for f in options.fused
                 for b in options.backend):
        missing = launch.has_needed(spec, installed)
        if missing:
            line = {**spec, "outcome": "unsupported", "reason": missing}
        else:
            if not ready and not launch.refused(spec["trainer"], spec["fused"], installed["trl"]):
                launch.import_packages(options.backend)
                launch.write_models(models)
                ready = True
            line = launch.run(spec, installed, models, options.keep)
        red |= line["outcome"] not in ("pass", "unsupported")
        print(json.dumps(line, ensure_ascii=False) if options.json else text(line), flush=True)
    return 1 if red else 0


def text(line):
    where = f"trl {line.get('trl')} {line['trainer']} {line['fused']} {line['backend']}: {line['outcome']}"
    if line["outcome"] == "unsupported":
        return f"{where}: {line['reason']}"
    what = f"call={line['call']} fixes={'+'.join(line['fixes'] or ()) or 'none'} kernel={line['kernel']}"
    failure = f"; in {line['phase']}: {line['type']}: {line['text']}" if line["phase"] else ""
    return f"{where}; {what}{failure}"


if __name__ == "__main__":
    sys.exit(main())
