#!/usr/bin/env python3
"""The build on a small tree of its own: new files are found, floors hold at the link, arguments are recorded, variants differ, and
what is missing is named with its package."""
import os
import shutil
import stat
import subprocess
import sys

from testing import TOP, check, done, temporary

TREE = {
    "engine/base/one.c": "int tn_one(void);\nint tn_one(void)\n{\n    return 1;\n}\n",
    "engine/base/one.h": "int tn_one(void);\n",
    "graph/two.h": "int tn_two(void);\n",
    "graph/two.c": '#include "graph/two.h"\n#include "engine/base/one.h"\n\nint tn_two(void)\n{\n    return tn_one() + 1;\n}\n',
    "kernels/cpu/k_isa.c": "#define CAT(a, b) a##b\n#ifdef TN_ISA_portable\nint tn_k(void);\nint tn_k(void)\n{\n    return 0;\n}\n"
                           "#else\nextern int tn_unused;\n#endif\n",
    "lua/titan.c": '#include "graph/two.h"\n\nint main(void)\n{\n    return tn_two();\n}\n',
    "lua/prelude/titan.lua": "return {}\n",
    "recipes/models/m.lua": "return {}\n",
    "tests/unit/test_two.c": '#include "graph/two.h"\n\nint main(void)\n{\n    return tn_two() != 2;\n}\n',
    "LICENSE": "x\n",
}


def put(top, name, text):
    os.makedirs(os.path.dirname(os.path.join(top, name)) or top, exist_ok=True)
    with open(os.path.join(top, name), "w") as f:
        f.write(text)


