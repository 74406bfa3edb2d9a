#!/usr/bin/env python3
"""Checks that every header compiles alone: as C11, and the layers' headers as C++17 too."""

import os
import subprocess
import sys

# What a header leaves unused is no fault of its own.
WARNINGS = ["-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-variable"]


def headers(root):
    """Paths of all headers, relative to root, sorted."""
    found = []
    for layer in ("lib", "formats", "kernels", "cmd", "tests"):
        for folder, _, names in os.walk(os.path.join(root, layer)):
            found += [
                os.path.relpath(os.path.join(folder, n), root) for n in names if n.endswith(".h")
            ]
    return sorted(found)


def compile_alone(root, header, compiler, language, standard):
    """The compiler's messages on a file that includes the header twice and nothing else."""
    command = [compiler, "-x", language, f"-std={standard}", "-D_GNU_SOURCE", "-I", root]
    done = subprocess.run(
        command + WARNINGS + ["-fsyntax-only", "-"],
        input=f"#include <{header}>\n" * 2,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


def check_headers(root, cc, cxx):
    """One text for every header that does not compile in a language."""
    faults = []
    languages = ((cc, "c", "c11"), (cxx, "c++", "c++17"))
    for header in headers(root):
        is_test = header.startswith("tests" + os.sep)  # included by C alone
        for compiler, language, standard in languages[:1] if is_test else languages:
            messages = compile_alone(root, header, compiler, language, standard)
            if messages:
                faults.append(f"{header} as {standard}:\n{messages}")
    return faults


def main():
    root, cc, cxx = sys.argv[1:4]
    faults = check_headers(root, cc, cxx)
    for fault in faults:
        print(fault)
    n = len(headers(root))
    print(f"{n} headers, {len(faults)} faults")
    return bool(faults) or n == 0


if __name__ == "__main__":
    sys.exit(main())
