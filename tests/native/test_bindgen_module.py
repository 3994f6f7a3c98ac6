"""The module that native/bindgen generates, compiled and imported: it agrees with the compiler, and no call ends it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import dedent

import pytest

BINDGEN = Path(__file__).parents[2] / "native" / "bindgen"
CC = os.environ.get("CC", "gcc")
CXX = os.environ.get("CXX", "g++")

GUARD = """
    #pragma once
    template <class R, class F> R causerie_guarded(const char *, F && f, R on_error) noexcept {
        try { return f(); } catch (...) { return on_error; }
    }
    template <class F> void causerie_guarded_void(const char *, F && f) noexcept {
        try { f(); } catch (...) { }
    }
"""

ZOO = """
    #pragma once
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    #ifdef __cplusplus
    extern "C" {
    #endif
    #define ZOO_ANSWER (6 * 7)
    #define ZOO_BIG 0xFFFFFFFFu
    #define ZOO_LINKED ZOO_BEAR
    #define ZOO_NAME "zoo"
    #define ZOO_RATIO 1.5
    #define ZOO_CALL(x) (x)
    #define ZOO_N_NAME (8 * sizeof(int32_t))

    enum zoo_animal { ZOO_ANT, ZOO_BEAR = 1 << 4, ZOO_CAT = ZOO_BEAR + (int) sizeof(int64_t), ZOO_NONE = -1 };
    enum { ZOO_LOOSE = ZOO_CAT * 2 };
    static const size_t ZOO_SIZE = sizeof(int64_t) * 3;

    struct zoo_opaque;
    typedef struct zoo_opaque * zoo_handle;
    struct zoo_handle_box { zoo_handle inside; };

    struct zoo_pair { int32_t left; double right; };
    struct zoo_cell {
        char name[ZOO_N_NAME];
        int64_t grid[2][3];
        union { int32_t whole; float real; };
        enum { ZOO_OPEN, ZOO_SHUT = 9 } door;
        struct { uint8_t x, y; } at;
    };
    struct __attribute__((packed)) zoo_tight { char a; int32_t b; };
    typedef struct { int (*visit)(void * user, int value); void * user; } zoo_visitor;

    struct zoo_pair zoo_swap(struct zoo_pair pair);
    void zoo_fill(struct zoo_cell * cell);
    int32_t zoo_sum(const int32_t values[2 + 1]);
    int zoo_visit(zoo_visitor visitor, int value);
    enum zoo_animal zoo_animal(int index);
    int (*zoo_adder(void))(int, int);
    size_t zoo_length(const char * text);
    struct zoo_tight zoo_tight_make(void);
    zoo_handle zoo_throw_handle(void);
    int zoo_throw_int(int value);
    unsigned zoo_throw_unsigned(void);
    double zoo_throw_double(void);
    bool zoo_throw_bool(void);
    struct zoo_pair zoo_throw_pair(void);
    enum zoo_animal zoo_throw_animal(void);
    void zoo_throw_void(void);
    #ifdef __cplusplus
    }
    #endif
"""

ZOO_CPP = """
    #include "zoo.h"
    #include "plain.h"
    #include "calls.h"
    #include <cstring>
    static int add(int a, int b) { return a + b; }
    struct zoo_pair zoo_swap(struct zoo_pair p) { return {(int32_t) p.right, (double) p.left}; }
    void zoo_fill(struct zoo_cell * c) { std::strcpy(c->name, "cell"); c->grid[1][2] = 5; c->whole = 7;
                                         c->door = c->ZOO_SHUT; c->at.y = 3; }
    int32_t zoo_sum(const int32_t * v) { return v[0] + v[1] + v[2]; }
    int zoo_visit(zoo_visitor v, int value) { return v.visit(v.user, value); }
    enum zoo_animal zoo_animal(int i) { return i ? ZOO_CAT : ZOO_BEAR; }
    int (*zoo_adder(void))(int, int) { return add; }
    size_t zoo_length(const char * text) { return std::strlen(text); }
    struct zoo_tight zoo_tight_make(void) { return {1, 77}; }
    zoo_handle zoo_throw_handle(void) { throw 1; }
    int zoo_throw_int(int) { throw 1; }
    unsigned zoo_throw_unsigned(void) { throw 1; }
    double zoo_throw_double(void) { throw 1; }
    bool zoo_throw_bool(void) { throw 1; }
    struct zoo_pair zoo_throw_pair(void) { throw 1; }
    enum zoo_animal zoo_throw_animal(void) { throw 1; }
    void zoo_throw_void(void) { throw 1; }
    int plain_twice(int value) { return 2 * value; }
    int plain_ask(int value) { return calls_answer(value, nullptr); }
"""

PLAIN = """
    #pragma once
    #ifdef __cplusplus
    extern "C" {
    #endif
    int plain_twice(int value);
    int plain_ask(int value);
    #ifdef __cplusplus
    }
    #endif
"""

CALLS = """
    #pragma once
    #ifdef __cplusplus
    extern "C" {
    #endif
    int calls_answer(int value, void * handle);
    #ifdef __cplusplus
    }
    #endif
