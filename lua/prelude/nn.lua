-- titan.nn - what a model file needs, in one table. The parts: layout (where values lie), module (nn.module,
-- nn.list), layers (nn.linear and its like), family (nn.family).
local family = require "titan.family"
local hf = require "titan.hf"
local layers = require "titan.layers"
local layout = require "titan.layout"
local module = require "titan.module"
local near = require "titan.near"

local nn = {
  module = module.module, list = module.list, parameter = module.parameter,
  family = family.family, rope_config = hf.rope_config,
}
for _, part in ipairs { layout, layers } do
  for name, v in pairs(part) do nn[name] = v end
end
nn.elsewhere, nn.start, nn.state_attributes = nil, nil, nil

return setmetatable({}, {
  __index = function(_, name)
    local v = nn[name]
    if v ~= nil then return v end
    local ours = layout.elsewhere[name]
    if ours then error(("nn.%s: titan writes nn.%s"):format(name, ours), 2) end
    error(("titan.nn has no '%s'; %s"):format(tostring(name), near.mend(name, near.names(nn))), 2)
  end,
  __newindex = function(_, name)
    error(("titan.nn cannot be changed; keep '%s' in a local"):format(tostring(name)), 2)
  end,
  __pairs = function() return next, nn, nil end,
})
