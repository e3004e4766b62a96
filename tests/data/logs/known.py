"""The distinct error texts of public reports, each with the setting it came from: what the corpus of logs is made of."""
from collections import namedtuple

# issues: any of them is a right answer. stack: zero3, zero2, fsdp1, fsdp2, ddp, single. where: whose frames stand last.
Text = namedtuple("Text", "issues mechanism lines stack where trainer has versions", defaults=("sft", (), ()))

RECOMPUTED = ("torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors "
              "have different metadata than during the forward pass.")
COUNTED = ("torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during "
           "the original forward and recomputation.")
MIXED = "got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!"


def recomputed(pairs, dtype="torch.bfloat16", again=None, first=4):
    """Lines of a CheckpointError whose tensors had the first shape of each pair and then the second."""
    lines = [RECOMPUTED]
    for i, (saved, now) in enumerate(pairs):
        lines += [f"tensor at position {first + 2 * i}:",
                  f"saved metadata: {{'shape': torch.Size({list(saved)}), 'dtype': {dtype}, "
                  "'device': device(type='cuda', index=0)}",
                  f"recomputed metadata: {{'shape': torch.Size({list(now)}), 'dtype': {again or dtype}, "
                  "'device': device(type='cuda', index=0)}"]
    return lines


def counted(before, after):
    return [COUNTED, f"Number of tensors saved during forward: {before}",
            f"Number of tensors saved during recomputation: {after}"]


def size_mismatch(rows, columns, vector):
    return [f"RuntimeError: size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({vector})"]


def empty_gradient(size):
    return [f"RuntimeError: The size of tensor a (0) must match the size of tensor b ({size}) at non-singleton dimension 1"]


def ready_twice(index):
    return ["RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following "
            "reasons: 1) Use of a module parameter outside the `forward` function. 2) Reused parameters in multiple "
            "reentrant backward passes.",
            f"Parameter at index {index} has been marked as ready twice."]


def reduced(number):
    return [f"AssertionError: The parameter {number} has already been reduced.             Gradient computed twice for "
            "this partition.             Multiple gradient reduction is currently not supported"]


FROZEN = "recompute_freed_frozen"
OLD = (("deepspeed", "0.19.2"),)
FAMILY = ("deepspeed#8130", "deepspeed#8148")  # the entries for the text itself, which any report of it may lead to

