#!/usr/bin/env python3
"""Every command of README.md and docs/ runs as it is written: lines indented by four blanks that begin with build/titan, in order,
from the top of the tree. Lines that begin with ./configure.py are what CI itself runs (.ci/run)."""
import glob
import os
import shlex
import shutil

from testing import TITAN, TOP, check, done, run, temporary

pages = ["README.md"] + sorted(os.path.relpath(p, TOP) for p in glob.glob(os.path.join(TOP, "docs", "*.md")))
total = 0
with temporary() as folder:
    # in a copy of what commands read, so that their outputs/ do not land in the tree
    for name in ("recipes", "tests", "lua", "docs", "LICENSE"):
        os.symlink(os.path.join(TOP, name), os.path.join(folder, name))
    for page in pages:
        for line in open(os.path.join(TOP, page)):
            if not line.startswith("    build/titan "):
                continue
            words = shlex.split(line.split(" #")[0])
            total += 1
            got = run(*words[1:], cwd=folder, timeout=300, stdin="")
            check(got.returncode == 0, "%s: %s: exit %d: %s" % (page, line.strip(), got.returncode, got.stderr))
check(total >= 10, "only %d commands in the docs" % total)
done("docs")
