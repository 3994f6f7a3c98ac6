"""Loading a model: from files, split files and file objects; its facts, its metadata, progress and saving."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tiny import N_EMBD, N_HEAD, N_LAYER, N_VOCAB, write_llama

from causerie import ModelLoadError, NativeError, UnsupportedError
from causerie.llama import Batch, Context, Model

VOCAB = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp" / "models" / "ggml-vocab-gpt-2.gguf"


def logits(model: Model, tokens: tuple[int, ...] = (4, 5, 6)) -> np.ndarray:
    """The last token's logits in a context of their own."""
    with Context(model, n_ctx=64, n_batch=32) as context:
        batch = Batch(len(tokens))
        batch.add_sequence(tokens, 0, 0)
        context.decode(batch)
        return context.logits().copy()


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", extra={"tokenizer.chat_template": "{{ bos_token }}",
                       "tokenizer.chat_template.tool_use": "tools", "tiny.number": 7, "tiny.flag": True})  # fmt: skip


class TestFacts:
    def test_of_the_chat_model(self, model: Model, smollm2_path: Path) -> None:
        assert model.path == smollm2_path
        assert model.architecture == "llama"
        assert (model.n_layer, model.n_embd, model.n_head, model.n_head_kv) == (30, 576, 9, 3)
        assert (model.n_vocab, model.n_ctx_train, model.n_swa) == (49152, 2048, 0) or model.n_ctx_train >= 2048
        assert model.n_params == 134_515_008
        assert 90e6 < model.size < smollm2_path.stat().st_size
        assert model.ftype == "Q4_1"
        assert "Q4_1" in model.desc
        assert (model.has_encoder, model.has_decoder) == (False, True)
        assert (model.is_recurrent, model.is_hybrid, model.is_diffusion) == (False, False, False)
        assert (model.rope_type, model.n_pos_embd) == ("norm", 1)
        assert model.decoder_start_token is None

    def test_of_a_tiny_one(self, tiny_path: Path) -> None:
        with Model(tiny_path) as tiny:
            assert (tiny.n_vocab, tiny.n_embd, tiny.n_layer, tiny.n_head) == (N_VOCAB, N_EMBD, N_LAYER, N_HEAD)
            assert (tiny.n_embd_inp, tiny.n_embd_out, tiny.n_layer_nextn) == (N_EMBD, N_EMBD, 0)
            assert repr(tiny).startswith("<Model llama")

    @pytest.mark.parametrize(
        ("name", "facts"),
        [
            ("mamba-dense", {"is_recurrent": True, "is_hybrid": False}),
            ("jamba-dense", {"is_recurrent": False, "is_hybrid": True}),
            ("qwen2vl-dense", {"rope_type": "mrope", "n_pos_embd": 4}),
            ("llada-dense", {"is_diffusion": True}),
            ("gpt2-dense", {"rope_type": "none"}),
        ],
    )
    def test_of_other_kinds(self, tiny_models: dict[str, Path], name: str, facts: dict[str, object]) -> None:
        with Model(tiny_models[name]) as tiny:
            assert {key: getattr(tiny, key) for key in facts} == facts

    def test_a_sliding_window_is_told(self, tiny_models: dict[str, Path]) -> None:
        with Model(tiny_models["gemma3-dense"]) as tiny:
            assert tiny.n_swa > 0


