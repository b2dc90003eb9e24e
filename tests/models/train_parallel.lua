-- Trains the model of parallel.lua, which lies beside this recipe.
local titan    = require "titan"
local parallel = require "parallel"

return titan.recipe {
  model        = parallel.small { n_layers = 3 },
  data         = { source = "text", path = "tests/models/parallel.lua" },
  training     = { steps = 20, seq_len = 64, local_batch_size = 4 },
  optimizer    = { lr = 3e-3 },
  lr_scheduler = { warmup_steps = 2 },
  device       = "cpu",
}
