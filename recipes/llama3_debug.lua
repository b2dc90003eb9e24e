-- The smallest Llama, on the bytes of a text: trains on a CPU and shows every part at work.
local titan  = require "titan"
local llama3 = require "models.llama3"

return titan.recipe {
  job          = { dump_folder = "outputs/llama3_debug" },
  model        = llama3.debug { vocab_size = 256 },
  data         = { source = "text", path = "build/glosses.txt", tokenizer = "bytes", validation = 0.02 },
  training     = { steps = 300, seq_len = 256, local_batch_size = 8, max_norm = 1.0 },
  optimizer    = { name = "AdamW", lr = 8e-4 },
  lr_scheduler = { warmup_steps = 20, decay_ratio = 0.8 },
  parallelism  = { data_parallel_shard_degree = -1, tensor_parallel_degree = 1 },
}
