-- titan.near - what error messages end with: the legal words, or the one that was probably meant.
local trace = require "titan.trace"

local M = {}

-- The keys of a table as a sorted list of texts.
function M.names(t)
  local out = {}
  for k in pairs(t) do out[#out + 1] = tostring(k) end
  table.sort(out)
  return out
end

-- "did you mean X?" or "one of a, b, c".
function M.mend(word, legal)
  local guess = trace.nearest(tostring(word), legal)
  if guess then return ("did you mean %s?"):format(guess) end
  return ("%s%s"):format(#legal > 1 and "one of " or "it is ", table.concat(legal, ", "))
end

return M
