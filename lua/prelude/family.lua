-- titan.family - a family of models: defaults, flavours, derived values, and the plain description that a recipe holds.
--
--   llama3.debug { n_layers = 4 }      a description: data only; modules are built when the graph is traced
--
-- Values of a key, the later wins: defaults of the base family, defaults, the flavour, the recipe, overrides. Tables
-- merge key by key; `false` in the place of a table switches it off. A default that is a function is derived: it is
-- called with the finished config when no one gave a value. Keys are those of the defaults and the flavours, and so
-- are their types.
--
-- For the schema of recipes (what can refuse returns nil and a message "model.KEY: WHAT; MEND", without file and line):
--   family.is(v)                       is v a description? (a flavour is one: `model = llama3.debug`)
--   family.set(d, "rope.theta", v)     overrides one key by its path; d is changed. true, or nil and the message
--   family.keys(d)                     sorted list of { name, value, given }, given one of "default", "flavour",
--                                      "config.json", "recipe"
--   family.text(d)                     Lua text that makes the same description again
--   family.copy(d)                     a description of its own, so that overrides leave the recipe's alone
--   family.hf_dir(d)                   the folder of `model.hf`, or nil
--   require "titan.hf".model(dir, t)   the description of a Hugging Face folder with overrides t; raises
local host = require "titan.host"
local kind_of = require "titan.module".kind_of
local near = require "titan.near"

local M = {}
local families, descriptions = {}, {} -- object -> what it holds

local function is_plain(t) return type(t) == "table" and getmetatable(t) == nil end

-- b over a; both stay as they are.
local function merge(a, b)
  if not (is_plain(a) and is_plain(b)) then return b end
  local out = {}
  for k, v in pairs(a) do out[k] = v end
  for k, v in pairs(b) do out[k] = merge(out[k], v) end
  return out
end

----------------------------------------------------------------------------------------- values against their samples
local check

local function check_table(path, sample, value)
  local out = {}
  for k, v in pairs(value) do
    local s = sample[k]
    if s == nil then
      return nil, ("%s.%s: unknown key; %s"):format(path, tostring(k), near.mend(k, near.names(sample)))
    end
    local good, why = check(path .. "." .. tostring(k), s, v)
    if why then return nil, why end
    out[k] = good
  end
  return out
end

-- -> the value as it is kept, or nil and why not.
function check(path, sample, value)
  local function wrong(needed)
    local shown = type(value) == "string" and ("%q"):format(value) or tostring(value)
    if type(value) == "table" or type(value) == "function" then shown = "a " .. type(value) end
    return nil, ("%s: %s is needed, not %s"):format(path, needed, shown)
  end
  if type(sample) == "function" or sample == nil then return value end
  if kind_of(sample) == "class" then
    if kind_of(value) == "class" or type(value) == "function" then return value end
    return wrong("a module class, as nn.module makes it")
  end
  if type(value) == "function" then return value end -- derived
  if type(sample) == "table" then
    if value == false then return value end
    if not is_plain(value) then return wrong("a table (or false)") end
    return check_table(path, sample, value)
  end
  if type(sample) == "boolean" and sample == false and is_plain(value) then return value end
  if math.type(sample) == "integer" then
    local whole = type(value) == "number" and math.tointeger(value)
    if not whole or whole < 0 then return wrong("a whole number from 0 on") end
    return whole
  end
  if type(sample) == "number" then
    if type(value) ~= "number" or not (value >= 0) then return wrong("a number from 0 on") end
    return value + 0.0
  end
  if type(value) ~= type(sample) then return wrong("a " .. type(sample)) end
  return value
end

---------------------------------------------------------------------------------------------- families
local family_fields = {
  name = true, base = true, model = true, defaults = true, flavours = true, hugging_face = true, modules = true,
}

local function all_samples(data)
  local out = {}
  for _, layer in ipairs { data.defaults, table.unpack(data.flavour_list) } do
    for k, v in pairs(layer) do
      if out[k] == nil or type(out[k]) == "function" and kind_of(v) ~= "class" then out[k] = v
      elseif is_plain(out[k]) and is_plain(v) then out[k] = merge(v, out[k]) end
    end
  end
  return out
end

-- from: what a config.json said (hf_dir); given: what the recipe and overrides say.
local function describe(family, flavour, given, from, hf_dir)
  local d = setmetatable({}, M.Description)
  descriptions[d] = { family = family, flavour = flavour, given = given, from = from or {}, hf_dir = hf_dir }
  return d
