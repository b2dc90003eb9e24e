-- titan.value - one value against its key in the schema: is it legal, what would be, how it is written and read.
local schema = require "titan.schema"
local host = require "titan.host"

local value = {}

-- The item of `list` that `word` was probably meant to be, whatever its case, or nil; and "did you mean x?" or "one of a, b".
function value.nearest(word, list)
  local lower, original = {}, {}
  for i, item in ipairs(list) do
    lower[i] = item:lower()
    original[lower[i]] = original[lower[i]] or item
  end
  return original[host.nearest(word:lower(), lower)]
end

function value.mend(word, list)
  local guess = value.nearest(word, list)
  return guess and ("did you mean %s?"):format(guess) or (#list > 1 and "one of " or "") .. table.concat(list, ", ")
end

-------------------------------------------------------------------------------------------------------------- writing

local reserved = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while")
  :gmatch "%a+" do reserved[word] = true end

local function is_name(k) return type(k) == "string" and k:find "^[%a_][%w_]*$" and not reserved[k] end

local function number(x)
  if math.type(x) == "integer" then return ("%d"):format(x) end
  if x ~= x then return "0/0" end
  if x == math.huge or x == -math.huge then return x > 0 and "math.huge" or "-math.huge" end
  local s = host.number(x)
  return s:find "[.eE]" and s or s .. ".0"
end

-- Lua text that reads back to the same value; nil for functions and what else has no text.
function value.literal(v)
  local t = type(v)
  if t == "number" then return number(v) end
  if t == "string" then return (("%q"):format(v):gsub("\\\n", "\\n")) end
  if t == "boolean" or t == "nil" then return tostring(v) end
  if t ~= "table" then return nil end
  local parts = {}
  for i, item in ipairs(v) do parts[i] = value.literal(item) or "?" end
  for k, item in pairs(v) do
    if not (math.type(k) == "integer" and k >= 1 and k <= #parts) then
      local name = is_name(k) and k or "[" .. (value.literal(k) or "?") .. "]"
      parts[#parts + 1] = name .. " = " .. (value.literal(item) or "?")
    end
  end
  return #parts == 0 and "{}" or "{ " .. table.concat(parts, ", ") .. " }"
end

-- The same for messages: never longer than a line.
function value.show(v)
  if type(v) == "function" or type(v) == "userdata" or type(v) == "thread" then return "a " .. type(v) end
  local s = value.literal(v)
  return #s > 60 and s:sub(1, 57) .. "..." or s
end

------------------------------------------------------------------------------------------------------ what is legal

local function bound(x)
  local i = math.tointeger(x)
  return i and ("%d"):format(i) or number(x)
end

local plural = { integer = "integers", number = "numbers", table = "tables", list = "lists" }

-- "an integer of at least 1, or -1"
function value.legal(spec)
  if spec.either then return value.legal(spec.either[1]) .. ", or " .. value.legal(spec.either[2]) end
  local kind = spec[2]
  if kind == "choice" then return #spec.one_of == 1 and "only " .. spec.one_of[1] or "one of " .. table.concat(spec.one_of, ", ") end
  if kind == "boolean" then return "true or false" end
  if kind == "text" then return "text" end
  if kind == "path" then return "a path" end
  if kind == "table" then return "a table" end
  if kind == "list" then
    local item = spec.item
    local of = item.either and "items" or plural[item[2]] or "texts"
    local range = (item[2] == "integer" or item[2] == "number") and value.legal(item):match " (of .*)" or nil
    return "a list of " .. (spec.count and spec.count .. " " or "") .. of .. (range and ", each " .. range or "")
  end
  local s = kind == "integer" and (spec.power_of_two and "a power of two" or "an integer") or "a number"
  if spec.min and spec.max then s = s .. (" from %s to %s"):format(bound(spec.min), bound(spec.max))
  elseif spec.min and spec.below then s = s .. (" of at least %s and below %s"):format(bound(spec.min), bound(spec.below))
  elseif spec.min then s = s .. " of at least " .. bound(spec.min)
  elseif spec.above then s = s .. " above " .. bound(spec.above) end
  for _, x in ipairs(spec.also or {}) do s = s .. ", or " .. bound(x) end
  return s
end

local function contains(list, v)
  for _, x in ipairs(list or {}) do
    if x == v then return true end
  end
  return false
end

-- The legal number nearest to x.
local function nearest_number(spec, x)
  local near_x = x
  if spec[2] == "integer" then near_x = math.tointeger(math.floor(x + 0.5)) or near_x end
  if spec.power_of_two and near_x > 1 then near_x = 1 << math.floor(math.log(near_x, 2) + 0.5) end
  if spec.min and near_x < spec.min then near_x = spec.min end
  if spec.max and near_x > spec.max then near_x = spec.max end
  if (spec.above and near_x <= spec.above) or (spec.below and near_x >= spec.below) then return nil end
  return near_x
end

local function check_number(spec, v)
  if type(v) ~= "number" then
    local x = type(v) == "string" and tonumber(v)
    local as_number = x and value.check(spec, x)
    return nil, "must be " .. value.legal(spec), as_number and ("write %s, without quotes"):format(number(as_number)) or nil
  end
  if v ~= v or v == math.huge or v == -math.huge then return nil, "must be a finite number", nil end
  if contains(spec.also, v) then return math.tointeger(v) or v end
  local ok = (not spec.min or v >= spec.min) and (not spec.max or v <= spec.max) and (not spec.above or v > spec.above)
    and (not spec.below or v < spec.below)
  if spec[2] == "integer" then
    local i = math.tointeger(v)
    ok = ok and i and (not spec.power_of_two or i & (i - 1) == 0)
    v = i or v
  end
  if ok then return spec[2] == "number" and v + 0.0 or v end
  local n = nearest_number(spec, v)
  return nil, "must be " .. value.legal(spec), n and ("the nearest is %s"):format(bound(n)) or nil
end

local function check_choice(spec, v)
  if contains(spec.one_of, v) then return v end
  local guess = type(v) == "string" and schema.value_elsewhere[v:lower()]
  if not contains(spec.one_of, guess) then guess = type(v) == "string" and value.nearest(v, spec.one_of) end
  if not guess and #spec.one_of == 1 then guess = spec.one_of[1] end
  return nil, "must be " .. value.legal(spec), guess and ("did you mean %q?"):format(guess) or nil
end

local function check_table(spec, v)
  if type(v) ~= "table" then return nil, "must be a table", nil end
  local out, keys, names = {}, {}, {}
  for _, key in ipairs(spec.keys) do
    keys[key[1]] = key
    names[#names + 1] = tostring(key[1])
  end
  for k, item in pairs(v) do
    local key = keys[k]
    if not key then return nil, ("has no key %s"):format(value.show(k)), value.mend(tostring(k), names) end
    local good, what, mend = value.check(key, item)
    if what then return nil, ("%s = %s: %s"):format(k, value.show(item), what), mend end
    out[k] = good
  end
  for _, k in ipairs(spec.needs or {}) do
    if out[k] == nil then return nil, ("needs %s"):format(k), nil end
  end
  return out
end

local function check_list(spec, v)
  if type(v) ~= "table" then
    local one = value.check(spec.item, v)
    return nil, "must be " .. value.legal(spec), (one ~= nil and not spec.count) and ("write { %s }"):format(value.show(v)) or nil
  end
  local out = {}
  for k in pairs(v) do
    if math.type(k) ~= "integer" or k < 1 or k > #v then
      return nil, ("is a list and has no key %s"):format(value.show(k)), "write { a, b, ... }"
    end
  end
  if spec.count and #v ~= spec.count then return nil, ("must be %s, not of %d"):format(value.legal(spec), #v), nil end
  if spec.min_count and #v < spec.min_count then return nil, "must not be empty", nil end
  for i, item in ipairs(v) do
    local good, what, mend = value.check(spec.item, item)
    if what then return nil, ("item %d = %s: %s"):format(i, value.show(item), what), mend end
    out[i] = good
  end
  return out
end

local yes_no = {
  ["true"] = "true", yes = "true", on = "true", [1] = "true", ["false"] = "false", no = "false", off = "false", [0] = "false",
}

-- The value as it is kept (4.0 for an integer key becomes 4), or nil, what is wrong, the mend (or nil).
function value.check(spec, v)
  if spec.either then
    local first, second = spec.either[1], spec.either[2]
    local is_list = type(v) == "table"
    local likely = (is_list == (second[2] == "list" or second[2] == "table")) and second or first
    if not is_list and second[2] == "integer" then likely = type(v) == "number" and second or first end
    local good, what, mend = value.check(likely, v)
    if not what then return good end
    return nil, is_list and what or "must be " .. value.legal(spec), mend
  end
  local kind = spec[2]
  if kind == "integer" or kind == "number" then return check_number(spec, v) end
  if kind == "choice" then return check_choice(spec, v) end
  if kind == "list" then return check_list(spec, v) end
  if kind == "table" then return check_table(spec, v) end
  if kind == "boolean" then
    if type(v) == "boolean" then return v end
    return nil, "must be true or false", yes_no[v] and "write " .. yes_no[v] or nil
  end
  if type(v) ~= "string" then
    return nil, "must be " .. value.legal(spec), type(v) == "number" and ("write %q"):format(number(v)) or nil
  end
  if v:find "%z" then return nil, "must not contain a zero byte", nil end
  if kind == "path" and v == "" then return nil, "must be a path, not empty", nil end
  return v
end

-------------------------------------------------------------------------------------------------------------- reading

-- A literal as the command line has it: numbers, true, false, nil, "quoted", { lists and key = value }, bare words.
local Reader = {}
Reader.__index = Reader

function Reader:space() self.at = self.text:find("%S", self.at) or #self.text + 1 end

function Reader:table()
  local out, n = {}, 0
  self.at = self.at + 1
  while true do
    self:space()
    if self.text:sub(self.at, self.at) == "}" then
      self.at = self.at + 1
      return out
    end
    local name, rest = self.text:match("^([%a_][%w_]*)%s*=()", self.at)
    if name then
      self.at = rest
      out[name] = self:value()
    else
      n = n + 1
      out[n] = self:value()
    end
    self:space()
    local c = self.text:sub(self.at, self.at)
    if c == "," or c == ";" then self.at = self.at + 1
    elseif c ~= "}" then return error({ "a list ends with }" }, 0) end
  end
end

local escapes = { n = "\n", t = "\t", ["\\"] = "\\", ['"'] = '"', ["'"] = "'" }

function Reader:quoted(mark)
  local out, at = {}, self.at + 1
  while true do
    local c = self.text:sub(at, at)
    if c == "" then error({ "a quoted text ends with " .. mark }, 0) end
    if c == mark then
      self.at = at + 1
      return table.concat(out)
    end
    if c == "\\" then
      at = at + 1
      c = escapes[self.text:sub(at, at)] or error({ "an escape that is none of \\n \\t \\\\ \\\" \\'" }, 0)
    end
    out[#out + 1] = c
    at = at + 1
  end
end

local words = { ["true"] = true, ["false"] = false }

function Reader:value()
  self:space()
  local c = self.text:sub(self.at, self.at)
  if c == "{" then return self:table() end
  if c == '"' or c == "'" then return self:quoted(c) end
  local word, rest = self.text:match("^([^,;{}]+)()", self.at)
  if not word then error({ "a value is missing" }, 0) end
  self.at = rest
  word = word:match "^(.-)%s*$"
  if words[word] ~= nil then return words[word] end
  return tonumber(word) or word
end

local function read(text)
  local reader = setmetatable({ text = text, at = 1 }, Reader)
  local v = reader:value()
  reader:space()
  if reader.at <= #text then error({ ("%s is behind the value"):format(value.show(text:sub(reader.at))) }, 0) end
  return v
end

local function wants(spec, kind)
  if spec.either then return wants(spec.either[1], kind) or wants(spec.either[2], kind) end
  return spec[2] == kind
end

-- The text of an override for this key (nil: any key) -> its value, or nil and what is wrong. "nil" gives value.unset.
value.unset = setmetatable({}, { __tostring = function() return "nil" end })

function value.parse(spec, text)
  text = text:match "^%s*(.-)%s*$"
  if text == "" then return nil, "a value is missing" end
  if text == "nil" then return value.unset end
  local first = text:sub(1, 1)
  local is_text = spec and (wants(spec, "text") or wants(spec, "path") or wants(spec, "choice"))
  local commas = text:find(",", 1, true) and first ~= "{" and first ~= '"' and first ~= "'"
  if commas and (not spec or wants(spec, "list")) then text, first = "{" .. text .. "}", "{" end
  if is_text and first ~= "{" and first ~= '"' and first ~= "'" then
    local x = wants(spec, "integer") and math.tointeger(tonumber(text))
    return x or text
  end
  local ok, v = pcall(read, text)
  if not ok then return nil, type(v) == "table" and v[1] or tostring(v) end
  if spec and wants(spec, "list") and not is_text and type(v) ~= "table" then v = { v } end
  return v
end

return value
