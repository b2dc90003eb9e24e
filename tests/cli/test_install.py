#!/usr/bin/env python3
"""`ninja install` puts a program into a prefix that works from any folder, without the source tree."""
import os
import subprocess
import sys

import testing
from testing import TOP, check, done, run, temporary

with temporary() as stage, temporary() as elsewhere:
    env = dict(os.environ, DESTDIR=stage)
    made = subprocess.run([sys.executable, "configure.py", "--install"], cwd=TOP, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # the command of ninja install: ninja itself may be what runs this test
    check(made.returncode == 0, "install: " + made.stdout.decode())
    found = [os.path.join(d, f) for d, _, files in os.walk(stage) for f in files]
    programs = [f for f in found if f.endswith("/bin/titan")]
    check(len(programs) == 1, "installed: %s" % found)
    check(any("/share/titan/lua/prelude/" in f for f in found), "no prelude: %s" % found)
    check(any("/share/titan/recipes/models/" in f for f in found), "no models: %s" % found)
    if programs:
        testing.TITAN = programs[0]
        got = run("plan", os.path.join(os.path.dirname(programs[0]), "../share/titan/recipes/llama3_debug.lua"), cwd=elsewhere)
        check(got.returncode == 0, "the installed titan: exit %d: %s" % (got.returncode, got.stderr))
        with open(programs[0], "rb") as f:
            check((TOP + "/lua/").encode() not in f.read(), "the program holds a path of the source tree")
done("install")
