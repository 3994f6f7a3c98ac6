"""Writes tiny models with random weights that llama.cpp's own generator leaves out: bare, split, embedding, T5."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from gguf import MODEL_ARCH, MODEL_TENSOR, PoolingType, TokenType

from causerie.llama import lib
from causerie.llama._params import ggml_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

N_VOCAB, N_EMBD, N_HEAD, N_FF, N_LAYER = 64, 32, 4, 64, 2
T = MODEL_TENSOR


class _Weights:
    """Adds random tensors by their role."""

    def __init__(self, writer: gguf.GGUFWriter, seed: int) -> None:
        self.writer = writer
        self.rng = np.random.default_rng(seed)

    def matrix(self, role: MODEL_TENSOR, rows: int, columns: int, layer: int | None = None) -> None:
        data = self.rng.normal(0, 0.3, (rows, columns)).astype(np.float32)
        self.writer.add_tensor(_name(role, layer, "weight"), data)

    def norm(self, role: MODEL_TENSOR, layer: int | None = None, *, bias: bool = False) -> None:
        self.writer.add_tensor(_name(role, layer, "weight"), np.ones(N_EMBD, np.float32))
        if bias:
            self.writer.add_tensor(_name(role, layer, "bias"), np.zeros(N_EMBD, np.float32))


def _name(role: MODEL_TENSOR, layer: int | None, kind: str) -> str:
    return f"{gguf.TENSOR_NAMES[role].format(bid=layer)}.{kind}"


def _basics(writer: gguf.GGUFWriter, n_ctx: int = 64) -> None:
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _wordpiece(writer: gguf.GGUFWriter) -> None:
    """A vocabulary of letters: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], then "▁a".. (word starts) and "a".. (within)."""
    letters = [chr(ord("a") + i) for i in range(26)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"\u2581{c}" for c in letters), *letters]
    tokens += [f"[unused{i}]" for i in range(N_VOCAB - len(tokens))]
    kinds = [TokenType.CONTROL] * 4 + [TokenType.NORMAL] * (N_VOCAB - 4)
    kinds[1] = TokenType.UNKNOWN
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_scores([0.0] * N_VOCAB)
    writer.add_token_type_count(1)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)


def _bare(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(N_VOCAB)


def write_llama(
    path: Path,
    *,
    vocab: bool = True,
    seed: int = 0,
    extra: Mapping[str, Any] | None = None,
    n_ctx: int = 64,
    split_max_tensors: int = 0,
) -> Path:
    """A LLaMA of two layers; `split_max_tensors` writes several files, and the first one's path is returned."""
    writer = gguf.GGUFWriter(
        path,
        gguf.MODEL_ARCH_NAMES[MODEL_ARCH.LLAMA],
        split_max_tensors=split_max_tensors,
    )
    _basics(writer, n_ctx)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    _wordpiece(writer) if vocab else _bare(writer)
    for key, value in (extra or {}).items():
        _add(writer, key, value)
    w = _Weights(writer, seed)
    w.matrix(T.TOKEN_EMBD, N_VOCAB, N_EMBD)
    w.norm(T.OUTPUT_NORM)
    w.matrix(T.OUTPUT, N_VOCAB, N_EMBD)
    for i in range(N_LAYER):
        w.norm(T.ATTN_NORM, i)
        for role in (T.ATTN_Q, T.ATTN_K, T.ATTN_V, T.ATTN_OUT):
            w.matrix(role, N_EMBD, N_EMBD, i)
        w.norm(T.FFN_NORM, i)
        w.matrix(T.FFN_GATE, N_FF, N_EMBD, i)
        w.matrix(T.FFN_UP, N_FF, N_EMBD, i)
        w.matrix(T.FFN_DOWN, N_EMBD, N_FF, i)
    _finish(writer)
    if not split_max_tensors:
        return path
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_int32, float: writer.add_float32, str: writer.add_string}
    if isinstance(value, (list, tuple)):
        writer.add_array(key, value)
    else:
        kinds[type(value)](key, value)


def write_bert(
    path: Path, *, pooling: PoolingType = PoolingType.MEAN, labels: Iterable[str] = (), seed: int = 0
) -> Path:
    """An embedding model without memory; with labels, a classifier (pooling RANK)."""
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[MODEL_ARCH.BERT])
    _basics(writer)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    _wordpiece(writer)
    names = list(labels)
    if names:
        writer.add_classifier_output_labels(names)
    w = _Weights(writer, seed)
    w.matrix(T.TOKEN_EMBD, N_VOCAB, N_EMBD)
    w.matrix(T.TOKEN_TYPES, 1, N_EMBD)
    w.matrix(T.POS_EMBD, 64, N_EMBD)
    w.norm(T.TOKEN_EMBD_NORM, bias=True)
    if names:
        w.matrix(T.CLS_OUT, len(names), N_EMBD)
    for i in range(N_LAYER):
        for role in (T.ATTN_Q, T.ATTN_K, T.ATTN_V, T.ATTN_OUT):
            w.matrix(role, N_EMBD, N_EMBD, i)
        w.norm(T.ATTN_OUT_NORM, i, bias=True)
        w.matrix(T.FFN_UP, N_FF, N_EMBD, i)
        w.matrix(T.FFN_DOWN, N_EMBD, N_FF, i)
        w.norm(T.LAYER_OUT_NORM, i, bias=True)
    _finish(writer)
    return path


