-- titan.layers - the modules that models are made of, and what their forward functions call. Each is one op of the op
-- table.
local kind_of = require "titan.module".kind_of
local module = require "titan.module"
local near = require "titan.near"
local trace = require "titan.trace"

local M = {}

-- A mistake in a forward function: its module says where (a tail call has no line any more).
local function wrong(...) return trace.fail(trace.path() .. ": " .. string.format(...)) end

-- Refuses options that a constructor does not know.
local function check_options(what, options, legal)
  if options == nil then return {} end
  if type(options) ~= "table" or kind_of(options) then error(("%s: options are a table"):format(what), 3) end
  for key in pairs(options) do
    local known = false
    for _, name in ipairs(legal) do known = known or key == name end
    if not known then error(("%s: unknown option '%s'; %s"):format(what, tostring(key), near.mend(key, legal)), 3) end
  end
  return options
end

---------------------------------------------------------------------------------------------- initialisers
-- Data: { init = "normal", std =, bound = } as op state takes them; `depth` divides std by sqrt(2 (layer + 1)).
local Init = { kind = "initialiser" }
local function init(t) return setmetatable(t, Init) end

local function check_std(what, std)
  if type(std) ~= "number" or not (std > 0) then
    error(("%s needs a standard deviation above 0, not %s"):format(what, tostring(std)), 3)
  end
  return std + 0.0
end

M.zeros = init { init = "zeros" }
M.ones = init { init = "ones" }
function M.normal(std) return init { init = "normal", std = check_std("nn.normal", std) } end

-- Cut at `sigmas` standard deviations; without them at -2 and 2, as PyTorch's trunc_normal_ by default.
function M.trunc_normal(std, sigmas)
  std = check_std("nn.trunc_normal", std)
  return init { init = "trunc_normal", std = std, bound = sigmas and check_std("nn.trunc_normal", sigmas) * std or 2.0 }
end

-- trunc_normal(0.02 / sqrt(2 (layer + 1))); nn.depth_scaled(std) with another std.
Init.__call = function(self, std)
  if not self.depth then error("this initialiser takes no argument", 2) end
  return init { init = self.init, std = check_std("nn.depth_scaled", std), bound = self.bound, depth = true }
end
M.depth_scaled = init { init = "trunc_normal", std = 0.02, bound = 2.0, depth = true }

-- The attributes of op state for a parameter of layer `index` (nil outside of a list).
function M.state_attributes(name, spec, index)
  if kind_of(spec) ~= "initialiser" then
    return trace.fail(("%s: its initialiser is a %s; %s"):format(name, type(spec),
      "nn.normal(std), nn.trunc_normal(std, sigmas), nn.depth_scaled, nn.ones or nn.zeros is needed"))
  end
  if spec.depth and not index then
    return trace.fail(("%s: nn.depth_scaled outside of an nn.list; it needs the number of the layer"):format(name))
  end
  local std = spec.std or 0.0
  if spec.depth then std = std / math.sqrt(2.0 * (index + 1)) end
  return { init = spec.init, std = std, bound = spec.bound or 0.0 }
end

---------------------------------------------------------------------------------------------- dims
-- A dim that is n heads of head_dim elements; of = query heads, for the key and value heads that they share.
function M.heads(n, head_dim, options)
  options = check_options("nn.heads", options, { "of" })
  for what, v in pairs { heads = n, head_dim = head_dim } do
    if math.type(v) ~= "integer" or v < 1 then
      error(("nn.heads: %s is a whole number from 1 on, not %s"):format(what, tostring(v)), 2)
    end
  end
  local of = options.of or n
  if math.type(of) ~= "integer" or of % n ~= 0 then
    error(("nn.heads: %s query heads cannot share %d key and value heads evenly; n_kv_heads must divide n_heads")
      :format(tostring(of), n), 2)
  end
  return setmetatable({ n = n, head_dim = head_dim, of = of }, { kind = "heads", __tostring = function(h)
    return ("%d heads of %d"):format(h.n, h.head_dim) end })
end

---------------------------------------------------------------------------------------------- linear
local Linear = module.module "Linear"

function Linear:build(from, to, options)
  options = check_options("nn.linear", options, { "init", "tied_to" })
  self.from, self.to = from, to
  local tied = options.tied_to
  if tied ~= nil and kind_of(tied) ~= "parameter" then
    error("nn.linear: tied_to is no parameter; as in self.tok_embeddings.weight", 0)
  end
  if tied then
    local want, have = { module.dim(to), module.dim(from) }, tied.dims
    for i = 1, 2 do
      if #have ~= 2 or want[i][1] ~= have[i][1] then
        error(("nn.linear: a weight [%d %d] cannot be tied to one of another shape"):format(want[1][1], want[2][1]), 0)
      end
    end
  end
  self.weight = tied or module.parameter({ to, from }, { init = options.init or M.trunc_normal(0.02) })
end

-- y_i = x W_i^T for several linears on one input: one op. A dim declared as heads is seen as heads: [b s h k].
local function linears(x, ...)
  local all = { ... }
  local from, weights = all[1] and all[1].from, {}
  for i, m in ipairs(all) do
    if kind_of(m) ~= "module" or not m.weight or not m.from then
      return wrong("nn.linears takes a value and nn.linear modules")
    end
    module.place_of(m)
  end
  if #all == 0 then return wrong("nn.linears takes a value and nn.linear modules") end
  if kind_of(from) == "heads" and select("#", x:shape()) == 4 then x = trace.op("merge_heads", { x }) end
  local into = module.way_in(all[1], "x", x)
  for i, m in ipairs(all) do
    weights[i] = m.weight
    local own = module.place_of(m)
    if i > 1 and own.in_src then
      trace.check(x, own.in_src.x, ("in_src of %s"):format(own.path))
      local to = own.in_dst and own.in_dst.x or own.in_src.x
      trace.check(into, to, ("in_dst of %s, whose input others share"):format(own.path))
    end
  end
  local before = #all == 1 and trace.enter(module.place_of(all[1]).path)
  local y = table.pack(trace.op("linear", { into, table.unpack(weights) }, { out_f32 = all[1].out_f32 or false }))
  if before then trace.enter(before) end
  for i, m in ipairs(all) do
    y[i] = module.way_out(m, y[i])
    if kind_of(m.to) == "heads" then y[i] = trace.op("heads", { y[i] }, { k = m.to.head_dim }) end
  end
  return table.unpack(y, 1, y.n)
