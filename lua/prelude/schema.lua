-- titan.schema - every section and key of a recipe: the one table behind checking, overrides, defaults and `titan help`.
--
-- A section is { "name", doc = , keys = { key, ... } }; `short`: the key that a bare value of the section sets.
-- A key is { "name", "kind", default = , doc = , ... }:
--   kind       integer number boolean text path choice list table; `either` = { spec, spec } where two kinds are legal
--   default    none: not set (`unset` says what that means); by_device = { cpu = , cuda = } where the device decides
--   range      min max above below (the last two exclusive), also = { values outside the range that are legal }, finite numbers
--   choice     one_of = { ... }
--   list       item = spec, count = n (exactly), keys (of a table, also of a list's items); needs: keys that must be given
--   alias      other names: in the same section, or "section.key"
--   later      true, or { values }: what this build cannot do yet; any value but the default is answered so;
--              "layout": by lua/limits.c, together with what else is wrong with the layout
-- `elsewhere` at the end: names that other systems use.
local function degree(name, alias, doc, later)
  return { name, "integer", default = 1, min = 1, max = 1 << 20, alias = { alias }, later = later, doc = doc }
end

local adam = {
  { "lr", "number", min = 0, doc = "learning rate" },
  { "betas", "list", item = { "", "number", min = 0, below = 1 }, count = 2, doc = "Adam's two moment rates" },
  { "eps", "number", above = 0, doc = "added to the root of Adam's second moment" },
  { "weight_decay", "number", min = 0,
    doc = "decay per step (AdamW: decoupled, times lr; Adam and SGD: added to the gradient)" },
  { "momentum", "number", min = 0, below = 1, doc = "SGD's momentum" },
}
local function with_defaults(keys, defaults)
  local out = {}
  for i, key in ipairs(keys) do
    out[i] = {}
    for k, v in pairs(key) do out[i][k] = v end
    out[i].default = defaults[key[1]]
  end
  return table.unpack(out)
end

local weighted = { "", either = { { "", "path" }, { "", "table", needs = { 1 }, keys = {
  { 1, "path", doc = "file or pattern" },
  { "weight", "number", above = 0, doc = "share of the samples" },
} } } }

local sections = {
  { "job", doc = "the run as a whole", keys = {
    { "dump_folder", "path", default = "./outputs", doc = "where everything that the run leaves behind goes" },
    { "description", "text", default = "", doc = "a line for the logs" },
    { "ranks_per_node", "integer", min = 1, unset = "what the launcher says", doc = "ranks of one machine" },
    { "world", "integer", min = 1, unset = "the smallest that the degrees allow",
      doc = "ranks that `titan plan` assumes" },
    { "print_config", "boolean", default = false, doc = "print the resolved recipe before the run" },
    { "save_config", "boolean", default = true, doc = "write the resolved recipe to dump_folder/config.lua" },
  } },
  { "model", open = true, doc = "what a model function returns (model = llama3.debug { n_layers = 4 }), or { hf = DIR }", keys = {
    { "hf", "path", unset = "built by the model function", doc = "a Hugging Face folder: config.json, weights, tokenizer" },
  } },
  { "data", doc = "what the model reads", keys = {
    { "source", "choice", default = "text", one_of = { "text", "jsonl", "tokens", "batches", "random" },
      doc = "text: plain text; jsonl: one object per line, both also .gz and .zst; tokens: files that `titan data build` made; "
        .. "batches: exact tensors from a safetensors file; random: ids for measuring speed" },
    { "path", unset = "no file", either = { { "", "path" }, { "", "list", min_count = 1, item = weighted } },
      doc = "file, pattern (data/*.txt), or list of them, with weights as { \"a.txt\", { \"b.txt\", weight = 2 } }" },
    { "field", "text", default = "text", doc = "the field of a JSON line that holds the text" },
    { "tokenizer", "text", default = "bytes", doc = "bytes, a path of a tokenizer.json, or hf (the one in model.hf); of tokens: checked if given" },
    { "validation", "number", default = 0, min = 0, below = 1, doc = "share of the documents that is held out" },
    { "document", "choice", default = "line", one_of = { "line", "blank_line", "file" },
      doc = "what a document of a text is" },
    { "packing", "boolean", default = false,
      doc = "attention stays inside a document, positions restart, no target crosses its end; false: one stream of tokens" },
    { "shuffle", "boolean", default = true, doc = "documents or samples in random order" },
    { "seed", "integer", default = 42, min = 0, doc = "of that order" },
    { "epochs", "integer", min = 1, unset = "as many as the steps need", doc = "how often the data may be read" },
    { "end_token", "text", unset = "the eos_token of tokenizer_config.json beside the tokenizer, if there is one",
      doc = "put behind every document, as \"<|endoftext|>\"; \"\": nothing" },
    { "mode", "choice", default = "built", one_of = { "built", "stream" },
      doc = "built: tokenise once into cache_folder, before the run; stream: tokenise while training; plain text as bytes needs neither" },
    { "cache_folder", "path", unset = "dump_folder/cache", doc = "where token files are kept" },
  } },
  { "training", doc = "how long, how much, how precise", keys = {
    { "steps", "integer", default = 10000, min = 1, doc = "optimizer steps" },
    { "seq_len", "integer", default = 2048, min = 1, max = 1 << 30, doc = "tokens per row" },
    { "local_batch_size", "integer", default = 8, min = 1, max = 1 << 24, doc = "rows per data-parallel rank and forward" },
    { "global_batch_size", "integer", default = -1, min = 1, max = 1 << 30, also = { -1 },
      doc = "rows per optimizer step, over all ranks and accumulation; -1: no accumulation" },
    { "max_norm", "number", default = 1.0, min = 0, doc = "gradients are scaled down to this 2-norm; 0: no clipping" },
    { "dtype", "choice", default = "float32", one_of = { "float32", "bfloat16" }, later = { "bfloat16" },
      doc = "of stored weights, gradients and optimizer state" },
    { "mixed_precision_param", "choice", by_device = { cpu = "float32", cuda = "bfloat16" }, one_of = { "float32", "bfloat16" },
      doc = "of weights and activations in computation" },
    { "mixed_precision_reduce", "choice", default = "float32", one_of = { "float32" },
      doc = "of gradients while they are reduced" },
    { "seed", "integer", default = 42, min = 0, alias = { "debug.seed" }, doc = "of the initial weights" },
    { "on_nan", "choice", default = "stop", one_of = { "stop", "skip" }, later = { "skip" },
      doc = "when the loss or the gradient norm is not finite: stop before the update and name the first bad tensor" },
  } },
  { "optimizer", doc = "the update", keys = {
    { "name", "choice", default = "AdamW", one_of = { "AdamW", "Adam", "SGD", "Muon" }, later = { "Muon" },
      doc = "which one" },
    with_defaults(adam, { lr = 8e-4, betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1, momentum = 0 }),
  } },
  { "lr_scheduler", doc = "the learning rate over the steps: warm up, stay, decay", keys = {
    { "warmup_steps", "integer", default = 200, min = 0, doc = "steps of linear warm-up" },
    { "total_steps", "integer", min = 1, unset = "training.steps", doc = "length of the schedule" },
    { "decay_ratio", "number", min = 0, max = 1, unset = "all after the warm-up",
      doc = "share of the steps that decays" },
    { "decay_type", "choice", default = "linear", one_of = { "linear", "sqrt", "cosine" }, doc = "form of the decay" },
    { "min_lr_factor", "number", default = 0, min = 0, max = 1, doc = "floor of the decay, as a share of lr" },
  } },
  { "parallelism", doc = "how the work is split over ranks", keys = {
    degree("data_parallel_replicate_degree", "dp_replicate", "copies of the model"),
    { "data_parallel_shard_degree", "integer", default = -1, min = 1, max = 1 << 20, also = { -1 }, alias = { "dp_shard" },
      doc = "ranks that share one copy (FSDP); -1: all that are left" },
    degree("context_parallel_degree", "cp", "ranks that share a sequence", "layout"),
    degree("tensor_parallel_degree", "tp", "ranks that share a layer's matrices"),
    degree("pipeline_parallel_degree", "pp", "ranks that share the layers, as pipeline stages"),
    degree("expert_parallel_degree", "ep", "ranks that share a layer's experts", "layout"),
    { "enable_sequence_parallel", "boolean", default = true,
      doc = "with tp > 1: norms and residuals split over the sequence" },
    { "context_parallel_method", "choice", default = "allgather", one_of = { "allgather", "ring", "ulysses" },
      doc = "how keys travel" },
    { "context_parallel_load_balancer", "choice", default = "headtail", one_of = { "headtail", "none" },
      doc = "which positions a cp rank has" },
    { "fsdp_reshard_after_forward", default = "default",
      either = { { "", "choice", one_of = { "default", "always", "never" } }, { "", "integer", min = 1 } },
      doc = "always: gather weights again for backward and for every microbatch; never: once per step; n: split over "
        .. "groups of n ranks in between; default: always, never in a pipeline" },
    { "pipeline_parallel_schedule", default = "1F1B", either = {
      { "", "choice", one_of = { "1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "ZBH1", "InterleavedZeroBubble",
        "ZBVZeroBubble", "DualPipeV" }, later = { "DualPipeV" } },
      { "", "list", min_count = 1, item = { "", "list", item = { "", "text" } } } },
      doc = "order of microbatches on the stages: a name, or a table with one row of actions (\"0F0\", \"0B0\") per rank" },
    { "pipeline_parallel_schedule_csv", "path", unset = "no file", doc = "that table as a file" },
    { "pipeline_parallel_microbatch_size", "integer", default = 1, min = 1, max = 1 << 24, doc = "rows of one pipeline microbatch" },
    { "pipeline_parallel_layers_per_stage", "integer", min = 1, max = 65536, unset = "layers shared evenly",
      doc = "layers of a virtual stage" },
    { "pipeline_parallel_first_stage_less_layers", "integer", default = 1, min = 0, max = 65536,
      doc = "layers that the embedding counts as" },
    { "pipeline_parallel_last_stage_less_layers", "integer", default = 1, min = 0, max = 65536,
      doc = "layers that norm and head count as" },
    { "module_fqns_per_model_part", "list", item = { "", "list", item = { "", "text" } }, unset = "computed",
      doc = "the modules of each stage" },
  } },
  { "activation_checkpoint", doc = "what backward recomputes instead of keeping", keys = {
    { "mode", "choice", default = "none", one_of = { "none", "selective", "full", "budget" }, later = { "budget" },
      doc = "none: keep all; full: recompute every block; selective: as selective_ac_option says" },
    { "selective_ac_option", default = "op", either = { { "", "choice", one_of = { "op" } }, { "", "integer", min = 1 } },
      doc = "op: keep what products and attention made, recompute the rest; k: recompute every k-th layer" },
    { "memory_budget", "number", default = 0.5, above = 0,
      doc = "up to 1: a share of what `none` keeps; above: bytes" },
    { "offload", "boolean", default = false, later = true, doc = "keep activations in host memory" },
  } },
  { "checkpoint", doc = "saving and resuming", later = "checkpoints", keys = {
    { "enable", "boolean", default = false, doc = "save and resume" },
    { "folder", "path", default = "checkpoint", doc = "below dump_folder" },
    { "interval", "integer", default = 500, min = 1, doc = "steps between two saves" },
    { "initial_load_path", "path", unset = "random weights", doc = "where to start from when the folder is empty" },
    { "initial_load_model_only", "boolean", default = true, doc = "take only the weights from there" },
    { "initial_load_in_hf", "boolean", default = false, doc = "it is a Hugging Face folder" },
    { "initial_load_in_hf_quantized", "boolean", default = false, doc = "with quantised weights" },
    { "last_save_model_only", "boolean", default = true, doc = "the last save holds only weights" },
    { "last_save_in_hf", "boolean", default = false, doc = "the last save is a Hugging Face folder" },
    { "export_dtype", "choice", default = "float32", one_of = { "float32", "bfloat16", "float16" },
      doc = "of saves that hold only weights" },
    { "keep_latest_k", "integer", default = 10, min = 2, also = { 0 }, doc = "how many saves stay; 0: all" },
    { "keep_every", "integer", default = 0, min = 0,
      doc = "saves at multiples of this many steps stay as well; 0: none" },
    { "load_step", "integer", default = -1, min = 0, also = { -1 }, doc = "which save to resume from; -1: the newest" },
    { "exclude_from_loading", "list", default = {}, item = { "", "choice",
      one_of = { "optimizer", "lr_scheduler", "dataloader", "train_state" } }, doc = "parts that start anew" },
    { "enable_first_step_checkpoint", "boolean", default = false, doc = "also save step 1" },
    { "create_seed_checkpoint", "boolean", default = false, doc = "save step 0 and stop" },
    { "load_only", "boolean", default = false, doc = "never write" },
    { "async_mode", "choice", default = "async", one_of = { "disabled", "async", "async_with_pinned_mem" },
      doc = "write beside the training" },
    { "verify", "choice", default = "touched", one_of = { "sizes", "touched", "full" },
      doc = "how much of a save is checked on loading" },
  } },
  { "validation", doc = "loss on data that is held out", keys = {
    { "enable", "boolean", default = false, doc = "validate during the run" },
    { "freq", "integer", default = 10, min = 1, doc = "steps between two validations" },
    { "steps", "integer", default = -1, min = 1, also = { -1 }, doc = "batches of one validation; -1: all" },
    { "data", "path", unset = "the share data.validation", doc = "a file of its own" },
  } },
  { "metrics", doc = "what is reported", keys = {
    { "log_freq", "integer", default = 10, min = 1, doc = "steps between two lines" },
    { "jsonl", "boolean", default = true, doc = "write dump_folder/metrics.jsonl" },
    { "tensorboard", "boolean", default = false, doc = "write TensorBoard files to dump_folder/tb" },
  } },
  { "profiling", doc = "where time and memory go", keys = {
    { "trace_steps", "list", default = {}, item = { "", "integer", min = 1 }, doc = "steps whose timeline goes to dump_folder/trace" },
    { "memory_timeline", "boolean", default = false, doc = "with it, what the memory of a step holds when" },
  } },
  { "comm", doc = "how ranks talk", keys = {
    { "backend", "choice", default = "auto", one_of = { "auto", "local", "mpi", "nccl", "null" }, later = { "mpi", "nccl" },
      doc = "what carries the bytes" },
    { "init_timeout_s", "number", default = 300, above = 0,
      doc = "seconds for all ranks to appear and to finish the first step" },
    { "train_timeout_s", "number", default = 100, above = 0, doc = "seconds for one collective afterwards" },
    { "trace_buf_size", "integer", default = 20000, min = 0, doc = "entries of the flight recorder; 0: off" },
  } },
  { "quantize", doc = "matrix products in 8 and 4 bits", later = "quantised training", keys = {
    { "linear", "table", keys = { { "float8", "table", keys = {
      { "recipe_name", "choice", default = "rowwise", one_of = { "rowwise", "tensorwise", "rowwise_with_gw_hp" },
        doc = "how scales are made" },
      { "enable_fsdp_float8_all_gather", "boolean", default = false, doc = "gather weights in 8 bits" },
      { "precompute_float8_dynamic_scale_for_fsdp", "boolean", default = false, doc = "scales of all weights at once" },
      { "filter_fqns", "list", default = {}, item = { "", "text" }, doc = "modules that stay as they are" },
    } } } },
  } },
  { "plan", doc = "how `titan plan` and the planner work", keys = {
    { "search_s", "number", default = 0.1, min = 0, doc = "seconds that memory planning may use" },
    { "cost_table", "path", unset = "built in", later = true, doc = "measured costs of ops" },
  } },
  { "loss", doc = "the head and the loss", keys = {
    { "chunks", "integer", default = 0, min = 0,
      doc = "pieces of a microbatch whose logits exist at a time; 0: chosen by memory" },
  } },
  { "debug", doc = "reproducibility and looking inside", keys = {
    { "reduce", "choice", by_device = { cpu = "canonical", cuda = "fast" }, one_of = { "canonical", "fast" },
      doc = "canonical: the same bits for every layout, number of threads and instruction set" },
    { "reduce_grid", "list", default = { 8, 8, 8 }, count = 3, item = { "", "integer", min = 1, max = 256, power_of_two = true },
      doc = "fixed pieces of a sum {tp, seq, rows}: the largest layout that gives the same bits" },
    { "deterministic", "boolean", default = true, doc = "no op whose result depends on timing" },
    { "verify", "boolean", default = true, doc = "prove before the run that the program is sound: memory, streams, meetings" },
    { "faults", "list", default = {}, item = { "", "text" }, doc = "failures to bring about, for tests" },
  } },
  { "device", doc = "what computes", short = "kind", keys = {
    { "kind", "choice", default = "auto", one_of = { "auto", "cpu", "cuda" },
      doc = "auto: cuda where it works, else cpu" },
    { "threads", "integer", default = 0, min = 0, max = 4096, doc = "threads of one rank on the CPU; 0: one per core" },
    { "isa", "choice", default = "auto", one_of = { "auto", "avx2", "avx512", "portable" },
      doc = "CPU kernels; all give the same bits" },
  } },
}

-- optimizer.groups: parameters with settings of their own.
local group = { { "pattern", "text", doc = "regular expression on parameter names" } }
table.move(adam, 1, #adam, 2, group)
for _, section in ipairs(sections) do
  if section[1] == "optimizer" then
    table.insert(section.keys, { "groups", "list", default = {}, item = { "", "table", keys = group, needs = { "pattern" } },
      doc = "settings for some parameters: { { pattern = \"norm\", weight_decay = 0 } }; the first match wins, "
        .. "every pattern must match" })
  end
end

-- Names that people bring along, and where they lead. "!": there is nothing to set, and why.
local elsewhere = {
  -- TorchTitan, also older
  batch_size = "training.local_batch_size", num_tokens_per_microbatch_per_dp_rank = "training.local_batch_size",
  num_tokens_per_train_step = "training.global_batch_size", max_context_length = "training.seq_len",
  param_groups = "optimizer.groups", implementation = "!every optimizer is fused",
  early_step_in_backward = "!the planner decides",
  enable_tensorboard = "metrics.tensorboard", enable_wandb = "metrics.jsonl",
  enable_profiling = "profiling.trace_steps",
  profile_freq = "profiling.trace_steps", enable_memory_snapshot = "profiling.memory_timeline",
  num_chunks = "loss.chunks",
  validator = "validation", dataloader = "data", dataset = "data.source", dataset_path = "data.path",
  tokenizer_path = "data.tokenizer",
  hf_assets_path = "model.hf", profiler = "profiling", experimental = "parallelism", float8 = "quantize.linear.float8",
  compile = "!every run is a planned, fully typed graph", spmd_backend = "!every run is a planned, fully typed graph",
  converters = "quantize", dump_folder = "job.dump_folder", tp_degree = "parallelism.tensor_parallel_degree",
  cp_degree = "parallelism.context_parallel_degree", pp_degree = "parallelism.pipeline_parallel_degree",
  ep_degree = "parallelism.expert_parallel_degree", dp_degree = "parallelism.data_parallel_shard_degree",
  dp = "parallelism.data_parallel_shard_degree", fsdp = "parallelism.data_parallel_shard_degree",
  num_pp_microbatches = "parallelism.pipeline_parallel_microbatch_size", init_timeout_seconds = "comm.init_timeout_s",
  train_timeout_seconds = "comm.train_timeout_s", lr_min = "lr_scheduler.min_lr_factor",
  enable_cpu_offload = "activation_checkpoint.offload",
  enable_checkpoint = "checkpoint.enable", gc_freq = "!there is no garbage collector in the training loop",
  config_file = "!the recipe is the file", flavor = "model", ac = "activation_checkpoint",
  -- Megatron-LM
  tensor_model_parallel_size = "parallelism.tensor_parallel_degree",
  pipeline_model_parallel_size = "parallelism.pipeline_parallel_degree",
  context_parallel_size = "parallelism.context_parallel_degree",
  expert_model_parallel_size = "parallelism.expert_parallel_degree",
  sequence_parallel = "parallelism.enable_sequence_parallel", micro_batch_size = "training.local_batch_size",
  seq_length = "training.seq_len", train_iters = "training.steps", lr_warmup_iters = "lr_scheduler.warmup_steps",
  lr_decay_iters = "lr_scheduler.total_steps", lr_decay_style = "lr_scheduler.decay_type",
  min_lr = "lr_scheduler.min_lr_factor",
  clip_grad = "training.max_norm", adam_beta1 = "optimizer.betas", adam_beta2 = "optimizer.betas",
  adam_eps = "optimizer.eps",
  sgd_momentum = "optimizer.momentum", log_interval = "metrics.log_freq", save_interval = "checkpoint.interval",
  save = "checkpoint.folder",
  load = "checkpoint.initial_load_path", eval_interval = "validation.freq", eval_iters = "validation.steps",
  data_path = "data.path",
  recompute_granularity = "activation_checkpoint.mode", bf16 = "training.mixed_precision_param",
  fp16 = "training.mixed_precision_param",
  tokenizer_type = "data.tokenizer", tokenizer_model = "data.tokenizer", split = "data.validation",
  -- Hugging Face, DeepSpeed, plain PyTorch
  per_device_train_batch_size = "training.local_batch_size", train_batch_size = "training.global_batch_size",
  train_micro_batch_size_per_gpu = "training.local_batch_size",
  gradient_accumulation_steps = "training.global_batch_size",
  learning_rate = "optimizer.lr", max_steps = "training.steps", num_train_epochs = "data.epochs",
  max_grad_norm = "training.max_norm",
  gradient_clipping = "training.max_norm", logging_steps = "metrics.log_freq", save_steps = "checkpoint.interval",
  eval_steps = "validation.freq", lr_scheduler_type = "lr_scheduler.decay_type",
  warmup_ratio = "lr_scheduler.warmup_steps",
  scheduler = "lr_scheduler", gradient_checkpointing = "activation_checkpoint.mode", output_dir = "job.dump_folder",
  block_size = "training.seq_len", max_seq_len = "training.seq_len", max_seq_length = "training.seq_len",
  sequence_length = "training.seq_len",
  num_workers = "device.threads", num_threads = "device.threads", beta1 = "optimizer.betas", beta2 = "optimizer.betas",
  wd = "optimizer.weight_decay", random_seed = "training.seed", grad_clip = "training.max_norm", epochs = "data.epochs",
  betas1 = "optimizer.betas", warmup = "lr_scheduler.warmup_steps",
}

-- The same for keys of a model; only those count that the model has.
local model_elsewhere = {
  hidden_size = "dim", n_embd = "dim", d_model = "dim", num_layers = "n_layers", num_hidden_layers = "n_layers", n_layer = "n_layers",
  num_attention_heads = "n_heads", n_head = "n_heads", num_key_value_heads = "n_kv_heads", num_query_groups = "n_kv_heads",
  intermediate_size = "ffn_dim", ffn_hidden_size = "ffn_dim", hidden_dim = "ffn_dim", rms_norm_eps = "norm_eps",
  layernorm_epsilon = "norm_eps", rope_theta = "rope.theta", rotary_base = "rope.theta", tie_word_embeddings = "tied",
  max_position_embeddings = "max_seq_len", kv_channels = "head_dim",
}

-- Names of values: the nearest legal one is found by its letters, these are not.
local value_elsewhere = {
  bf16 = "bfloat16", fp32 = "float32", f32 = "float32", fp16 = "float16", half = "float16", torch_adamw = "AdamW",
  gpu = "cuda", ["cuda:0"] = "cuda", cosine_annealing = "cosine", scalar = "portable", off = "none", bytes = "text",
}

-------------------------------------------------------------------------------------------------------- finding keys
local schema = { sections = sections, elsewhere = elsewhere, model_elsewhere = model_elsewhere,
  value_elsewhere = value_elsewhere, by_name = {}, alias = {}, section = {} }

local function index(prefix, keys, section)
  for _, key in ipairs(keys) do
    local name = prefix .. "." .. key[1]
    key.full, key.section = name, section
    schema.by_name[name] = key
    for _, alias in ipairs(key.alias or {}) do
      schema.alias[alias:find(".", 1, true) and alias or prefix .. "." .. alias] = name
    end
    if key[2] == "table" then index(name, key.keys, section) end
  end
end

for _, section in ipairs(sections) do
  schema.section[section[1]] = section
  index(section[1], section.keys, section)
end

-- The names of all keys whose last part is `name`.
function schema.ending(name)
  local out = {}
  for full in pairs(schema.by_name) do
    if full:match("[^.]*$") == name then out[#out + 1] = full end
  end
  return out
end

return schema