end

local Family = { kind = "family" }

function Family.__index(f, key)
  local data = families[f]
  if data.flavours[key] then return describe(f, key, {}) end
  if data.modules[key] then return data.modules[key] end
  if key == "name" then return data.name end
  local legal = near.names(data.flavours)
  for name in pairs(data.modules) do legal[#legal + 1] = name end
  error(("%s has no flavour '%s'; %s"):format(data.name, tostring(key), near.mend(key, legal)), 2)
end

Family.__newindex = function(f)
  error(("family %s is fixed; make another with nn.family { base = .. }"):format(families[f].name), 2)
end
Family.__tostring = function(f) return "family " .. families[f].name end

-- A model without a flavour: every value from the defaults and the call.
function Family.__call(f, given) return describe(f, "custom", {})(given or {}) end

function M.family(t)
  if not is_plain(t) then error("nn.family needs a table", 2) end
  for k in pairs(t) do
    if not family_fields[k] then
      error(("nn.family: unknown field '%s'; %s"):format(tostring(k), near.mend(k, near.names(family_fields))), 2)
    end
  end
  local base = t.base and families[t.base]
  if t.base and not base then error("nn.family: base is no family", 2) end
  base = base or { defaults = {}, flavours = {}, modules = {} }
  local data = {
    name = t.name, model = t.model or base.model, modules = {}, flavour_list = {},
    hugging_face = t.hugging_face, -- not the base's: it is another function
    defaults = merge(base.defaults, t.defaults or {}), flavours = merge(base.flavours, t.flavours or {}),
  }
  if type(data.name) ~= "string" then error("nn.family: name is missing", 2) end
  if kind_of(data.model) ~= "class" then error(("nn.family %s: model is no module class"):format(data.name), 2) end
  for name, class in pairs(base.modules) do data.modules[name] = class end
  for _, class in ipairs(t.modules or {}) do data.modules[class.name] = class end
  for _, flavour in pairs(data.flavours) do table.insert(data.flavour_list, flavour) end
  data.samples = all_samples(data)
  for name, flavour in pairs(data.flavours) do
    local _, why = check_table(("%s.%s"):format(data.name, name), data.samples, flavour)
    if why then error(why, 2) end
  end
  local f = setmetatable({}, Family)
  families[f] = data
  return f
end

function M.data(f) return families[f] end
function M.name(d) return families[descriptions[d].family].name, descriptions[d].flavour end

---------------------------------------------------------------------------------------------- descriptions
M.Description = { kind = "description" }

function M.is(v) return kind_of(v) == "description" end
function M.value(d, key) return M.has(d, key) and M.config(d)[key] or nil end
function M.has(d, key) return families[descriptions[d].family].samples[key] ~= nil end
function M.family_of(d) return descriptions[d].family end
function M.hf_dir(d) return descriptions[d].hf_dir end

function M.copy(d)
  local s = descriptions[d]
  return describe(s.family, s.flavour, merge(s.given, {}), s.from, s.hf_dir)
end

-- The description of what `dir`/config.json says; values as in the family.
function M.from_hf(family, values, dir)
  local good, why = check_table("model", families[family].samples, values)
  if why then return nil, why end
  return describe(family, "hf", {}, good, dir)
end

function M.with(d, values)
  local s = descriptions[d]
  local samples = families[s.family].samples
  if not is_plain(values) then return nil, ("model: a table of keys is needed, not %s"):format(tostring(values)) end
  local good, why = check_table("model", samples, values)
  if why then return nil, why end
  return describe(s.family, s.flavour, merge(s.given, good), s.from, s.hf_dir)
end

M.Description.__call = function(d, values)
  local out, why = M.with(d, values)
  if why then error(why, 2) end
  return out
end
M.Description.__tostring = function(d) return ("%s.%s"):format(M.name(d)) end
M.Description.__newindex = function()
  error("a model's description is fixed; give its keys in the call: llama3.debug { n_layers = 4 }", 2)
end

function M.set(d, path, value)
  local words, s = {}, descriptions[d]
  for word in path:gmatch "[^.]+" do words[#words + 1] = word end
  if #words == 0 then return nil, "model: a key is missing" end
  for i = #words, 1, -1 do value = { [words[i]] = value } end
  local good, why = check_table("model", families[s.family].samples, value)
  if why then return nil, why end
  s.given = merge(s.given, good)
  return true
end

-- The finished config: strict, derived values computed when they are first read.
local Config = { kind = "config" }
local pending = {} -- config -> { values not computed yet, keys being computed, samples }

function Config.__index(c, key)
  local p = pending[c]
  local v = p.values[key]
  if v == nil then
    if p.samples[key] ~= nil then
      error(("model.%s: no value; the flavour or the recipe must give one"):format(key), 2)
    end
    error(("the model has no key '%s'; %s"):format(tostring(key), near.mend(key, near.names(p.samples))), 2)
  end
  if type(v) == "function" and kind_of(p.samples[key]) ~= "class" then
    if p.busy[key] then error(("model.%s: its derived value depends on itself"):format(key), 2) end
    p.busy[key] = true
    v = v(c)
    p.busy[key] = nil
    if v == nil then error(("model.%s: its derived value is nil"):format(key), 2) end
  end
  rawset(c, key, v)
  return v
end

function M.config(d)
  local s = descriptions[d]
  local data = families[s.family]
  local values = merge(merge(merge(data.defaults, data.flavours[s.flavour] or {}), s.from), s.given)
  local c = setmetatable({}, Config)
  pending[c] = { values = values, busy = {}, samples = data.samples }
  return c
end

M.Description.__index = function(d, key) return M.config(d)[key] end

-- The Hugging Face table of the family, or nil: also where the description swaps a block, whose weights transformers
-- would read as something else.
function M.hugging_face(d)
  local s = descriptions[d]
  local data = families[s.family]
  for key, v in pairs(s.given) do
    if kind_of(data.samples[key]) == "class" and v ~= data.defaults[key] then return nil end
  end
  return data.hugging_face
end

-- The module class of the whole model.
function M.model(d) return families[descriptions[d].family].model end

function M.keys(d)
  local s = descriptions[d]
  local data, c, out = families[s.family], M.config(d), {}
  for _, name in ipairs(near.names(data.samples)) do
    local flavour = data.flavours[s.flavour]
    local given = s.given[name] ~= nil and "recipe" or s.from[name] ~= nil and "config.json"
      or flavour and flavour[name] ~= nil and "flavour" or "default"
    local ok, value = pcall(function() return c[name] end)
    if ok then out[#out + 1] = { name = name, value = value, given = given } end
  end
  return out
end

---------------------------------------------------------------------------------------------- as text
-- `require("m")` or `require("m").X` of a value that some loaded module holds, or nil.
local function reference(value)
  for name, m in pairs(host.loaded()) do
    if rawequal(m, value) then return ("require(%q)"):format(name) end
    if type(m) == "table" and not families[m] and kind_of(m) == nil then
      for k, v in next, m do
        if rawequal(v, value) and type(k) == "string" then return ("require(%q).%s"):format(name, k) end
      end
    elseif families[m] then
      for k, v in pairs(families[m].modules) do
        if rawequal(v, value) then return ("require(%q).%s"):format(name, k) end
      end
    end
  end
end

local function literal(v)
  if type(v) == "string" then return ("%q"):format(v) end
  if math.type(v) == "float" then
    local text = host.number(v)
    return text:find "[.en]" and text or text .. ".0"
  end
  if is_plain(v) then
    local parts = {}
    for k, x in pairs(v) do parts[#parts + 1] = ("%s = %s"):format(k, literal(x)) end
    return #parts > 0 and "{ " .. table.concat(parts, ", ") .. " }" or "{}"
  end
  if type(v) == "table" or type(v) == "function" then
    return reference(v) or ("nil --[[ %s, defined in the recipe ]]"):format(tostring(v))
  end
  return tostring(v)
end
M.literal = literal

function M.text(d)
  local s = descriptions[d]
  local given = s.given
  if s.hf_dir then
    return literal(merge(given, { hf = s.hf_dir }))
  end
  local head = reference(s.family) or ("nil --[[ family %s, defined in the recipe ]]"):format(families[s.family].name)
  local flavour = s.flavour:match "^[%a_][%w_]*$" and "." .. s.flavour or ("[%q]"):format(s.flavour)
  if s.flavour == "custom" then flavour = "" end
  return ("%s%s%s"):format(head, flavour, next(given) == nil and flavour ~= "" and "" or " " .. literal(given))
end

return M
