"""TRL's own helper that makes a head whole under ZeRO-3, where the installed release has one.

With any number of parameters since 1.9 (trl.trainer.utils), as a private part of SFT's trainer in 1.6 to 1.8, nowhere
before. Its import is TRL's, 10 s: the worker imports this module before it forks the ranks that will ask.
"""

import importlib
import importlib.util

PLACES = (("trl.trainer.utils", "maybe_gather_lm_head_ctx"), ("trl.trainer.sft_trainer", "_maybe_gather_lm_head_ctx"))


def _find():
    if importlib.util.find_spec("trl") is None:
        return None
    for module, name in PLACES:
        helper = getattr(importlib.import_module(module), name, None)
        if helper is not None:
            return helper
    return None


HELPER = _find()
