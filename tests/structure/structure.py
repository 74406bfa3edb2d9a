#!/usr/bin/env python3
"""Checks that the source tree has the shape that docs/design.md and docs/style.md describe."""

import ast
import os
import re
import sys

import c_functions
import circles

MAX_FILE_LINES = 500  # a file stays under it
MAX_FUNCTION_LINES = 60  # so does a function

# A folder's code may include from these. Tests, examples and tools are free.
MAY_INCLUDE = {
    "lib": {"lib"},
    "formats": {"formats", "lib"},
    "kernels": {"kernels", "lib"},
    "cmd": {"cmd", "formats", "kernels", "lib"},
}

# All that lib may include from outside: C11's headers and threads. No disk, no terminal.
LIB_SYSTEM = {
    f"{name}.h"
    for name in """assert complex ctype errno fenv float inttypes iso646 limits locale math
    pthread setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn
    string tgmath threads time uchar wchar wctype""".split()
}

# Headers of libraries and instruction sets that only one folder knows.
PLACES = [
    (re.compile(r"^cjson/"), "formats/"),
    (re.compile(r"^(libdeflate|zlib|xxhash)\.h$"), "formats/"),
    (re.compile(r"^(zstd|zdict|zstd_\w+)\.h$"), "formats/"),
    (re.compile(r"^(cuda|cublas|nvml|nccl|cooperative_groups)"), "kernels/cuda/"),
    (re.compile(r"^(\w+mmintrin|immintrin|x86intrin|cpuid|arm_\w+)\.h$"), "kernels/cpu/"),
]

