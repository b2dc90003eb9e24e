-- Llama 3 8B on GPUs. `titan plan recipes/llama3_8b.lua` says what it needs, on any machine.
-- data: random ids measure speed; name a text and its tokenizer to train.
local titan  = require "titan"
local llama3 = require "models.llama3"

return titan.recipe {
  job          = { dump_folder = "outputs/llama3_8b" },
  model        = llama3["8B"],
  data         = { source = "random" },
  training     = {
    steps = 1000, seq_len = 8192, local_batch_size = 1, max_norm = 1.0,
  },
  optimizer    = { name = "AdamW", lr = 3e-4 },
  lr_scheduler = { warmup_steps = 200, decay_type = "linear" },
  parallelism  = { data_parallel_shard_degree = -1, tensor_parallel_degree = 1 },
  activation_checkpoint = { mode = "selective", selective_ac_option = "op" },
  device       = "cuda",
}
