"""README.md names every flag of the program with its default, every variable that it reads, and every build option.

    readme_test.py REGATHER
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def sections():
    """{command: {flag: default cell}} of the tables under the headings that name a command."""
    found = {}
    for heading, body in re.findall(r"^### `regather ?(.*?)`\n(.*?)(?=^##|\Z)", README, re.MULTILINE | re.DOTALL):
        command = " ".join(word for word in heading.split() if word.islower())
        rows = re.findall(r"^\| (`-[^|]*)\|([^|]*)\|", body, re.MULTILINE)
        found[command] = {flag: default.strip("` ") for cell, default in rows
                          for flag in re.findall(r"`(--?[\w-]+)", cell)}
    return found


def help_flags(command):
    """{flag: default or None} of a command, as its --help prints them."""
    text = subprocess.run([PROGRAM, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
    found = {}
    for names, default in re.findall(r"^  (-[\w,-]+)(?: .*?)??(?:=(\S+))?(?:  .*)?$", text, re.MULTILINE):
        found |= {name: default or None for name in names.split(",")}
    return {flag: default for flag, default in found.items() if flag not in ("", "-h", "--help")}


def subcommands(command=""):
    text = subprocess.run([PROGRAM, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  (\w+)  ", text.partition("Subcommands:")[2], re.MULTILINE)
    yield command
    for name in names:
        yield from subcommands(f"{command} {name}".strip())


class Readme(unittest.TestCase):
    def test_every_flag_with_its_default(self):
        documented = sections()
        for command in subcommands():
            flags = help_flags(command)
            with self.subTest(command):
                self.assertEqual(sorted(documented.get(command, {})), sorted(flags))
                for flag, default in flags.items():
                    if default and flag not in ("-j", "--jobs"):  # depends on the machine
                        self.assertEqual(documented[command][flag], default, flag)
        self.assertLessEqual(set(documented), set(subcommands()))

    def test_every_axis_with_its_values_and_every_fix(self):
        def expected(part):
            command = [PROGRAM, "matrix", "list", "--case", f"ddp/sft/{part}"]
            words = subprocess.run(command, capture_output=True, text=True, check=False).stderr
            return re.search(r"(?:expected one of|names joined by \+ out of) (.*?)\.?$", words, re.MULTILINE)[1].split(", ")

        section = README.partition("## Cases\n")[2].partition("\n## ")[0]
        axes, fixes = section.split("| fix |")
        rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", axes, re.MULTILINE)
        self.assertEqual([name for name, _ in rows], expected("no_axis=1/fix=none"))
        for name, values in rows:
            part = {"backend": "backend=x/fix=none", "loss": "loss=x/fix=none"}.get(name, f"{name}=x/fix=none")
            with self.subTest(name):
                if name in ("backend", "loss"):
                    continue  # given by place, not by name
                self.assertEqual(re.findall(r"`([^`]+)`", values), expected(part))
        names = [name for row in re.findall(r"^\| (`.*?) \|", fixes, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
        self.assertEqual(names, expected("fix=no_fix"))

    def test_every_variable(self):
        read = set()
        for top in ("src", "matrix", "repro", "reports", "kernels"):
            for file in (ROOT / top).rglob("*.cpp"):
                read |= set(re.findall(r'(?:getenv|variable)\("(\w+)"\)', file.read_text()))
        table = README.partition("## Environment variables")[2].partition("\n## ")[0]
        self.assertEqual(sorted(re.findall(r"^\| `(\w+)` ", table, re.MULTILINE)), sorted(read | {"REGATHER_TORCH"}))

    def test_every_build_option(self):
        text = "".join(file.read_text() for file in [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake")])
        options = set(re.findall(r"option\((REGATHER_\w+)", text)) | set(re.findall(r"set\((REGATHER_\w+)[^)]*? CACHE ", text))
        table = README.partition("| option |")[2]
        self.assertEqual(sorted(re.findall(r"^\| `(\w+)` ", table, re.MULTILINE)), sorted(options))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