"""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Build the module of zoo.h, plain.h and calls.h; return a function that runs Python with it."""
    folder = tmp_path_factory.mktemp("zoo")
    for name, text in (
        ("zoo.h", ZOO),
        ("zoo.cpp", ZOO_CPP),
        ("plain.h", PLAIN),
        ("calls.h", CALLS),
        ("guard.h", GUARD),
    ):
        (folder / name).write_text(dedent(text), encoding="utf-8")
    (folder / "zoo").mkdir()
    (folder / "zoo" / "__init__.py").touch()
    out = folder / "out"
    headers = ["--guard", "zoo.h", "--plain", "plain.h", "--callbacks", "calls.h"]
    shared = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    common = ["-Wall", "-Wextra", "-Werror", "-fPIC", "-I", folder, "-I", out, "-c"]
    python = ["-I", sysconfig.get_paths()["include"]]
    for command in (
        [sys.executable, BINDGEN, "--module", "zoo._native", "--cc", CC, "-I", folder, "--out", out, *headers],
        [CC, *common, *python, out / "_native.c"],
        [CXX, "-std=c++17", *common, out / "_guard.cpp"],
        [CXX, "-std=c++17", *common, "zoo.cpp"],
        [CXX, "-shared", *shared, "-o", "zoo/_native.abi3.so", "_native.o", "_guard.o", "zoo.o"],
    ):
        subprocess.run(command, cwd=folder, check=True)

    def run(code):
        source = "from zoo._native import ffi, lib\n" + dedent(code)
        return subprocess.check_output([sys.executable, "-c", source], cwd=folder, text=True).split()

    run.folder = folder
    return run


class TestCompiledModule:
    def test_passes_structs_by_value_both_ways(self, zoo):
        assert zoo("p = lib.zoo_swap({'left': 3, 'right': 4.0}); print(p.left, p.right)") == ["4", "3.0"]

    def test_lays_out_arrays_unions_and_nested_types_as_the_compiler_does(self, zoo):
        assert zoo("""
            c = ffi.new("struct zoo_cell *")
            lib.zoo_fill(c)
            print(ffi.string(c.name).decode(), c.grid[1][2], c.whole, c.door, c.at.y, len(c.name))
        """) == ["cell", "5", "7", "9", "3", "32"]

    def test_takes_the_layout_of_packed_structs_from_the_compiler(self, zoo):
        assert zoo("print(ffi.sizeof('struct zoo_tight'), lib.zoo_tight_make().b)") == ["5", "77"]

    def test_takes_enum_values_from_the_compiler(self, zoo):
        code = "print(lib.ZOO_ANT, lib.ZOO_BEAR, lib.ZOO_CAT, lib.ZOO_NONE, lib.ZOO_LOOSE, lib.ZOO_SHUT)"
        assert zoo(code) == ["0", "16", "24", "-1", "48", "9"]

    def test_takes_macro_and_static_constants_from_the_compiler(self, zoo):
        assert zoo("print(lib.ZOO_ANSWER, lib.ZOO_BIG, lib.ZOO_LINKED, lib.ZOO_SIZE)") == [
            "42",
            "4294967295",
            "16",
            "24",
        ]

    def test_accepts_a_function_named_like_an_enum(self, zoo):
        assert zoo("print(lib.zoo_animal(1))") == ["24"]

    def test_passes_array_parameters_as_pointers(self, zoo):
        assert zoo("print(lib.zoo_sum([1, 2, 3]))") == ["6"]

    def test_calls_function_pointers_in_structs(self, zoo):
        assert zoo("""
            visit = ffi.callback("int(void *, int)", lambda user, value: value + 1)
            print(lib.zoo_visit({"visit": visit}, 4), lib.zoo_adder()(2, 3))
        """) == ["5", "5"]

    def test_calls_back_into_functions_that_python_defines(self, zoo):
        assert zoo("""
            @ffi.def_extern()
            def calls_answer(value, handle):
                return value * 100
            print(lib.plain_ask(3))
        """) == ["300"]


class TestGuard:
    @pytest.mark.parametrize(
        ("call", "answer"),
        [
            ("zoo_throw_handle()", "<cdata 'struct zoo_opaque *' NULL>"),
            ("zoo_throw_int(1)", str(-(2**31))),
            ("zoo_throw_unsigned()", "0"),
            ("zoo_throw_double()", "nan"),
            ("zoo_throw_bool()", "False"),
            ("zoo_throw_pair().right", "0.0"),
            ("zoo_throw_animal()", "-1"),
            ("zoo_throw_void()", "None"),
        ],
    )
    def test_turns_a_cpp_exception_into_the_error_value_of_the_type(self, zoo, call, answer):
        assert " ".join(zoo(f"print(lib.{call})")) == answer

    def test_covers_addresses_of_functions(self, zoo):
        assert zoo("print(ffi.addressof(lib, 'zoo_throw_unsigned')())") == ["0"]

    def test_leaves_plain_headers_alone(self, zoo):
        assert zoo("print(lib.plain_twice(4))") == ["8"]
        assert "plain_twice" not in (zoo.folder / "out" / "_guard.cpp").read_text()


class TestStub:
    def test_is_strictly_typed(self, zoo):
        (zoo.folder / "use.py").write_text(
            dedent("""
                from _native import ffi, lib

                count: int = lib.zoo_length(b"abc") + lib.ZOO_ANSWER
                pair = lib.zoo_swap(ffi.new("struct zoo_pair *", [1, 2.0])[0])
                reveal_type(lib.zoo_throw_bool())
            """)
        )
        environment = {**os.environ, "MYPYPATH": "out"}
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "out/_native.pyi", "use.py"]
        done = subprocess.run(command, cwd=zoo.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert 'Revealed type is "bool"' in done.stdout or "builtins.bool" in done.stdout

    def test_refuses_what_cffi_would_refuse(self, zoo):
        (zoo.folder / "misuse.py").write_text('from _native import lib\nlib.zoo_length("text")\n')
        environment = {**os.environ, "MYPYPATH": "out"}
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "misuse.py"]
        done = subprocess.run(command, cwd=zoo.folder, env=environment, capture_output=True, text=True, check=False)
        assert 'incompatible type "str"; expected "CData | bytes"' in done.stdout
