#!/usr/bin/env python3
"""lint.py [TOP] - proves what the compiler does not: floors and doors, names, sizes, what library code may not do.

Reads the files that git tracks or would track. Each finding is one line `FILE:LINE: what; mend`; each rule checked on a file
counts as one check. The rules are those of the design's chapter on the house and of its style page.
"""
import os
import re
import subprocess
import sys

# Who may include whom: a folder sees itself, the other folders of its floor, and what is listed here.
FLOORS = {
    "engine/base": [],
    "graph": ["graph/ops", "engine/base"],
    "graph/ops": ["graph", "engine/base"],
    "kernels": ["kernels/cpu", "graph", "graph/ops", "engine/base"],
    "kernels/cpu": ["kernels", "graph", "graph/ops", "engine/base"],
    "checkpoints": ["graph", "graph/ops", "engine/base"],
    "engine": ["kernels", "kernels/cpu", "checkpoints", "graph", "graph/ops", "engine/base"],
    "lua": ["engine", "kernels", "kernels/cpu", "checkpoints", "graph", "graph/ops", "engine/base"],
}
TESTS_SEE = list(FLOORS) + ["tests"]

# Foreign headers and the one file that includes them. Tests may not: they use our doors, too.
DOORS = {
    r"lua\.h|lauxlib\.h|lualib\.h": "lua/door.h",
    r"editline/.*|readline/.*|histedit\.h": "lua/line.c",
    r"jansson\.h": "engine/base/json.c",
    r"xxhash\.h": "engine/base/hash.c",
    r"hdf5.*\.h": "checkpoints/hdf5.c",
    r"mpi\.h": "engine/mpi.c",
    r"nccl\.h": "engine/nccl.c",
    r"pcre2\.h": "engine/regex.c",
    r"utf8proc\.h": "engine/unicode.c",
    r"zlib\.h": "engine/inflate_gzip.c",
    r"zstd.*\.h": "engine/inflate_zstd.c",
    r"cuda.*\.h|cublas.*\.h|cudnn.*\.h": "kernels/cuda/",
    r"cblas\.h|blis.*\.h|mkl.*\.h|dnnl.*\.h|oneapi/.*": "kernels/cpu/blas.c",
    r"immintrin\.h|arm_neon\.h|x86intrin\.h|cpuid\.h": ("kernels/cpu/", "tests/bench/"),
}
# The C library and the system: no door needed.
SYSTEM = """assert complex ctype dirent dlfcn errno fcntl fenv float ftw glob inttypes langinfo libgen limits locale malloc math
    memory netdb poll pthread regex sched semaphore setjmp signal spawn stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib
    stdnoreturn string strings termios time ucontext unistd wchar""".split()

# What library code leaves to others: the call, why, and the files (a pattern) whose subject it is.
PROGRAM = r"lua/(titan|cmd_\w+|repl|report)\.c"  # the terminal is theirs
BANNED = [
    (r"exit|_exit|quick_exit", "ends the process; return a status", r"lua/titan\.c|engine/world\.c"),
    (r"v?printf|puts|putchar|perror|v?fprintf|fputs|fputc|putc", "prints; return a status", PROGRAM),
    (r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|v?asprintf",
     "uses the heap; go through engine/base/mem.h", r"engine/base/mem\.c"),
    (r"getenv|secure_getenv|setenv|putenv", "reads the environment; the recipe configures", r"lua/titan\.c|engine/world\.c"),
    (r"v?sprintf|strcat|gets|strtok|rand|srand|tmpnam|alloca", "is unsafe; use the bounded form", r"-"),
    (r"setlocale", "changes how numbers are read", r"-"),
]

TOP_LEVEL = {".ci", ".clang-format", ".gitignore", "LICENSE", "README.md", "build.ninja", "configure.py", "checkpoints", "docs",
             "engine", "graph", "kernels", "lua", "recipes", "tests"}
PYTHON_IN = ("configure.py", "tests/", ".ci/", "docs/")
SOURCE = (".c", ".h", ".cu", ".cuh", ".lua", ".py", ".def", ".ninja")
TEXT = SOURCE + (".md", ".txt", ".json", ".jsonl", ".graph", ".yml", ".sh")
MAX_LINES = 650
MAX_COLUMNS = {".c": 120, ".h": 120, ".py": 200}
# Written in pieces, so that this file does not name them.
MACHINE = re.compile("|".join(("/wo" "rk/", "/fa" "rm/", "/ho" "me/[a-z]", "/ro" "ot/", "pypi\\.o" "rg", "debian\\.o" "rg")))

findings, checks = [], 0


def finding(path, line, text):
    findings.append("%s:%d: %s" % (path, line, text))


def rule(function):
    """A rule looks at one file; each use counts as one check."""
    def wrapped(*args):
        global checks
        before = len(findings)
        function(*args)
        checks += len(findings) == before
    return wrapped


def bare(text):
    """C without comments and literals, line numbers kept."""
    keep = lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[0] == "/" else '""'
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', keep, text, flags=re.S)


def lines(text):
    return enumerate(text.split("\n"), 1)


@rule
def layout(path, text):
    if path.endswith(SOURCE) and text.count("\n") > MAX_LINES:
        finding(path, MAX_LINES, "%d lines, at most %d; make it two subjects in two files" % (text.count("\n"), MAX_LINES))
    for n, line in lines(text):
        if "\t" in line and path.endswith(SOURCE):
            finding(path, n, "a tab; four blanks")
        if line != line.rstrip() and not path.endswith((".txt", ".jsonl")):
            finding(path, n, "blanks at the end of the line")
        most = MAX_COLUMNS.get(os.path.splitext(path)[1], len(line))
        if len(line) > most:
            finding(path, n, "%d columns, at most %d" % (len(line), most))
    if text and not text.endswith("\n"):
        finding(path, text.count("\n") + 1, "no newline at the end of the file")


