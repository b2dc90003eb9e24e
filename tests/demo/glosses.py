#!/usr/bin/env python3
"""Write WordNet's glosses as a text to train on: one entry a line, shuffled once, the same bytes on every machine.

usage: glosses.py WORDNET_FOLDER OUT_FILE      (Debian's package wordnet-base: /usr/share/wordnet)

In data.noun, data.verb, data.adj and data.adv every line that is not part of the licence (those begin with two spaces) ends
with "| gloss". The shuffle matters because the entries stand in the order of their meaning: the last 2 % of the lines,
which `data.validation = 0.02` holds out, must be like the rest.
"""
import os
import random
import sys

PARTS = ("noun", "verb", "adj", "adv")
SEED = 20240613


def read(folder):
    entries = []
    for part in PARTS:
        path = os.path.join(folder, "data." + part)
        with open(path, "rb") as f:
            for number, line in enumerate(f, 1):
                if line.startswith(b"  "):
                    continue
                head, bar, gloss = line.partition(b" | ")
                gloss = b" ".join(gloss.split())
                if not gloss:
                    raise ValueError(f"{path}:{number}: no '| gloss' in this line; is this WordNet's data file?")
                entries.append(gloss)
    return entries


def shuffle(entries):
    # random() is the one function whose sequence Python promises to keep for a seed, so sort by it.
    rng = random.Random(SEED)
    keys = [rng.random() for _ in entries]
    return [entries[i] for i in sorted(range(len(entries)), key=keys.__getitem__)]


def main(argv):
    if len(argv) != 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    try:
        entries = shuffle(read(argv[1]))
    except (OSError, ValueError) as e:
        hint = "; install the package wordnet-base" if isinstance(e, FileNotFoundError) else ""
        print(f"glosses.py: error: {e}{hint}", file=sys.stderr)
        return 2
    part = argv[2] + ".part"
    with open(part, "wb") as f:
        f.writelines(entry + b"\n" for entry in entries)
    os.replace(part, argv[2])  # a reader never sees half a file
    print(f"{argv[2]}: {len(entries)} entries, {os.path.getsize(argv[2])} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
