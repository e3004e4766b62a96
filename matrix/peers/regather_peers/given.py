"""What a case is given and what is right: a safetensors file that the C++ runtime writes (src/train/export.h).

Layout, format 1. Metadata: one key, "regather", JSON text:

    format      1
    case        the id for which the file was written; it serves every case with the same `key()`
    model       vocab, hidden, intermediate, layers, heads, kv_heads, rms_eps, rope_theta, padding_token (negative: none),
                tied, head_bias, lora_rank (0: no adapters), lora_alpha
    optimizer   lr, beta1, beta2, eps, weight_decay: AdamW as torch.optim orders its operations
    steps, micro_batches, world
    trainable   names, in the model's order
    tolerance, rounding   of a gradient's relative L2 error and of the stored parameters (src/train/precision.h)

Tensors. NAME is transformers' name of a parameter; adapters are ...q_proj.lora_A.weight and lora_B.weight; a tied head
has no name of its own. S, M and R count from 0.

    initial/NAME                              float32, every distinct parameter of the policy
    reference_model/NAME                      float32; dpo and kto with a reference model of its own
    step{S}/micro{M}/rank{R}/input_ids        int64 [B, T]
    step{S}/micro{M}/rank{R}/labels           int64 [B, T], -100 where masked
      .../advantages                          grpo: float64 [B]
      .../old_log_probabilities               grpo: float64 [B, T - 1], 0 where masked
      .../reference_log_probabilities         grpo: the same
      .../desirable                           kto: bool [B]
      .../mismatched_ids, .../mismatched_labels   kto: int64 [B, T]
    step{S}/micro{M}/losses                   float64 [world]: the right loss of each rank
    step{S}/gradient/NAME                     float64, trainable parameters: the mean over ranks and micro-batches
    step{S}/update/NAME                       float64, every parameter: after the step minus before

and, when the runtime ran the case too, what it got, of the case itself (not of every case with the same key):

    runtime/step{S}/rank{R}/gradient/NAME     the runtime's full gradient on that rank
"""

import json

FORMAT = 1


def key(case):
    """Cases with the same key are given the same and have the same right answers."""
    return (case.loss, "lora" if case.frozen == "lora" else case.frozen, case.head, case.head_bias, case.reference,
            case.dtype, case.backend == "fsdp2" if case.dtype != "fp32" else None, case.world, case.micro_batches, case.steps)


class Given:
    """One file, read as needed; tensors are copies."""

    def __init__(self, path):
        import safetensors
        self._file = safetensors.safe_open(path, framework="pt")
        meta = json.loads(self._file.metadata()["regather"])
        if meta["format"] != FORMAT:
            raise ValueError(f"{path}: format {meta['format']}: this version reads format {FORMAT}")
        self.model = meta["model"]
        self.optimizer = meta["optimizer"]
        self.steps = meta["steps"]
        self.trainable = meta["trainable"]
        self.tolerance = meta["tolerance"]
        self.rounding = meta["rounding"]
        self._keys = list(self._file.keys())

    def _all(self, prefix):
        return {name.removeprefix(prefix): self._file.get_tensor(name) for name in self._keys
                if name.startswith(prefix)}

    def initial(self):
        return self._all("initial/")

    def reference_model(self):
        return self._all("reference_model/")

    def batch(self, step, micro, rank):
        return self._all(f"step{step}/micro{micro}/rank{rank}/")

    def losses(self, step, micro):
        return self._file.get_tensor(f"step{step}/micro{micro}/losses").tolist()

    def gradients(self, step):
        return self._all(f"step{step}/gradient/")

    def updates(self, step):
        return self._all(f"step{step}/update/")

    def runtime_gradients(self, step, rank):
        return self._all(f"runtime/step{step}/rank{rank}/gradient/")
