-- titan.module - modules: tables of submodules and parameters with a forward function and a sharding table.
--
-- Life of a module:  build (submodules and parameters, no values)  ->  placed (it gets its path, its parameters their
-- names and initialisers, its table is read)  ->  called inside a trace, which applies the table around forward:
--   check in_src, redistribute to in_dst, forward, check out_src, redistribute to out_dst      (types.md 3.1)
local layout = require "titan.layout"
local near = require "titan.near"
local trace = require "titan.trace"

local M = {}
local fail = function(...) return trace.fail(string.format(...)) end

local serial = 0 -- modules and parameters in the order in which they were made: the order of parameters
local function next_serial()
  serial = serial + 1
  return serial
end

local function kind_of(v)
  local mt = type(v) == "table" and getmetatable(v)
  return mt and mt.kind or nil
end
M.kind_of = kind_of

---------------------------------------------------------------------------------------------- parameters
-- A parameter stands for its value: forward functions use it as one.
local Parameter = { kind = "parameter", __add = trace.add, __sub = trace.sub, __mul = trace.mul }
Parameter.__index = Parameter
function Parameter:shape()
  local out = {}
  for i, d in ipairs(self.dims) do out[i] = d[1] end
  return table.unpack(out)
end

-- dims: a list of extents or nn.heads. options: init, buffer (then attributes of op state).
function M.parameter(dims, options)
  local p = { dims = {}, serial = next_serial(), init = options and options.init, buffer = options and options.buffer }
  for i, d in ipairs(dims) do p.dims[i] = M.dim(d) end
  return setmetatable(p, Parameter)
end

-- An extent or nn.heads as { extent, units }.
function M.dim(d)
  if kind_of(d) == "heads" then return { d.n * d.head_dim, d.of } end -- cut as the query heads are
  if math.type(d) == "float" and d == d // 1 and d < 2 ^ 53 then d = d // 1 | 0 end
  if math.type(d) ~= "integer" or d < 1 then
    error(("a dim is a whole number from 1 on or nn.heads, not %s"):format(tostring(d)), 0)
  end
  return { d, 0 }
end

---------------------------------------------------------------------------------------------- classes
local function construct(class, ...)
  local self = setmetatable({ c = (...), serial = next_serial() }, class.instance)
  if class.build then class.build(self, ...) end
  return self
end

-- A module class, in which build, forward, init and sharding are defined; with `base`, what it lacks is the base's.
function M.module(name, base)
  if type(name) ~= "string" then error("nn.module needs the name of the module, as in nn.module \"Attention\"", 2) end
  if base ~= nil and kind_of(base) ~= "class" then
    error(("nn.module %q: the base is no module class"):format(name), 2)
  end
  local class = { name = name }
  class.instance = { kind = "module", class = class, __index = class, __name = name }
  class.instance.__call = function(self, ...) return class.call(self, ...) end
  class.instance.__tostring = function(self) return name end
  return setmetatable(class, { kind = "class", __index = base or M.Base, __call = construct,
                               __tostring = function() return "module " .. name end })
end

-- With a wrong kind of argument a constructor answers at once: Attention{...} is built from a config, so is every
-- block.
M.Base = {}

-- nn.list(n, make): make(0), make(1), ...; each learns its index (paths, depth-scaled initialisers).
local List = { kind = "list", __index = nil }
function M.list(n, make)
  if math.type(n) ~= "integer" or n < 1 then
    error(("nn.list needs a number of modules from 1 on, not %s"):format(tostring(n)), 2)
  end
  local self = setmetatable({ serial = next_serial() }, List)
  for i = 1, n do
    local m = make(i - 1)
    if kind_of(m) ~= "module" then
      error(("nn.list: entry %d is a %s where a module is needed"):format(i - 1, type(m)), 2)
    end
    self[i] = m
  end
  return self
end

---------------------------------------------------------------------------------------------- placing
local long_names = {
  state_shardings = "state", state_sharding = "state", in_src_shardings = "in_src", in_dst_shardings = "in_dst",
  out_src_shardings = "out_src", out_dst_shardings = "out_dst",
}
local fields = { state = true, in_src = true, in_dst = true, out_src = true, out_dst = true, local_map = true }
local places = {} -- module -> { path, args, table of its boundary }; of the model that is traced

local function join_path(path, name) return path == "" and name or path .. "." .. name end

local function older(a, b)
  if a.value.serial ~= b.value.serial then return a.value.serial < b.value.serial end
  return a.name < b.name
end

-- Named children and parameters in the order in which they were made; and a text that equal sets of names share.
local function members(self)
  local out, n, names = {}, 0, ""
  for name, v in next, self do
    local kind = kind_of(v)
    if kind == "module" or kind == "list" or kind == "parameter" then
      n = n + 1
      out[n] = { name = tostring(name), value = v, kind = kind }
      names = names .. " " .. kind .. " " .. name
    end
  end
  if n > 1 then table.sort(out, older) end
  return out, names
end

local function is_list_of_layouts(t) return type(t) == "table" and (t[1] ~= nil or next(t) == nil) end