class TestMetadata:
    def test_is_a_mapping_of_what_the_file_says(self, tiny_path: Path) -> None:
        with Model(tiny_path) as tiny:
            assert isinstance(tiny.metadata, Mapping)
            assert tiny.metadata["general.architecture"] == "llama"
            assert (tiny.metadata["tiny.number"], tiny.metadata["tiny.flag"]) == ("7", "true")
            assert set(tiny.metadata) == set(tiny.metadata.keys())

    def test_cannot_be_changed(self, tiny_path: Path) -> None:
        with Model(tiny_path) as tiny:
            with pytest.raises(TypeError):
                tiny.metadata["x"] = "y"  # type: ignore[index]
            with pytest.raises(TypeError):
                del tiny.metadata["tiny.number"]  # type: ignore[attr-defined]

    def test_holds_long_values_whole(self, tmp_path: Path) -> None:
        text = "ü" * 5000
        with Model(write_llama(tmp_path / "long.gguf", extra={"tiny.text": text})) as tiny:
            assert tiny.metadata["tiny.text"] == text

    def test_sampling_defaults_are_those_of_the_file(self, tmp_path: Path) -> None:
        path = write_llama(tmp_path / "s.gguf", extra={"general.sampling.temp": 0.25, "general.sampling.top_k": 12})
        with Model(path) as tiny:
            assert set(tiny.sampling_defaults) == {"temp", "top_k"}
            assert float(tiny.sampling_defaults["temp"]) == 0.25


class TestChatTemplate:
    def test_is_the_files_text(self, tiny_path: Path, model: Model) -> None:
        with Model(tiny_path) as tiny:
            assert tiny.chat_template() == "{{ bos_token }}"
            assert tiny.chat_template("tool_use") == "tools"
            assert tiny.chat_template("other") in {None, "{{ bos_token }}"}
        assert "im_start" in (model.chat_template() or "")

    def test_is_none_where_there_is_none(self, tmp_path: Path) -> None:
        with Model(write_llama(tmp_path / "bare.gguf")) as tiny:
            assert tiny.chat_template() is None

    def test_a_name_with_a_nul_is_no_template(self, tiny_path: Path) -> None:
        with Model(tiny_path) as tiny, pytest.raises(ValueError, match="NUL"):
            tiny.chat_template("tool\0use")


class TestOptions:
    def test_vocab_only_loads_no_weights(self, smollm2_path: Path) -> None:
        with Model(smollm2_path, vocab_only=True) as model:
            assert model.vocab.tokenize("hello").size
            assert model.vocab_only
            with pytest.raises(UnsupportedError, match="vocab_only"):
                Context(model)

    def test_metadata_can_be_overridden(self, tiny_path: Path) -> None:
        with Model(tiny_path, kv_overrides={"llama.context_length": 32}) as tiny:
            assert tiny.n_ctx_train == 32
        with Model(tiny_path, kv_overrides={"tokenizer.ggml.add_bos_token": False}) as tiny:
            assert not tiny.vocab.add_bos

    @pytest.mark.parametrize(
        ("overrides", "error"),
        [
            ({"": 1}, ValueError), ({"k" * 128: 1}, ValueError), ({"k\0": 1}, ValueError), ({"k": 2**63}, ValueError),
            ({"k": "v" * 128}, ValueError), ({"k": None}, TypeError), ({"k": [1]}, TypeError),
        ],
    )  # fmt: skip
    def test_a_wrong_override_is_refused(self, tiny_path: Path, overrides: dict, error: type) -> None:
        with pytest.raises(error, match="kv_overrides"):
            Model(tiny_path, kv_overrides=overrides)

    @pytest.mark.parametrize("mode", ["none", "mmap", "auto", "direct_io"])
    def test_every_way_of_reading_gives_the_same(self, tiny_path: Path, mode: str) -> None:
        with Model(tiny_path) as expected, Model(tiny_path, load_mode=mode, check_tensors=True) as tiny:
            assert (logits(tiny) == logits(expected)).all()

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"n_gpu_layers": -2}, ValueError), ({"n_gpu_layers": 2**31}, ValueError), ({"n_gpu_layers": 1.0}, TypeError),
            ({"load_mode": "tape"}, ValueError), ({"split_mode": "diagonal"}, ValueError), ({"main_gpu": -1}, ValueError),
            ({"lazy_mode": "very"}, ValueError), ({"devices": ["CUDA99"]}, ValueError),
            ({"tensor_split": [-1.0]}, ValueError), ({"tensor_split": [float("nan")]}, ValueError),
            ({"tensor_split": [1.0] * 1000}, ValueError), ({"tensor_buft_overrides": {"x": "Nowhere"}}, ValueError),
        ],
    )  # fmt: skip
    def test_one_out_of_range_is_refused(self, tiny_path: Path, options: dict, error: type) -> None:
        with pytest.raises(error):
            Model(tiny_path, **options)

    def test_devices_and_buffer_types_go_by_name(self, tiny_path: Path) -> None:
        with Model(tiny_path, devices=["CPU"], tensor_buft_overrides={"ffn_.*": "CPU"}, tensor_split=[1.0]) as tiny:
            assert np.isfinite(logits(tiny)).all()
        with Model(tiny_path, devices=[]) as tiny:
            assert np.isfinite(logits(tiny)).all()


