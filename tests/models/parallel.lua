-- A model that titan does not ship: attention and feed forward side by side on one norm, GELU, a tied head.
local nn = require "titan.nn"
local R, I, P, S, ACT, SEQ, HEADS = nn.R, nn.I, nn.P, nn.S, nn.ACT, nn.SEQ, nn.HEADS

local function X(on) return on.sp and SEQ or ACT(I) end
local function norm(on)
  return { state = { weight = nn.param(on.sp and R or I) }, out_src = X(on), out_dst = ACT(R) }
end

local Block = nn.module "ParallelBlock"

function Block:build(c)
  local heads = nn.heads(c.n_heads, c.dim // c.n_heads)
  self.norm = nn.rmsnorm(c.dim)
  self.wq, self.wk, self.wv = nn.linear(c.dim, heads), nn.linear(c.dim, heads), nn.linear(c.dim, heads)
  self.up = nn.linear(c.dim, c.ffn_dim)
  self.wo = nn.linear(heads, c.dim, { init = nn.depth_scaled })
  self.down = nn.linear(c.ffn_dim, c.dim, { init = nn.depth_scaled })
  self.inner = nn.attention {}
end

function Block:forward(x, at)
  local q, k, v, up = nn.linears(self.norm(x), self.wq, self.wk, self.wv, self.up)
  local attended = self.inner(nn.rope(q, at, self.c.rope), nn.rope(k, at, self.c.rope), v, at)
  return x + self.wo(attended) + self.down(nn.gelu(up))
end

function Block:sharding(on)
  return {
    in_src = { x = X(on) }, norm = norm(on), wq = nn.colwise, wk = nn.colwise, wv = nn.colwise, up = nn.colwise,
    wo = nn.rowwise(X(on)), down = nn.rowwise(X(on)),
    inner = {
      in_src = { q = HEADS, k = HEADS, v = HEADS }, in_dst = { q = HEADS, k = nn.KVFULL, v = nn.KVFULL },
      out_src = HEADS,
      local_map = { at = "keys gathered over cp", grad = { k = nn.KVGRAD, v = nn.KVGRAD } },
    },
  }
end

local Model = nn.module "Parallel"

function Model:build(c)
  self.embed = nn.embedding(c.vocab_size, c.dim, { init = nn.normal(0.02) })
  self.layers = nn.list(c.n_layers, function() return Block(c) end)
  self.norm = nn.rmsnorm(c.dim)
  self.output = nn.linear(c.dim, c.vocab_size, { tied_to = self.embed.weight })
end

function Model:hidden(tokens, at)
  local x = self.embed(tokens)
  for _, layer in ipairs(self.layers) do x = layer(x, at) end
  return self.norm(x)
end

function Model:sharding(on)
  local embed = { state = { weight = nn.param(S(0)) }, in_src = { tokens = nn.TOK }, out_src = ACT(P), out_dst = X(on) }
  return { embed = embed, norm = norm(on), output = nn.colwise, loss = { in_src = { labels = nn.LBL } } }
end

return nn.family {
  name = "parallel", model = Model,
  defaults = { vocab_size = 256, rope = { theta = 10000.0, scaling = false } },
  flavours = { small = { dim = 64, n_layers = 2, n_heads = 4, ffn_dim = 192 } },
}
