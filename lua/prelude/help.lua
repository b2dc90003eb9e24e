-- titan.help - the schema as text, for `titan help`.
local host = require "titan.host"
local schema = require "titan.schema"
local value = require "titan.value"

local help = {}

local function default_of(key)
  if key.by_device then return ("%s on cpu, %s on cuda"):format(key.by_device.cpu, key.by_device.cuda) end
  if key.default == nil then return key.unset and "not set: " .. key.unset or "the optimizer's" end
  return value.literal(key.default)
end

local function later_of(key)
  local section = key.section
  local later = key.later or (section and section.later)
  if not later then return nil end
  if type(later) == "table" then return table.concat(later, ", ") .. ": not in this build yet" end
  return key.default == nil and "not in this build yet" or "this build can do only " .. value.literal(key.default)
end

local function add_key(out, key, indent)
  if key[2] == "table" then
    out[#out + 1] = ("%s%s"):format(indent, key[1])
    for _, inner in ipairs(key.keys) do add_key(out, inner, indent .. "  ") end
    return
  end
  local alias = key.alias and "   alias " .. table.concat(key.alias, ", ") or ""
  out[#out + 1] = ("%s%-26s %s%s"):format(indent, key[1], default_of(key), alias)
  out[#out + 1] = ("%s    %s"):format(indent, key.doc)
  local later = later_of(key)
  out[#out + 1] = ("%s    %s%s"):format(indent, value.legal(key), later and "; " .. later or "")
end

local function section_text(section)
  local out = { ("%s = { ... }   %s"):format(section[1], section.doc) }
  if section.short then
    out[#out + 1] = ("  %s = VALUE stands for %s = { %s = VALUE }"):format(section[1], section[1], section.short)
  end
  if section.open then out[#out + 1] = "  model.KEY=VALUE on the command line overrides a key of the model function" end
  for _, key in ipairs(section.keys) do add_key(out, key, "  ") end
  return table.concat(out, "\n") .. "\n"
end

local function key_text(key)
  local out = { ("%s   (default %s)"):format(key.full, default_of(key)), "  " .. key.doc, "  " .. value.legal(key) }
  if key.alias then out[#out + 1] = "  alias: " .. table.concat(key.alias, ", ") end
  local later = later_of(key)
  if later then out[#out + 1] = "  " .. later end
  local item = key.item and key.item[2] == "table" and key.item
  for _, inner in ipairs(item and item.keys or {}) do
    out[#out + 1] = ("    %-14s %s"):format(inner[1], inner.doc)
    out[#out + 1] = ("                   %s"):format(value.legal(inner))
  end
  return table.concat(out, "\n") .. "\n"
end

function help.overview()
  local out = { "Sections of a recipe (`titan help SECTION`, `titan help SECTION.KEY`); on the command line: section.key=value" }
  for _, section in ipairs(schema.sections) do out[#out + 1] = ("  %-22s %s"):format(section[1], section.doc) end
  return table.concat(out, "\n") .. "\n"
end

-- A section, a key (also by its last part, or an alias), or an error with the nearest of all topics.
function help.topic(name, ...)
  if schema.section[name] then return section_text(schema.section[name]) end
  local full = schema.alias[name] or name
  local found = {}
  if schema.by_name[full] then found = { full } else found = schema.ending(name) end
  for alias, target in pairs(schema.alias) do
    if #found == 0 and alias:match "[^.]*$" == name then found = { target } end
  end
  if #found > 0 then
    local out = {}
    for i, each in ipairs(found) do
      local key = schema.by_name[each]
      local lines = {}
      if key[2] == "table" then add_key(lines, key, "") end
      out[i] = key[2] == "table" and table.concat(lines, "\n") .. "\n" or key_text(key)
    end
    return table.concat(out, "\n")
  end
  local topics, target = { ... }, schema.elsewhere[name]
  if target and target:sub(1, 1) == "!" then
    host.fail(("command line: help %s: titan has no such setting; %s"):format(name, target:sub(2)))
  end
  for section in pairs(schema.section) do topics[#topics + 1] = section end
  for key in pairs(schema.by_name) do
    topics[#topics + 1] = key
    topics[#topics + 1] = key:match "[^.]*$"
  end
  local guess = target or value.nearest(name, topics)
  local mend = guess and "did you mean " .. guess .. "?" or "`titan help` lists them"
  host.fail(("command line: help %s: no such subject; %s"):format(name, mend))
end

return help
