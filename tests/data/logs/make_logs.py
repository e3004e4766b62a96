#!/usr/bin/env python3
"""Makes the corpus of logs for `diagnose`: every known text in realistic surroundings, near misses, unrelated failures.

    tests/data/logs/make_logs.py OUT [--seed N]

Writes OUT/*.log(.gz) and OUT/manifest.json: for each log its kind (known, near, unrelated), its part (train, held), the
mechanism and the issues that are right. A third of the known texts is held out: within each mechanism they stand in
the order of their hashes, and every third is (`held_out`). The same seed makes the same logs.
"""
import argparse
import gzip
import hashlib
import json
import pathlib
import random

import frames
import known
import others

VARIANTS = 2  # logs a text


def held_out(texts):
    """Which texts signatures must not be written by: decided by their hashes alone."""
    digest = lambda text: hashlib.sha256("\n".join((*text.issues, *text.lines)).encode()).hexdigest()
    ordered = sorted(texts, key=lambda text: (text.mechanism, digest(text)))
    return {id(text) for i, text in enumerate(ordered) if i % 3 == 1}


def environment(rng, versions, has):
    """What people paste of their packages, in one of the forms that tools print."""
    pins = {"torch": "2.11.0", "transformers": "5.24.0", "accelerate": "1.15.0", "datasets": "4.4.1", "numpy": "2.2.6"}
    if rng.random() < 0.5 and "torch" not in dict(versions):
        pins.pop("torch")
    if "lora" in has:
        pins["peft"] = "0.21.2"
    pins.update(versions)
    form = rng.randrange(6)
    if form == 0:
        return []
    if form == 1:
        return [f"{name}=={version}" for name, version in sorted(pins.items())]
    if form == 2:
        return ["Package            Version", "------------------ ---------"] + [f"{n:<18} {v}" for n, v in sorted(pins.items())]
    if form == 3:
        return ["- `transformers` version: " + pins["transformers"], "- Platform: Linux-6.8.0-x86_64-with-glibc2.35",
                "- Python version: 3.11.9"] + [f"- {n.capitalize() if n != 'deepspeed' else 'DeepSpeed'} version: {v}"
                                               for n, v in pins.items() if n in ("accelerate", "peft", "deepspeed")]
    if form == 4 and "deepspeed" in pins:
        return ["--------------------------------------------------", "DeepSpeed general environment info:",
                "torch install path ............... ['/opt/conda/lib/python3.11/site-packages/torch']",
                f"torch version .................... {pins.get('torch', '2.11.0')}",
                f"deepspeed info ................... {pins['deepspeed']}, unknown, unknown"]
    return ["Successfully installed " + " ".join(f"{n}-{v}" for n, v in sorted(pins.items()))]


def settings(rng, stack, trainer, has, checkpoint):
    """What a run says of itself before it trains."""
    lines = []
    if stack.startswith("zero"):
        stage = stack[-1]
        lines += rng.choice([
            ['{"zero_optimization": {"stage": ' + stage + ', "overlap_comm": true}, "bf16": {"enabled": true}}'],
            ["compute_environment: LOCAL_MACHINE", "deepspeed_config:", f"  zero_stage: {stage}", "distributed_type: DEEPSPEED"],
            ["[INFO] [config.py:1005:print]   zero_optimization_stage ...... " + stage]])
    elif stack == "fsdp1":
        lines += ["distributed_type: FSDP", "fsdp_config:", "  fsdp_version: 1", "  fsdp_sharding_strategy: FULL_SHARD"]
    elif stack == "fsdp2":
        lines += ["distributed_type: FSDP", "fsdp_config:", "  fsdp_version: 2", "  fsdp_reshard_after_forward: true"]
    elif stack == "ddp":
        lines += ["distributed_type: MULTI_GPU", "num_processes: 2"]
    if checkpoint:
        lines.append("gradient_checkpointing=True,")
    lines += {"dpo": ["DPOConfig(", "loss_type='sigmoid',"], "kto": ["KTOConfig("], "grpo": ["GRPOConfig(", "num_generations=8,"],
              "reward": ["RewardConfig("], "orpo": ["ORPOConfig("], "ppo": ["PPOConfig("], "gkd": ["GKDConfig("]}.get(trainer, ["SFTConfig("])
    told = {"lora": ["trainable params: 4,399,104 || all params: 498,431,872 || trainable%: 0.8826"],
            "quantised": ["BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4')"],
            "liger": ["use_liger_kernel=True,"], "chunked": ["loss_type='chunked_nll',"], "moe": ["model_type: qwen3_moe, num_experts: 128"],
            "cache": ["`use_cache=True` is set while training"], "compile": ["torch_compile=True,"], "offload": ["offload_optimizer: cpu"],
            "vision": ["loading Qwen2-VL vision tower"], "robot": ["policy: gr00t action head"], "diffusion": ["loading UNet2DConditionModel (diffusers)"],
            "rwkv": ["model: RWKV-7"], "dllm": ["dllm: masked diffusion language model"], "generation": ["generating samples with model.generate"],
            "autocast": ["with torch.autocast('cuda', dtype=torch.bfloat16)"], "embedding": ["contrastive training of a bi-encoder"],
            "tp": ["parallelize_module(model, tp_mesh, {'fc1': ColwiseParallel()})"], "swift": ["[INFO:swift] Start training"], "unsloth": ["Unsloth: Will smartly offload gradients to save VRAM!"]}
    for name in has:
        lines += told.get(name, [])
    return lines


