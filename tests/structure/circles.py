"""Finds circles between source files: each uses what the next one defines, and the last one the first."""

import re

import c_functions

NAME = re.compile(r"\bfq_\w+")
# A global object or its end: "const fq_backend fq_cpu_backend = {", "int fq_caught;", "fq_rows[] = {".
OBJECT = re.compile(r"\b(fq_\w+)\s*(?:\[[^\]]*\]\s*)*[=;]")


def outside_functions(lines, functions):
    """The lines that are in no function's body or head, and no directives."""
    inside = {n for _, first, last in functions for n in range(first, last + 1)}
    return [
        line
        for number, line in enumerate(lines, 1)
        if number not in inside and not line.lstrip().startswith("#")
    ]


def objects(lines):
    """Names of the global objects that these lines define: what is declared at depth 0."""
    found, depth = set(), 0
    for line in lines:
        if depth == 0 and not re.match(r"\s*(static|extern|typedef)\b", line):
            found.update(OBJECT.findall(line))
        depth += line.count("{") - line.count("}")
    return found


def names_of(text):
    """(names that a source defines for others, names that it uses)."""
    text = c_functions.without_comments_and_literals(text)
    functions = c_functions.functions(text)
    defined = {name for name, _, _ in functions if name.startswith("fq_")}
    defined |= objects(outside_functions(text.split("\n"), functions))
    return defined, set(NAME.findall(text)) - defined


def uses(sources):
    """{path: {path of a file that it uses: one name that it uses of it}}, of {path: text}."""
    names = {path: names_of(text) for path, text in sources.items()}
    homes = {}
    for path, (defined, _) in names.items():
        for name in defined:
            homes.setdefault(name, set()).add(path)  # more than one where CMake chooses
    graph = {path: {} for path in sources}
    for path, (_, used) in names.items():
        for name in sorted(used):
            for home in homes.get(name, ()):
                graph[path].setdefault(home, name)
    return graph


def way(graph, start, end):
    """A shortest list of files from start to end, each of which uses the next; None if none."""
    before, queue = {start: None}, [start]
    for path in queue:
        if path == end:
            break
        for following in sorted(graph[path]):
            if following not in before:
                before[following] = path
                queue.append(following)
    if end not in before:
        return None
    found = [end]
    while before[found[0]]:
        found.insert(0, before[found[0]])
    return found


def circles(sources):
    """Lists of files in a circle, each once, from its first file in the order of paths."""
    graph = uses(sources)
    found, seen = [], set()
    for path in sorted(graph):
        for following in sorted(graph[path]):
            back = way(graph, following, path)
            if back and path not in seen:
                seen.update(back)
                steps = zip([path] + back[:-1], back)
                found.append([(a, graph[a][b]) for a, b in steps])
    return found
