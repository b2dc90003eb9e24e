"""What the scripts tests/cli/test_*.py share: run titan, check, count, end with the line that tests/run.py reads.

    from testing import check, done, golden, long_form, run, temporary
    ok = run("plan", "recipes/llama3_debug.lua")
    check(ok.returncode == 0, "plan fails: " + ok.stderr)
    done("plan")
"""
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TITAN = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(TOP, "build", "titan")
long_form = "--long" in sys.argv[2:]
counts = {"passed": 0, "failed": 0, "skipped": 0}


def run(*args, cwd=TOP, timeout=600, stdin=None, env=None):
    """titan ARGS: returncode, stdout and stderr as text."""
    return subprocess.run([TITAN] + [str(a) for a in args], cwd=cwd, timeout=timeout, input=stdin, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def check(ok, message):
    """Counts; says what failed and goes on. Returns ok."""
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print("failed: " + message, file=sys.stderr)
    return ok


def skip(what, why):
    counts["skipped"] += 1
    print("skip: %s: %s" % (what, why))


def golden(name):
    """The folder or file NAME of the golden set: the complete one beside the repository, else the small one inside."""
    for root in (os.path.join(TOP, "..", "shared", "golden"), os.path.join(TOP, "tests", "golden")):
        path = os.path.normpath(os.path.join(root, name))
        if os.path.exists(path):
            return path
    skip(name, "not in tests/golden")
    return None


def temporary():
    """A folder that is removed behind the with statement."""
    return tempfile.TemporaryDirectory(prefix="titan-test-")


def listing(folder):
    """Every path below the folder, sorted: to see that nothing was written."""
    return sorted(os.path.join(d, f) for d, _, files in os.walk(folder) for f in files + [""])


def done(subject):
    line = "%s: %d passed, %d failed" % (subject, counts["passed"], counts["failed"])
    print(line + (", %d skipped" % counts["skipped"] if counts["skipped"] else ""))
    sys.exit(1 if counts["failed"] or not counts["passed"] + counts["skipped"] else 0)