NOISE = ["Setting ds_accelerator to cuda (auto detect)", "FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated.",
         "The model is not an instance of PreTrainedModel. No liger kernels will be applied.", "wandb: Tracking run with wandb version 0.22.1",
         "Generating train split: 10000 examples [00:01, 8123.12 examples/s]", "You are not running the flash-attention implementation",
         "[WARNING] async_io requires the dev libaio .so object and headers but these were not found."]


def progress(rng, steps):
    """Progress bars, which rewrite their line, and the metrics between them."""
    lines, bar = [], "  0%|          | 0/500 [00:00<?, ?it/s]"
    for step in range(1, steps + 1):
        bar += f"\r  {step / 5:.0f}%|▏         | {step}/500 [00:{step:02d}<08:11,  1.02it/s]"
        if rng.random() < 0.4:
            lines.append(bar)
            lines.append(f"{{'loss': {rng.uniform(0.5, 3):.4f}, 'grad_norm': {rng.uniform(0.1, 2):.3f}, 'learning_rate': 1e-05, 'epoch': 0.0{step}}}")
            bar = ""
    return lines + [bar]


def watchdog(op, rank):
    return [f"[E1130 03:12:4{rank}.123456789 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum=3{rank}1, OpType={op}, NumelIn=4194304, NumelOut=8388608, Timeout(ms)=1800000) ran for 1800041 milliseconds before timing out."]


def aftermath(rng, stack):
    """What other processes say once one has failed."""
    lines = []
    if rng.random() < 0.4:
        lines += watchdog("_ALLGATHER_BASE" if stack == "zero3" else "ALLREDUCE", 1)
    if rng.random() < 0.3:
        lines.append("[2026-11-30 03:13:01,004] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 41712")
        lines.append("[2026-11-30 03:13:02,110] [ERROR] [launch.py:325:sigkill_handler] ['/opt/conda/bin/python', '-u', 'train.py'] exits with return code = 1")
    elif rng.random() < 0.6:
        lines += ["W1130 03:13:03.118000 4170 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4172 closing signal SIGTERM",
                  "E1130 03:13:03.401000 4170 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 4171) of binary: /opt/conda/bin/python",
                  *frames.traceback(["main"]), "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
                  "============================================================", "train.py FAILED", "Root Cause (first observed failure):",
                  "[0]:", "  rank      : 0 (local_rank: 0)", "  exitcode  : 1 (pid: 4171)", "  error_file: <N/A>"]
    return lines


def dress(rng, rank):
    """Lines as a launcher shows them for one rank."""
    style = rng.randrange(9)
    stamp = lambda i: f"2026-11-30T03:12:{i % 60:02d}.{rng.randrange(10**6):06d}Z"
    if style == 0:
        return lambda i, line: f"[rank{rank}]: {line}"
    if style == 1:
        return lambda i, line: f"[default{rank}]:{line}"
    if style == 2:
        return lambda i, line: f"\x1b[36m(RayWorker pid={4000 + rank}, ip=10.0.0.{rank})\x1b[0m {line}"
    if style == 3:
        return lambda i, line: f"{rank}: {line}"
    if style == 4:
        return lambda i, line: f"{stamp(i)} {line}"
    if style == 5:
        return lambda i, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": stamp(i)}, separators=(",", ":"), ensure_ascii=False)
    if style == 6:
        return lambda i, line: f"worker-{rank}: {line}"
    return lambda i, line: line