class TestSources:
    @pytest.mark.parametrize("name", ["with spaces.gguf", "Überläufer 🦙.gguf", "-rf.gguf", "%s%n.gguf"])
    def test_any_file_name_will_do(self, tiny_path: Path, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        path.write_bytes(tiny_path.read_bytes())
        for source in (path, str(path)):
            with Model(source) as tiny:
                assert tiny.path == path

    @pytest.mark.parametrize("way", ["first", "all"])
    def test_split_files_are_one_model(self, tmp_path: Path, tiny_path: Path, way: str) -> None:
        first = write_llama(tmp_path / "split.gguf", split_max_tensors=5)
        parts = sorted(tmp_path.glob("split-*.gguf"))
        assert len(parts) > 2
        with Model(first if way == "first" else parts) as tiny, Model(tiny_path) as expected:
            assert tiny.n_params == expected.n_params
            assert (logits(tiny) == logits(expected)).all()

    def test_a_missing_part_is_named(self, tmp_path: Path) -> None:
        first = write_llama(tmp_path / "split.gguf", split_max_tensors=5)
        parts = sorted(tmp_path.glob("split-*.gguf"))
        parts[1].unlink()
        with pytest.raises(ModelLoadError) as caught:
            Model(first)
        assert parts[1].name in caught.value.reason
        with pytest.raises(ModelLoadError, match=parts[1].name):
            Model(parts)

    def test_parts_of_different_models_are_refused(self, tmp_path: Path, tiny_path: Path) -> None:
        write_llama(tmp_path / "split.gguf", split_max_tensors=5)
        parts = sorted(tmp_path.glob("split-*.gguf"))
        with pytest.raises(ModelLoadError):
            Model([parts[0], tiny_path, *parts[2:]])
        with pytest.raises(ModelLoadError):
            Model(parts[:2])

    def test_no_path_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="no path"):
            Model([])

    @pytest.mark.parametrize("source", [None, 5, 1.5, object(), b"bytes.gguf"])
    def test_what_is_no_source_is_a_type_error(self, source: object) -> None:
        with pytest.raises(TypeError):
            Model(source)  # type: ignore[arg-type]

    def test_a_file_object_is_read_from_its_position(self, tmp_path: Path, tiny_path: Path) -> None:
        packed = tmp_path / "packed.bin"
        packed.write_bytes(b"header" + tiny_path.read_bytes())
        with packed.open("rb") as file, Model(tiny_path) as expected:
            assert file.read(6) == b"header"
            with Model(file) as tiny:
                assert tiny.path is None
                assert file.tell() == 6
                assert (logits(tiny) == logits(expected)).all()
            assert not file.closed

    def test_a_file_object_may_be_closed_after_loading(self, tiny_path: Path) -> None:
        with tiny_path.open("rb") as file:
            tiny = Model(file)
        assert np.isfinite(logits(tiny)).all()
        tiny.close()

    def test_bytes_in_memory_will_do(self, tiny_path: Path) -> None:
        with Model(io.BytesIO(tiny_path.read_bytes())) as tiny, Model(tiny_path) as expected:
            assert (logits(tiny) == logits(expected)).all()

    def test_an_unbuffered_file_will_do(self, tiny_path: Path) -> None:
        with tiny_path.open("rb", buffering=0) as file, Model(file) as tiny:
            assert tiny.n_layer == N_LAYER

    def test_a_text_file_is_refused(self, tiny_path: Path) -> None:
        with tiny_path.open(encoding="latin-1") as file, pytest.raises(TypeError, match="binary"):
            Model(file)  # type: ignore[arg-type]

    def test_a_closed_file_object_is_refused(self, tiny_path: Path) -> None:
        file = tiny_path.open("rb")
        file.close()
        with pytest.raises(ValueError, match="closed"):
            Model(file)


