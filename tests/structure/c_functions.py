"""Finds the functions of a C or CUDA source file by its braces."""

import re

TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<literal>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.VERBOSE | re.DOTALL,
)
FUNCTION_HEAD = re.compile(r"^[A-Za-z_\[].*\)\s*(?:const|noexcept|override)?\s*$", re.DOTALL)
CONDITIONAL = re.compile(r"^\s*#\s*(if|elif|else|endif)")


class Unbalanced(Exception):
    """Braces that do not match; the argument is the line."""


def without_comments_and_literals(text):
    """The text with comments and the insides of literals blanked, every line in its place."""

    def blank(match):
        lines = re.sub(r"[^\n]", " ", match.group())
        return lines if match.group("comment") else '"' + lines[1:-1] + '"'

    return TOKENS.sub(blank, text)


def is_function_head(head):
    """True for what stands before a function's opening brace."""
    head = head.strip()
    if not FUNCTION_HEAD.match(head):
        return False
    depth = 0
    for c in head:
        depth += (c == "(") - (c == ")")
        if c == "=" and depth == 0:  # an initializer
            return False
    return True


class Scanner:
    """Walks through blanked text line by line and collects (name, first line, last line)."""

    def __init__(self):
        self.functions = []
        self.open = []  # per open brace: (name, first line) of a function, or None
        self.head = ""  # text since the last ; { or } outside functions
        self.head_line = 0
        self.branches = []  # per open #if: the state before it
        self.in_directive = False

    def in_function(self):
        return any(self.open)

    def directive(self, line):
        """Each branch of a conditional starts from the same open braces."""
        match = CONDITIONAL.match(line)
        kind = match.group(1) if match else ""
        if kind == "if":
            self.branches.append((list(self.open), self.head, self.head_line))
        elif kind in ("elif", "else") and self.branches:
            before, self.head, self.head_line = self.branches[-1]
            self.open = list(before)
        elif kind == "endif" and self.branches:
            self.branches.pop()

    def brace_open(self):
        is_function = not self.in_function() and is_function_head(self.head)
        name = re.search(r"(\w+)\s*\(", self.head)
        self.open.append((name.group(1), self.head_line) if is_function else None)
        self.head = ""

    def brace_close(self, number):
        if not self.open:
            raise Unbalanced(number)
        function = self.open.pop()
        if function:
            self.functions.append((*function, number))
        self.head = ""

    def code(self, number, line):
        for c in line + "\n":
            if c == "{":
                self.brace_open()
            elif c == "}":
                self.brace_close(number)
            elif c == ";":
                self.head = ""
            elif not self.in_function():
                if not self.head.strip():
                    self.head_line = number
                self.head += c

    def line(self, number, line):
        if self.in_directive or line.lstrip().startswith("#"):
            if not self.in_directive:
                self.directive(line)
            self.in_directive = line.rstrip().endswith("\\")
        else:
            self.code(number, line)


def functions(text):
    """(name, first line, last line) of every function, the line of its return type included."""
    scanner = Scanner()
    lines = without_comments_and_literals(text).split("\n")
    for number, line in enumerate(lines, 1):
        scanner.line(number, line)
    if scanner.open:
        raise Unbalanced(len(lines))
    return scanner.functions
