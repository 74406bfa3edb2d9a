#!/usr/bin/env python3
"""Proves that structure.py and headers.py find what they look for: plants faults in a small tree."""

import os
import sys
import tempfile
import unittest

import c_functions
import circles
import headers
import structure

# A tree without faults; long, nested and odd enough that a careless scanner would see some.
CLEAN = {
    "lib/error.h": """// Errors.
#ifndef FQ_ERROR_H
#define FQ_ERROR_H
#include <stddef.h>
#if defined(__GNUC__)
#define FQ_PRINTF(a, b) __attribute__((format(printf, a, b)))
#endif
#endif
""",
    "lib/run.c": """// The one loop,
// in two lines.
#include "error.h"
#include <pthread.h>
static const char *const names[] = {"{", "}}", "//", "\\"{"};
static const int braces[] = {'{', '}', '\\''};
/* { */
int fq_run(void) { return names[0][0] == braces[0]; }
""",
    "formats/file.c": '// Files.\n#include "lib/error.h"\n#include <cjson/cJSON.h>\n#include <fcntl.h>\n',
    "kernels/kernels.h": '// Backends.\n#include "lib/error.h"\n',
    "kernels/cuda/copy.cu": """// One kernel.
#include <cuda_runtime.h>
namespace fq {
#ifdef __CUDA_ARCH__
__global__ void copy(int *a) { if (a) {
#else
__global__ void copy(int *a) { {
#endif
} }
}
""",
    "kernels/cpu/wide.c": "// SIMD.\n#include <immintrin.h>\n",
    "cmd/main.c": '// The program.\n#include "formats/file.c"\n#include "kernels/kernels.h"\n',
    "tests/test_run.c": '// A test.\n#include "../lib/run.c"\n#include <cuda_runtime.h>\n',
    "tests/tool.py": '#!/usr/bin/env python3\n"""A tool,\nin two lines."""\n',
    "scripts/go.sh": "#!/bin/sh\n# Goes.\n",
    "README.md": "[design](docs/design.md#layers), [elsewhere](https://example.org/)\n",
    "docs/design.md": "[up](../README.md)\n",
    "lib/CMakeLists.txt": "# The model.\nadd_library(lib run.c a.c)\n",
    "formats/CMakeLists.txt": "# Files.\nadd_library(formats file.c a.c)\n",
    "kernels/CMakeLists.txt": "# Backends.\nadd_library(k cuda/copy.cu cpu/wide.c a.c cuda/a.cu cpu/a.c)\n",
    "cmd/CMakeLists.txt": "# The program.\nadd_executable(cmd main.c a.c)\n",
    "build/x.c": "not looked at",
}

LONG_BODY = "    int a;\n" * structure.MAX_FUNCTION_LINES
LONG_FUNCTION = "// A file.\nstatic int f(int a,\n             int b) {\n" + LONG_BODY + "}\n"

# (file, its text, words of the one line that must come out)
PLANTED = [
    ("lib/a.c", '// A.\n#include "formats/file.c"\n', "lib may not include"),
    ("lib/a.c", '// A.\n#include "kernels/kernels.h"\n', "lib may not include"),
    ("lib/a.c", '// A.\n  #  include "cmd/main.c"\n', "lib may not include"),
    ("lib/a.c", '// A.\n#include "tests/test_run.c"\n', "lib may not include"),
    ("lib/a.c", "// A.\n#include <fcntl.h>\n", "lib may not include <fcntl.h>"),
    ("lib/a.c", "// A.\n#include <cjson/cJSON.h>\n", "lib may not include <cjson"),
    ("lib/a.c", '// A.\n#include "../lib/error.h"\n', "no path from the root"),
    ("lib/a.c", '// A.\n#include "absent.h"\n', "no path from the root"),
    ("formats/a.c", '// A.\n#include "kernels/kernels.h"\n', "formats may not include"),
    ("formats/a.c", '// A.\n#include "cmd/main.c"\n', "formats may not include"),
    ("formats/a.c", "// A.\n#include <cuda_runtime.h>\n", "under kernels/cuda/ only"),
    ("kernels/a.c", '// A.\n#include "formats/file.c"\n', "kernels may not include"),
    ("kernels/cuda/a.cu", '// A.\n#include "cmd/main.c"\n', "kernels may not include"),
    ("kernels/cpu/a.c", "// A.\n#include <cuda.h>\n", "under kernels/cuda/ only"),
    ("kernels/cpu/a.c", "// A.\n#include <zstd.h>\n", "under formats/ only"),
    ("cmd/a.c", "// A.\n#include <cjson/cJSON.h>\n", "under formats/ only"),
    ("cmd/a.c", "// A.\n#include <immintrin.h>\n", "under kernels/cpu/ only"),
    ("cmd/a.c", "// A.\n#ifdef FQ_WITH_CUDA\n#endif\n", "a feature #if"),
    ("lib/a.h", "// A.\n#if defined(__GNUC__) && FQ_FAST\n#endif\n", "a feature #if"),
    ("formats/a.c", "// A.\n#if 1\n#elif HAVE_ZSTD\n#endif\n", "a feature #if"),
    ("lib/a.c", "// A.\n" * structure.MAX_FILE_LINES, "a file stays under"),
    ("tests/a.py", '"""A."""\n' * structure.MAX_FILE_LINES, "a file stays under"),
    ("lib/a.c", LONG_FUNCTION, "a.c:2: f has 63 lines"),
    ("tests/a.c", LONG_FUNCTION, "a function stays under"),
    ("kernels/cuda/a.cu", LONG_FUNCTION.replace("static int", 'extern "C" {\nint'), "braces"),
    (
        "kernels/cuda/a.cu",
        LONG_FUNCTION.replace("static int", "template <int N>\nint"),
        "a.cu:2: f",
    ),
    ("tests/a.py", '"""A."""\ndef f():\n' + "    x = 1\n" * 60, "f has 61 lines"),
    ("lib/a.c", "// A.\nint f(void) { if (1) { return 0; }\n", "braces do not match"),
    ("lib/a.c", "// A.\nint f(void) { return 0; } }\n", "braces do not match"),
    ("lib/a.c", "int a;\n", "does not open with a sentence"),
    ("lib/a.c", "// no sentence\nint a;\n", "does not open with a sentence"),
    ("tests/a.py", "x = 1\n", "does not open with a sentence"),
    ("scripts/a.sh", "#!/bin/sh\nexit\n", "does not open with a sentence"),
    ("CMakeLists.txt", "project(a)\n", "does not open with a sentence"),
    ("lib/a.c", "// A: docs/" "absent.md.\n", "there is no docs/absent"),
    ("notes.md", "[a](b.md)\n", "there is no b.md"),
    ("lib/b.c", "// B.\n", "is not built by lib/CMakeLists.txt"),
    ("kernels/cpu/run.c", "// B.\n", "is not built by kernels/CMakeLists.txt"),
    ("lib/n.c", "// B, which is not run.c.\n", "is not built by lib/CMakeLists.txt"),
    (".ci/run", "#!/bin/sh\nexit\n", "does not open with a sentence"),
]


