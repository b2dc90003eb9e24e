-- ninja bench: 110 M parameters, 4 x 512 tokens a step.
local titan  = require "titan"
local llama3 = require "models.llama3"

return titan.recipe {
  job          = { dump_folder = "outputs/bench_110m" },
  model        = llama3.debug {
    dim = 768, n_layers = 12, n_heads = 12, n_kv_heads = 12, ffn_dim = 2048, vocab_size = 32000, tied = true,
  },
  data         = { source = "random" },
  training     = { steps = 10, seq_len = 512, local_batch_size = 4 },
  lr_scheduler = { warmup_steps = 2 },
  metrics      = { log_freq = 1 },
  device       = "cpu",
}
