-- titan.resolve - from the table of a recipe and the command line to a value for every key, each with where it was said.
--
--   resolve.recipe(t)            titan.recipe: checks a recipe's table, all its mistakes at once
--   resolve.finish(r, overrides) overrides, then defaults; what C reads (lua/recipe.c)
--
-- A state: values, where and given by full key ("training.steps"), model, problems.
local family = require "titan.family"
local host = require "titan.host"
local lines = require "titan.lines"
local schema = require "titan.schema"
local show = require "titan.show"
local value = require "titan.value"

local resolve = {}
local COMMAND_LINE = "command line"

local function names(t)
  local out = {}
  for k in pairs(t) do out[#out + 1] = k end
  return out
end

------------------------------------------------------------------------------------------------------------- messages

local function problem(state, place, key, what, mend)
  local text = ("%s%s: %s%s"):format(place and place .. ": " or "", key, what, mend and "; " .. mend or "")
  local n = #state.problems + 1
  state.problems[n] = { text = text, n = n, line = tonumber(place and place:match ":(%d+)$") or 0 }
end

-- Raises the first problem, the others as context.
local function raise(state)
  local all = state.problems
  if #all == 0 then return end
  table.sort(all, function(a, b) return a.line < b.line or a.line == b.line and a.n < b.n end)
  local out = {}
  for i, p in ipairs(all) do
    if i > 8 then
      out[i] = ("and %d more"):format(#all - 8)
      break
    end
    out[i] = (i > 1 and "also " or "") .. p.text
  end
  host.fail(table.concat(out, "\n"))
end

local function place(state, key)
  local scan = state.scan
  if not scan then
    scan = lines.scan(host.source(state.chunk) or "")
    state.scan = scan
  end
  return ("%s:%d"):format(state.chunk, key and lines.find(scan, key) or state.line or scan.call or 1)
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for k, v in pairs(a) do
    if not same(v, b[k]) then return false end
  end
  return #a == #b
end

local function contains(list, v)
  for _, x in ipairs(list) do
    if x == v then return true end
  end
  return false
end

--------------------------------------------------------------------------------------------------------- unknown keys

local function names_in(prefix, keys)
  local out = {}
  for _, key in ipairs(keys) do out[#out + 1] = key[1] end
  for alias, full in pairs(schema.alias) do
    local name = alias:sub(1, #prefix + 1) == prefix .. "." and alias:sub(#prefix + 2)
    if name and not name:find(".", 1, true) and full then out[#out + 1] = name end
  end
  return out
end

-- "did you mean x?": x as it is written inside `section`.
local function meant(target, section)
  if target:sub(1, #section + 1) == section .. "." then target = target:sub(#section + 2) end
  return ("did you mean %s?"):format(target)
end

-- The mend for a key that section `prefix` does not have.
local function mend_key(prefix, keys, name)
  local target = schema.elsewhere[name]
  if target and target:sub(1, 1) == "!" then return "leave it out: " .. target:sub(2) end
  local here = prefix .. "." .. (target and target:match "[^.]*$" or "")
  if target then return meant(schema.by_name[here] and here or target, prefix) end
  local others = schema.ending(name)
  if #others > 0 then return meant(others[1], prefix) end
  local guess = value.nearest(name, names_in(prefix, keys))
  if guess then return meant(guess, prefix) end
  local all = names(schema.by_name)
  guess = value.nearest(prefix .. "." .. name, all)
  return guess and meant(guess, prefix) or ("`titan help %s` lists its keys"):format(prefix:match "^[^.]*")
end

local function mend_section(name)
  local target = schema.elsewhere[name]
  if target and target:sub(1, 1) == "!" then return "leave it out: " .. target:sub(2) end
  local guess = target or value.nearest(name, names(schema.section))
  if guess and not guess:find(".", 1, true) then return ("did you mean %s?"):format(guess) end
  local full = guess or schema.ending(name)[1] or schema.alias["parallelism." .. name]
  if full then return ("did you mean %s = { %s = ... }?"):format(full:match "^(.*)%.([^.]*)$") end
  return "`titan help` lists the sections"
end

------------------------------------------------------------------------------------------------------- setting values

-- Is `v` something that this build cannot do yet? Adds the problem.
local function refuse_later(state, at, spec, v)
  local section = spec.section
  local later = spec.later or section.later
  if not later or later == "layout" or same(v, spec.default) or (spec.allow and contains(spec.allow, v)) then return false end
  if type(later) == "table" then
    if not contains(later, v) then return false end
    local left = {}
    for _, x in ipairs(spec.one_of) do
      if not contains(later, x) then left[#left + 1] = x end
    end
    local mend = "use " .. table.concat(left, " or ")
    problem(state, at, ("%s = %s"):format(spec.full, value.show(v)), "this build cannot do that yet", mend)
    return true
  end
  local what = section.later and ("this build has no %s yet"):format(section.later) or "this build cannot do that yet"
  local mend = spec.default == nil and "leave it out" or "leave it at " .. value.show(spec.default)
  problem(state, at, ("%s = %s"):format(spec.full, value.show(v)), what, mend)
  return true
end

-- spec gets v, said under `name` at `at`.
local function set(state, at, spec, name, v)
  local good, what, mend = value.check(spec, v)
  if what then return problem(state, at, ("%s = %s"):format(name, value.show(v)), what, mend) end
  if refuse_later(state, at, spec, good) then return end
  state.values[spec.full], state.where[spec.full] = good, at
end

-- short: the section was given as one value, at this place.
local function set_keys(state, prefix, keys, t, short)
  for k, v in pairs(t) do
    local name = prefix .. "." .. tostring(k)
    local full = schema.by_name[name] and name or schema.alias[name]
    local spec = full and schema.by_name[full]
    local at = short or place(state, name)
    if type(k) ~= "string" then
      local what, mend = ("%s[%s]"):format(prefix, tostring(k)), ("%s = { key = value }"):format(prefix)
      problem(state, place(state, prefix), what, "values need names", mend)
    elseif not spec then
      problem(state, at, name, "unknown key", mend_key(prefix, keys, k))
    elseif spec[2] == "table" then
      if type(v) == "table" then set_keys(state, full, spec.keys, v)
      else problem(state, at, ("%s = %s"):format(name, value.show(v)), "must be a table", nil) end
    elseif state.said[full] then
      problem(state, at, name, ("is another name of %s, which is given too"):format(state.said[full]), "keep one of them")
    else
      state.said[full] = name
      set(state, at, spec, name, v)
    end
  end
end

-- A description from what the recipe says under `model`; nil after a problem.
local function model_of(state, at, v)
  if family.is(v) then return v end
  if type(v) ~= "table" then
    local what = ("must be what a model function returns, not %s"):format(value.show(v))
    problem(state, at, "model", what, "for example model = llama3.debug {}")
    return nil
  end
  if type(v.hf) ~= "string" or getmetatable(v) ~= nil then
    local mend = "for example model = llama3.debug { n_layers = 4 }, or model = { hf = \"FOLDER\" }"
    problem(state, at, "model", "is a table that no model function returned", mend)
    return nil
  end
  local more = {}
  for k, x in pairs(v) do
    if k ~= "hf" then more[k] = x end
  end
  return require "titan.hf".model(v.hf, more)
end

local function set_section(state, name, v)
  local section = schema.section[name]
  local at = place(state, name)
  if name == "model" then
    state.model = model_of(state, at, v)
    state.model_where = at
  elseif type(v) == "table" and getmetatable(v) == nil then
    set_keys(state, name, section.keys, v)
  elseif section.short and type(v) ~= "table" then
    set_keys(state, name, section.keys, { [section.short] = v }, at)
  else
    problem(state, at, ("%s = %s"):format(name, value.show(v)), "must be a table", ("%s = { ... }"):format(name))
  end
end

local Recipe = { __name = "recipe", __metatable = "recipe" }
local states = setmetatable({}, { __mode = "k" })

Recipe.__index = function(r, name)
  local t = states[r].given[name]
  return t
end
Recipe.__newindex = function() error("a recipe is finished when titan.recipe returns; put the value into its table", 2) end

function resolve.recipe(t)
  local chunk, line = host.place() -- nothing behind `return titan.recipe { ... }`, which is a tail call
  local state = { chunk = chunk or host.main(), line = line, values = {}, where = {}, said = {}, problems = {}, given = t }
  if type(t) ~= "table" or states[t] then
    local given = states[t] and "a recipe" or value.show(t)
    problem(state, place(state), "titan.recipe", ("takes a table of sections, not %s"):format(given), nil)
    raise(state)
  end
  for name, v in pairs(t) do
    if type(name) ~= "string" then
      problem(state, place(state), ("[%s]"):format(tostring(name)), "sections have names", "training = { ... }")
    elseif not schema.section[name] then
      problem(state, place(state, name), name, "unknown section", mend_section(name))
    else
      set_section(state, name, v)
    end
  end
  if t.model == nil then
    local mend = "for example model = llama3.debug { n_layers = 4 }, or model = { hf = \"FOLDER\" }"
    problem(state, place(state), "model", "is missing", mend)
  end
  raise(state)
  local r = setmetatable({}, Recipe)
  states[r] = state
  return r
end

------------------------------------------------------------------------------------------------------------ overrides

local function override_model(state, key, text)
  local v, what = value.parse(nil, text)
  if what then return problem(state, COMMAND_LINE, "model." .. key .. "=" .. text, what, nil) end
  if key == "hf" then
    state.model, state.model_where = require "titan.hf".model(text, {}), COMMAND_LINE
    return
  end
  local d = family.copy(state.model)
  if v == value.unset then v = false end
  local ok, why = family.set(d, key, v)
  local meant = not ok and schema.model_elsewhere[key]
  if meant and family.set(d, meant, v) then
    return problem(state, COMMAND_LINE, "model." .. key, "unknown key", ("did you mean %s?"):format(meant))
  elseif not ok then
    return problem(state, COMMAND_LINE, why:match "^(.-): (.*)$")
  end
  state.model = d
  state.model_overrides[#state.model_overrides + 1] = key
end

local function override(state, text)
  local name, said = text:match "^([^=]+)=(.*)$"
  name = name:match "^%s*(.-)%s*$"
  local section, key = name:match "^([^.]+)%.(.+)$"
  if not section and schema.section[name] and schema.section[name].short then
    section, key = name, schema.section[name].short
    name = section .. "." .. key
  end
  if section == "model" then return override_model(state, key, said) end
  local spec = schema.by_name[schema.alias[name] or name]
  if not section then
    local mend = schema.section[name] and ("write %s.KEY=%s"):format(name, said == "" and "VALUE" or said)
    local full = schema.ending(name)[1]
    mend = mend or full and ("write %s=%s"):format(full, said) or mend_section(name)
    return problem(state, COMMAND_LINE, text, "overrides are section.key=value", mend)
  elseif not schema.section[section] then
    return problem(state, COMMAND_LINE, name, "unknown section", mend_section(section))
  elseif not spec or spec[2] == "table" then
    return problem(state, COMMAND_LINE, name, "unknown key", mend_key(section, schema.section[section].keys, key))
  end
  local v, what = value.parse(spec, said)
  if what then return problem(state, COMMAND_LINE, text, what, "must be " .. value.legal(spec)) end
  if v == value.unset then
    if spec.default ~= nil or spec.by_device then
      state.values[spec.full], state.where[spec.full] = nil, nil
    else
      state.values[spec.full], state.where[spec.full] = nil, COMMAND_LINE
    end
    return
  end
  local before = state.overridden[spec.full]
  if before and before ~= name then
    return problem(state, COMMAND_LINE, name, ("is another name of %s, which is given too"):format(before), "keep one of them")
  end
  state.overridden[spec.full] = name
  set(state, COMMAND_LINE, spec, name, v)
end

------------------------------------------------------------------------------------------------------------- defaults

-- Every item of a list or table as a key of its own: "optimizer.betas[1]", "optimizer.groups[2].pattern".
local function flatten(out, name, v, where)
  out[#out + 1] = { name, v, where }
  if type(v) ~= "table" then return end
  for k, item in pairs(v) do
    flatten(out, type(k) == "string" and name .. "." .. k or ("%s[%d]"):format(name, k), item, where)
  end
end

local function each_key(keys, visit)
  for _, key in ipairs(keys) do
    if key[2] == "table" then each_key(key.keys, visit) else visit(key) end
  end
end

-- -> { model =, device =, text =, flat = { { name, value, where }, ... } }
function resolve.finish(r, overrides, name)
  local state = states[r]
  if not state then host.fail(("%s: must end with `return titan.recipe { ... }`"):format(name)) end
  state.overridden, state.model_overrides = {}, {}
  for _, text in ipairs(overrides) do override(state, text) end
  raise(state)
  local kind = state.values["device.kind"]
  local device = kind == "cuda" and "cuda" or "cpu" -- this build computes on the CPU; cuda is for plans
  local flat = {}
  for _, section in ipairs(schema.sections) do
    each_key(section.keys, function(spec)
      if section[1] == "model" then return end
      local v, where = state.values[spec.full], state.where[spec.full]
      if v == nil and spec.default ~= nil then v, where = value.check(spec, spec.default), "default" end
      if v == nil and spec.by_device then v, where = spec.by_device[device], "default for " .. device end
      state.values[spec.full], state.where[spec.full] = v, where or "default"
      flatten(flat, spec.full, v, where or "default")
    end)
  end
  local hf = family.hf_dir(state.model)
  flat[#flat + 1] = { "model.hf", hf, state.model_where }
  return { model = state.model, device = device, text = show.recipe(state), flat = flat }
end

return resolve
