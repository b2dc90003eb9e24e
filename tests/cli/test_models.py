#!/usr/bin/env python3
"""Models in Lua files of their own train: a parallel block with GELU and a tied head, a sliding window, a swapped block."""
import json
import os

from testing import check, done, run, temporary

SWAP = """
local titan, nn, llama3 = require "titan", require "titan.nn", require "models.llama3"
local My = nn.module("My", llama3.FeedForward)
function My:forward(x)
  local gate, up = nn.linears(x, self.w1, self.w3)
  return self.w2(nn.gelu_tanh(gate) * up)
end
return titan.recipe {
  model = llama3.debug { dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, ffn_dim = 96, vocab_size = 256, feed_forward = My },
  data = { source = "text", path = "tests/models/parallel.lua" },
  training = { steps = 20, seq_len = 64, local_batch_size = 4 },
  optimizer = { lr = 3e-3 }, lr_scheduler = { warmup_steps = 2 }, device = "cpu",
}
"""


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [line["loss"] for line in map(json.loads, f) if "loss" in line]


def train(name, recipe, folder):
    got = run(recipe, "job.dump_folder=" + folder, "metrics.log_freq=1")
    if not check(got.returncode == 0, "%s: exit %d\n%s" % (name, got.returncode, got.stderr)):
        return
    curve = losses(folder)
    check(len(curve) == 20, "%s: %d losses in metrics.jsonl, not 20" % (name, len(curve)))
    check(5 < curve[0] < 6.5 and curve[-1] < 0.8 * curve[0], "%s does not learn: %s" % (name, curve))
    config = json.load(open(os.path.join(folder, "final", "config.json")))
    check(config["model_type"].startswith("titan."), "%s: transformers would take it for %s" % (name, config["model_type"]))
    check(os.path.getsize(os.path.join(folder, "final", "model.safetensors")) > 100000, "%s: no weights in final/" % name)


with temporary() as top:
    swap = os.path.join(top, "swap.lua")
    with open(swap, "w") as f:
        f.write(SWAP)
    for name, recipe in (("parallel", "tests/models/train_parallel.lua"), ("window", "tests/models/train_window.lua"), ("swap", swap)):
        train(name, recipe, os.path.join(top, name))
done("models")
