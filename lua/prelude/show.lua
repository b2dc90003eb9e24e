-- titan.show - the resolved recipe as Lua that can be run again, each line with where its value came from.
local family = require "titan.family"
local schema = require "titan.schema"
local value = require "titan.value"

local show = {}

local function comment(code, where) return ("%-60s -- %s"):format(code, where) end

local function add_keys(out, state, indent, keys)
  for _, key in ipairs(keys) do
    if key[2] == "table" then
      out[#out + 1] = ("%s%s = {"):format(indent, key[1])
      add_keys(out, state, indent .. "  ", key.keys)
      out[#out + 1] = indent .. "},"
    else
      local v, where = state.values[key.full], state.where[key.full]
      if v == nil then
        out[#out + 1] = comment(("%s-- %s: %s"):format(indent, key[1], key.unset), where)
      else
        out[#out + 1] = comment(("%s%s = %s,"):format(indent, key[1], value.literal(v)), where)
      end
    end
  end
end

function show.recipe(state)
  local where = state.model_where
  if #state.model_overrides > 0 then where = where .. "; command line: " .. table.concat(state.model_overrides, ", ") end
  local out = {
    ("-- %s, resolved by titan"):format(state.chunk),
    "local titan = require \"titan\"",
    "",
    "return titan.recipe {",
    comment("  model = " .. family.text(state.model) .. ",", where),
  }
  for _, section in ipairs(schema.sections) do
    if section[1] ~= "model" then
      out[#out + 1] = ("  %s = {"):format(section[1])
      add_keys(out, state, "    ", section.keys)
      out[#out + 1] = "  },"
    end
  end
  out[#out + 1] = "}"
  return table.concat(out, "\n") .. "\n"
end

return show
