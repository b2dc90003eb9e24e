#!/usr/bin/env python3
"""titan data build, info and show; builds that are killed; one set of samples for every way to read them; failures."""
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import time

from testing import TITAN, check, done, listing, run, temporary

RECIPE = """
local titan, llama3 = require "titan", require "models.llama3"
return titan.recipe {
  model = llama3.debug { vocab_size = 256, n_layers = 1, dim = 32, n_heads = 4, n_kv_heads = 2 }, device = "cpu",
  data = { source = "jsonl", path = "a.jsonl.gz", shuffle = false },
  training = { steps = 3, seq_len = 32, local_batch_size = 4, global_batch_size = 8 },
  metrics = { log_freq = 1 },
}
"""


def stored_zst(text):
    """One frame of raw blocks."""
    out = struct.pack("<IBB", 0xfd2fb528, 0, 0x58)
    for at in range(0, len(text), 100000):
        part = text[at:at + 100000]
        out += struct.pack("<I", (at + 100000 >= len(text)) | len(part) << 3)[:3] + part
    return out


def write(name, data, mode="w"):
    with open(name, mode) as f:
        f.write(data)


def sample(*args):
    ran = run("data", "show", "r.lua", "--json", *args, cwd=".")
    return json.loads(ran.stdout) if check(ran.returncode == 0, "show %s: %s" % (args, ran.stderr)) else {}


def fails(part, *args):
    before = listing(".")
    ran = run(*args, cwd=".")
    first = ran.stderr.splitlines()[0] if ran.stderr else ""
    check(ran.returncode == 2 and part in first and first.startswith("titan: error: "),
          "%s: %d '%s', expected '%s'" % (" ".join(map(str, args)), ran.returncode, ran.stderr, part))
    check(listing(".") == before, "%s changed the disk" % (args,))


def make_sources():
    rng = random.Random(1)
    docs = ["document %d: %s\u2603" % (i, "word " * rng.randrange(40)) for i in range(400)]
    text = "".join(json.dumps({"id": i, "text": d}) + "\n" for i, d in enumerate(docs))
    write("a.jsonl", text)
    write("a.jsonl.gz", gzip.compress(text.encode()), "wb")
    write("a.jsonl.zst", stored_zst(text.encode()), "wb")
    write("r.lua", RECIPE)
    return docs


def building(docs):
    built = run("data", "build", "a.jsonl.gz", "--out", "a.tokens", cwd=".")
    check(built.returncode == 0 and "in 400 documents, 16 bits each" in built.stdout, "build: " + built.stderr + built.stdout)
    check(not [f for f in listing(".") if ".part" in f], "parts are left behind")
    again = run("data", "build", "a.jsonl.gz", "--out", "a.tokens", cwd=".")
    check("up to date" in again.stdout, "built twice: " + again.stdout)
    info = json.loads(run("data", "info", "a.tokens", "--check", "--json", cwd=".").stdout)
    size = sum(len(d.encode()) for d in docs)
    check(info["tokens"] == size and info["documents"] == 400 and info["checked"] and info["vocabulary"] == 256 and
          info["changed_sources"] == 0, "info: %s" % info)
    text = run("data", "info", "a.tokens", cwd=".").stdout
    check("tokens       %d, 16 bits" % size in text and "tokenizer    bytes" in text and "field text" in text, "info: " + text)
    os.utime("a.jsonl.gz", (1, 1))
    check("1 of 1 are gone or have changed" in run("data", "info", "a.tokens", cwd=".").stdout, "a changed source is not seen")
    check("up to date" not in run("data", "build", "a.jsonl.gz", "--out", "a.tokens", cwd=".").stdout, "not built again")
    begun = time.time()
    run("data", "info", "a.tokens", cwd=".")
    check(time.time() - begun < 5, "info takes %.1f s" % (time.time() - begun))


def showing(docs):
    whole = "".join(docs).encode()
    for i in (0, 5, 40):
        want = list(whole[i * 32:i * 32 + 33])
        for words in ((), ("data.path=a.jsonl.zst",), ("data.path=a.jsonl",), ("data.source=tokens", "data.path=a.tokens"),
                      ("data.mode=stream",)):
            got = sample("--sample", i, *words)
            check(got["ids"] == want[:32] and got["labels"] == want[1:], "sample %d, %s: other ids" % (i, words))
    edges, at = set(), 0
    for d in docs:
        at += len(d.encode())
        edges.add(at)  # the first token of the next document
    for words in ((), ("data.mode=stream",)):
        got = sample("--sample", 2, "data.packing=true", *words)
        position = document = 0
        for k, token in enumerate(range(64, 96)):
            if k and token in edges:
                position, document = 0, document + 1
            masked = token + 1 in edges
            check(got["positions"][k] == position and got["documents"][k] == document and (got["labels"][k] == -100) == masked,
                  "token %d: %d, %d, %d" % (token, got["positions"][k], got["documents"][k], got["labels"][k]))
            position += 1
    text = run("data", "show", "r.lua", "--sample", "2", "data.packing=true", cwd=".").stdout
    check("sample 2 (training, epoch 0 of " in text and "document 0: tokens 0 to " in text and "    | " in text, "show: " + text)
    held = sample("--split", "validation", "data.validation=0.25")
    check(held["text"].startswith("document 300: "), "the held-out share begins with '%s'" % held["text"])
    shuffled = {tuple(sample("--sample", i, "data.shuffle=true", *w)["ids"]) for i in range(2)
                for w in ((), ("training.local_batch_size=2",), ("training.local_batch_size=8",))}
    check(len(shuffled) == 2, "samples depend on how the batch is cut: %d kinds of 2" % len(shuffled))


