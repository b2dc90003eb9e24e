-- Trains the sliding-window variant of window.lua, which lies beside this recipe.
local titan  = require "titan"
local window = require "window"

return titan.recipe {
  model        = window.debug {
    dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, ffn_dim = 192, vocab_size = 256, window = 16,
  },
  data         = { source = "text", path = "tests/models/parallel.lua" },
  training     = { steps = 20, seq_len = 64, local_batch_size = 4 },
  optimizer    = { lr = 3e-3 },
  lr_scheduler = { warmup_steps = 2 },
  device       = "cpu",
}
