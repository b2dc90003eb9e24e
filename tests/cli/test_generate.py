#!/usr/bin/env python3
"""titan generate: the same tokens alone and in a batch, on any threads and instruction set; seeds; every wrong input one line."""
import json
import os
import shutil

from testing import check, done, golden, run, temporary

where = golden("llama/mha")


def rows(*args):
    got = run("generate", where, "--json", *args)
    check(got.returncode == 0, "generate %s: exit %d: %s" % (args, got.returncode, got.stderr))
    return [json.loads(line) for line in got.stdout.splitlines()]


prompts = ["ab", "hello world", "x"]
batch = rows(*[w for p in prompts for w in ("--prompt", p)], "--max-tokens", 12, "--temperature", 0)
check([r["prompt_tokens"] for r in batch] == [len(p) for p in prompts] and all(len(r["ids"]) == 12 for r in batch), "lengths: %s" % batch)
for i, p in enumerate(prompts):
    check(rows("--prompt", p, "--max-tokens", 12, "--temperature", 0) == [batch[i]], "'%s' alone gives other tokens than in a batch" % p)
for words in (["device.threads=1"], ["device.threads=2"], ["device.isa=portable"]):
    check(rows(*words, "--prompt", prompts[1], "--max-tokens", 12, "--temperature", 0) == [batch[1]], "%s changes the tokens" % words)
check(rows("--prompt", "ab", "--max-tokens", 12, "--top-k", 1, "--temperature", 2) == [batch[0]], "--top-k 1 is not the most likely token")
check(rows("--prompt", "ab", "--max-tokens", 12, "--top-p", 0, "--temperature", 2) == [batch[0]], "--top-p 0 is not the most likely token")
drawn = [rows("--prompt", "ab", "--max-tokens", 24, "--seed", s, "--temperature", 1.5)[0]["ids"] for s in (1, 1, 2)]
check(drawn[0] == drawn[1] and drawn[0] != drawn[2], "seeds: %s" % drawn)
text = run("generate", where, "--prompt", "ab", "--max-tokens", 12, "--top-k", 1)
check(text.returncode == 0 and text.stdout == "ab" + bytes(batch[0]["ids"]).decode(errors="replace") + "\n", "text: %r" % text.stdout)
piped = run("generate", where, "--prompt", "-", "--max-tokens", 12, "--temperature", 0, "--json", stdin="hello world")
check(piped.returncode == 0 and [json.loads(piped.stdout)] == [batch[1]], "standard input: %s" % piped.stderr)

# continued from its own output: the same tokens as at once
half = batch[1]["ids"][:6]
if all(i < 128 for i in half):
    more = rows("--prompt", prompts[1] + bytes(half).decode(), "--max-tokens", 6, "--temperature", 0)
    check(more[0]["ids"] == batch[1]["ids"][6:], "continued: %s" % more)

wrong = [
    ([], "no --prompt"),
    (["--prompt", "a", "--max-tokens", "0"], "--max-tokens 0"),
    (["--prompt", "a", "--max-tokens", "100000"], "max_seq_len"),
    (["--prompt", "a", "--temperature", "-1"], "--temperature -1"),
    (["--prompt", "a", "--top-p", "2"], "--top-p 2"),
    (["--prompt", "a", "--top-k", "x"], "--top-k x"),
    (["--prompt", ""], "--prompt"),
    (["--prompt", "a", "--seed", "1", "--seed", "2"], "given twice"),
]
for words, part in wrong:
    got = run("generate", where, *words)
    check(got.returncode == 2 and part in got.stderr and got.stderr.count("titan: error") == 1 and not got.stdout, "%s: exit %d: %s" % (words, got.returncode, got.stderr))
with temporary() as folder:
    got = run("generate", os.path.join(folder, "none"), "--prompt", "a")
    check(got.returncode == 2 and "none" in got.stderr, "a folder that is not there: %s" % got.stderr)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write("{}")
    got = run("generate", folder, "--prompt", "a")
    check(got.returncode == 2 and got.stderr.count("titan: error") == 1, "an empty config: exit %d: %s" % (got.returncode, got.stderr))

# a folder with a tokenizer: text in, text out
tokenizer = golden("tokenizers/llama3_style/tokenizer.json")
if tokenizer:
    with temporary() as folder:
        got = run("recipes/llama3_debug.lua", "data.source=random", "training.steps=1", "training.seq_len=32", "model.n_layers=1", "model.vocab_size=2048",
                  "job.dump_folder=" + folder)
        check(got.returncode == 0, "a model to sample from: %s" % got.stderr)
        final = os.path.join(folder, "final")
        shutil.copy(tokenizer, os.path.join(final, "tokenizer.json"))
        prompt = "Hello w\u00f6rld, 123 \u4f60\u597d"
        ids = run("tokenize", tokenizer, "--jsonl", stdin=json.dumps({"text": prompt}) + "\n")
        got = run("generate", final, "--prompt", prompt, "--max-tokens", 8, "--json")
        check(got.returncode == 0 and ids.returncode == 0, "with a tokenizer: %s%s" % (got.stderr, ids.stderr))
        answer = json.loads(got.stdout)
        check(answer["prompt_tokens"] in (len(json.loads(ids.stdout)["ids"]), 1 + len(json.loads(ids.stdout)["ids"])), "tokens: %s, %s" % (answer, ids.stdout))
        text = run("generate", final, "--prompt", prompt, "--max-tokens", 8)
        check(text.returncode == 0 and prompt in text.stdout, "text: %r" % text.stdout)
        with open(os.path.join(final, "tokenizer.json"), "w") as f:
            f.write("{}")
        got = run("generate", final, "--prompt", "a")
        check(got.returncode == 2 and "tokenizer.json" in got.stderr, "a broken tokenizer: exit %d: %s" % (got.returncode, got.stderr))
done("generate")
