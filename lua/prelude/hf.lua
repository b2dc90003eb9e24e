-- titan.hf - Hugging Face: names of parameters both ways, config.json both ways. What differs by family is data in
-- nn.family:
--
--   hugging_face = {
--     architecture = "LlamaForCausalLM", model_type = "llama",
--     { HF pattern, titan pattern, unless = KEY },   "{}" is an index; {a,b} alternatives, matched by their place
--     config = { KEY = "name in config.json", KEY = { "name", default = a value or another name },
--                rope = nn.rope_config },
--     fixed = { name = the one value that the model can do },
--   }
local family = require "titan.family"
local trace = require "titan.trace"

local M = {}

-- Where model.hf looks for the architecture of a config.json, in this order.
M.modules = { "models.llama3" }

local function fail(...) return trace.fail(string.format(...)) end

---------------------------------------------------------------------------------------------- names
-- "a.{x,y}.{}" -> { "a.x.{}", "a.y.{}" }, the alternatives of several groups chosen by their place.
local function expand(pattern)
  local groups, n = {}, nil
  for list in pattern:gmatch "{([^{}]+)}" do
    local words = {}
    for word in list:gmatch "[^,]+" do words[#words + 1] = word end
    if n and n ~= #words then
      error(("nn.family: pattern '%s': its alternatives differ in number"):format(pattern), 0)
    end
    n, groups[#groups + 1] = #words, words
  end
  local out = {}
  for i = 1, n or 1 do
    local g = 0
    out[i] = pattern:gsub("{[^{}]+}", function()
      g = g + 1
      return groups[g][i]
    end)
  end
  return out
end

local compiled = {} -- family -> { to = { titan form -> hf form }, from = .., when = { form -> key that drops it } }

local function compile(f)
  if compiled[f] then return compiled[f] end
  local data = family.data(f)
  local map = { to = {}, from = {}, unless = {} }
  for _, line in ipairs(data.hugging_face) do
    local theirs, ours = expand(line[1]), expand(line[2])
    if #theirs ~= #ours then
      error(("nn.family: '%s' and '%s' have different numbers of alternatives"):format(line[1], line[2]), 0)
    end
    for i = 1, #ours do
      if map.to[ours[i]] or map.from[theirs[i]] then error(("nn.family: '%s' is mapped twice"):format(ours[i]), 0) end
      map.to[ours[i]], map.from[theirs[i]], map.unless[ours[i]] = theirs[i], ours[i], line.unless
    end
  end
  compiled[f] = map
  return map
end

-- "layers.12.x" -> "layers.{}.x", { "12" }; a name with braces of its own has no form
local function form_of(name)
  if name:find "[{}]" then return name .. "{", {} end
  local numbers = {}
  local form = ("." .. name .. "."):gsub("%.(%d+)%f[.]", function(n)
    numbers[#numbers + 1] = n
    return ".{}"
  end)
  return form:sub(2, -2), numbers
end

local function fill(form, numbers)
  local i = 0
  return (form:gsub("{}", function()
    i = i + 1
    return numbers[i]
  end))
end

-- titan's name -> the name in Hugging Face files, "" for one that is not there (a tied head). A model that
-- transformers does not know keeps titan's names.
function M.name(d, name)
  if not family.hugging_face(d) then return name end
  local map = compile(family.family_of(d))
  local form, numbers = form_of(name)
  local theirs = map.to[form]
  if not theirs then
    return fail("%s: the name map of %s does not have it; add a line to its hugging_face table", name, (family.name(d)))
  end
  local unless = map.unless[form]
  if unless and d[unless] then return "" end
  return fill(theirs, numbers)
end

-- The name in Hugging Face files -> titan's, "" for a tensor without a place here (tied heads, rotary tables).
function M.titan_name(d, name)
  local f = family.family_of(d)
  if not family.data(f).hugging_face then return name end
  local map = compile(f)
  if name:find "rotary_emb%.inv_freq$" then return "" end
  local form, numbers = form_of(name)
  local ours = map.from[form]
  if not ours and not family.hugging_face(d) then return name end
  if not ours then return fail("%s: no parameter of %s has this name in Hugging Face files", name, (family.name(d))) end
  local unless = map.unless[ours]
  if unless and d[unless] then return "" end
  return fill(ours, numbers)
end

-------------------------------------------------------------------------------------- rotary embedding in config.json
local llama3_keys = {
  factor = "factor", low = "low_freq_factor", high = "high_freq_factor", original = "original_max_position_embeddings",
}

-- rope: { type, theta, section, params } of either generation.
local function read_rope(json, where, rope)
  local r, field = rope.params, rope.section
  local partial = r.partial_rotary_factor or json.partial_rotary_factor
  if partial and partial ~= 1 then
    return fail("%s: partial_rotary_factor: %s; titan rotates whole heads (1)", where, tostring(partial))
  end
  if rope.type == "default" then return { theta = rope.theta, scaling = false } end
  if rope.type ~= "llama3" then
    return fail("%s: %s.rope_type: '%s'; titan knows default and llama3", where, field, rope.type)
  end
  local scaling = { kind = "llama3" }
  for ours, theirs in pairs(llama3_keys) do
    local v = r[theirs]
    if type(v) ~= "number" or not (v > 0) then
      return fail("%s: %s.%s: %s; rope_type llama3 needs a number above 0", where, field, theirs, tostring(v))
    end
    scaling[ours] = v
  end
  if scaling.high <= scaling.low then
    return fail("%s: %s.high_freq_factor: %s is not above low_freq_factor = %s",
      where, field, tostring(scaling.high), tostring(scaling.low))
  end
  return { theta = rope.theta, scaling = scaling }
end

-- Keys of transformers 5 (rope_parameters) and 4 (rope_theta, rope_scaling), so that either reads it.
local function write_rope(rope)
  local scaling = { { "rope_type", rope.scaling and "llama3" or "default" } }
  if rope.scaling then
    for ours, theirs in pairs(llama3_keys) do scaling[#scaling + 1] = { theirs, rope.scaling[ours] } end
  end
  local parameters = { table.unpack(scaling) }
  parameters[#parameters + 1] = { "rope_theta", rope.theta }
  return {
    { "rope_parameters", parameters }, { "rope_scaling", rope.scaling and scaling or M.null },
    { "rope_theta", rope.theta },
  }
end

M.null = {}
M.rope_config = { read = read_rope, write = write_rope }

---------------------------------------------------------------------------------------------- reading config.json
local function shown(v)
  if type(v) == "string" then return ('"%s"'):format(v) end
  return type(v) == "table" and "a table" or tostring(v)
end

local function find_family(json, where)
  local listed = type(json.architectures) == "table" and json.architectures[1]
  local known = {}
  for _, name in ipairs(M.modules) do
    local f = require(name)
    local map = family.data(f).hugging_face
    if listed == map.architecture or not listed and json.model_type == map.model_type then return f, map end
    known[#known + 1] = map.architecture
  end
  if listed then
    return fail("%s: architectures: %s; titan reads %s", where, shown(listed), table.concat(known, ", "))
  end
  return fail("%s: architectures: missing, and model_type is %s; titan reads %s",
    where, shown(json.model_type), table.concat(known, ", "))
end

local function check_fixed(json, fixed, where)
  for name, value in pairs(fixed or {}) do
    if json[name] ~= nil and json[name] ~= value then
      return fail("%s: %s: %s; titan's model has %s", where, name, shown(json[name]), shown(value))
    end
  end
  for _, name in ipairs { "quantization_config", "compression_config" } do
    if json[name] ~= nil then
      return fail("%s: %s: quantised weights cannot be read; take the bf16 folder", where, name)
    end
  end
end

-- The value of model key `key`; nil leaves it to the family's derived default.
local function read_key(json, rope, entry, where, derived)
  if type(entry) == "table" and entry.read then return entry.read(json, where, rope) end
  local name, default = entry, nil
  if type(entry) == "table" then name, default = entry[1], entry.default end
  local v = json[name]
  if v == nil and type(default) == "string" then v = json[default] end
  if v == nil and default ~= nil and type(default) ~= "string" then v = default end
  if v == nil and not derived then return fail("%s: %s: missing; the model needs it", where, name) end
  if type(v) == "number" and v <= 0 then return fail("%s: %s: %s; a number above 0 is needed", where, name, v) end
  return v
end

-- The description of a Hugging Face folder; `given` overrides it.
function M.model(dir, given)
  local where = dir .. "/config.json"
  local json, rope = trace.config(dir)
  local f, map = find_family(json, where)
  local data = family.data(f)
  check_fixed(json, map.fixed, where)
  local values = {}
  for key, entry in pairs(map.config) do
    values[key] = read_key(json, rope, entry, where, type(data.defaults[key]) == "function")
    local d, why = family.from_hf(f, { [key] = values[key] }, dir)
    if not d then
      local name = type(entry) == "string" and entry or entry[1] or key
      return fail("%s: %s: %s", where, name, why:match "^model%.[^:]*: (.*)$" or why)
    end
  end
  local d = assert(family.from_hf(f, values, dir))
  if next(given or {}) == nil then return d end
  local out, why = family.with(d, given)
  if not out then error(why, 2) end
  return out
end

---------------------------------------------------------------------------------------------- writing config.json
local function json_text(v, indent)
  if v == M.null then return "null" end
  if type(v) == "string" then
    return '"' .. v:gsub('[%c"\\]', function(ch) return ("\\u%04x"):format(ch:byte()) end) .. '"'
  end
  if type(v) == "table" and #v > 0 and type(v[1]) ~= "table" then
    local items = {}
    for i, x in ipairs(v) do items[i] = json_text(x, indent) end
    return "[" .. table.concat(items, ", ") .. "]"
  end
  if type(v) == "table" then
    local lines, inner = {}, indent .. "  "
    table.sort(v, function(a, b) return a[1] < b[1] end)
    for i, pair in ipairs(v) do lines[i] = ('%s"%s": %s'):format(inner, pair[1], json_text(pair[2], inner)) end
    return "{\n" .. table.concat(lines, ",\n") .. "\n" .. indent .. "}"
  end
  return family.literal(v)
end

local torch_names = { f32 = "float32", bf16 = "bfloat16", f16 = "float16" }

-- A model of titan's own: its keys as they are.
local function own_config(d, dtype)
  local out = { { "model_type", "titan." .. family.name(d) }, { "dtype", torch_names[dtype] } }
  for _, key in ipairs(family.keys(d)) do
    local v = key.value
    if type(v) == "number" or type(v) == "string" or type(v) == "boolean" then out[#out + 1] = { key.name, v } end
  end
  return out
end

-- config.json of a description, as text; dtype f32, bf16 or f16.
function M.config_json(d, dtype)
  local map = family.hugging_face(d)
  if not map then return json_text(own_config(d, dtype), "") .. "\n" end
  local pairs_of = {
    { "architectures", { map.architecture } }, { "model_type", map.model_type }, { "dtype", torch_names[dtype] },
    { "torch_dtype", torch_names[dtype] }, { "use_cache", true },
    { "bos_token_id", M.null }, { "eos_token_id", M.null },
  }
  for name, v in pairs(map.fixed or {}) do pairs_of[#pairs_of + 1] = { name, v } end
  for key, entry in pairs(map.config) do
    if type(entry) == "table" and entry.write then
      for _, pair in ipairs(entry.write(d[key])) do pairs_of[#pairs_of + 1] = pair end
    else
      pairs_of[#pairs_of + 1] = { type(entry) == "table" and entry[1] or entry, d[key] }
    end
  end
  return json_text(pairs_of, "") .. "\n"
end

return M
