-- titan.tracer - runs a model once on symbolic values: parameters, the inputs of the step, one microbatch
-- (lua/trace.c calls it).
--
--   HEAD        states; tokens, labels, positions, documents [rows of the step, seq]; 1 / number of labels
--   MICROBATCH  hidden(tokens, at)
--   CHUNK       output and the loss of a piece of hidden (train), or output over all positions (logits, MICROBATCH)
-- A decoder (decode, prefill) keeps keys and values in states of `cache` positions.
local family = require "titan.family"
local layers = require "titan.layers"
local layout = require "titan.layout"
local module = require "titan.module"
local trace = require "titan.trace"

local function fail(...) return trace.fail(string.format(...)) end

local function build(d)
  local class = family.model(d)
  if not class.hidden then return fail("%s: the model has no hidden(tokens, at); define it", class.name) end
  local root = class(family.config(d))
  if module.kind_of(root.output) ~= "module" then
    return fail("%s: the model has no output module; self.output = nn.linear(c.dim, c.vocab_size)", class.name)
  end
  root.output.out_f32 = true
  if root.loss == nil then root.loss = layers.cross_entropy() end
  return root
end

local function parent(name) return name:match "^(.*)%.[^.]*$" or "" end

local function make_states(parameters, shared)
  for _, p in ipairs(parameters) do
    trace.enter(parent(p.name))
    local attributes = p.parameter.buffer or layers.state_attributes(p.name, p.init, p.index)
    attributes.kind = p.parameter.buffer and "buffer" or "param"
    p.parameter.value = trace.state(p.name, p.parameter.dims, p.layout, attributes)
  end
  for _, p in ipairs(shared) do
    trace.enter(parent(p.name))
    trace.check(p.parameter, p.layout, "state of the shared weight")
  end
  trace.enter("")
end

local function rope_table(options)
  return function(name, head_dim, attributes)
    trace.scope "head"
    local v = trace.state(name, { { options.positions, 0 }, { head_dim, 0 } }, layout.param(layout.R), attributes)
    trace.scope "microbatch"
    return v
  end
end

local function inverse_count(labels)
  local count = trace.redistribute(trace.op("count_labels", { labels }), layout.param(layout.R), "count of labels")
  return trace.op("inv_count", { count })
end

local function check_lengths(d, options)
  local longest = family.has(d, "max_seq_len") and d.max_seq_len
  if longest and options.positions > longest then
    return fail("training.seq_len: %d is more than the model's max_seq_len %d; shorten it or set model.max_seq_len",
      options.positions, longest)
  end
end

return function(d, options)
  if not family.is(d) then
    return fail("model: not a model description but %s; as in model = llama3.debug {}", tostring(d))
  end
  local decoder = options.kind == "decode" or options.kind == "prefill"
  options.positions = decoder and options.cache or options.seq
  check_lengths(d, options)
  local root = build(d)
  local parameters, shared = module.place(root, options)
  trace.scope "head"
  make_states(parameters, shared)
  local train = options.kind == "train"
  local tokens, positions = trace.input("tokens", layout.TOK), trace.input("positions", layout.TOK)
  local documents = trace.input("documents", layout.TOK)
  local labels = train and trace.input("labels", layout.LBL)
  local inverse = train and inverse_count(labels)
  local function of_cache(name) return decoder and trace.input(name, layout.TOK, options.cache) end
  local key_positions, key_documents = of_cache "key_positions", of_cache "key_documents"

  trace.scope "microbatch"
  layers.start(rope_table(options))
  local function piece(x, over, rows, seq) return trace.op("chunk", { x }, { over = over, rows = rows, seq = seq }) end
  local function microbatch(x) return piece(x, "microbatch", options.rows, options.seq) end
  local at = { positions = microbatch(positions), documents = microbatch(documents), memo = {} }
  if decoder then
    local function keys(x) return piece(x, "microbatch", options.rows, options.cache) end
    at.keys = { positions = keys(key_positions), documents = keys(key_documents) }
  end
  local h = root:hidden(microbatch(tokens), at)
  if options.kind == "prefill" then return h end
  if not train then return root.output(h) end
  labels = microbatch(labels)

  trace.scope "chunk"
  local function chunk(x) return piece(x, "chunk", options.chunk_rows, options.chunk_seq) end
  return root.loss(root.output(chunk(h)), chunk(labels), inverse)
end