def write(root, path, text):
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as file:
        file.write(text)
    return full


class Structure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for path, text in CLEAN.items():
            write(self.root, path, text)

    def test_clean_tree_has_no_faults(self):
        self.assertEqual(structure.check_tree(self.root), [])

    def test_each_planted_fault_is_found(self):
        for path, text, words in PLANTED:
            with self.subTest(path=path, words=words):
                full = write(self.root, path, text)
                faults = structure.check_tree(self.root)
                os.remove(full)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn(path, faults[0])
                self.assertIn(words, faults[0])

    def test_functions_are_found_with_their_lines(self):
        text = (
            "int a(void);\n"
            "struct s { int (*f)(void); };\n"
            "static const struct s t = {a};\n"
            "__attribute__((cold)) static int\n"
            "b(void)\n"
            "{\n"
            "    while (a()) { }\n"
            "    return 0;\n"
            "}\n"
            "int c(int x) { return x ? '}' : \"}\"[0]; }\n"
        )
        self.assertEqual([f[1:] for f in c_functions.functions(text)], [(4, 9), (10, 10)])

    def test_circles_are_found(self):
        a = "int fq_a(void) { return fq_b(); }\n"
        b = "int fq_b(void) { return fq_table[0]; }\n"
        c = "const int fq_table[] = {1};\nstatic int d(void) { return fq_a(); }\n"
        innocent = '// fq_a\nconst int fq_table[] = {1};\nstatic const char n[] = "fq_b";\n'
        self.assertEqual(circles.circles({"a.c": a, "b.c": b, "c.c": innocent}), [])
        self.assertEqual(
            circles.circles({"a.c": a, "b.c": b, "c.c": c}),
            [[("a.c", "fq_b"), ("b.c", "fq_table"), ("c.c", "fq_a")]],
        )
        for path, text in (("lib/a.c", a + c), ("lib/b.c", b)):
            write(self.root, path, "// A.\n" + text)
        write(self.root, "lib/CMakeLists.txt", "# The model.\nadd_library(lib run.c a.c b.c)\n")
        faults = structure.check_tree(self.root)
        self.assertEqual(
            faults,
            ["lib/a.c:1: is in a circle: lib/a.c uses fq_b; lib/b.c uses fq_table"],
        )

    def test_each_planted_header_fault_is_found(self):
        cc, cxx = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
        self.assertEqual(headers.check_headers(self.root, cc, cxx), [])
        for text, standards in (
            ("size_t fq_n(void);\n", ["c11", "c++17"]),  # leans on another header
            ("int fq_n(int class);\n", ["c++17"]),
            ("enum { FQ_A };\n", ["c11", "c++17"]),  # no include guard
        ):
            with self.subTest(text=text):
                full = write(self.root, "lib/a.h", text)
                faults = headers.check_headers(self.root, cc, cxx)
                os.remove(full)
                found = [f.split(":")[0] for f in faults]
                self.assertEqual(found, [f"lib/a.h as {s}" for s in standards])


if __name__ == "__main__":
    sys.exit(unittest.main())
