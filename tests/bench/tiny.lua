-- ninja bench: 6.2 M parameters, 8 x 512 tokens a step.
local titan  = require "titan"
local llama3 = require "models.llama3"

return titan.recipe {
  job          = { dump_folder = "outputs/bench_tiny" },
  model        = llama3.debug {
    dim = 256, n_layers = 6, n_heads = 8, n_kv_heads = 4, ffn_dim = 768, vocab_size = 2048,
  },
  data         = { source = "random" },
  training     = { steps = 20, seq_len = 512, local_batch_size = 8 },
  lr_scheduler = { warmup_steps = 2 },
  metrics      = { log_freq = 1 },
  device       = "cpu",
}
