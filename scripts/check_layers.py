#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that includes under src/ point only down the layers.

usage: check_layers.py [SOURCE_ROOT]     the folder that holds src/ (default: this project)
       check_layers.py --self-test       runs the checks on a small tree full of mistakes

Prints file:line and the rule for each violation; exit code 1 when there is one.
"""

import os
import re
import sys
import tempfile

# Which other modules each module may include. Reading downwards is reading the layers.
LEAVES = {"base"}
BELOW_ENGINE = {"base", "kernels", "comm", "task", "data", "report", "model", "optim", "checkpoint"}
MAY_INCLUDE = {
    "base": set(),
    "kernels": LEAVES,
    "comm": LEAVES,
    "task": LEAVES,
    "data": LEAVES,
    "report": LEAVES,
    "model": {"base", "kernels"},
    "optim": {"base", "kernels"},
    "checkpoint": {"base", "kernels", "comm", "data", "model"},
    "engine": BELOW_ENGINE,
    "cmd": BELOW_ENGINE | {"engine"},
}
# Headers with one home.
HOME_OF = {"mpi.h": "comm", "TAMPI.h": "comm", "omp.h": "task", "nodes.h": "task"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PRAGMA = re.compile(r'^\s*#\s*pragma\s+(omp|oss)\b\s*(.*)|_Pragma\s*\(\s*"\s*(omp|oss)\b\s*([^"]*)')
SIMD = re.compile(r"(declare\s+)?simd\b")
IN_KERNELS = re.compile(
    r"(?<![\w.>])(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memory_alloc|memory_map|"
    r"printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|putc|fputc|fopen|perror|"
    r"log_info|log_warn|log_error)\s*\(")


def without_comments(text, keep_strings):
    """The text with comments (and the insides of strings) blanked, lines kept."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found if keep_strings else found[0] * 2
        return re.sub(r"[^\n]", " ", found)

    return token.sub(blank, text)


def check_include(root, module, folder, bracket, header):
    """The rule broken by one include, or None."""
    if header == "assert.h":
        return "assert.h: broken invariants go through require() of base/status.h"
    home = HOME_OF.get(os.path.basename(header))
    if home and module != home:
        return f"{header}: only src/{home} may include it"
    if bracket == "<":
        return None
    if ".." in header.split("/"):
        return f"{header}: includes name the module, as in \"base/log.h\""
    if "/" not in header:
        here = os.path.join(folder, header)
        return None if os.path.isfile(here) else f"{header}: not in this folder"
    other = header.split("/")[0]
    if not os.path.isfile(os.path.join(root, "src", header)):
        return f"{header}: no such header under src/"
    if other != module and other not in MAY_INCLUDE[module]:
        allowed = ", ".join(sorted(MAY_INCLUDE[module])) or "nothing else"
        return f"{header}: {module} may include {allowed}"
    return None


def check_pragma(module, match):
    family = match.group(1) or match.group(3)
    rest = match.group(2) or match.group(4) or ""
    if module == "task":
        return None
    if module == "kernels" and family == "omp" and SIMD.match(rest):
        return None
    where = "only src/task holds task pragmas (omp simd is fine in src/kernels)"
    return f"#pragma {family} {rest.strip()}: {where}"


def check_file(root, module, path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with_strings = without_comments(text, True).split("\n")
    bare = without_comments(text, False).split("\n")
    for number, (line, code) in enumerate(zip(with_strings, bare), 1):
        include = INCLUDE.match(line)
        if include:
            broken = check_include(root, module, os.path.dirname(path), *include.groups())
            if broken:
                yield number, broken
        pragma = PRAGMA.search(line)
        if pragma:
            broken = check_pragma(module, pragma)
            if broken:
                yield number, broken
        call = IN_KERNELS.search(code) if module == "kernels" else None
        if call:
            yield number, f"{call.group(1)}(): kernels neither allocate nor print"


def check_tree(root):
    """All violations below root/src as (path, line, text), sorted."""
    src = os.path.join(root, "src")
    found = []
    for folder, _, names in os.walk(src):
        module = os.path.relpath(folder, src).split(os.sep)[0]
        for name in names:
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, root)
            if not name.endswith((".c", ".h", ".inc")):
                continue
            if module not in MAY_INCLUDE:
                found.append((shown, 1, f"{module}: no such module in the layers"))
                continue
            found += [(shown, line, text) for line, text in check_file(root, module, path)]
    return sorted(found)


