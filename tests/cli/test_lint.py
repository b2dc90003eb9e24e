#!/usr/bin/env python3
"""The lint finds each thing that it is there for, and nothing in a tree that keeps the rules."""
import os
import subprocess
import sys

from testing import TOP, check, done, temporary

CLEAN = {
    "engine/base/good.h": "/* good.h */\n#include <stdint.h>\n\nint tn_good_one(void);\n",
    "engine/base/good.c": '#include "engine/base/good.h"\n\n/* printf("x") and free(x) in a comment */\nint tn_good_one(void)\n'
                          "{\n    return \"exit(1)\"[0];\n}\n",
    "engine/base/json.c": "#include <jansson.h>\n",
    "kernels/cpu/use.c": '#include "graph/graph.h"\n#include "kernels/kernel.h"\n',
    "lua/door.h": "#include <lua.h>\n",
    "lua/titan.c": 'int main(void)\n{\n    printf("hello");\n    exit(1);\n}\n',
    "tests/unit/test_x.c": '#include "tests/test.h"\n\nint main(void)\n{\n    free(0);\n}\n',
    "README.md": "# x\n",
}
# name of the file, its text, what the finding must say
DIRTY = [
    ("graph/up.c", '#include "engine/exec.h"\n', "graph may not include engine/exec.h"),
    ("kernels/cpu/side.c", '#include "checkpoints/file.h"\n', "kernels/cpu may not include checkpoints/file.h"),
    ("checkpoints/side.c", '#include "kernels/cpu/gemm.h"\n', "checkpoints may not include kernels/cpu/gemm.h"),
    ("engine/base/up.c", '#include "graph/graph.h"\n', "engine/base may not include graph/graph.h"),
    ("graph/rel.c", '#include "graph.h"\n', "graph may not include graph.h"),
    ("engine/second.c", "#include <jansson.h>\n", "<jansson.h> belongs behind its door engine/base/json.c"),
    ("engine/hash2.c", "#include <xxhash.h>\n", "belongs behind its door engine/base/hash.c"),
    ("lua/extra.c", "#include <lauxlib.h>\n", "belongs behind its door lua/door.h"),
    ("tests/unit/test_h5.c", "#include <hdf5.h>\n", "belongs behind its door checkpoints/hdf5.c"),
    ("graph/odd.c", "#include <curl/curl.h>\n", "<curl/curl.h> has no door"),
    ("graph/prints.c", 'void f(void)\n{\n    printf("x");\n}\n', "prints.c:3: printf() prints"),
    ("graph/ends.c", "void f(void)\n{\n    exit(1);\n}\n", "exit() ends the process"),
    ("graph/heap.c", "void f(void)\n{\n    char *p = malloc(3);\n}\n", "malloc() uses the heap"),
    ("graph/env.c", "void f(void)\n{\n    getenv(0);\n}\n", "getenv() reads the environment"),
    ("graph/long.c", "int x;\n" * 700, "long.c:650: 700 lines"),
    ("graph/tab.c", "\tint x;\n", "tab.c:1: a tab"),
    ("graph/blank.c", "int x; \n", "blank.c:1: blanks at the end"),
    ("graph/wide.c", "int x;" + " " * 250 + "/* */\n", "wide.c:1: 261 columns"),
    ("graph/end.c", "int x;", "no newline at the end"),
    ("graph/named.h", "int tn_other_thing(void);\n", "tn_other_thing: the noun is the file"),
    ("engine/twice.c", "int tn_good_one(void)\n{\n    return 0;\n}\n", "tn_good_one is defined in engine/base/good.c, too"),
    ("docs/page.md", "see /ho" "me/someone/titan\n", "names one machine"),
    ("stray.txt", "x\n", "the top level is fixed"),
    ("engine/tool.py", "x = 1\n", "Python lives in"),
    ("engine/new/file.c", "int x;\n", "no floor has this folder"),
]


def lint(files):
    with temporary() as top:
        subprocess.run(["git", "init", "-q", top], check=True)
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
            with open(os.path.join(top, name), "w") as f:
                f.write(text)
        got = subprocess.run([sys.executable, os.path.join(TOP, "tests", "lint.py"), top], stdout=subprocess.PIPE)
        return got.returncode, got.stdout.decode()


status, said = lint(CLEAN)
check(status == 0 and ", 0 failed" in said, "a clean tree: " + said)
for name, text, want in DIRTY:
    status, said = lint(dict(CLEAN, **{name: text}))
    found = [line for line in said.splitlines() if want in line]
    check(status == 1 and len(found) == 1 and name in found[0], "%s: expected '%s' in:\n%s" % (name, want, said))
    check(said.rstrip().endswith(" 1 failed"), "%s: more than one finding:\n%s" % (name, said))
done("lint of the lint")
