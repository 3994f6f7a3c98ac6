"""LoRA adapters with random weights, written for the models of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

# Matrices that llama.cpp multiplies with an adapter's, one kind or the other in each architecture.
_ADAPTED = (".attn_q.weight", ".ffn_up.weight", ".ssm_in.weight")


def write_lora_for(
    model: Path,
    path: Path,
    *,
    seed: int = 0,
    strength: float = 1.0,
    rank: int = 4,
    most: int = 4,
    quantised: bool = False,
    invocation: list[int] | None = None,
) -> Path:
    """An adapter for a model's file: of so many of its matrices at most.

    Args:
        model: a GGUF file.
        path: where to.
        seed: of the weights.
        strength: their standard deviation.
        rank: of each pair.
        most: matrices to adapt.
        quantised: in Q4_1, for which the rank has to be a multiple of 32, and not in f32: sums of f32 are rounded
            differently for one row and for several.
        invocation: tokens behind which it is to be applied, as an activated LoRA.
    """
    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    chosen = [t for t in reader.tensors if t.name.endswith(_ADAPTED) and len(t.shape) == 2][:most]
    assert chosen, f"no matrix of {model} is known here"
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    if invocation is not None:
        key = "adapter.alora.invocation_tokens"
        writer.add_key_value(key, invocation, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)
    for tensor in chosen:
        n_in, n_out = (int(n) for n in tensor.shape)
        for side, shape in (("lora_a", (rank, n_in)), ("lora_b", (n_out, rank))):
            values = random.normal(0, strength, shape).astype(np.float32)
            if quantised:
                kind = gguf.GGMLQuantizationType.Q4_1
                writer.add_tensor(f"{tensor.name}.{side}", gguf.quants.quantize(values, kind), raw_dtype=kind)
            else:
                writer.add_tensor(f"{tensor.name}.{side}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