class TestProgress:
    def test_rises_from_0_to_1(self, tiny_path: Path) -> None:
        seen: list[float] = []
        with Model(tiny_path, progress=seen.append):
            pass
        assert seen == sorted(seen)
        assert (seen[0], seen[-1]) == (0.0, 1.0)

    @pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt(), SystemExit(3)])
    @pytest.mark.parametrize("at", [0.0, 1.0])
    def test_an_exception_stops_the_loading_and_reaches_the_caller(
        self, tiny_path: Path, error: BaseException, at: float
    ) -> None:
        calls: list[float] = []

        def progress(fraction: float) -> None:
            calls.append(fraction)
            if fraction >= at:
                raise error

        with pytest.raises(type(error)) as caught:
            Model(tiny_path, progress=progress)
        assert caught.value is error
        assert any(entry.name == "progress" for entry in caught.traceback)
        assert calls[-1] >= at
        assert sum(fraction >= at for fraction in calls) == 1

    @pytest.mark.parametrize("at", [0.0, 1.0])
    def test_returning_false_stops_the_loading(self, tiny_path: Path, at: float) -> None:
        with pytest.raises(ModelLoadError, match="the progress callback stopped it"):
            Model(tiny_path, progress=lambda fraction: fraction < at)

    def test_another_model_can_be_loaded_meanwhile(self, tiny_path: Path) -> None:
        inner: list[int] = []

        def progress(fraction: float) -> None:
            if fraction == 0.0:
                with Model(tiny_path) as other:
                    inner.append(other.n_layer)

        with Model(tiny_path, progress=progress) as tiny:
            assert inner == [tiny.n_layer]


class TestSave:
    def test_gives_an_equal_model(self, tiny_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "gespeichert ü.gguf"
        with Model(tiny_path) as tiny:
            tiny.save(path)
            with Model(path) as again:
                assert (logits(again) == logits(tiny)).all()
                assert again.metadata["general.architecture"] == "llama"

    def test_where_it_cannot_be_written_is_an_os_error(self, tiny_path: Path, tmp_path: Path) -> None:
        with Model(tiny_path) as tiny:
            with pytest.raises(FileNotFoundError):
                tiny.save(tmp_path / "nowhere" / "x.gguf")
            with pytest.raises(IsADirectoryError):
                tiny.save(tmp_path)
            with pytest.raises(ValueError, match=r"null|NUL"):
                tiny.save(f"{tmp_path}/a\0b.gguf")

    def test_over_the_models_own_file_leaves_the_loaded_one_alone(self, tiny_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "own.gguf"
        path.write_bytes(tiny_path.read_bytes())
        with Model(path, load_mode="mmap") as tiny:
            before = logits(tiny)
            tiny.save(path)
            assert (logits(tiny) == before).all()
        with Model(path) as again:
            assert (logits(again) == before).all()
        assert [p.name for p in tmp_path.iterdir()] == ["own.gguf"]

    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path, tiny_models: dict[str, Path]) -> None:
        path = tmp_path / "old.gguf"
        path.write_bytes(b"old")
        with Model(VOCAB, vocab_only=True) as vocab, pytest.raises((NativeError, OSError, ModelLoadError)):
            vocab.save(path)
        assert path.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["old.gguf"]


def test_it_cannot_be_copied_or_pickled(tiny_path: Path) -> None:
    with Model(tiny_path) as tiny:
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                way(tiny)
