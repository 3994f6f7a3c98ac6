"""What native/bindgen takes from C headers and leaves out, what it writes, and how it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

BINDGEN = Path(__file__).parents[2] / "native" / "bindgen"
CC = os.environ.get("CC", "gcc")


class Workspace:
    """A folder of headers, and the generator run on them."""

    def __init__(self, folder):
        self.folder = folder
        self.out = folder / "out"

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def run(self, *options):
        command = [sys.executable, BINDGEN, "--module", "zoo._native", "--cc", CC, "-I", self.folder, "--out", self.out]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    def bind(self, header, *options):
        """Generate bindings for one guarded header with this text; return bindings.json."""
        self.write("box.h", header)
        done = self.run("--guard", "box.h", *options)
        assert done.returncode == 0, done.stderr
        return json.loads((self.out / "bindings.json").read_text())

    def fail(self, header):
        """Return the error for one guarded header with this text."""
        self.write("box.h", header)
        done = self.run("--guard", "box.h")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    def text(self, name):
        return (self.out / name).read_text()


@pytest.fixture
def work(tmp_path):
    return Workspace(tmp_path)


def names(entries):
    return [entry["name"] for entry in entries]


class TestGuardText:
    def test_does_not_name_parameters_as_c_plus_plus_words(self, work):
        work.bind("int f(int class, int new);")
        assert "guarded_f(int a0, int a1)" in work.text("_guard.h")


class TestWhatIsLeftOut:
    @pytest.mark.parametrize(
        "declaration",
        [
            '__attribute__((deprecated("no"))) int old(int x);',
            'int old(int x) __attribute__((deprecated("no; (really)")));',
            "extern __attribute__((__deprecated__)) int old(int x);",
            'int __attribute__((visibility("default"), deprecated)) old(int x);',
            '__declspec(dllimport) __declspec(deprecated("no")) int old(int x);',
            '[[deprecated("no")]] int old(int x);',
        ],
    )
    def test_deprecated_functions_in_every_spelling(self, work, declaration):
        record = work.bind(f"{declaration} int kept(void);")
        assert record["deprecated"] == ["old"]
        assert names(record["functions"]) == ["kept"]

    def test_nothing_for_a_deprecated_field(self, work):
        record = work.bind("struct s { int a __attribute__((deprecated)); }; int f(struct s s);")
        assert record["deprecated"] == []
        assert "struct s" in work.text("_native.c")

    @pytest.mark.parametrize(
        ("declaration", "reason"),
        [
            ("int odd(const char * format, ...);", "variadic"),
            ("#include <stdarg.h>\nint odd(const char * format, va_list list);", "va_list"),
            ("static int odd(int x);", "inline"),
            ("extern int odd;", "variable"),
        ],
    )
    def test_what_cannot_be_called_with_the_reason(self, work, declaration, reason):
        record = work.bind(f"{declaration}\nint kept(void);")
        assert record["skipped"] == [{"name": "odd", "reason": reason}]
        assert names(record["functions"]) == ["kept"]

    def test_inline_definitions(self, work):
        record = work.bind("static inline int odd(int x) { if (x) { return 1; } return 0; }\nint kept(void);")
        assert names(record["functions"]) == ["kept"]

    def test_macros_that_are_no_integer_constants(self, work):
        record = work.bind(
            '#define A 1\n#define B "b"\n#define C 1.5\n#define D(x) x\n#define E do { } while (0)\n'
            "#define F unknown\n#define G\n#define H -1\n#define I ((unsigned) 3)\n#define J int\n#undef A\n"
        )
        assert record["constants"] == ["H", "I"]

    def test_functions_of_headers_that_are_not_named(self, work):
        work.write("deep/other.h", "struct needed { int x; }; struct unneeded { int y; }; int hidden(void);")
        record = work.bind('#include "deep/other.h"\nint f(struct needed * n);', "--root", work.folder / "deep")
        assert names(record["functions"]) == ["f"]
        assert "unneeded" not in work.text("_native.c")

    def test_guarded_functions_that_no_source_defines(self, work):
        work.write("src/box.c", "int real(void) { return 1; }")
        record = work.bind("int real(void);\nint ghost(void);", "--source", work.folder / "src")
        assert record["skipped"] == [{"name": "ghost", "reason": "never defined"}]


class TestErrors:
    def test_missing_header_names_the_places_searched(self, work):
        done = work.run("--guard", "absent.h")
        assert done.returncode == 1
        assert done.stderr.startswith("bindgen: error: absent.h: no such header")
        assert str(work.folder) in done.stderr

    def test_preprocessor_error_names_header_line_and_text(self, work):
        error = work.fail("\n#error this platform is unknown\n")
        assert "box.h:2" in error
        assert "this platform is unknown" in error

    def test_unknown_type_names_header_line_and_text(self, work):
        error = work.fail("int fine(void);\nint wrong(\n    strange_t x);\n")
        assert "box.h:3: cannot parse" in error
        assert "int wrong ( strange_t x )" in error

    def test_declaration_without_end_names_its_start(self, work):
        assert "box.h:2: the declaration never ends" in work.fail("int a;\nstruct s { int x;\n")

    def test_missing_compiler_is_named(self, work):
        work.write("box.h", "int f(void);")
        done = work.run("--guard", "box.h", "--cc", "no-such-compiler")
        assert done.returncode == 1
        assert "no-such-compiler" in done.stderr


class TestMsvc:
    def test_gets_its_own_options_and_its_line_markers_are_read(self, work):
        cl = work.write(
            "cl",
            f"""\
            #!{sys.executable}
            import re, subprocess, sys
            nologo, preprocess, as_c, include, probe = sys.argv[1:]
            assert (nologo, preprocess, as_c, include[:2]) == ("/nologo", "/E", "/TC", "/I")
            text = subprocess.check_output([{CC!r}, "-E", "-I" + include[2:], probe], text=True)
            print(re.sub(r'^# (\\d+) (".*?").*', r"#line \\1 \\2", text, flags=re.M))
            """,
        )
        cl.chmod(0o755)
        record = work.bind("#define ONE 1\n__declspec(dllimport) int __cdecl f(__int64 x);", "--cc", cl)
        assert names(record["functions"]) == ["f"]
        assert record["constants"] == ["ONE"]


class TestOutputs:
    def test_are_not_rewritten_when_nothing_changed(self, work):
        work.bind("int f(void);")
        files = sorted(work.out.iterdir())
        for file in files:
            os.utime(file, (1, 1))
        work.bind("int f(void); /* a comment */")
        assert [file.name for file in files] == ["_guard.cpp", "_guard.h", "_native.c", "_native.pyi", "bindings.json"]
        assert {file.stat().st_mtime for file in files} == {1}

    def test_summary_is_one_line(self, work):
        work.write("box.h", "enum e { A, B }; int f(enum e e);")
        expected = "bindgen: 1 functions (1 guarded), 1 types, 2 constants; left out: 0 deprecated, 0 skipped\n"
        assert work.run("--guard", "box.h").stdout == expected

    def test_depfile_lists_the_headers_that_were_read(self, work):
        work.write("inner.h", "typedef int inner;")
        work.bind('#include "inner.h"\ninner f(void);', "--root", work.folder, "--depfile", work.folder / "deps")
        assert str(work.folder / "inner.h") in (work.folder / "deps").read_text()


class TestStub:
    def test_types_functions_by_what_cffi_takes_and_gives(self, work):
        work.bind(
            "#include <stdbool.h>\n#include <stdint.h>\nstruct s { int x; }; enum e { A };\n"
            "bool f(int64_t n, float x, struct s by_value, const char * text, enum e, void (*lambda)(void));\n"
            "void g(void); const char * h(int from);"
        )
        stub = work.text("_native.pyi")
        assert (
            "def f(self, n: int, x: float, by_value: CData, text: CData | bytes, arg4: int, lambda_: CData, /) -> bool: ..."
        ) in stub
        assert "def g(self, /) -> None: ..." in stub
        assert "def h(self, from_: int, /) -> CData: ..." in stub
        assert "A: int" in stub