# ---- self-test --------------------------------------------------------------------------

GOOD = {
    "base/log.h": "",
    "kernels/gemm.h": "",
    "comm/comm.h": "",
    "task/task.h": "",
    "model/model.h": "",
    "optim/adamw.h": "",
    "engine/engine.h": "",
    "cmd/cmd.h": "",
    "base/log.c": '#include "base/log.h"\n#include <stdio.h>\n',
    "comm/mpi.c": '#include <mpi.h>\n#include "comm/comm.h"\n',
    "task/omp.c": "#include <omp.h>\n#pragma omp task\n",
    "kernels/ok.c": '/* malloc( is not\n called: #include "comm/comm.h" */\n#pragma omp simd\n'
                    '#pragma omp declare simd\nconst char *s = "free(";\n'
                    'void f(struct k *k) { k->free(1); } // puts(\n',
    "engine/e.c": '#include "comm/comm.h"\n#include "task/task.h"\n#include "optim/adamw.h"\n',
    "cmd/c.c": '#include "engine/engine.h"\n#include "cmd.h"\n',
}
# file, text, the line that must be reported, what the report must say
BAD = [
    ("base/up.c", '\n#include "task/task.h"\n', 2, "base may include nothing else"),
    ("comm/side.c", '#include "task/task.h"\n', 1, "comm may include base"),
    ("task/side.c", '  #  include "comm/comm.h"\n', 1, "task may include base"),
    ("optim/side.c", '#include "model/model.h"\n', 1, "optim may include base, kernels"),
    ("model/up.c", '#include "engine/engine.h"\n', 1, "model may include base, kernels"),
    ("checkpoint/up.c", '#include "task/task.h"\n', 1, "checkpoint may include base, comm, data, kernels, model"),
    ("engine/up.c", '#include "cmd/cmd.h"\n', 1, "engine may include"),
    ("engine/mpi.c", "/* a\n b */ #include <mpi.h>\n", 2, "only src/comm"),
    ("engine/tampi.c", "#include <TAMPI.h>\n", 1, "only src/comm"),
    ("kernels/omp.c", "#include <omp.h>\n", 1, "only src/task"),
    ("kernels/par.c", "\n\n#pragma omp parallel for simd\n", 3, "only src/task"),
    ("model/simd.c", "#pragma omp simd\n", 1, "only src/task"),
    ("engine/oss.c", "# pragma oss task\n", 1, "only src/task"),
    ("data/word.c", 'int i;\n_Pragma("omp task") i = 1;\n', 2, "only src/task"),
    ("kernels/heap.c", "void f(void)\n{\n    p = malloc(3);\n}\n", 3, "malloc(): kernels"),
    ("kernels/ref/say.c", 'void f(void) { printf("x"); }\n', 1, "printf(): kernels"),
    ("data/assert.c", "#include <assert.h>\n", 1, "require()"),
    ("data/dots.c", '#include "../base/log.h"\n', 1, "includes name the module"),
    ("data/gone.c", '#include "base/gone.h"\n', 1, "no such header"),
    ("data/local.c", '#include "gone.h"\n', 1, "not in this folder"),
    ("stray/x.c", "\n", 1, "no such module"),
]


def write_tree(root, files):
    for name, text in files.items():
        path = os.path.join(root, "src", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as root:
        write_tree(root, GOOD)
        failures += [f"good tree: {found}" for found in check_tree(root)]
    for name, text, line, wanted in BAD:
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, {**GOOD, name: text})
            found = check_tree(root)
            if (len(found) != 1 or found[0][:2] != (f"src/{name}", line)
                    or wanted not in found[0][2]):
                failures.append(f"{name}: needs '{wanted}' at line {line}, found {found}")
    for failure in failures:
        print(failure)
    print(f"{len(BAD)} mistakes planted, {len(failures)} wrong reports")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(here)
    if not os.path.isdir(os.path.join(root, "src")):
        print(f"{root}: no folder src in it", file=sys.stderr)
        return 2
    found = check_tree(root)
    for path, line, text in found:
        print(f"{path}:{line}: {text}")
    print(f"layers: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
