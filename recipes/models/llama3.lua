-- Llama 3, 3.1 and 3.2: RMSNorm, grouped-query attention with rotary embedding, SwiGLU.         (arXiv 2407.21783)
--
-- forward is single-device code over symbolic values; the sharding table beside it says where values lie on the mesh
-- axes dp, cp and tp (docs/words.md): `param` a parameter, ACT an activation [b s d], SEQ one whose positions are
-- split, HEADS [b s h k]. Nothing here knows ranks or dtypes.
local nn = require "titan.nn"
local R, I, P, S = nn.R, nn.I, nn.P, nn.S
local param, ACT, SEQ, TOK, LBL = nn.param, nn.ACT, nn.SEQ, nn.TOK, nn.LBL
local HEADS, KVFULL, KVGRAD = nn.HEADS, nn.KVFULL, nn.KVGRAD
local colwise, rowwise = nn.colwise, nn.rowwise

local function X(on) return on.sp and SEQ or ACT(I) end                             -- between the blocks
local function norm(on) return { state = { weight = param(on.sp and R or I) } } end

---------------------------------------------------------------------------------------------- attention
local Attention = nn.module "Attention"

function Attention:build(c)
  local q, kv = nn.heads(c.n_heads, c.head_dim), nn.heads(c.n_kv_heads, c.head_dim, { of = c.n_heads })
  self.wq, self.wk, self.wv = nn.linear(c.dim, q), nn.linear(c.dim, kv), nn.linear(c.dim, kv)
  self.wo = nn.linear(q, c.dim, { init = nn.depth_scaled })
  self.inner = nn.attention { causal = true }
end

function Attention:forward(x, at)                                  -- x [b s d]; at: positions and documents [b s]
  local q, k, v = nn.linears(x, self.wq, self.wk, self.wv)         -- [b s h k]
  q, k = nn.rope(q, at, self.c.rope), nn.rope(k, at, self.c.rope)
  return self.wo(self.inner(q, k, v, at))
end

function Attention:sharding(on)
  return {
    in_src = { x = X(on) }, in_dst = { x = ACT(R) },
    wq = colwise, wk = colwise, wv = colwise, wo = rowwise(X(on)),
    inner = {
      in_src = { q = HEADS, k = HEADS, v = HEADS }, in_dst = { q = HEADS, k = KVFULL, v = KVFULL }, out_src = HEADS,
      local_map = { at = "keys gathered over cp", grad = { k = KVGRAD, v = KVGRAD } },
    },
  }
end

---------------------------------------------------------------------------------------------- feed forward
local FeedForward = nn.module "FeedForward"

function FeedForward:build(c)
  self.w1, self.w3 = nn.linear(c.dim, c.ffn_dim), nn.linear(c.dim, c.ffn_dim, { init = nn.depth_scaled })
  self.w2 = nn.linear(c.ffn_dim, c.dim, { init = nn.depth_scaled })
end

function FeedForward:forward(x)
  local gate, up = nn.linears(x, self.w1, self.w3)
  return self.w2(nn.silu(gate) * up)
end

function FeedForward:sharding(on)
  return { in_src = { x = X(on) }, in_dst = { x = ACT(R) }, w1 = colwise, w3 = colwise, w2 = rowwise(X(on)) }
end

---------------------------------------------------------------------------------------------- block and decoder
local Block = nn.module "Block"

function Block:build(c)
  self.attention_norm, self.ffn_norm = nn.rmsnorm(c.dim, c.norm_eps), nn.rmsnorm(c.dim, c.norm_eps)
  self.attention, self.feed_forward = c.attention(c), c.feed_forward(c)
end

function Block:forward(x, at)
  x = x + self.attention(self.attention_norm(x), at)
  return x + self.feed_forward(self.ffn_norm(x))
end

function Block:sharding(on) return { attention_norm = norm(on), ffn_norm = norm(on) } end

local Llama3 = nn.module "Llama3"

