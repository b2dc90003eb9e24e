#!/usr/bin/env python3
"""`titan plan` works for every recipe that is shipped, and leaves nothing behind."""
import glob
import json
import os

from testing import TOP, check, done, listing, run, temporary

recipes = sorted(glob.glob(os.path.join(TOP, "recipes", "*.lua")))
check(recipes, "no recipes/*.lua")
for recipe in recipes:
    name = os.path.basename(recipe)
    with temporary() as folder:
        got = run("plan", recipe, cwd=folder)
        check(got.returncode == 0 and got.stdout.strip(),
              "plan %s: exit %d: %s" % (name, got.returncode, got.stderr.strip()))
        again = run("plan", recipe, "--json", cwd=folder)
        try:
            check(isinstance(json.loads(again.stdout), dict), "plan %s --json is no object" % name)
        except ValueError as e:
            check(False, "plan %s --json: exit %d: %s %s" % (name, again.returncode, e, again.stderr.strip()))
        check(listing(folder) == [os.path.join(folder, "")], "plan %s wrote files" % name)
done("plans")
