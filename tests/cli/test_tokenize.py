#!/usr/bin/env python3
"""titan tokenize: the ids and texts of the reference in every golden case, broken files refused with one line, streams of any shape."""
# variants: asan
import base64
import hashlib
import json
import os
import struct
import subprocess
import threading

from testing import TITAN, check, done, golden, run, temporary

FAMILIES = ["gpt2_style", "llama3_style", "variants/qwen2_style", "variants/prefix_flags", "variants/multi_split"]


def tokenize(*args, data=b"", where=None):
    """Bytes in, bytes out: line ends must come through."""
    return subprocess.run([TITAN, "tokenize"] + list(args), input=data, cwd=where, timeout=300, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)


def rows(path):
    with open(path, encoding="ascii") as f:
        return [json.loads(line) for line in f]


def answers(*args, data):
    got = tokenize(*args, data=data)
    check(got.returncode == 0 and not got.stderr, "%s: exit %d: %s" % (args, got.returncode, got.stderr))
    return [json.loads(line) for line in got.stdout.split(b"\n")[:-1]]


def lines_of(values):
    return "".join(json.dumps(v) + "\n" for v in values).encode()


def compare(what, cases, key, got, field):
    check(len(got) == len(cases), "%s: %d answers to %d cases" % (what, len(got), len(cases)))
    for case, answer in zip(cases, got):
        check(case[key] == answer[field], "%s: %s: %s: expected %s, got %s" % (
            what, case.get("name", case.get("ids")), key, ascii(case[key])[:200], ascii(answer[field])[:200]))


def family(folder, name):
    """Every case of one tokenizer; all of long.json."""
    file = os.path.join(folder, "tokenizer.json")
    cases = rows(os.path.join(folder, "cases.jsonl"))
    texts = lines_of({"text": c["text"]} for c in cases)
    compare(name, cases, "ids", answers(file, "--jsonl", data=texts), "ids")
    compare(name, cases, "ids_with_special", answers(file, "--jsonl", "--special", "--threads", "3", data=texts), "ids")
    compare(name, cases, "decoded", answers(file, "--jsonl", "--decode", data=lines_of({"ids": c["ids"]} for c in cases)), "text")
    if os.path.exists(os.path.join(folder, "decode.jsonl")):
        parts = rows(os.path.join(folder, "decode.jsonl"))
        ids = lines_of({"ids": c["ids"]} for c in parts)
        compare(name, parts, "decoded", answers(file, "--jsonl", "--decode", data=ids), "text")
        compare(name, parts, "decoded_skip_special", answers(file, "--jsonl", "--decode", "--skip-special", data=ids), "text")
    long_texts(file, folder, name)


def digest(ids):
    return hashlib.sha256(struct.pack("<%di" % len(ids), *ids)).hexdigest()


def long_texts(file, folder, name):
    with open(os.path.join(folder, "long.json"), encoding="ascii") as f:
        truth = json.load(f)
    path = golden("tokenizers/long.txt")
    with open(path, encoding="utf-8", newline="") as f:
        asked = [(truth, f.read())]
    for value in truth.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            asked += [(v, v["unit"] * v["times"]) for v in value]
    check(len(asked) > 3, "%s: long.json asks for %d texts" % (name, len(asked)))
    got = answers(file, "--jsonl", data=lines_of({"text": text} for _, text in asked))
    for (want, text), answer in zip(asked, got):
        check(digest(answer["ids"]) == want["ids_sha256"] and len(answer["ids"]) == want["count"],
              "%s: %s...: %d ids, expected %d" % (name, ascii(text[:20]), len(answer["ids"]), want["count"]))
    whole = tokenize("--whole", file, path)
    check(digest([int(i) for i in whole.stdout.split()]) == truth["ids_sha256"] and whole.stdout.count(b"\n") == 1,
          "%s: --whole: %s" % (name, whole.stderr))