end
M.linears = linears

function Linear:forward(x) return linears(x, self) end
function Linear.call(self, x) return (linears(x, self)) end

---------------------------------------------------------------------------------------------- embedding, norm
local Embedding = module.module "Embedding"

function Embedding:build(n, dim, options)
  options = check_options("nn.embedding", options, { "init" })
  self.weight = module.parameter({ n, dim }, { init = options.init or M.normal(1.0) })
end

function Embedding:forward(tokens) return trace.op("embedding", { tokens, self.weight }) end

local RMSNorm = module.module "RMSNorm"

function RMSNorm:build(dim, eps, options)
  options = check_options("nn.rmsnorm", options, { "init" })
  self.eps = eps or 1e-5
  if type(self.eps) ~= "number" or not (self.eps >= 0) then error("nn.rmsnorm: eps is a number from 0 on", 0) end
  self.weight = module.parameter({ dim }, { init = options.init or M.ones })
end

function RMSNorm:forward(x) return (trace.op("rmsnorm", { x, self.weight }, { eps = self.eps })) end

---------------------------------------------------------------------------------------------- attention
local Attention = module.module "Attention"

function Attention:build(options)
  options = check_options("nn.attention", options, { "causal", "window", "scale" })
  self.attributes = { causal = options.causal ~= false, window = options.window or 0, scale = options.scale or 0.0 }
  if math.type(self.attributes.window) ~= "integer" or self.attributes.window < 0 then
    error("nn.attention: window is a number of positions, or 0 for all", 0)
  end
end

-- The positions (documents) of the keys, which lie where the keys do; one value for all layers.
local function of_keys(at, which, k)
  local memo, key = at.memo or {}, which .. k:layout()
  if not memo[key] then
    local before = trace.enter("")
    memo[key] = trace.follow((at.keys or at)[which], k)
    trace.enter(before)
  end
  return memo[key]
end

function Attention:forward(q, k, v, at)
  if at.keys then -- a decoder: all keys so far
    local path, positions = trace.path(), trace.follow(at.positions, k)
    k, v = trace.cache(path .. ".keys", k, positions), trace.cache(path .. ".values", v, positions)
  end
  local operands = { q, k, v, at.positions, at.documents, of_keys(at, "positions", k), of_keys(at, "documents", k) }
  return (trace.op("attention", operands, self.attributes))
end

-- Rotary position embedding.
-- rope: { theta =, scaling = false or { kind = "llama3", factor =, low =, high =, original = } }
local tables = {} -- of the model that is traced

local function rope_attributes(rope)
  local out = { kind = "buffer", init = "rope", theta = rope.theta + 0.0 }
  local s = rope.scaling
  if not s then return out end
  if s.kind ~= "llama3" then
    return wrong("rope scaling kind '%s'; there is 'llama3', or scaling = false", tostring(s.kind))
  end
  out.factor, out.low, out.high, out.original = s.factor + 0.0, s.low + 0.0, s.high + 0.0, s.original
  return out
end

function M.rope(x, at, rope)
  if type(rope) ~= "table" or type(rope.theta) ~= "number" then
    return wrong("nn.rope needs { theta = .., scaling = .. }")
  end
  local _, _, _, k = x:shape()
  if not k then return wrong("nn.rope needs heads [b s h k]; declare the linear's output with nn.heads") end
  local attributes = rope_attributes(rope)
  local a = attributes
  local key = ("%d %.17g %s %s %s %s"):format(k, a.theta, a.factor, a.low, a.high, a.original)
  if not tables[key] then
    local before = trace.enter("")
    tables.n = (tables.n or 0) + 1
    local name = tables.n == 1 and "rope.cache" or ("rope.cache.%d"):format(tables.n)
    tables[key] = tables.state(name, k, attributes)
    trace.enter(before)
  end
  return trace.op("rope", { x, at.positions, tables[key] })
end

-- A new trace: state(name, head_dim, attributes) makes a table of the trace's positions.
function M.start(state) tables = { state = state } end

---------------------------------------------------------------------------------------------- the loss
-- Sum of cross entropy over a chunk's labels, exact; divided by the step's number of labels when it is read.
local CrossEntropy = module.module "CrossEntropy"

function CrossEntropy:forward(logits, labels, inverse_count)
  local nll = trace.op("cross_entropy", { logits, labels, inverse_count })
  return trace.op("loss_sum", { nll })
end

M.linear, M.embedding, M.rmsnorm, M.attention, M.cross_entropy = Linear, Embedding, RMSNorm, Attention, CrossEntropy

---------------------------------------------------------------------------------------------- functions of values
for _, f in ipairs { "silu", "gelu", "gelu_tanh", "relu", "relu2", "sigmoid", "tanh" } do
  M[f] = function(x) return trace.op("unary", { x }, { f = f }) end
end

-- Any op of the op table: nn.op("unary", { x }, { f = "silu" }) -> outputs.
function M.op(name, operands, attributes) return trace.op(name, operands, attributes) end

return M
