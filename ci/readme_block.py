"""A part of README.md that is written by a script: between two markers, checked by its --check."""
import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def put(name, script, lines, check):
    """The exit code: 1 when README.md would change and `check` is set."""
    begin, end = f"<!-- {name}: written by {script} -->\n", f"<!-- end of the {name} -->\n"
    text = README.read_text()
    block = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(block.findall(text)) != 1:
        raise SystemExit(f"README.md: expected one {name} between its two markers")
    new = block.sub(lambda _: begin + "".join(lines) + end, text)
    if new == text:
        return 0
    if check:
        print(f"README.md: the {name} differs from these results; run {script} on them")
        return 1
    README.write_text(new)
    return 0