def broken_bytes(file):
    """Nobody says what comes out; it must come out, the same every time, and be what U+FFFD in place of the broken parts gives."""
    path = golden("tokenizers/bytes_cases.jsonl")
    for case in rows(path):
        data = base64.b64decode(case["base64"])
        first, second = tokenize("--whole", file, data=data), tokenize("--whole", file, data=data)
        mended = tokenize("--whole", file, data=data.decode("utf-8", "replace").encode())
        check(first.returncode == 0 and first.stdout == second.stdout == mended.stdout, "%s: exit %d, %r, %r, mended %r" % (
            case["name"], first.returncode, first.stdout[:99], second.stdout[:99], mended.stdout[:99]))


def bad_files():
    folder = golden("tokenizers/bad")
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".json")):
        got = tokenize(name, data=b"the\n", where=folder)
        if name == "good.json":
            check(got.returncode == 0 and got.stdout == b"257\n", "good.json: %d %r %s" % (got.returncode, got.stdout, got.stderr))
            continue
        said = got.stderr.decode()
        check(got.returncode == 2 and not got.stdout and said.count("\n") == 1 and said.startswith("titan: error: %s: " % name)
              and len(said) > len(name) + 30, "%s: exit %d, %r, says %r" % (name, got.returncode, got.stdout[:50], said))
    for name, part in (("vocab_duplicate_key", '"the"'), ("id_fraction", '"the" is 257.5'), ("merge_left_unknown", "merges[6]"),
                       ("regex_property", "Banana"), ("model_wordpiece", "WordPiece"), ("normalizer_unknown", "Shout"),
                       ("added_twice", "twice"), ("split_behavior", "Isolated"), ("post_id_unknown", "5000"),
                       ("vocab_missing_byte", "0x07"), ("deep_sequence", "nested deeper")):
        said = tokenize(os.path.join(folder, name + ".json")).stderr.decode()
        check(part in said, "%s: says %r, not %r" % (name, said, part))


def bad_input(file):
    """What the user can get wrong beside the file: exit 2, the place is named."""
    def refused(what, text, *args, data=b""):
        got = tokenize(*args, data=data)
        said = got.stderr.decode()
        check(got.returncode == 2 and text in said and said.count("\n") == 1, "%s: exit %d: %r" % (what, got.returncode, said))

    refused("no such file", "nowhere.json", "nowhere.json")
    refused("a folder", "Is a directory", os.path.dirname(file))
    refused("no JSON", "standard input:2:", file, "--jsonl", data=b'{"text": "a"}\n{text}\n')
    refused("no text", "standard input:1:", file, "--jsonl", data=b'{"txt": "a"}\n')
    refused("text is a number", "a whole number", file, "--jsonl", data=b'{"text": 1}\n')
    refused("no ids", "missing", file, "--jsonl", "--decode", data=b'{"text": "a"}\n')
    refused("ids are text", "ids[0] is a string", file, "--jsonl", "--decode", data=b'{"ids": ["a"]}\n')
    refused("a word among ids", "standard input:3: byte 2", file, "--decode", data=b"1\n2\n1 x\n")
    refused("a huge id", "standard input:1", file, "--decode", data=b"99999999999\n")
    refused("a negative id", "-1 is no id", file, "--jsonl", "--decode", data=b'{"ids": [-1]}\n')
    refused("no text file", "nowhere.txt", file, "nowhere.txt")
    refused("a folder as text", "Is a directory", file, os.path.dirname(file))
    refused("skip without decode", "--decode", file, "--skip-special")
    refused("literal with decode", "--literal", file, "--decode", "--literal")
    refused("whole JSON lines", "--whole", file, "--whole", "--jsonl")
    refused("no threads", "--threads 0", file, "--threads", "0")
    got = tokenize(file, "--jsonl", data=b'{"text": "a"}\n{text}\n')
    check(got.stdout.count(b"\n") == 1, "what came before the bad line is answered: %r" % got.stdout)


