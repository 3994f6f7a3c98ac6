"""`causerie.llama.lib` has every function of llama.cpp's public headers, and none of them can end the process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from causerie.llama import Model, ffi, lib

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ROOT / "vendor" / "llama.cpp"
HEADERS = (
    "include/llama.h",
    "ggml/include/gguf.h",
    "ggml/include/ggml-backend.h",
    "tools/mtmd/mtmd.h",
    "tools/mtmd/mtmd-helper.h",
)
_DECLARATION = re.compile(
    r"(?P<mark>DEPRECATED\s*\(\s*)?\b(?:LLAMA_API|GGML_API|GGML_BACKEND_API|MTMD_API)\b(?P<rest>[^;{]*?)"
    r"\b(?P<name>\w+)\s*\((?P<arguments>[^;{]*);"
)


def _c_part(text: str) -> str:
    """The header without comments and without what only a C++ compiler sees."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", " ", text)
    text = re.sub(r"\\\n", " ", text)
    kept: list[str] = []
    hidden: list[bool] = []
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        if directive is None:
            if not any(hidden):
                kept.append(line)
            continue
        word, rest = directive.groups()
        if word in {"if", "ifdef", "ifndef"}:
            hidden.append(word == "ifdef" and rest.strip() == "__cplusplus")
        elif word == "else":
            hidden[-1] = False
        elif word == "endif":
            hidden.pop()
    return "\n".join(kept)


def declared(header: str) -> tuple[set[str], set[str]]:
    """Names of a header's functions, found with a regular expression: those in use, and those deprecated."""
    current, deprecated = set(), set()
    for found in _DECLARATION.finditer(_c_part((LLAMA / header).read_text())):
        (deprecated if found["mark"] else current).add(found["name"])
    return current, deprecated


@pytest.mark.parametrize("header", HEADERS)
def test_every_function_of_the_header_is_callable(header: str) -> None:
    current, _ = declared(header)
    assert len(current) > 15
    missing = {name for name in current if not callable(getattr(lib, name, None))}
    # What a header declares and no source defines cannot be linked.
    undefined = {name for name in missing if not _is_defined(name)}
    assert missing - undefined == set()
    assert len(undefined) <= 1


def _is_defined(name: str) -> bool:
    pattern = re.compile(rf"\b{name}\s*\([^;]*?\)\s*(?:const\s*)?(?:noexcept\s*)?{{")
    folders = [LLAMA / "src", LLAMA / "ggml" / "src", LLAMA / "tools" / "mtmd"]
    sources = (p for folder in folders for suffix in ("*.c", "*.cpp", "*.h") for p in folder.glob(suffix))
    return any(pattern.search(source.read_text(errors="replace")) for source in sources)


@pytest.mark.parametrize("header", HEADERS)
def test_deprecated_functions_are_left_out(header: str) -> None:
    current, deprecated = declared(header)
    assert {name for name in deprecated - current if hasattr(lib, name)} == set()


def test_the_listing_sees_what_llama_h_is_known_to_have() -> None:
    current, deprecated = declared("include/llama.h")
    assert {"llama_decode", "llama_init_from_model", "llama_sampler_init_grammar", "llama_max_devices"} <= current
    assert "llama_load_model_from_file" in deprecated


def test_enum_values_and_constants_come_from_the_compiler() -> None:
    assert lib.LLAMA_VOCAB_TYPE_BPE == 2
    assert lib.LLAMA_TOKEN_NULL == -1
    assert lib.GGML_TYPE_F16 == 1
    assert ffi.sizeof("llama_token") == 4


def test_a_name_that_llama_cpp_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = lib.llama_of_the_andes


def _error() -> tuple[int, str]:
    return lib.causerie_error_code(), ffi.string(lib.causerie_error_message()).decode()


def test_an_exception_of_a_raw_call_becomes_the_threads_error(model: Model) -> None:
    with model._resource as pointer:
        vocab = lib.llama_model_get_vocab(pointer)
        buffer = ffi.new("char[]", 64)
        assert lib.llama_token_to_piece(vocab, 10**9, buffer, 64, 0, True) < 0
        code, message = _error()
        assert code == lib.CAUSERIE_ERROR_EXCEPTION
        assert message.startswith("llama_token_to_piece: ")
        assert lib.llama_token_to_piece(vocab, 1, buffer, 64, 0, True) > 0
        assert _error()[0] == lib.CAUSERIE_ERROR_NONE


def test_a_grammar_that_is_fed_what_it_does_not_accept_does_not_end_the_process(model: Model) -> None:
    vocab = model.vocab
    with model._resource as pointer:
        native = lib.llama_model_get_vocab(pointer)
        sampler = lib.llama_sampler_init_grammar(native, b'root ::= "yes"', b"root")
        lib.llama_sampler_accept(sampler, int(vocab.tokenize("no")[0]))
        code, message = _error()
        lib.llama_sampler_free(sampler)
    assert code in {lib.CAUSERIE_ERROR_EXCEPTION, lib.CAUSERIE_ERROR_ABORT}
    assert "llama_sampler_accept" in message


def test_a_failed_assertion_of_ggml_does_not_end_the_process() -> None:
    gguf = lib.gguf_init_empty()
    lib.gguf_set_val_u32(gguf, b"answer", 42)
    lib.gguf_get_val_str(gguf, 0)
    code, message = _error()
    assert code == lib.CAUSERIE_ERROR_ABORT
    assert "gguf_get_val_str" in message
    assert lib.gguf_get_val_u32(gguf, 0) == 42
    lib.gguf_free(gguf)


def test_errors_belong_to_the_thread_that_made_the_call() -> None:
    import threading

    gguf = lib.gguf_init_empty()
    lib.gguf_get_key(gguf, 99)
    here = lib.causerie_error_code()
    there: list[int] = []
    thread = threading.Thread(target=lambda: there.append(lib.causerie_error_code()))
    thread.start()
    thread.join()
    lib.gguf_free(gguf)
    assert here != lib.CAUSERIE_ERROR_NONE
    assert there == [lib.CAUSERIE_ERROR_NONE]


def test_importing_the_bindings_prints_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from causerie.llama import lib; lib.ggml_time_us()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
