"""ci/check_layers is silent on this tree and goes red for each kind of breach, seeded in a copy."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(root):
    run = subprocess.run([sys.executable, ROOT / "ci/check_layers", root], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


class CheckLayers(unittest.TestCase):
    def setUp(self):
        self.copy = pathlib.Path(tempfile.mkdtemp()) / "tree"
        self.addCleanup(shutil.rmtree, self.copy.parent)
        for folder in ("src", "kernels", "matrix", "repro", "reports", "cmake", "ci"):
            if (ROOT / folder).exists():
                shutil.copytree(ROOT / folder, self.copy / folder)

    def seed(self, path, text):
        file = self.copy / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def assert_red(self, *words):
        status, output = check(self.copy)
        self.assertEqual(status, 1, output)
        lines = [line for line in output.splitlines() if all(word in line for word in words)]
        self.assertEqual(len(lines), 1, output)

    def test_tree_is_clean(self):
        self.assertEqual(check(self.copy)[0], 0, check(self.copy)[1])

    def test_upward_include(self):
        self.seed("src/case/seeded.cpp", '#include "comm/world.h"\n')
        self.assert_red("src/case/seeded.cpp:1", "comm/world.h", "may include base")

    def test_sideways_include(self):
        self.seed("src/comm/seeded.h", '#pragma once\n#include "model/module.h"\n')
        self.assert_red("src/comm/seeded.h:2", "model/module.h")

    def test_angle_brackets_do_not_hide_it(self):
        self.seed("src/model/seeded.cpp", "#  include <comm/world.h>\n")
        self.assert_red("src/model/seeded.cpp:1")

    def test_relative_path_does_not_hide_it(self):
        self.seed("src/loss/seeded.cpp", '#include "../shard/policy.h"\n')
        self.assert_red("src/loss/seeded.cpp:1")

    def test_torch_in_the_command_line(self):
        self.seed("matrix/seeded.cpp", "#include <ATen/core/Tensor.h>\n")
        self.assert_red("matrix/seeded.cpp:1", "must not see torch")

    def test_torch_by_the_precompiled_header(self):
        self.seed("repro/seeded.cpp", '#include "pch.h"\n')
        self.assert_red("repro/seeded.cpp:1", "must not see torch")

    def test_torch_in_a_kernel(self):
        self.seed("kernels/seeded.cu", "#include <c10/util/Exception.h>\n")
        self.assert_red("kernels/seeded.cu:1", "must not see torch")

    def test_runtime_in_the_command_line(self):
        self.seed("matrix/seeded.cpp", '#include "shard/backend.h"\n')
        self.assert_red("matrix/seeded.cpp:1", "shard/backend.h")

    def test_runner_in_the_judge(self):
        self.seed("matrix/judge/seeded.cpp", '#include "matrix/runner/schedule.h"\n')
        self.assert_red("matrix/judge/seeded.cpp:1", "matrix/runner/schedule.h")

    def test_unknown_include(self):
        self.seed("src/base/seeded.cpp", '#include "nowhere/nothing.h"\n')
        self.assert_red("src/base/seeded.cpp:1", "no file of this project")

    def test_unknown_folder(self):
        self.seed("src/elsewhere/seeded.cpp", "\n")
        self.assert_red("src/elsewhere/seeded.cpp", "no rule")

    def test_long_file(self):
        self.seed("src/base/seeded.cpp", "// line\n" * 501)
        self.assert_red("src/base/seeded.cpp", "501 lines")


if __name__ == "__main__":
    unittest.main()