def streams(file):
    """Lines of all sizes on any number of threads; a reader that waits for its answer; files after one another."""
    pieces = ["", "a", "two words", "\u00e9 \u4e2d\u6587", "x" * 5000, "\r", "many words " * 30000, " \t"] * 40
    data = "\n".join(pieces).encode()
    one = tokenize(file, "--threads", "1", data=data)
    check(one.returncode == 0 and one.stdout.count(b"\n") == len(pieces), "%d lines for %d" % (one.stdout.count(b"\n"), len(pieces)))
    for threads in ("2", "5"):
        check(tokenize(file, "--threads", threads, data=data).stdout == one.stdout, "%s threads: other ids" % threads)
    alone = [tokenize(file, data=p.encode() + b"\n").stdout for p in pieces[:8]]
    check(one.stdout.split(b"\n")[:8] == [a.rstrip(b"\n") for a in alone], "a line alone has other ids")
    back = tokenize(file, "--decode", data=one.stdout)
    check(back.stdout == data + b"\n", "decoding does not give the text back")
    check(tokenize(file, data=b"").stdout == b"", "an empty input has an answer")
    doubled = data * 3  # more than one part
    got = tokenize(file, "--whole", data=doubled).stdout
    check(got == tokenize(file, "--jsonl", data=lines_of([{"text": doubled.decode()}])).stdout.replace(b", ", b" ")[9:-3] + b"\n",
          "--whole in parts gives other ids")
    check(tokenize(file, "--whole", "--decode", data=got).stdout == doubled + b"\n", "--whole --decode: other text")
    check(tokenize(file, "--whole", data=b"").stdout == b"\n", "an empty text has no line")
    with temporary() as folder:
        for name in ("a.txt", "b.txt"):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(b"one\ntwo" if name == "a.txt" else b"three\n")
        got = tokenize(file, os.path.join(folder, "a.txt"), "-", os.path.join(folder, "b.txt"), data=b"four\n")
        want = [tokenize(file, data=w).stdout for w in (b"one\n", b"two\n", b"four\n", b"three\n")]
        check(got.stdout == b"".join(want), "files after one another: %r" % got.stdout)


def literal(folder):
    """Text that nobody vouches for cannot name a special token."""
    file = os.path.join(folder, "tokenizer.json")
    with open(file, encoding="utf-8") as f:
        special = [t for t in json.load(f)["added_tokens"] if t["special"]][0]
    text = "a%sb" % special["content"]
    plain, safe = (json.loads(tokenize(file, "--jsonl", *more, data=lines_of([{"text": text}])).stdout)["ids"]
                   for more in ([], ["--literal"]))
    check(special["id"] in plain and special["id"] not in safe, "--literal: %s and %s" % (plain, safe))
    back = json.loads(tokenize(file, "--jsonl", "--decode", data=lines_of([{"ids": safe}])).stdout)["text"]
    check(back == text, "--literal loses text: %r" % back)


def closed_output(file):
    """`titan tokenize ... | head -1` ends without a complaint."""
    p = subprocess.Popen([TITAN, "tokenize", file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def feed():
        try:
            for _ in range(400):
                p.stdin.write(b"some words of a line\n" * 2000)
            p.stdin.close()
        except OSError:
            pass
    feeder = threading.Thread(target=feed)
    feeder.start()
    p.stdout.readline()
    p.stdout.close()
    code = p.wait(timeout=60)
    feeder.join(timeout=60)
    said = p.stderr.read()
    check(code == 0 and not said, "closed output: exit %d: %r" % (code, said))


for subject in FAMILIES:
    where = golden("tokenizers/" + subject)
    if where:
        family(where, subject)
llama = golden("tokenizers/llama3_style")
llama_file = os.path.join(llama, "tokenizer.json")
broken_bytes(llama_file)
bad_files()
bad_input(llama_file)
streams(llama_file)
literal(llama)
closed_output(llama_file)
ok = run("help", "tokenize")
check(ok.returncode == 0 and "--jsonl" in ok.stdout and "--literal" in ok.stdout, "titan help tokenize: %r" % ok.stdout)
done("tokenize")
