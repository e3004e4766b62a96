"""Stands first on Python's path while upstream's test files run, in every process that they start.

The packages under test are the environment's, not the folders of the same names in the checkout that the tests stand in.
On a CPU DeepSpeed would compile an operator for shared memory in each process, for minutes, and a killed run leaves a lock
on which all later ones hang; gloo serves as well.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import site
import sys

PACKAGES = ("deepspeed", "trl", "liger_kernel")
WITH_SHM = "deepspeed.comm.torch"


class OfTheEnvironment(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in PACKAGES:
            return importlib.machinery.PathFinder.find_spec(name, site.getsitepackages())
        return self.without_shm() if name == WITH_SHM else None

    def without_shm(self):
        """The module as ever, with one function of it replaced once it is loaded."""
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(WITH_SHM)
        finally:
            sys.meta_path.insert(0, self)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.build_shm_op = lambda: None

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, OfTheEnvironment())