def training():
    """The same losses from every way to read, by every cut into microbatches."""
    losses = set()
    for words in (("data.mode=built",), ("data.mode=stream",), ("data.source=tokens", "data.path=a.tokens"),
                  ("data.path=a.jsonl.zst", "training.local_batch_size=2")):
        ran = run("r.lua", "job.dump_folder=out", *words, cwd=".")
        check(ran.returncode == 0, "%s: %s" % (words, ran.stderr))
        with open("out/metrics.jsonl") as f:
            losses.add(tuple(json.loads(line)["loss"] for line in f))
    check(len(losses) == 1 and len(losses.pop()) == 3, "losses differ by how the data is read")
    check([f for f in os.listdir("out/cache") if f.startswith("a-") and f.endswith(".tokens")], "nothing in the cache")
    two = run("r.lua", "-n", "2", "job.dump_folder=two", cwd=".")  # both want to build
    check(two.returncode == 0 and len(os.listdir("two/cache")) == 1, "two ranks: " + two.stderr)


def killed():
    """20 builds killed at random moments: the next one makes the same bytes."""
    rng = random.Random(2)
    line = json.dumps({"text": "\u2603 some words that are not long " * 40}) + "\n"
    write("big.jsonl", line * (20000000 // len(line)))
    begun = time.time()
    check(run("data", "build", "big.jsonl", "--out", "calm.tokens", cwd=".").returncode == 0, "the undisturbed build")
    whole, cut, resumed = time.time() - begun, 0, 0
    with open("calm.tokens", "rb") as f:
        want = f.read()
    for i in range(20):
        for name in [f for f in os.listdir(".") if f.startswith("k.tokens")]:
            os.unlink(name)
        child = subprocess.Popen([TITAN, "data", "build", "big.jsonl", "--out", "k.tokens", "--threads", str(1 + i % 2)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * whole)
        child.send_signal(signal.SIGKILL)
        child.wait()
        cut += not os.path.exists("k.tokens")
        resumed += os.path.exists("k.tokens.part.state")
        again = run("data", "build", "big.jsonl", "--out", "k.tokens", cwd=".")
        with open("k.tokens", "rb") as f:
            check(again.returncode == 0 and f.read() == want, "kill %d: other bytes; %s" % (i, again.stderr))
        left = [f for f in os.listdir(".") if f.startswith("k.tokens")]
        check(left == ["k.tokens"], "kill %d: left are %s" % (i, left))
    check(cut > 5, "only %d of 20 builds were interrupted" % cut)
    print("killed: %d of 20 before the end, %d with a state to go on from" % (cut, resumed))


def failing():
    with open("a.tokens", "rb") as f:
        good = f.read()
    write("cut.tokens", good[:-9], "wb")
    write("flip.tokens", good[:6000] + bytes([good[6000] ^ 4]) + good[6001:], "wb")
    write("newer.tokens", good[:8] + struct.pack("<I", 9) + good[12:], "wb")
    fails("cut.tokens: is ", "data", "info", "cut.tokens")
    fails("newer.tokens: was written by a newer titan", "data", "info", "newer.tokens")
    fails("flip.tokens: bytes 4096 to ", "data", "info", "flip.tokens", "--check")
    fails("flip.tokens: bytes 4096 to ", "data", "show", "r.lua", "data.source=tokens", "data.path=flip.tokens")
    fails("is no token file", "data", "info", "r.lua")
    fails("exists and is no token file", "data", "build", "a.jsonl", "--out", "r.lua")
    fails("No such file or directory; give a file that exists", "data", "build", "nowhere.jsonl", "--out", "n.tokens")
    fails("data.tokenizer: 'nowhere.json': no such file", "data", "build", "a.jsonl", "data.tokenizer=nowhere.json")
    fails("data.tokenizer: 'nowhere.json': no such file", "r.lua", "data.tokenizer=nowhere.json")
    fails("has no field 'body'; set data.field", "data", "build", "a.jsonl", "data.field=body", "--out", "n.tokens")
    fails("data bild: use build, info or show; did you mean 'build'?", "data", "bild", "a.jsonl")
    fails("a sample belongs to a run", "data", "show", "a.tokens")
    fails("--sample 9999999", "data", "show", "r.lua", "--sample", "9999999", "data.epochs=1")
    fails("--split test", "data", "show", "r.lua", "--split", "test")
    fails("give one recipe, or files of one kind", "data", "build", "a.jsonl", "x.txt")
    write("bad.jsonl", '{"text": "a"}\n{"text": "b"\n')
    fails("bad.jsonl: line 2: column ", "data", "build", "bad.jsonl", "--out", "n.tokens")
    write("cut.jsonl.gz", open("a.jsonl.gz", "rb").read()[:-20], "wb")
    fails("cut.jsonl.gz: ", "data", "build", "cut.jsonl.gz", "--out", "n.tokens")
    fails("data.validation: mode = \"stream\"", "r.lua", "data.mode=stream", "data.validation=0.1")


def main():
    with temporary() as folder:
        os.chdir(folder)
        docs = make_sources()
        building(docs)
        showing(docs)
        training()
        failing()
        killed()
        os.chdir("/")
    done("data")


main()
