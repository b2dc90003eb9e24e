#!/usr/bin/env python3
"""bench_tokenize.py [TITAN] - text to ids: titan against the Rust library behind the Python package `tokenizers`.

The text is golden/tokenizers/long.txt again and again, 100 MB, as documents of that file each. Both encode it on one thread and on
two, turn and turn about (A B A B ...), and the median of the ratios counts, so that a machine that others use, too, harms little.
titan's time is that of the whole program: start, reading JSON, writing the ids as text. The library's is that of encode_batch_fast
alone, in a process that has loaded everything before; making Python lists of its ids is not counted. --clock cpu compares processor
time instead. Nothing fails on a time: each must and goal is marked ok or MISSED. That both give the same ids is checked.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUST, GOAL, MEMORY = 2.0, 5.0, 200 * 1000 * 1000
FAMILIES = ["gpt2_style", "llama3_style"]
judged = []

# Reads the tokenizer, a text and how many documents to encode; answers each line of its input with seconds.
WORKER = """
import json, sys, time
from tokenizers import Tokenizer
tokenizer, text, n = Tokenizer.from_file(sys.argv[1]), open(sys.argv[2], encoding="utf-8", newline="").read(), int(sys.argv[3])
batch, clock = [text] * 32, getattr(time, sys.argv[4])
print(json.dumps(tokenizer.encode(text, add_special_tokens=False).ids), flush=True)
for line in sys.stdin:
    begun = clock()
    for i in range(0, n, len(batch)):
        tokenizer.encode_batch_fast(batch[:n - i], add_special_tokens=False)
    print(clock() - begun, flush=True)
"""


def golden(name):
    for root in (os.path.join(TOP, "..", "shared", "golden"), os.path.join(TOP, "tests", "golden")):
        path = os.path.normpath(os.path.join(root, "tokenizers", name))
        if os.path.exists(path):
            return path
    return None


def judge(what, ok, measured=""):
    judged.append(ok)
    print("    %-44s %s%s" % (what, "ok" if ok else "MISSED", "  (%s)" % measured if measured else ""))


class Library:
    """The Rust library in a process of its own."""

    def __init__(self, args, file, threads, documents):
        env = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true" if threads > 1 else "false")
        clock = "process_time" if args.clock == "cpu" else "perf_counter"
        self.p = subprocess.Popen([args.python, "-c", WORKER, file, golden("long.txt"), str(documents), clock], env=env,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        self.ids = json.loads(self.p.stdout.readline())

    def encode(self):
        self.p.stdin.write("go\n")
        self.p.stdin.flush()
        return float(self.p.stdout.readline())

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def titan(args, file, threads, *more, output=subprocess.DEVNULL):
    """Seconds and the most memory of one run."""
    begun = time.perf_counter()
    p = subprocess.Popen([args.titan, "tokenize", file, "--threads", str(threads)] + list(more), stdout=output)
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = status
    wall = time.perf_counter() - begun
    if status:
        sys.exit("titan tokenize: status %d" % status)
    return used.ru_utime + used.ru_stime if args.clock == "cpu" else wall, used.ru_maxrss * 1024


def same_ids(args, file, ids, folder):
    path = os.path.join(folder, "ids")
    with open(path, "w") as f:
        titan(args, file, 1, "--whole", golden("long.txt"), output=f)
    with open(path) as f:
        return [int(i) for i in f.read().split()] == ids


def compare(args, family, threads, text, whole, documents, folder):
    file = golden(family + "/tokenizer.json")
    size = os.path.getsize(golden("long.txt"))
    library = Library(args, file, threads, args.their_documents)
    ratios, speeds, memory = [], [], 0
    for _ in range(args.pairs):
        theirs = library.encode() / (args.their_documents * size)
        seconds, rss = titan(args, file, threads, "--jsonl", text)
        ours = seconds / (documents * size)
        ratios.append(theirs / ours)
        speeds.append((1e-6 / ours, 1e-6 / theirs))
        memory = max(memory, rss)
    equal = same_ids(args, file, library.ids, folder)
    library.close()
    ratio = statistics.median(ratios)
    print("%s, %d thread%s: titan %.1f MB/s, tokenizers %.1f MB/s, ratio %.2f (%s), %.0f MB of memory" % (
        family, threads, "s" if threads > 1 else "", statistics.median(s[0] for s in speeds),
        statistics.median(s[1] for s in speeds), ratio, " ".join("%.2f" % r for r in ratios), memory / 1e6))
    judge("must: the same ids", equal)
    judge("must: at least %.0f times the library" % MUST, ratio >= MUST, "%.2f" % ratio)
    judge("goal: at least %.0f times the library" % GOAL, ratio >= GOAL, "%.2f" % ratio)
    judge("must: memory below 200 MB", memory < MEMORY, "%.0f MB" % (memory / 1e6))
    if threads == 1:
        seconds, rss = titan(args, file, 1, "--whole", whole)
        print("%s, one text of 100 MB: titan %.1f MB/s, %.0f MB of memory" % (family, documents * size / seconds / 1e6, rss / 1e6))
        judge("must: memory below 200 MB", rss < MEMORY, "%.0f MB" % (rss / 1e6))


def main():
    p = argparse.ArgumentParser(description="Text to ids against the package tokenizers.")
    p.add_argument("titan", nargs="?", default=os.path.join(TOP, "build", "titan"))
    p.add_argument("--python", default=sys.executable, help="a Python that has the package tokenizers")
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--library-mb", dest="their_mb", type=int, default=100, help="how much of the text the library encodes each time (100)")
    p.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    args = p.parse_args()
    found = subprocess.run([args.python, "-c", "import tokenizers; print(tokenizers.__version__)"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, universal_newlines=True)
    if found.returncode:
        print("tokenizers: skipped: %s has no package `tokenizers` (pip install tokenizers, or --python)" % args.python)
        return
    with open(golden("long.txt"), encoding="utf-8", newline="") as f:
        text = f.read()
    size = len(text.encode())
    documents = -(-100000000 // size)
    args.their_documents = -(-args.their_mb * 1000000 // size)
    print("tokenizers %s (encode_batch_fast) and titan tokenize: long.txt %d times, %s time, load %.1f" % (
        found.stdout.strip(), documents, args.clock, os.getloadavg()[0]))
    with tempfile.TemporaryDirectory(prefix="titan-bench-") as folder:
        lines, whole = os.path.join(folder, "lines.jsonl"), os.path.join(folder, "whole.txt")
        # piece by piece: what this process has held counts as its children's memory
        with open(lines, "w") as f, open(whole, "w", newline="") as g:
            for _ in range(documents):
                f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                g.write(text)
        for family in FAMILIES:
            for threads in (1, 2):
                if golden(family):
                    compare(args, family, threads, lines, whole, documents, folder)
    print("%d of %d as they must be or are hoped to be" % (sum(judged), len(judged)))


if __name__ == "__main__":
    main()
