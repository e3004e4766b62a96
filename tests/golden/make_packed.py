#!/usr/bin/env python3
"""Writes tests/data/golden/packed.safetensors: weights that bitsandbytes packed in 4 bits (NF4, blocks of 64), which
tests/model compares packing, dequantising and the linear layer with.

    even/ [32, 32], odd/ [3, 45] (a last block of 7 values, half a last byte) and zero/ [4, 32] (a block of zeros):
    weight, packed [n, 1] uint8, scales, dense (dequantised), x, y (x W^T), y/grad and x/grad

float32 but for the bytes. usage: make_packed.py [FOLDER]   (default: tests/data/golden beside this script; versions:
requirements.txt)
"""

import pathlib
import sys

import bitsandbytes
import bitsandbytes.functional
import safetensors.torch
import torch


def normal(generator, *shape):
    return torch.randn(shape, generator=generator)


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data" / "golden"
    generator = torch.Generator().manual_seed(7)
    kept = {}
    for name, rows, columns in (("even", 32, 32), ("odd", 3, 45), ("zero", 4, 32)):
        weight = 0.02 * normal(generator, rows, columns)
        if name == "zero":
            weight[:2] = 0
        packed, state = bitsandbytes.functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        dense = bitsandbytes.functional.dequantize_4bit(packed, state)
        x = normal(generator, 2, 5, columns).requires_grad_(True)
        y = bitsandbytes.matmul_4bit(x, packed, state)
        gradient = normal(generator, *y.shape)
        y.backward(gradient)
        tensors = {"weight": weight, "packed": packed, "scales": state.absmax, "dense": dense, "x": x.detach(),
                   "y": y.detach(), "y/grad": gradient, "x/grad": x.grad}
        kept |= {f"{name}/{key}": value.clone() for key, value in tensors.items()}
        print(f"{name}: {packed.numel()} bytes and {state.absmax.numel()} scales for {weight.numel()} values")
    safetensors.torch.save_file(kept, folder / "packed.safetensors")


if __name__ == "__main__":
    main()