def write_t5(path: Path, *, seed: int = 0) -> Path:
    """An encoder-decoder."""
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[MODEL_ARCH.T5])
    _basics(writer)
    writer.add_key_length(N_EMBD // N_HEAD)
    writer.add_value_length(N_EMBD // N_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_relative_attn_buckets_count(8)
    writer.add_decoder_start_token_id(0)
    _wordpiece(writer)
    w = _Weights(writer, seed)
    w.matrix(T.TOKEN_EMBD, N_VOCAB, N_EMBD)
    w.norm(T.ENC_OUTPUT_NORM)
    w.norm(T.DEC_OUTPUT_NORM)
    sides = (
        (T.ENC_ATTN_NORM, (T.ENC_ATTN_Q, T.ENC_ATTN_K, T.ENC_ATTN_V, T.ENC_ATTN_OUT), T.ENC_ATTN_REL_B,
         T.ENC_FFN_NORM, T.ENC_FFN_UP, T.ENC_FFN_DOWN),
        (T.DEC_ATTN_NORM, (T.DEC_ATTN_Q, T.DEC_ATTN_K, T.DEC_ATTN_V, T.DEC_ATTN_OUT), T.DEC_ATTN_REL_B,
         T.DEC_FFN_NORM, T.DEC_FFN_UP, T.DEC_FFN_DOWN),
    )  # fmt: skip
    for i in range(N_LAYER):
        for norm, attention, relative, ffn_norm, up, down in sides:
            w.norm(norm, i)
            for role in attention:
                w.matrix(role, N_EMBD, N_EMBD, i)
            if i == 0:
                w.matrix(relative, 8, N_HEAD, i)
            w.norm(ffn_norm, i)
            w.matrix(up, N_FF, N_EMBD, i)
            w.matrix(down, N_EMBD, N_FF, i)
        w.norm(T.DEC_CROSS_ATTN_NORM, i)
        for role in (T.DEC_CROSS_ATTN_Q, T.DEC_CROSS_ATTN_K, T.DEC_CROSS_ATTN_V, T.DEC_CROSS_ATTN_OUT):
            w.matrix(role, N_EMBD, N_EMBD, i)
    _finish(writer)
    return path


def retyped(path: Path, types: Mapping[str, str | None], added: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """A GGUF file's bytes with other types (ggml's names) for some tensors, which are all zeros then.

    Args:
        path: the file.
        types: by tensor; None leaves it out.
        added: further tensors of integers or floats, by name.

    Raises:
        ValueError: a row does not consist of whole blocks of its new type.
    """
    content, reader, codes = path.read_bytes(), gguf.GGUFReader(path), ggml_types()
    tensors = []
    for tensor in reader.tensors:
        kind, shape = int(tensor.tensor_type), [int(n) for n in tensor.shape]
        raw = tensor.data.tobytes()
        new = types.get(tensor.name, "")
        if new is None:
            continue
        if new:
            kind = codes[new]
            if shape[0] % lib.ggml_blck_size(kind):
                raise ValueError(f"{tensor.name}: rows of {shape[0]} for blocks of {lib.ggml_blck_size(kind)}")
            raw = bytes(math.prod(shape) // lib.ggml_blck_size(kind) * lib.ggml_type_size(kind))
        tensors.append((tensor.name, kind, shape, raw))
    for name, data in (added or {}).items():
        tensors.append((name, codes[f"{data.dtype.kind}{8 * data.itemsize}"], [*data.shape[::-1]], data.tobytes()))
    infos = bytearray(content[: min(tensor.field.offset for tensor in reader.tensors)])
    infos[8:16] = struct.pack("<Q", len(tensors))
    body = bytearray()
    for name, kind, shape, raw in tensors:
        infos += struct.pack(f"<Q{len(name)}sI", len(name), name.encode(), len(shape))
        infos += struct.pack(f"<{len(shape)}QIQ", *shape, kind, len(body))
        body += raw + bytes(-len(raw) % reader.alignment)
    return bytes(infos) + bytes(-len(infos) % reader.alignment) + bytes(body)