def interleave(rng, streams):
    """Lines of several ranks in one file, each in its own order."""
    streams = [list(stream) for stream in streams]
    while any(streams):
        stream = rng.choice([s for s in streams if s])
        for _ in range(rng.randint(1, 6)):
            if stream:
                yield stream.pop(0)


def wrapped(lines):
    """The same error out of a compiled function."""
    kind, _, text = lines[0].partition(": ")
    return [f"torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: call_function "
            f"<built-in function linear>(*(FakeTensor(...), ...), **{{}}): got {kind}('{text}')", "", "from user code:",
            '   File "/workspace/model.py", line 41, in forward', "    return self.head(x)"]


def log_of(rng, error, names, stack, trainer, has, versions, known_text):
    """One log: lines, whether its error was cut off the end of the file is never so here."""
    warning = error and error[0].startswith(("UserWarning", "INFO"))
    blocks = []
    for part in "\n".join(error or []).split("\n@@\n") if error else []:
        block = part.split("\n")
        if block[0].startswith("WATCHDOG"):
            blocks.append([line for rank in (0, 1) for line in watchdog(block[0].split()[1], rank)])
        elif block[0].startswith(("UserWarning", "INFO")):
            blocks.append([f"{frames.SITE}/torch/utils/checkpoint.py:86: " + block[0], *block[1:]] if block[0].startswith("User") else block)
        elif names is None:
            blocks.append(block)
        else:
            compiled = known_text and block[0].startswith("RuntimeError: size mismatch, got") and rng.random() < 0.3
            blocks.append(frames.traceback(names) + (wrapped(block) if compiled else block))
    checkpoint = "checkpoint" in has or known_text and (rng.random() < 0.5 or "lora" in has)
    lines = environment(rng, versions, has) + settings(rng, stack, trainer, has, checkpoint) + rng.sample(NOISE, 3)
    rng_steps = rng.randrange(0, 6)
    body = progress(rng, rng_steps) if rng_steps and not warning else []
    if body and blocks and rng.random() < 0.5 and blocks[0] and names:
        blocks[0][0] = body.pop() + blocks[0][0]  # a bar has no line end of its own
    ranks = 1 if stack == "single" or names is None else rng.choice([1, 2])
    style_state = rng.getstate()
    streams = []
    for rank in range(ranks):
        rng.setstate(style_state)
        put = dress(rng, rank)
        # Two errors are those of two ranks, where there are two.
        mine = blocks[rank] if len(blocks) == 2 and ranks == 2 else [line for block in blocks for line in block]
        streams.append([put(i, line) for i, line in enumerate(mine)])
    prefixed = len(streams) > 1 and streams[0] != streams[1]
    errors = list(interleave(rng, streams)) if prefixed else [line for stream in streams for line in stream]
    after = aftermath(rng, stack) if error and not warning else progress(rng, 4)
    return lines + body + errors + after


def write(out, name, rng, lines):
    """The bytes of a log, now and then with what spoils them."""
    data = "\n".join(lines).encode()
    if rng.random() < 0.2:
        data = data.replace(b"\n", b"\r\n")
    if rng.random() < 0.2:
        data = b"\xff\xfe\x80 caf\xe9\n" + data
    if rng.random() < 0.3:
        path = out / f"{name}.log.gz"
        path.write_bytes(gzip.compress(data, mtime=0))
    else:
        path = out / f"{name}.log"
        path.write_bytes(data)
    return path.name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    manifest = []
    held = held_out(known.TEXTS)
    for number, text in enumerate(known.TEXTS):
        for variant in range(VARIANTS):
            rng = random.Random(f"{arguments.seed}/{number}/{variant}")
            names = None if text.where in ("warning", "watchdog") else frames.call(text)
            lines = log_of(rng, list(text.lines), names, text.stack, text.trainer, text.has, text.versions, True)
            manifest.append({"file": write(arguments.out, f"known-{number:02d}-{variant}", rng, lines), "kind": "known",
                             "part": "held" if id(text) in held else "train", "mechanism": text.mechanism,
                             "issues": list(text.issues), "text": text.lines[0][:100]})
    for kind, items in (("near", others.NEAR), ("unrelated", others.UNRELATED)):
        for number, item in enumerate(items):
            rng = random.Random(f"{arguments.seed}/{kind}/{number}")
            lines = [] if item.lines is None else log_of(rng, item.lines, item.frames, item.stack, item.trainer, item.has, (), False)
            manifest.append({"file": write(arguments.out, f"{kind}-{number:02d}", rng, lines), "kind": kind, "part": "held",
                             "mechanism": None, "issues": [], "text": item.name})
    (arguments.out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
