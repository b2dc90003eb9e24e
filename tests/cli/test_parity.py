#!/usr/bin/env python3
"""`titan parity` agrees with PyTorch's values in every golden folder, on 1 and 2 threads, for any microbatch split, with and
without recompute. The short form takes the two folders that are part of the repository."""
import os

from testing import check, done, golden, long_form, run, skip

SHORT = ["llama/mha", "llama/odd"]
LONG = ["llama/sgd", "llama/gqa", "llama/tied", "llama/long", "llama/hd128", "llama/packed", "hf/sharded_bf16", "hf/tied_fp16"]
SETTINGS = [["device.threads=1"], ["device.threads=2"],
            ["device.threads=2", "training.local_batch_size=1", "activation_checkpoint.mode=full"]]


def parity(folder, settings):
    got = run("parity", folder, *settings)
    name = "parity %s %s" % (os.path.join(*folder.split(os.sep)[-2:]), " ".join(settings))
    if check(got.returncode == 0, "%s: exit %d\n%s%s" % (name, got.returncode, got.stdout, got.stderr)):
        check("ok" in got.stdout.split(), "%s says nothing of what it compared:\n%s" % (name, got.stdout))


for case in SHORT + (LONG if long_form else []):
    folder = golden(case)
    if folder is None:
        continue
    for settings in SETTINGS:
        parity(folder, settings)
if not long_form:
    skip("parity of %d folders" % len(LONG), "the long form runs them (ninja test)")
done("parity")