TEXTS = [
    Text(("transformers#47254",), FROZEN, recomputed([([1024], [0]), ([1024], [0])]), "zero3", "recompute", has=("lora",), versions=OLD),
    Text(("trl#2514",), FROZEN, recomputed([([4096], [0])]), "zero3", "recompute", has=("lora", "trl"), versions=(("deepspeed", "0.15.3"),)),
    Text(("trl#5217",), FROZEN, recomputed([([2048], [0]), ([128], [0])]), "zero3", "recompute", "dpo", ("lora", "quantised", "trl"), OLD),
    Text(("deepspeed#8130",), FROZEN, recomputed([([1024], [0])], first=0), "zero3", "recompute", versions=OLD),
    Text(("dllm#65",), FROZEN, recomputed([([4096], [0]), ([4096], [0])], first=2), "zero3", "recompute", has=("dllm",)),
    Text(("diffsynth#576",), FROZEN, recomputed([([1536], [0])], first=13), "zero3", "recompute", has=("diffusion", "offload")),
    Text(("rwkv-peft#58",), FROZEN, recomputed([([1, 1, 2048], [0])]), "zero3", "recompute", has=("rwkv", "lora")),
    Text(("trl#6356",), FROZEN, [RECOMPUTED], "zero3", "recompute", "kto", ("lora", "trl")),
    Text(("llamafactory#6438",), FROZEN, [RECOMPUTED], "zero3", "recompute", has=("llamafactory",)),
    Text(("trl#4951",), FROZEN, ["UserWarning: You are using PEFT with DeepSpeed ZeRO-3 and gradient checkpointing with "
                                 "`use_reentrant=False`. `use_reentrant` is forced to `True` in this configuration."],
         "zero3", "warning", has=("lora", "trl")),
    Text(("transformers#34928",), FROZEN, recomputed([([3584], [0]), ([512], [0])]), "zero3", "recompute", has=("lora",)),
    Text(("transformers#34928", "pytorch#155171"), "recompute_changed", recomputed([([2, 1024, 28, 128], [2, 2048, 28, 128])]),
         "fsdp1", "recompute", has=("cache",)),
    Text(("pytorch#155171",), "recompute_changed", recomputed([([1, 12, 171, 128], [1, 12, 342, 128])]), "single", "recompute", has=("cache", "vision")),
    Text(("pytorch#155171",), "recompute_changed", recomputed([([1, 8, 286, 64], [1, 8, 572, 64])]), "single", "recompute", has=("cache", "robot")),
    Text(("nemo-rl#1203",), "recompute_changed", counted(2038, 1638), "fsdp2", "recompute", "grpo", ("moe", "nemo")),
    Text(("pytorch#144035",), "recompute_changed", counted(12, 9), "ddp", "recompute", has=("compile",), versions=(("torch", "2.5.1"),)),
    Text(("nemo-automodel#2635/3325/3743",), "recompute_changed", recomputed([([18187, 16], [18201, 16])]), "fsdp2", "recompute", has=("moe", "nemo")),
    Text(("modalities#361",), "recompute_changed", recomputed([([4096], [1, 1, 4096, 128])]), "fsdp2", "recompute", has=("compile",)),
    Text(("nemo-automodel#3247",), "recompute_changed", ["RuntimeError: aten.add_.Tensor encountered during backward but not found in storage"],
         "single", "recompute", has=("moe",)),
    Text(("trl#3368", "trl#5891", "qwen2.5-0.5b-grpo-zero3-bf16"), "head_read_partitioned", size_mismatch(1024, 896, 0), "zero3", "liger", "grpo", ("trl",)),
    Text(("trl#3368", "trl#5891"), "head_read_partitioned", ["ValueError: not enough values to unpack (expected 2, got 1)"], "zero3", "liger", "grpo", ("trl",)),
    Text(("trl#4544", "trl#6372"), "head_read_partitioned", size_mismatch(22, 2048, 0), "zero3", "liger", "dpo", ("trl",), (("trl", "1.6.0"),)),
    Text(("trl#6372",), "head_read_partitioned", size_mismatch(11, 2048, 0), "zero3", "liger", "kto", ("trl",)),
    Text(("trl#5873",), "head_read_partitioned", size_mismatch(256, 1024, 0), "zero3", "chunked", has=("trl", "chunked")),
    Text(("liger#332", "liger#674"), "head_read_partitioned", size_mismatch(2, 4096, 65667072), "fsdp1", "liger", has=("lora",)),
    Text(("unsloth#11132",), "head_read_partitioned", size_mismatch(20, 896, 3584), "fsdp1", "unsloth", has=("lora", "unsloth")),
    Text(("liger#48",), "head_read_partitioned", ["RuntimeError: Output 0 of ViewBackward0 is a view and its base or another view of its base has "
                                                  "been modified inplace. This view is the output of a function that returns multiple views."],
         "fsdp1", "liger", has=("lora",)),
    Text(("liger#1048", "lmms-engine#29"), "head_grad_on_partitioned", empty_gradient(4096), "zero3", "backward", has=("liger",)),
    Text(("trl#6372", "trl#4544"), "head_grad_on_partitioned", empty_gradient(2560), "zero3", "backward", "dpo", ("liger", "trl")),
    Text(("deepspeed#7078",), "head_grad_on_partitioned", ["RuntimeError: Function SumBackward0 returned an invalid gradient at index 0 - got [0] but "
                                                           "expected shape compatible with [256]"], "zero3", "backward"),
    Text(("trl#4550",), "mixed_dtensor", ["RuntimeError: aten.embedding.default: " + MIXED], "fsdp2", "forward", "grpo", ("lora", "trl")),
    Text(("trl#6064/6065",), "mixed_dtensor", ["RuntimeError: aten.mm.default: " + MIXED], "fsdp2", "chunked", has=("lora", "trl", "chunked")),
    Text(("trl-xfail-dpo-kto-liger-fsdp2",), "mixed_dtensor", ["RuntimeError: aten.embedding.default " + MIXED], "fsdp2", "liger", "dpo", ("trl",)),
    Text(("pytorch#153354", "pytorch#187437"), "mixed_dtensor", ["RuntimeError: aten.linear.default: " + MIXED], "fsdp2", "recompute", "dpo", ("torchtune",)),
    Text(("pytorch#187437",), "mixed_dtensor", ["RuntimeError: aten.mm.default: " + MIXED], "fsdp2", "recompute"),
    Text(("torchtune#2856/2898/2900",), "mixed_dtensor", ["RuntimeError: aten.mm.default: " + MIXED], "fsdp2", "forward", has=("torchtune", "lora")),
    Text(("verl#7427",), "mixed_dtensor", ["AttributeError: 'FSDPParam' object has no attribute '_unsharded_param'"], "fsdp2", "backward", "grpo", ("verl",)),
    Text(("pytorch#180346",), "mixed_dtensor", ["RuntimeError: aten._foreach_norm.Scalar: " + MIXED], "fsdp2", "clip"),
    Text(("trl#835",), "reduced_twice", ready_twice(386), "ddp", "backward", "reward", ("trl", "checkpoint")),
    Text(("peft#313", "pytorch#24005"), "reduced_twice", ready_twice(55), "ddp", "backward", has=("lora", "checkpoint")),
    Text(("pytorch#24005", "accelerate#2017"), "reduced_twice", ready_twice(7), "ddp", "backward", has=("checkpoint",)),
    Text(("unsloth#3713/3459",), "reduced_twice", ready_twice(12), "ddp", "backward", has=("unsloth", "checkpoint", "vision")),
    Text(("deepspeed#988",), "reduced_twice", reduced(388), "zero2", "backward"),
    Text(("transformers#39022", "deepspeed#988"), "reduced_twice", reduced(666), "zero2", "backward", has=("unsloth", "quantised")),
    Text(("orpo#9", "deepspeed#988"), "reduced_twice", [reduced(255)[0].replace("reduction is", "reductions are")], "zero2", "backward", "orpo"),
    Text(("piccolo#8", "deepspeed#988"), "reduced_twice", reduced(41), "zero2", "backward", has=("embedding",)),
    Text(("deepspeed#4505",), "reduced_twice", ["AssertionError"], "zero3", "ipg", "reward"),
    Text(("deepspeed#7780",), "reduced_twice", ["AttributeError: 'NoneType' object has no attribute 'numel'"], "zero3", "ipg"),
    Text(("deepspeed#7841",), "reduced_twice", ["AttributeError: 'NoneType' object has no attribute 'next_functions'"], "zero2", "backward"),
    Text(("pytorch#89781",), "reduced_twice", ["AssertionError: Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got `HandleTrainingState.FORWARD`"], "fsdp1", "backward"),
    Text(("accelerate#2017", "gr00t#164/351"), "ddp_unused", ["RuntimeError: Expected to have finished reduction in the prior iteration before starting "
                                             "a new one. This error indicates that your module has parameters that were not used in producing loss."],
         "ddp", "forward", has=("robot",)),
    Text(("trl#2486/2671", "peft#1142"), "no_grad_input", ["UserWarning: None of the inputs have requires_grad=True. Gradients will be None"],
         "ddp", "warning", "dpo", ("lora", "trl", "checkpoint")),
    Text(("transformers#42489",), "no_grad_input", ["RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"],
         "single", "backward", has=("lora", "checkpoint")),
    Text(("deepspeed#4224",), "no_grad_input", ["AssertionError: requires_grad of input must be true for activation checkpoint layer in pipeline"],
         "zero2", "forward", has=("checkpoint",)),
    Text(("trl#4693",), "trace_stale", ["IndexError: pop from an empty deque"], "zero3", "trace", "gkd", ("trl", "generation")),
    Text(("trl#2304", "trl#4693"), "trace_stale", ["IndexError: pop from an empty deque"], "zero3", "trace", "ppo", ("trl",)),
    Text(("deepspeed#3599",), "trace_stale", ["RuntimeError: tracing error at step 42: expected the next 2 parameters in the parameter fetch queue to be "
                                              "({'id': 12, 'status': 'AVAILABLE'},) but got ()."], "zero3", "trace"),
    Text(("qwen-vl#412", "deepspeed#3599"), "trace_stale", ["RuntimeError: tracing error at step 603: ", "module id: 1, training: True",
                                           "expected the next 1 parameters in the parameter fetch queue to be ({'id': 853},) but got ()."],
         "zero3", "trace", has=("vision",)),
    Text(("deepspeed#5828",), "trace_stale", ["RuntimeError: still have inflight params [{'id': 3, 'status': 'INFLIGHT'}]"], "zero3", "trace"),
    Text(("deepspeed#7615",), "lifecycle", ["AttributeError: 'Linear' object has no attribute 'ds_grads_remaining'"], "zero3", "backward", has=("lora",)),
    Text(("peft#1450", "qwen-vl#103"), "lifecycle", ["AssertionError: {'id': 291, 'status': 'NOT_AVAILABLE', 'numel': 0, 'ds_numel': 0, 'shape': (0,), "
                                                     "'ds_shape': (0,), 'requires_grad': True, 'grad_shape': None, 'persist': True}"],
         "zero3", "init", has=("lora",)),
    Text(("qwen-vl#103",), "lifecycle", ["AssertionError: {'id': 853, 'status': 'NOT_AVAILABLE', 'numel': 0, 'ds_numel': 0, 'shape': (0,), 'ds_shape': (0,), "
                                         "'requires_grad': False, 'grad_shape': None}"], "zero3", "init"),
    Text(("trl#6403",), "lifecycle", ["RuntimeError: 'weight' must be 2-D"], "zero3", "precompute", "dpo", ("trl",)),
    Text(("trl#6403",), "lifecycle", ["RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"],
         "zero2", "precompute", "dpo", ("trl",)),
    Text(("deepspeed#5066",), "ranks_diverged", ["WATCHDOG _ALLGATHER_BASE"], "zero3", "watchdog", has=("moe",)),
    Text(("ms-swift#8102",), "ranks_diverged", ["WATCHDOG _ALLGATHER_BASE"], "zero3", "watchdog", "grpo", ("swift",)),
    Text(("pytorch#171355/174862",), "ranks_diverged", [RECOMPUTED], "fsdp2", "recompute", has=("moe",)),
    Text(("pytorch#159359",), "recompute_dtype", recomputed([([2, 512, 2048], [2, 512, 2048])], again="torch.float32"), "fsdp2", "recompute"),
    Text(("miles_diffusion#15", "pytorch#159359"), "recompute_dtype", recomputed([([1, 4096, 64], [1, 4096, 64])], again="torch.float32", first=17), "fsdp2", "recompute", has=("diffusion",)),
    Text(("pytorch#148831", "pytorch#159359"), "recompute_dtype", recomputed([([8, 2048], [8, 2048])], "torch.bfloat16", "torch.float32"), "fsdp2", "recompute", has=("autocast",)),
    Text(("nemo-automodel#3504",), "recompute_dtype", ["RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16"], "fsdp2", "recompute", has=("nemo",)),
    Text(("llamafactory#9064",), "recompute_dtype", [RECOMPUTED], "fsdp2", "recompute", has=("llamafactory",)),
    Text(("pytorch#141896",), "recompute_dtype", recomputed([([64, 32], [64, 32])], "torch.float16", "torch.float32", 5), "single", "recompute", has=("autocast",)),
    Text(("deepspeed#8072/8073",), "mixed_dtype", ["TypeError: output tensor must have the same type as input tensor"], "zero3", "gather", has=("lora",), versions=OLD),
    Text(("axolotl#1494/1482, trl#1723",), "mixed_dtype", ["ValueError: Must flatten tensors with uniform dtype but got torch.float32 and torch.bfloat16"],
         "fsdp1", "init", has=("quantised", "lora")),
    Text(("axolotl#1494/1482, trl#1723",), "mixed_dtype", ["ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float16"],
         "fsdp1", "init", has=("quantised",)),
    Text(("axolotl#2250",), "mixed_dtype", ["ValueError: Cannot flatten integer dtype tensors"], "fsdp1", "init", has=("quantised",)),
    Text(("trl#6330",), "mixed_dtype", ["RuntimeError: expected mat1 and mat2 to have the same dtype, but got: float != c10::BFloat16"], "zero3", "head", "grpo", ("trl",)),
    Text(("liger#1283",), "mixed_dtype", ["RuntimeError: mat1 and mat2 must have the same dtype, but got BFloat16 and Float"], "single", "liger", has=("autocast",)),
    Text(("liger#1316",), "mixed_dtype", ["RuntimeError: gemm input type at::BFloat16 and output type float is only supported for CUDA devices with compute "
                                          "capability 8.0 or higher"], "single", "liger"),
    Text(("deepspeed#8214",), "frozen_structure", ["KeyError: 0"], "zero3", "init_z3", has=("lora", "compile")),
    Text(("soup#336",), "frozen_structure", ["ValueError: zip() argument 2 is longer than argument 1"], "zero2", "schedule", has=("lora",)),
    Text(("accelerate#4171",), "tied_broken", ["ValueError: Parameter 'model.embed_tokens.weight' is shared with a parameter already managed by another FSDP "
                                               "group. For shared/tied parameters, use fully_shard([module_a, module_b])"], "fsdp2", "init"),
    Text(("axolotl#150",), "tied_broken", ["RuntimeError: setStorage: sizes [4544, 4672], strides [1, 4544], storage offset 6507580544, and itemsize 2 "
                                           "requiring a storage size of 13057618944 are out of bounds for storage of size 0"], "fsdp1", "backward"),
    Text(("unsloth#11132",), "head_read_partitioned", ["RuntimeError: setStorage: sizes [4096, 8], strides [1, 4096], storage offset 0, and itemsize 2 "
                                                       "requiring a storage size of 65536 are out of bounds for storage of size 0"], "fsdp1", "unsloth", has=("lora", "unsloth")),
    Text(("liger#926",), "kernel_gradient", ["TypeError: liger_fused_linear_cross_entropy() got an unexpected keyword argument 'return_dict'"], "single", "liger", has=("lora",)),
    Text(("deepspeed#4332", "deepspeed#8130"), FROZEN, recomputed([([320], [0])], "torch.float16"), "zero3", "recompute", has=("diffusion",), versions=(("deepspeed", "0.10.4"),)),
]
