"""repro/check/options.json against the packages of this environment, and what `regather check` says of them. Fetches a
release of TRL."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "matrix" / "peers"))

from regather_peers import options  # noqa: E402


class Options(unittest.TestCase):
    def test_the_file_is_what_the_packages_say(self):
        self.assertEqual(options.main(["--check", str(ROOT / "repro" / "check" / "options.json")]), 0)

    def test_what_trl_forces_reaches_the_model_only_where_kwargs_are_given(self):
        """repro/check/guards.cpp. The trainer writes one name, transformers reads the other."""
        import trl
        for given, read in ((None, None), ({"use_reentrant": False}, {"use_reentrant": True})):
            arguments = trl.SFTConfig(output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, report_to=[],
                                      gradient_checkpointing_kwargs=given)
            self.assertTrue(arguments.activation_checkpointing, "TRL's default")
            # What SFTTrainer does for adapters on ZeRO-3.
            arguments.gradient_checkpointing_kwargs = arguments.gradient_checkpointing_kwargs or {}
            arguments.gradient_checkpointing_kwargs["use_reentrant"] = True
            self.assertEqual(arguments.activation_checkpointing_kwargs, read)


if __name__ == "__main__":
    unittest.main()
