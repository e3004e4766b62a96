"""The case: one value per axis plus the fixes. The same ids as src/case/case.cpp; an id parses back to its case."""

import dataclasses

# Values in order, the default first; axes in the order in which they stand in an id.
AXES = {
    "backend": ("ddp", "zero1", "zero2", "zero3", "fsdp2", "fsdp1", "single"),
    "loss": ("sft", "grpo", "dpo", "kto"),
    "kernel": ("fused", "eager", "chunked"),
    "checkpoint": ("none", "reentrant", "nonreentrant"),
    "frozen": ("none", "norms", "lora", "head", "embedding", "quantised"),
    "head": ("untied", "tied"),
    "head_bias": ("no", "yes"),
    "call": ("direct", "engine"),
    "reference": ("separate", "shared"),
    "dtype": ("fp32", "bf16", "fp16"),
    "world": ("2", "1", "4", "8"),
    "accumulate": ("1", "2", "manual2"),
    "persistence": ("0", "upstream", "huge"),
    "early_stop": ("on", "off"),
    "input_grad": ("yes", "no"),
    "checkpoint_at": ("forward", "call"),
    "unit": ("layers", "head", "head_full_tensor"),
    "passes": ("1",),
    "layer_input": ("same",),
    "fully_shard": ("2.11",),
    "steps": ("2", "3"),
}


class UsageError(Exception):
    """What the request names cannot be used; no other case would fare better with the same request."""


@dataclasses.dataclass(frozen=True)
class Case:
    id: str
    axes: dict     # every axis; those that this stack does not know too, when the id names them
    fixes: tuple

    def __getattr__(self, axis):
        try:
            return self.__dict__["axes"][axis]
        except KeyError:
            raise AttributeError(axis) from None

    @property
    def ranks(self):
        return int(self.world)

    @property
    def optimizer_steps(self):
        return int(self.steps)

    @property
    def micro_batches(self):
        return 1 if self.accumulate == "1" else 2

    @property
    def zero_stage(self):
        """1, 2 or 3; 0 where DeepSpeed takes no part."""
        return int(self.backend[4]) if self.backend.startswith("zero") else 0

    @property
    def own_reference(self):
        """A reference model takes part in the step, and it is not the policy itself."""
        return self.loss in ("dpo", "kto") and self.reference == "separate"


def parse_id(text):
    """The caller has printed the id: what is no axis, value or fix here is left for support.py to refuse."""
    def fail(why):
        raise UsageError(f"case '{text}': {why}")

    parts = text.split("/")
    if len(parts) < 3 or not parts[-1].startswith("fix="):
        fail("expected backend/loss, then axis=value parts, then fix=NAMES or fix=none")
    axes = {axis: values[0] for axis, values in AXES.items()}
    given = [("backend", parts[0]), ("loss", parts[1])]
    for part in parts[2:-1]:
        axis, equals, value = part.partition("=")
        if not equals:
            fail(f"'{part}': expected axis=value")
        given.append((axis, value))
    for axis, value in given:
        axes[axis] = value
    if len({axis for axis, _ in given}) < len(given):
        fail("an axis stands twice")
    names = parts[-1].removeprefix("fix=")
    fixes = () if names == "none" else tuple(sorted(names.split("+")))
    if len(set(fixes)) < len(fixes):
        fail("a fix stands twice")
    return Case(text, axes, fixes)
