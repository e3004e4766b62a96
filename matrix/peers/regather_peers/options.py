"""repro/check/options.json: what the released packages call their options, with each default and the file that sets it.

    python -m regather_peers.options --trl 1.6.0,1.16.0 > repro/check/options.json
        A release of TRL that is not installed is put into a folder of its own over this environment.
    python -m regather_peers.options --trl 1.6.0,1.16.0 --check repro/check/options.json
        Exit 1 where the file says something else.

`classes` holds a dataclass each: of TRL's configurations what TrainingArguments does not have, or has with another
default. `launchers` holds the flags of a launcher's own and whether each takes a value. `deepspeed` holds the keys of a
ds_config.json: `top` may hold more than DeepSpeed reads there, `zero` is what it accepts under zero_optimization.
`tied` holds the model types whose configuration ties the head to the embedding where config.json does not say.
"""

import argparse
import contextlib
import dataclasses
import enum
import importlib
import inspect
import json
import os
import pathlib
import subprocess
import sys

from regather_peers import overlay, setup
from regather_peers.environment import versions as installed_versions

TRL_CLASSES = ("SFTConfig", "DPOConfig", "KTOConfig", "GRPOConfig", "RLOOConfig", "RewardConfig", "ModelConfig",
               "ScriptArguments", "DatasetMixtureConfig")
CONSTANTS = ("runtime", "elasticity", "nebula", "profiling", "compression", "autotuning", "runtime.data_pipeline")
FILE_OF = {"accelerate": "accelerate/commands/config/config_args.py", "peft": "peft/tuners/lora/config.py"}


def plain(value):
    """As JSON has it; null for what is made when the object is."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is dataclasses.MISSING or not isinstance(value, (bool, int, float, str, type(None))):
        return None
    return value if value not in (float("inf"), float("-inf")) else None


def fields_of(cls):
    return {field.name: plain(field.default) for field in dataclasses.fields(cls) if field.init}


def described(cls, package, version, without=None):
    fields = fields_of(cls)
    without = without or {}
    file = FILE_OF.get(package) or cls.__module__.replace(".", "/") + ".py"
    return {"name": cls.__name__, "package": package, "version": version, "file": file,
            "fields": {name: default for name, default in fields.items()
                       if name not in without or without[name] != default}}


def of_trl():
    import transformers
    import trl
    base = fields_of(transformers.TrainingArguments)
    trained = {name for name in TRL_CLASSES if name.endswith("Config") and name not in ("ModelConfig", "DatasetMixtureConfig")}
    return [described(getattr(trl, name), "trl", trl.__version__, base if name in trained else None)
            for name in TRL_CLASSES]


def of_release(version):
    if installed_versions()["trl"] == version:
        return of_trl()
    front = overlay.make(pathlib.Path(sys.prefix), "trl", version)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(front), str(setup.PEERS)]))
    said = subprocess.run([sys.executable, "-W", "ignore", "-m", "regather_peers.options", "--only-trl"],
                          env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(said.stdout)


def flags_of(parser):
    """--name -> whether a value follows."""
    found = {}
    for action in parser._actions:
        for option in action.option_strings:
            found[option] = action.nargs != 0
    return found


def deepspeed_launcher():
    """Its parser is made and used in one function."""
    from deepspeed.launcher import runner
    caught = {}

    def keep(parser, *_, **__):
        caught["parser"] = parser
        raise InterruptedError

    original, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, keep
    try:
        runner.parse_args(["train.py"])
    except InterruptedError:
        pass
    finally:
        argparse.ArgumentParser.parse_args = original
    return caught["parser"]


def deepspeed_keys():
    from deepspeed.runtime import config as runtime
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    zero = set()
    for name, field in DeepSpeedZeroConfig.model_fields.items():
        zero |= {name, *([field.alias] if field.alias else [])}
    top = {"optimizer", "scheduler", "compile", "pipeline", "sequence_parallel_size", "tensor_parallel"}
    for name in CONSTANTS:
        top |= {value for value in vars(importlib.import_module(f"deepspeed.{name}.constants")).values() if is_key(value)}
    source = inspect.getsource(runtime)
    top |= {word.split('"')[1] for word in source.replace("'", '"').split("param_dict.get(")[1:]
            if word.startswith('"')}
    top |= {"bf16", "fp16", "amp", "zero_optimization", "wandb", "tensorboard", "csv_monitor", "comms_logger", "aio",
            "flops_profiler", "activation_checkpointing", "elasticity"}
    return {"top": sorted(top), "zero": sorted(zero),
            "zero_defaults": {field.alias or name: plain(field.default)
                              for name, field in DeepSpeedZeroConfig.model_fields.items()
                              if name in ("stage", "param_persistence_threshold")}}


def tied_models():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    tied = set()
    for name in CONFIG_MAPPING:
        try:
            if getattr(CONFIG_MAPPING[name], "tie_word_embeddings", False) is True:
                tied.add(name)
        except (ImportError, AttributeError):
            continue  # a model whose own dependencies are not installed
    return sorted(tied)


def is_key(value):
    return isinstance(value, str) and 3 <= len(value) <= 60 and value.replace("_", "").isalnum() and value.islower()


def document(releases):
    import accelerate.commands.config.config_args as accelerate_config
    import peft
    import transformers
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser
    found = installed_versions()
    classes = [described(transformers.TrainingArguments, "transformers", found["transformers"])]
    for release in releases:
        classes += of_release(release)
    classes.append(described(accelerate_config.ClusterConfig, "accelerate", found["accelerate"]))
    classes.append(described(peft.LoraConfig, "peft", found["peft"]))
    return {"schema": 1, "packages": {name: found[name] for name in (
        "torch", "transformers", "accelerate", "deepspeed", "peft")},
        "classes": classes,
        "launchers": {"accelerate": flags_of(launch_command_parser()), "torchrun": flags_of(get_args_parser()),
                      "deepspeed": flags_of(deepspeed_launcher())},
        "deepspeed": deepspeed_keys(), "tied": tied_models()}


def printed(made):
    """A class a line."""
    lines = [f'"schema": {made["schema"]}', f'"packages": {json.dumps(made["packages"])}',
             '"classes": [\n  ' + ",\n  ".join(json.dumps(entry) for entry in made["classes"]) + "\n]",
             *(f'"{name}": {{\n  ' + ",\n  ".join(f'{json.dumps(key)}: {json.dumps(value)}' for key, value in made[name].items())
               + "\n}" for name in ("launchers", "deepspeed")), f'"tied": {json.dumps(made["tied"])}']
    return "{" + ",\n".join(lines) + "}\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="regather_peers.options", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="1.6.0,1.16.0")
    parser.add_argument("--only-trl", action="store_true", help="this environment's own release alone, as JSON")
    parser.add_argument("--check", metavar="FILE")
    options = parser.parse_args(arguments)
    if options.only_trl:
        with contextlib.redirect_stdout(sys.stderr):
            classes = of_trl()
        print(json.dumps(classes))
        return 0
    with contextlib.redirect_stdout(sys.stderr):  # packages say things while they are imported
        made = printed(document(options.trl.split(",")))
    if options.check:
        return 0 if pathlib.Path(options.check).read_text() == made else 1
    sys.stdout.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
