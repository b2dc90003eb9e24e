-- Llama 3 whose attention looks back `window` positions: what a variant takes.
local nn     = require "titan.nn"
local llama3 = require "models.llama3"

local Attention = nn.module("WindowAttention", llama3.Attention)

function Attention:build(c)
  llama3.Attention.build(self, c)
  self.inner = nn.attention { causal = true, window = c.window }
end

return nn.family { name = "llama3_window", base = llama3, defaults = { window = 64, attention = Attention } }
