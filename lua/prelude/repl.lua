-- titan.repl - what `titan -i` runs: evaluating what was typed, the functions that answer about a recipe, completion.
--
-- eval(text, line) answers "more" (the text is not complete) or "=" and what to show. Names that are assigned live in
-- `room` from one piece to the next; what is not there is looked up among the functions below, then among Lua's own.
local draw = require "titan.draw"
local help = require "titan.help"
local host = require "titan.host"
local schema = require "titan.schema"
local value = require "titan.value"
local view = require "titan.view"

local M = {}

---------------------------------------------------------------------------------------------- answers
local functions, docs = {}, {}

local function define(name, usage, doc, f)
  functions[name] = f
  docs[#docs + 1] = { name = name, usage = usage, doc = doc }
end

define("model", "model()", "the tree of modules: shapes, parameters, their share", function()
  return draw.model(view.parameters())
end)

define("layout", "layout(name [, rank])",
  "where a parameter, or what a module computes, lies: its cuts, a rank's slice, who holds which",
  function(name, rank) return draw.wrap(view.layout(name, rank)) end)

define("mesh", "mesh([rank])", "the ranks drawn with their axes; a rank's place and its groups",
  function(rank) return draw.wrap(view.mesh(rank)) end)

define("move", "move(name, to [, from [, rank]])",
  "how a value would travel to another placement, \"{dp:R cp:R tp:1}\", step by step with bytes",
  function(...) return draw.wrap(view.move(...)) end)

define("graph", "graph(path [, pass])", "the nodes of a module, behind the last pass or another",
  function(path, pass, stage)
    if path == "" then path = nil end
    local about = view.about()
    for i = stage or 0, stage or about.stages - 1 do
      local text = view.graph(path, pass, i)
      if text:find "\n%%" then return draw.graph(text) end
    end
    local paths = {}
    for each in pairs(view.paths()) do paths[#paths + 1] = each end
    host.fail(("graph: no node at %s; %s"):format(tostring(path), value.mend(tostring(path), paths)))
  end)

define("memory", "memory([pipeline rank])", "memory over the time of a step as a bar chart, and who owns the peak",
  function(stage) return draw.memory(view.timeline(20, stage), view.owners(stage)) end)

define("plan", "plan()", "everything that is known before a run, as `titan plan` prints it",
  function() return draw.wrap(view.plan()) end)

define("diff", "diff(run, run)", "two dump folders: IDENTICAL, or the first difference", function(a, b) view.diff(a, b) end)

define("config", "config([section])", "the resolved recipe: every key and where its value came from", function(section)
  local text = view.config()
  if not section then return text end
  local part = text:match("\n(  " .. section:gsub("%p", "%%%0") .. " = %b{},)\n")
  if part then return part .. "\n" end
  local names = {}
  for _, each in ipairs(schema.sections) do names[#names + 1] = each[1] end
  host.fail(("config: no section '%s'; %s"):format(section, value.mend(section, names)))
end)

define("open", "open(path)", "another recipe, with the same number of ranks", function(path)
  view.open(path)
  return M.state()
end)

define("set", "set(setting, ...)", "settings as on the command line: set(\"parallelism.tp=4\", \"training.seq_len=512\")",
  function(...)
    view.set(...)
    return M.state()
  end)

define("world", "world(ranks)", "plan for that many ranks; 0: what the recipe says", function(n)
  view.world(n)
  return M.state()
end)

-- One line about what is open.
function M.state()
  local about = view.about()
  local settings = #about.settings > 0 and ", " .. table.concat(about.settings, " ") or ""
  return ("%s for %d rank%s%s\n"):format(about.recipe, about.ranks, about.ranks == 1 and "" or "s", settings)
end

local function overview()
  local out = { "Functions:" }
  for _, d in ipairs(docs) do out[#out + 1] = ("  %-30s %s"):format(d.usage, d.doc) end
  out[#out + 1] = "help(\"training.steps\") explains a key, help(\"training\") a section, help(\"rmsnorm\") an op."
  out[#out + 1] = "All of Lua is there: for i = 0, 3 do print(layout(\"norm.weight\", i)) end"
  return table.concat(out, "\n") .. "\n"
end

define("help", "help([x])", "this list; or a function, a section, a key, an op", function(x)
  if x == nil then return draw.wrap(overview()) end
  for _, d in ipairs(docs) do
    if x == d.name or x == functions[d.name] then return draw.wrap(("%s\n  %s\n"):format(d.usage, d.doc)) end
  end
  local op = type(x) == "string" and view.ops()[x]
  if op then return draw.wrap(("op %s\n  factors     %s\n  attributes  %s\n"):format(x, op.factors, op.attributes)) end
  local topics = {}
  for _, d in ipairs(docs) do topics[#topics + 1] = d.name end
  return draw.wrap(help.topic(tostring(x), table.unpack(topics)))
end)

---------------------------------------------------------------------------------------------- evaluating
local lua = { "assert", "error", "getmetatable", "ipairs", "load", "math", "next", "pairs", "pcall", "print", "rawequal",
  "rawget", "rawlen", "rawset", "require", "select", "setmetatable", "string", "table", "tonumber", "tostring", "type",
  "utf8", "xpcall" }
local room = {}
local known = setmetatable({}, { __index = functions })
known.titan = require "titan"
for _, name in ipairs(lua) do known[name] = load("return " .. name)() end

setmetatable(room, { __index = function(_, name)
  local found = known[name]
  if found ~= nil then return found end
  local names = {}
  for each in pairs(room) do names[#names + 1] = tostring(each) end
  for each in pairs(known) do names[#names + 1] = each end
  for each in pairs(functions) do names[#names + 1] = each end
  local guess = value.nearest(tostring(name), names)
  error(("undefined name '%s'%s"):format(tostring(name), guess and ("; did you mean '%s'?"):format(guess) or ""), 2)
end })

local function show(x)
  if type(x) == "string" then return x end
  if type(x) == "table" and not (getmetatable(x) or {}).__tostring then return draw.table(x) end
  return tostring(x)
end

function M.eval(text, line, last)
  if not text:find "%S" then return "=" end
  local before = ("\n"):rep(tonumber(line) - 1) -- errors count the lines of the session
  local chunk = load(before .. "return " .. text, "@input", "t", room)
  local why
  if not chunk then chunk, why = load(before .. text, "@input", "t", room) end
  if not chunk then
    if why:find "<eof>$" and last == "" then return "more" end
    host.fail(why)
  end
  local results = table.pack(chunk())
  local out = {}
  for i = 1, results.n do
    local shown = show(results[i])
    if not (results.n == 1 and results[i] == nil) then out[#out + 1] = shown:find "\n$" and shown or shown .. "\n" end
  end
  return "=" .. table.concat(out)
end

-- recipe: a recipe was named; it must open. terminal: somebody reads this.
function M.greet(recipe, terminal)
  local state = recipe ~= "" and M.state() or "no recipe is open\n"
  if terminal ~= "" then print("titan -i: " .. state .. "help() lists what can be asked; Tab completes; Ctrl-D ends") end
  return ""
end

---------------------------------------------------------------------------------------------- completion
-- What may stand inside the text that is the argument of a function.
local function topics(name)
  local out = {}
  if name == "help" or name == "set" then
    for full in pairs(schema.by_name) do out[#out + 1] = full end
    for alias in pairs(schema.alias) do out[#out + 1] = alias end
  end
  if name == "help" or name == "config" then
    for section in pairs(schema.section) do out[#out + 1] = section end
  end
  if name == "help" then
    for op in pairs(view.ops()) do out[#out + 1] = op end
    for _, d in ipairs(docs) do out[#out + 1] = d.name end
  end
  if name == "layout" or name == "graph" or name == "move" then
    local ok, paths = pcall(view.paths)
    for path in pairs(ok and paths or {}) do out[#out + 1] = path end
  end
  return out
end

-- Of names that begin alike: up to the next dot behind what is typed, so that a model unfolds level by level.
local function levels(names, word)
  local seen, out = {}, {}
  for _, name in ipairs(names) do
    if name:sub(1, #word) == word then
      local stop = name:find(".", #word + 1, true)
      local part = stop and name:sub(1, stop) or name
      if not seen[part] then out[#out + 1] = part end
      seen[part] = true
    end
  end
  return out
end

local libraries = { -- their tables cannot be walked
  string = "byte char find format gmatch gsub len lower match pack rep reverse sub unpack upper",
  table = "concat insert move pack remove sort unpack",
  math = "abs ceil cos deg exp floor fmod huge log max maxinteger min mininteger modf pi rad random sin sqrt tan tointeger type",
  utf8 = "char codepoint codes len offset",
}

local function members(before)
  local object, word = before:match "([%a_][%w_.]*)[.:]([%w_]*)$"
  local names = {}
  local function add(t)
    for k in pairs(t) do
      if type(k) == "string" then names[#names + 1] = k end
    end
  end
  if not object then
    word = before:match "([%a_][%w_]*)$" or ""
    add(room)
    add(known)
    add(functions)
    return names, word
  end
  local at = room
  for part in object:gmatch "[^.]+" do
    at = type(at) == "table" and (at == room and (rawget(room, part) or known[part]) or rawget(at, part)) or nil
  end
  for name in (libraries[object] or ""):gmatch "%S+" do names[#names + 1] = name end
  if type(at) == "table" then add(at) end
  return names, word
end

function M.complete(before)
  local name, word = before:match "([%a_][%w_]*)%s*%(?%s*[\"']([^\"']*)$"
  local found
  if name then
    found = levels(topics(name), word)
  else
    local names
    names, word = members(before)
    found = levels(names, word)
  end
  table.sort(found)
  if #found == 0 then return "" end
  local common = found[1]
  for _, each in ipairs(found) do
    while each:sub(1, #common) ~= common do common = common:sub(1, -2) end
  end
  local insert = common:sub(#word + 1)
  if #found == 1 and not name and functions[found[1]] then insert = insert .. "(" end
  if #found == 1 or insert ~= "" then return insert end
  return "\n" .. draw.columns(found)
end

return M