C_SUFFIXES = (".c", ".h", ".cu", ".cuh")
SUFFIXES = C_SUFFIXES + (".py", ".sh", ".cmake")
NAMES = ("CMakeLists.txt", "Makefile")
DOCUMENT = ".md"
SKIPPED_FOLDERS = {"build", "demo", "__pycache__", ".git", ".cache"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MENTION = re.compile(r"\bdocs/[\w.]+\.md\b")
# What a condition may ask in lib, formats and cmd: the language and the compiler, no feature.
LANGUAGE_WORDS = {"defined", "__GNUC__", "__cplusplus"}


def is_script(path):
    if "." in os.path.basename(path).lstrip("."):
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def source_files(root):
    """Paths of all sources and scripts, relative to root, sorted."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("build-")]
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            if name.endswith((*SUFFIXES, DOCUMENT)) or name in NAMES or is_script(path):
                found.append(os.path.relpath(path, root))
    return sorted(found)


def check_file_length(path, lines):
    if len(lines) >= MAX_FILE_LINES:
        yield f"{path}: {len(lines)} lines; a file stays under {MAX_FILE_LINES}"


def functions_of(path, text):
    if path.endswith(C_SUFFIXES):
        return c_functions.functions(text)
    if path.endswith(".py"):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, kinds)]
        return [(n.name, n.lineno, n.end_lineno) for n in nodes]
    return []


def check_functions(path, text):
    try:
        for name, first, last in functions_of(path, text):
            n = last - first + 1
            if n >= MAX_FUNCTION_LINES:
                yield f"{path}:{first}: {name} has {n} lines; a function stays under {MAX_FUNCTION_LINES}"
    except c_functions.Unbalanced as fault:
        yield f"{path}:{fault}: braces do not match"


def check_opening(path, lines):
    """The first lines are a comment whose first paragraph is a sentence."""
    mark = "//" if path.endswith(C_SUFFIXES) else "#"
    start = 1 if lines and lines[0].startswith("#!") else 0
    paragraph = []
    for line in lines[start:]:
        if not line.startswith(mark) or line.strip() == mark:
            break
        paragraph.append(line[len(mark) :].strip())
    text = " ".join(paragraph)
    if path.endswith(".py"):
        text = (ast.get_docstring(ast.parse("\n".join(lines))) or "").split("\n\n")[0]
    if not re.search(r"\w.*[.:]$", text, re.DOTALL):
        yield f"{path}:1: does not open with a sentence that says what the file is"


def resolve(root, path, target):
    """The file that a quoted include names, relative to root; None if there is none."""
    for base in (os.path.dirname(path), ""):
        candidate = os.path.normpath(os.path.join(base, target))
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def include_fault(root, path, quoted, system):
    """What is wrong with one #include, or None."""
    layer = path.split(os.sep)[0]
    if quoted:
        target = resolve(root, path, quoted)
        if ".." in quoted.split("/") or target is None:
            return f'"{quoted}" is no path from the root or of this folder'
        if target.split(os.sep)[0] not in MAY_INCLUDE[layer]:
            return f'{layer} may not include "{quoted}"'
        return None
    if layer == "lib" and system not in LIB_SYSTEM:
        return f"lib may not include <{system}>"
    for pattern, home in PLACES:
        if pattern.match(system) and not path.startswith(home):
            return f"<{system}> may be included under {home} only"
    return None


def check_includes(root, path, lines):
    if path.split(os.sep)[0] not in MAY_INCLUDE:
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        fault = match and include_fault(root, path, *match.groups())
        if fault:
            yield f"{path}:{number}: {fault}"


def check_conditions(path, lines):
    """No feature #if in lib, formats and cmd: CMake chooses files. Include guards are no feature."""
    if path.split(os.sep)[0] not in ("lib", "formats", "cmd"):
        return
    for number, line in enumerate(lines, 1):
        match = CONDITION.match(line)
        words = set(re.findall(r"[A-Za-z_]\w*", match.group(1))) if match else set()
        guard = re.sub(r"\W", "_", os.path.basename(path)).upper()
        if all(w in LANGUAGE_WORDS or w.endswith(guard) for w in words):
            continue
        yield f"{path}:{number}: a feature #if; let CMake choose between files"


def check_is_built(root, path):
    """CMake builds every source of a layer: none is left over."""
    layer, _, name = path.partition(os.sep)
    if layer not in MAY_INCLUDE or not name.endswith((".c", ".cu")):
        return
    with open(os.path.join(root, layer, "CMakeLists.txt"), encoding="utf-8") as file:
        if not re.search(rf"(?<![\w/]){re.escape(name)}(?!\w)", file.read()):
            yield f"{path}:1: is not built by {layer}/CMakeLists.txt"


def check_links(root, path, lines):
    """Documents that are pointed at are there."""
    in_document = path.endswith(DOCUMENT)
    base = os.path.dirname(path) if in_document else ""
    for number, line in enumerate(lines, 1):
        for target in (LINK if in_document else MENTION).findall(line):
            if not os.path.exists(os.path.join(root, base, target)):
                yield f"{path}:{number}: there is no {target}"


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    yield from check_links(root, path, lines)
    if path.endswith(DOCUMENT):
        return
    yield from check_file_length(path, lines)
    yield from check_opening(path, lines)
    yield from check_functions(path, text)
    if path.endswith(C_SUFFIXES):
        yield from check_is_built(root, path)
        yield from check_includes(root, path, lines)
        yield from check_conditions(path, lines)


def check_circles(root, paths):
    """No source of the layers uses what uses it in turn, by whatever way."""
    sources = {}
    for path in paths:
        if path.split(os.sep)[0] in MAY_INCLUDE and path.endswith((".c", ".cu")):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                sources[path] = file.read()
    for circle in circles.circles(sources):
        steps = "; ".join(f"{path} uses {name}" for path, name in circle)
        yield f"{circle[0][0]}:1: is in a circle: {steps}"


def check_tree(root):
    """One line for every fault of the tree under root, in the order of paths."""
    paths = source_files(root)
    faults = [fault for path in paths for fault in check_file(root, path)]
    return faults or list(check_circles(root, paths))  # where braces match


def main():
    root = sys.argv[1]
    files = source_files(root)
    faults = check_tree(root)
    for fault in faults:
        print(fault)
    print(f"{len(files)} files, {len(faults)} faults")
    return bool(faults) or not files


if __name__ == "__main__":
    sys.exit(main())
