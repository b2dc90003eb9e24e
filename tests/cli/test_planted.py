#!/usr/bin/env python3
"""A test of the tests: test_layouts.py must find every bug that engine/base/plant.h plants, and nothing where none is planted."""
# only: plant
import os
import re
import subprocess
import sys

from testing import TITAN, TOP, check, done, run, temporary

SCRIPT = os.path.join(TOP, "tests", "cli", "test_layouts.py")
with open(os.path.join(TOP, "engine", "base", "plant.h")) as f:
    BUGS = re.findall(r'^ +X\(\w+, "([a-z.]+)"\)', f.read(), re.M)


def layouts(bug):
    """The drawn layouts with that bug in every process: exit status, what is different, all of what was said."""
    got = subprocess.run([sys.executable, SCRIPT, TITAN], env=dict(os.environ, TITAN_PLANT=bug), timeout=600, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, universal_newlines=True)
    return got.returncode, re.findall(r"^failed: .*-n \d.*DIFFERENT.*$", got.stdout, re.M), got.stdout


check(len(BUGS) >= 6, "engine/base/plant.h lists %s" % BUGS)
for bug in BUGS:
    code, different, said = layouts(bug)
    check(code == 1 and different, "%s is not found: exit %d: %s" % (bug, code, said[-2000:]))
    check("one rank," not in said, "%s shows on one rank, which is the reference: %s" % (bug, said[-2000:]))
    print("%s: %d layouts differ, the first: %s" % (bug, len(different), different[0][:160] if different else ""))
code, different, said = layouts("")
check(code == 0 and not different, "without a bug: exit %d: %s" % (code, said[-2000:]))

got = run("help", env=dict(os.environ, TITAN_PLANT="sum.ordre"))
check(got.returncode == 2 and "no planted bug 'sum.ordre'" in got.stderr, "a bug that is not there: %s" % got.stderr)
done("planted")
