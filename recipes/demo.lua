-- A byte model that learns English from WordNet's glosses in a few minutes on two CPU cores: the demo of the README.
-- `titan recipes/demo.lua data.path=FILE` trains on any text.
local titan  = require "titan"
local llama3 = require "models.llama3"

return titan.recipe {
  job = { dump_folder = "outputs/demo", description = "bytes of the WordNet glosses" },
  model = llama3.debug {
    dim = 128, n_layers = 4, n_heads = 4, n_kv_heads = 2, ffn_dim = 384, vocab_size = 256,
    rope = { theta = 10000.0, scaling = false },
  },
  data = { source = "text", path = "build/glosses.txt", tokenizer = "bytes", validation = 0.02 },
  training = { steps = 1500, seq_len = 128, local_batch_size = 16, max_norm = 1.0 },
  optimizer = { name = "AdamW", lr = 4e-3 },
  lr_scheduler = { warmup_steps = 30, decay_type = "linear", min_lr_factor = 0.05 },
  validation = { enable = true, freq = 500 },
  metrics = { log_freq = 25 },
  device = "cpu",
}
