-- titan.near - what error messages about names end with.
local value = require "titan.value"

local near = {}

-- The keys of a table as a sorted list of texts.
function near.names(t)
  local out = {}
  for k in pairs(t) do out[#out + 1] = tostring(k) end
  return out
end

-- "did you mean X?" or "one of a, b, c".
function near.mend(word, legal) return value.mend(tostring(word), legal) end

return near