function Llama3:build(c)
  self.tok_embeddings = nn.embedding(c.vocab_size, c.dim)
  self.layers = nn.list(c.n_layers, function() return c.block(c) end)
  self.norm = nn.rmsnorm(c.dim, c.norm_eps)
  self.output = nn.linear(c.dim, c.vocab_size, {
    tied_to = c.tied and self.tok_embeddings.weight or nil, init = nn.trunc_normal(c.dim ^ -0.5, 3),
  })
end

-- Loss (in chunks), logits and decoding follow from hidden and output.
function Llama3:hidden(tokens, at)
  local x = self.tok_embeddings(tokens)
  for _, layer in ipairs(self.layers) do x = layer(x, at) end
  return self.norm(x)
end

function Llama3:sharding(on)
  return {
    tok_embeddings = { state = { weight = param(S(0)) }, in_src = { tokens = TOK }, out_src = ACT(P), out_dst = X(on) },
    norm = nn.join(norm(on), { out_src = X(on), out_dst = ACT(R) }),
    output = colwise,
    loss = { in_src = { labels = LBL } },
  }
end

---------------------------------------------------------------------------------------------- flavours, names
return nn.family {
  name = "llama3", model = Llama3, modules = { Attention, FeedForward, Block, Llama3 },
  defaults = {
    vocab_size = 128256, n_kv_heads = 8, norm_eps = 1e-5, tied = false, max_seq_len = 131072,
    head_dim = function(c) return c.dim // c.n_heads end,
    rope = { theta = 500000.0, scaling = { kind = "llama3", factor = 8.0, low = 1.0, high = 4.0, original = 8192 } },
    block = Block, attention = Attention, feed_forward = FeedForward,
  },
  flavours = {
    debug = { dim = 256, n_layers = 6, n_heads = 16, ffn_dim = 768, n_kv_heads = 16, vocab_size = 2048 },
    -- 1B and 3B (3.2) scale their frequencies by 32, as their config.json says; the larger ones by 8
    ["1B"] = { dim = 2048, n_layers = 16, n_heads = 32, ffn_dim = 8192, tied = true, rope = { scaling = { factor = 32.0 } } },
    ["3B"] = { dim = 3072, n_layers = 28, n_heads = 24, ffn_dim = 8192, tied = true, rope = { scaling = { factor = 32.0 } } },
    ["8B"]   = { dim = 4096,  n_layers = 32,  n_heads = 32,  ffn_dim = 14336 },
    ["70B"]  = { dim = 8192,  n_layers = 80,  n_heads = 64,  ffn_dim = 28672 },
    ["405B"] = { dim = 16384, n_layers = 126, n_heads = 128, ffn_dim = 53248 },
  },
  hugging_face = {
    architecture = "LlamaForCausalLM", model_type = "llama",
    { "model.embed_tokens.weight", "tok_embeddings.weight" },
    { "model.layers.{}.self_attn.{q,k,v,o}_proj.weight", "layers.{}.attention.w{q,k,v,o}.weight" },
    { "model.layers.{}.mlp.{gate,up,down}_proj.weight", "layers.{}.feed_forward.{w1,w3,w2}.weight" },
    { "model.layers.{}.input_layernorm.weight", "layers.{}.attention_norm.weight" },
    { "model.layers.{}.post_attention_layernorm.weight", "layers.{}.ffn_norm.weight" },
    { "model.norm.weight", "norm.weight" },
    { "lm_head.weight", "output.weight", unless = "tied" },
    config = {
      vocab_size = "vocab_size", dim = "hidden_size", ffn_dim = "intermediate_size", n_layers = "num_hidden_layers",
      n_heads = "num_attention_heads", n_kv_heads = { "num_key_value_heads", default = "num_attention_heads" },
      head_dim = "head_dim",
      norm_eps = { "rms_norm_eps", default = 1e-6 }, tied = { "tie_word_embeddings", default = false },
      max_seq_len = { "max_position_embeddings", default = 2048 }, rope = nn.rope_config,
    },
    fixed = {
      hidden_act = "silu", attention_bias = false, mlp_bias = false, attention_dropout = 0.0, pretraining_tp = 1,
    },
  },
}