def command(top, *argv, env=None):
    got = subprocess.run(argv, cwd=top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    return got.returncode, got.stdout.decode()


def exit_of(top, program):
    return subprocess.run([os.path.join(top, program)]).returncode


def grows(top):
    """Files come and go; nobody registers them and nobody calls configure.py."""
    code, said = command(top, "ninja")
    check(code == 0 and exit_of(top, "build/titan") == 2, "first build: " + said)
    check(command(top, "ninja")[1].strip().endswith("no work to do."), "a second ninja has work to do")
    put(top, "engine/base/more.c", "int tn_more(void);\nint tn_more(void)\n{\n    return 40;\n}\n")
    put(top, "graph/two.c", TREE["graph/two.c"].replace("tn_one() + 1", "tn_one() + tn_more()").replace(
        "\n\n", "\nint tn_more(void);\n\n", 1))
    code, said = command(top, "ninja")
    check(code == 0 and exit_of(top, "build/titan") == 41, "with a new file: " + said)
    os.remove(os.path.join(top, "engine/base/more.c"))
    code, said = command(top, "ninja")
    check(code != 0 and "tn_more" in said, "a removed file is still linked: " + said)
    put(top, "graph/two.c", TREE["graph/two.c"])
    put(top, "graph/two.h", "int tn_two(void); /* changed */\n")
    code, said = command(top, "ninja", "-n", "-v")
    check("titan.o" in said and "two.o" in said, "a changed header rebuilds nothing: " + said)


def floors(top):
    put(top, "engine/up.c", "int tn_up(void);\nint tn_up(void)\n{\n    return 7;\n}\n")
    put(top, "graph/two.c", TREE["graph/two.c"].replace("tn_one() + 1", "tn_up()").replace("\n\n", "\nint tn_up(void);\n\n", 1))
    code, said = command(top, "ninja", "build/release/tests/test_two")
    check(code != 0 and "tn_up" in said, "graph may call engine: " + said)
    put(top, "graph/two.c", TREE["graph/two.c"])
    check(command(top, "ninja", "release")[0] == 0, "the tree does not build again")


def variants(top):
    def flags(goal):
        return [line for line in command(top, "ninja", "-t", "commands", goal)[1].splitlines() if "-c graph/two.c" in line][0]
    for goal, has, has_not in (("release", "-O2", "-fsanitize"), ("debug", "-O0", "-fsanitize"),
                               ("asan", "-fsanitize=address,undefined", "TN_HOSTILE"), ("tsan", "-fsanitize=thread", "address"),
                               ("hostile", "-DTN_HOSTILE", "-fsanitize=thread"), ("fuzz", "-fsanitize=fuzzer-no-link", "TN_HOSTILE")):
        line = flags(goal)
        check(has in line and has_not not in line and "-Werror" in line, "%s: %s" % (goal, line))
    isa = [line for line in command(top, "ninja", "-t", "commands", "build/release/lib/kernels.a")[1].splitlines()
           if "k_isa" in line and " -c " in line]
    check(any("TN_ISA_portable" in line and "-mavx" not in line for line in isa), "portable kernels: %s" % isa)
    check(all("-O3" in line and "-ffp-contract=off" in line for line in isa), "kernels: %s" % isa)
    check(os.uname().machine != "x86_64" or len(isa) == 3, "instruction sets: %s" % isa)


def installs(top, configured):
    env = dict(os.environ, DESTDIR=os.path.join(top, "stage"))
    code, said = command(top, "ninja", "install", env=env)
    for name in ("bin/titan", "share/titan/lua/prelude/titan.lua", "share/titan/recipes/models/m.lua", "share/titan/LICENSE"):
        path = os.path.join(top, "stage" + configured, name)
        check(code == 0 and os.path.exists(path), "%s is not installed: %s" % (path, said))
    check(os.stat(os.path.join(top, "stage" + configured, "bin/titan")).st_mode & stat.S_IXOTH, "titan is no program")


def installs_what_is_missing(top):
    """apt-get and sudo are ours here: the compiler finds jansson once it was installed."""
    put(top, "bin/sudo", '#!/bin/sh\nexec "$@"\n')
    put(top, "bin/apt-get", '#!/bin/sh\necho "$@" >> "%s/apt.log"\n' % top)
    put(top, "cc-without", '#!/bin/sh\ncase "$*" in *-ljansson*) grep -q "install.* libjansson-dev" "%s/apt.log" || exit 1;; esac\n'
                           'exec cc "$@"\n' % top)
    for name in ("bin/sudo", "bin/apt-get"):
        os.chmod(os.path.join(top, name), 0o755)
    env = dict(os.environ, PATH=os.path.join(top, "bin") + os.pathsep + os.environ["PATH"])
    code, said = command(top, sys.executable, "configure.py", "--install-deps", "--cc", os.path.join(top, "cc-without"), env=env)
    with open(os.path.join(top, "apt.log")) as f:
        asked = f.read().splitlines()
    check(code == 0 and asked[0] == "update" and "libjansson-dev" in asked[1].split(), "asked for %s: %s" % (asked, said))
    check("-dev" not in asked[1].replace("libjansson-dev", ""), "asked for more than was missing: %s" % asked)
    with open(os.path.join(top, "build/config.json")) as f:
        check("install-deps" not in f.read().split('"configure"')[0], "installing is recorded and would be repeated")


def missing(top):
    """A compiler for which jansson is not there."""
    shutil.rmtree(os.path.join(top, "build"))
    put(top, "cc-without", '#!/bin/sh\ncase "$*" in *-ljansson*) exit 1;; esac\nexec cc "$@"\n')
    os.chmod(os.path.join(top, "cc-without"), 0o755)
    code, said = command(top, sys.executable, "configure.py", "--cc", os.path.join(top, "cc-without"))
    check(code == 1 and "jansson          no   apt-get install libjansson-dev" in said, "the table: " + said)
    check("missing: jansson" in said.splitlines()[-1] and "--install-deps" in said.splitlines()[-1], "the last line: " + said)
    check(not os.path.exists(os.path.join(top, "build")), "a failed configure.py wrote build/")
    installs_what_is_missing(top)
    code, said = command(top, sys.executable, "configure.py", "--no-such-option")
    check(code == 2 and "--no-such-option" in said, "an unknown option: " + said)


with temporary() as folder:
    for file_name in ("configure.py", "build.ninja"):
        shutil.copy(os.path.join(TOP, file_name), folder)
    for file_name, content in TREE.items():
        put(folder, file_name, content)
    status, output = command(folder, sys.executable, "configure.py", "--prefix", "/opt/titan here")
    if check(status == 0, "configure.py: " + output):
        grows(folder)
        floors(folder)
        variants(folder)
        installs(folder, "/opt/titan here")
        missing(folder)
done("configure")