-- Splits a sharding table in the module's own fields and those of its children; checks every name.
local function split_table(path, t, children, own, below)
  if type(t) ~= "table" then return fail("%s: a sharding table is a table, not a %s", path, type(t)) end
  for key, v in pairs(t) do
    local name = long_names[key] or key
    if fields[name] then
      if own[name] ~= nil then
        return fail("%s: %s stands in its own table and in its parent's; write it once", path, name)
      end
      own[name] = v
    elseif children[name] then
      below[name] = below[name] or {}
      table.insert(below[name], v)
    else
      local legal = near.names(fields)
      for child in pairs(children) do legal[#legal + 1] = child end
      table.sort(legal)
      return fail("%s: its sharding table has a field '%s'; %s", path, tostring(name), near.mend(name, legal))
    end
  end
end

local function check_state(path, own, parameters)
  local state = own.state or {}
  for _, p in ipairs(parameters) do
    if state[p.name] == nil then
      local first = #parameters == 1 and "" or ", as of every parameter of the module"
      return fail("%s: no state for parameter '%s' in its sharding table; write state = { %s = param(R) } or the like%s",
        path, p.name, p.name, first)
    end
  end
  for name in pairs(state) do
    local known = {}
    for _, p in ipairs(parameters) do known[#known + 1] = p.name end
    local found = false
    for _, k in ipairs(known) do found = found or k == name end
    if not found then
      if #known == 0 then
        return fail("%s: state of '%s', but it has no parameters; leave it out", path, tostring(name))
      end
      return fail("%s: state of '%s', which it has not; %s", path, tostring(name), near.mend(name, known))
    end
  end
end

local function check_arguments(path, own, args)
  for _, field in ipairs { "in_src", "in_dst" } do
    for name in pairs(own[field] or {}) do
      if not args[name] then
        return fail("%s: %s names '%s', which is no argument of its forward; %s", path, field, tostring(name),
          near.mend(name, near.names(args)))
      end
    end
  end
  for name in pairs(own.in_dst or {}) do
    if not (own.in_src and own.in_src[name]) then
      return fail("%s: in_dst of %s without in_src; say where it comes from", path, name)
    end
  end
end

local function check_boundary(path, own, args)
  check_arguments(path, own, args)
  if own.out_dst ~= nil and own.out_src == nil then
    return fail("%s: out_dst without out_src; say where the output comes from", path)
  end
  if own.out_dst ~= nil and is_list_of_layouts(own.out_dst) ~= is_list_of_layouts(own.out_src) then
    return fail("%s: out_src and out_dst list a different number of outputs", path)
  end
  if is_list_of_layouts(own.out_dst) and #own.out_dst ~= #own.out_src then
    return fail("%s: out_src lists %d outputs, out_dst %d; list the same", path, #own.out_src, #own.out_dst)
  end
  local map = own.local_map
  if map == nil then return end
  for key in pairs(map) do
    if key ~= "at" and key ~= "grad" then
      return fail("%s: local_map has a field '%s'; at, grad", path, tostring(key))
    end
  end
  if map.at ~= nil and map.at ~= "keys gathered over cp" then
    return fail("%s: local_map.at is '%s'; the one form is 'keys gathered over cp'", path, tostring(map.at))
  end
  if own.out_src == nil then return fail("%s: local_map without out_src; declare its output", path) end
  for name in pairs(map.grad or {}) do
    if not (own.in_dst and own.in_dst[name]) then
      return fail("%s: local_map.grad of %s without in_dst of it; declare its input", path, tostring(name))
    end
  end
end

local function argument_places(class)
  local forward = class.forward
  local out = {}
  if forward then
    for i, name in ipairs(trace.arguments(forward)) do out[name] = i end
  end
  return out
end

-- An initialiser for parameter `name` of `self`: its own, or what init() of the module or of one above says.
local function initialiser(p, name, inits)
  local init = p.init
  for i = #inits, 1, -1 do
    local said = inits[i].table[join_path(inits[i].rest, name)]
    if said ~= nil then init = said end
  end
  return init
end

-- What the tables say of a module: { own = its boundary, below = tables of its children, args }. They depend on the
-- class, on what its parent says and on the names that it holds, so that a hundred equal layers are read once.
local function read_tables(self, class, path, tables, model, all, names)
  local of_class = model.read[class] or {}
  local memo = of_class[tables] or {}
  model.read[class], of_class[tables] = of_class, memo
  if memo[names] then return memo[names] end

  local out, children, parameters = { own = {}, below = {}, args = argument_places(class) }, {}, {}
  for _, m in ipairs(all) do
    if m.kind == "parameter" then parameters[#parameters + 1] = m else children[m.name] = m.value end
  end
  if class.sharding then split_table(path, class.sharding(self, model.on), children, out.own, out.below) end
  for _, t in ipairs(tables) do split_table(path, t, children, out.own, out.below) end
  check_state(path, out.own, parameters)
  check_boundary(path, out.own, out.args)
  memo[names] = out
  return out
end

local nothing = {}

-- inits(rest) for a child: what init() of the modules above says below it.
local function deeper_inits(inits, name)
  if #inits == 0 then return inits end
  local out = {}
  for i, init in ipairs(inits) do out[i] = { table = init.table, rest = join_path(init.rest, name) } end
  return out
end

-- Gives `self` its path; collects its parameters in model.parameters.
local function place(self, path, tables, model, index, inits)
  if places[self] then
    return fail("%s: the same module stands at %s; a module has one place (share a weight with tied_to)",
      path, places[self].path)
  end
  local class = getmetatable(self).class
  local all, names = members(self)
  local read = read_tables(self, class, path, tables, model, all, names)
  local own = read.own
  places[self] = {
    path = path, args = read.args, local_map = own.local_map,
    in_src = own.in_src, in_dst = own.in_dst, out_src = own.out_src, out_dst = own.out_dst,
  }
  if class.init then
    inits = { table.unpack(inits) }
    inits[#inits + 1] = { table = class.init(self), rest = "" }
  end
  for _, m in ipairs(all) do
    local at, below = join_path(path, m.name), read.below[m.name] or nothing
    if m.kind == "parameter" then
      model:add(m.value, at, own.state[m.name], initialiser(m.value, m.name, inits), index)
    elseif m.kind == "module" then
      place(m.value, at, below, model, index, deeper_inits(inits, m.name))
    else
      local each = deeper_inits(inits, m.name)
      for i, entry in ipairs(m.value) do
        place(entry, join_path(at, tostring(i - 1)), below, model, i - 1, deeper_inits(each, tostring(i - 1)))
      end
    end
  end
end

-- The two booleans that a sharding table may depend on, and nothing else.
local function switches(options)
  return setmetatable({}, {
    __index = function(_, key)
      if key == "sp" or key == "ep" then return options[key] end
      error(("a sharding table may depend on on.sp and on.ep only, not on on.%s"):format(tostring(key)), 2)
    end,
    __newindex = function() error("a sharding table reads on.sp and on.ep; it sets nothing", 2) end,
  })
end

-- Places a whole model. -> list of { name, parameter, layout, init, index }, each parameter once, and the shared ones:
-- list of { name, parameter, layout }.
function M.place(root, options)
  places = {}
  local model = { on = switches(options), parameters = {}, shared = {}, owner = {}, read = {} }
  function model:add(p, name, where, init, index)
    if self.owner[p] then
      table.insert(self.shared, { name = name, parameter = p, layout = where })
    else
      self.owner[p] = name
      table.insert(self.parameters, { name = name, parameter = p, layout = where, init = init, index = index })
    end
  end
  place(root, "", nothing, model, nil, {})
  return model.parameters, model.shared
end

---------------------------------------------------------------------------------------------- calls
local function place_of(self)
  local own = places[self]
  if own then return own end
  return fail("%s: %s has no place in the model; assign it to a field of its parent, or to an nn.list",
    trace.path(), getmetatable(self).class.name)
end
M.place_of = place_of

-- Moves values[i] of a call across the way in.
local function move_in(own, values)
  for name, where in pairs(own.in_src) do -- sorted: the order of nodes must not depend on hashes
    local i = own.args[name]
    if values[i] ~= nil then
      trace.check(values[i], where, "in_src of " .. name)
      local to = own.in_dst and own.in_dst[name]
      if to then values[i] = trace.redistribute(values[i], to, "in_dst of " .. name) end
      local grad = own.local_map and own.local_map.grad and own.local_map.grad[name]
      if grad then trace.check_gradient(values[i], grad, "local_map.grad of " .. name) end
    end
  end
end

local function move_out(own, values)
  local src, dst = own.out_src, own.out_dst
  if not is_list_of_layouts(src) then src, dst = { src }, dst and { dst } end
  if values.n ~= #src then
    return fail("%s: forward returns %d values, out_src lists %d", own.path, values.n, #src)
  end
  for i = 1, values.n do
    local which = #src == 1 and "" or (" of output %d"):format(i)
    trace.check(values[i], src[i], "out_src" .. which)
    if dst then values[i] = trace.redistribute(values[i], dst[i], "out_dst" .. which) end
  end
end

-- The way in and out of a module for one value, under its path; for ops that several modules share (nn.linears).
function M.way_in(self, name, x)
  local own = place_of(self)
  if not own.in_src then return x end
  local before, values = trace.enter(own.path), { [own.args[name]] = x }
  move_in(own, values)
  trace.enter(before)
  return values[own.args[name]]
end

function M.way_out(self, y)
  local own = place_of(self)
  if not own.out_src then return y end
  local before, values = trace.enter(own.path), { n = 1, y }
  move_out(own, values)
  trace.enter(before)
  return values[1]
end

function M.Base.call(self, ...)
  local own = place_of(self)
  local class = getmetatable(self).class
  local before = trace.enter(own.path)
  if not class.forward then return fail("%s: module %s has no forward", own.path, class.name) end
  local values = table.pack(...)
  if own.in_src then move_in(own, values) end
  local out = table.pack(class.forward(self, table.unpack(values, 1, values.n)))
  if own.out_src then move_out(own, out) end
  trace.enter(before)
  return table.unpack(out, 1, out.n)
end

-- Other systems' names for what a module lacks.
M.layout = layout

return M