@rule
def no_machine(path, text):
    for n, line in lines(text):
        found = MACHINE.search(line)
        if found:
            finding(path, n, "'%s' names one machine or host; the project must not" % found.group(0))


@rule
def includes(path, text):
    folder = os.path.dirname(path)
    sees = TESTS_SEE if folder.startswith("tests") else [folder] + FLOORS.get(folder, [])
    for n, line in lines(text):
        quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        angled = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if quoted and os.path.dirname(quoted.group(1)) not in sees:
            finding(path, n, "%s may not include %s; it sees %s" % (folder, quoted.group(1), ", ".join(sees)))
        if angled:
            foreign(path, n, angled.group(1))


def foreign(path, n, header):
    for pattern, door in DOORS.items():
        if re.fullmatch(pattern, header):
            doors = (door,) if isinstance(door, str) else door
            if not any(path == d or (d.endswith("/") and path.startswith(d)) for d in doors):
                finding(path, n, "<%s> belongs behind its door %s" % (header, doors[0]))
            return
    if header.split("/")[0] not in ("sys", "linux", "netinet", "arpa", "net") and header[:-2] not in SYSTEM:
        finding(path, n, "<%s> has no door; name one in tests/lint.py" % header)


@rule
def library_code(path, text):
    if path.startswith("tests/"):
        return
    banned = [(re.compile(r"(?<![\w.>])(%s)\s*\(" % calls), why) for calls, why, mine in BANNED if not re.fullmatch(mine, path)]
    for n, line in lines(bare(text)):
        for pattern, why in banned:
            found = pattern.search(line)
            if found:
                finding(path, n, "%s() %s" % (found.group(1), why))


def noun_of(path):
    return os.path.splitext(os.path.basename(path))[0]


DECLARED = re.compile(r"^(?:extern\s+)?(?:const\s+|TN_MUST_USE\s+)*[a-z_][\w ]*?[ *]+(tn_\w+)\s*(?:\(|\[|;)", re.M)


# Nouns that live in a file of another name, because they are too small for one of their own.
NOUNS = {
    "engine/exec.h": "memory",
    "graph/types.h": "axis type layout mesh",
    "graph/passes.h": "pass",
    "graph/program.h": "node",
    "graph/rewrite.h": "uses",
    "kernels/kernel.h": "cpu_kernel",
    "lua/commands.h": "command options n",
}
# Headers whose names are the vocabulary of the whole tree or of the graph.
VOCABULARY = {"engine/base/base.h", "engine/base/mem.h", "graph/graph.h", "graph/op.h"}


@rule
def header_names(path, text, stems):
    """tn_NOUN_VERB: the noun is a file of the folder, or the first part of this header's name (data_text.h: tn_data_)."""
    if path in VOCABULARY:
        return
    parts = noun_of(path).split("_")
    nouns = ["_".join(parts[:i]) for i in range(1, len(parts) + 1)] + NOUNS.get(path, "").split() + sorted(stems)
    for found in DECLARED.finditer(bare(text)):
        if found.group(0).startswith(("static", "typedef", "return")):
            continue
        name = found.group(1)
        if not any(name == "tn_" + n or name.startswith("tn_%s_" % n) for n in nouns):
            finding(path, text.count("\n", 0, found.start()) + 1, "%s: the noun is the file, so names here begin with tn_%s_" % (
                name, noun_of(path)))


DEFINED = re.compile(r"^(?!static|typedef|extern|return|else)[a-z_][\w \*]*?\b(tn_\w+)\s*\([^;{}]*\)\s*\{", re.M)


def symbols(paths):
    """Every tn_ function or object is defined in one file only."""
    global checks
    owner = {}
    for path in sorted(p for p in paths if p.endswith(".c") and not p.startswith("tests/")):
        with open(path, encoding="utf-8") as f:
            text = bare(f.read())
        for found in DEFINED.finditer(text):
            name, line = found.group(1), text.count("\n", 0, found.start()) + 1
            if name in owner and owner[name] != path:
                finding(path, line, "%s is defined in %s, too" % (name, owner[name]))
            elif name not in owner:
                checks += 1
            owner[name] = path


def tracked():
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], stdout=subprocess.PIPE,
                         check=True).stdout.decode()
    return sorted({p for p in out.split("\0") if p and os.path.isfile(p)})


@rule
def place(path):
    if path.split("/")[0] not in TOP_LEVEL:
        finding(path, 1, "the top level is fixed: %s" % " ".join(sorted(TOP_LEVEL)))
    if path.endswith(".py") and not path.startswith(PYTHON_IN):
        finding(path, 1, "Python lives in configure.py and tests/")
    if path.endswith((".c", ".h")) and os.path.dirname(path) not in FLOORS and not path.startswith("tests/"):
        finding(path, 1, "no floor has this folder; name it in tests/lint.py and configure.py")


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = tracked()
    for path in paths:
        place(path)
        if path.endswith(TEXT) or "/" not in path or path == ".ci/run":
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read()
            if not path.startswith(("tests/golden/", "tests/fuzz/corpus/")) and path != "LICENSE":
                layout(path, text)
            no_machine(path, text)
            if path.endswith((".c", ".h")):
                includes(path, text)
                library_code(path, text)
            if path.endswith(".h") and not path.startswith("tests/"):
                header_names(path, text, {noun_of(p) for p in paths if os.path.dirname(p) == os.path.dirname(path)})
    symbols(paths)
    for line in findings:
        print(line)
    print("lint: %d passed, %d failed" % (checks, len(findings)))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
