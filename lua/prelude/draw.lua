-- titan.draw - the REPL's answers as text of at most 80 columns.
local draw = {}

local WIDTH = 80

local function scaled(x, units, base)
  local i = 1
  while x >= base * 0.9995 and i < #units do
    x, i = x / base, i + 1
  end
  if i == 1 then return ("%d%s"):format(x, units[1]) end
  return ((x >= 99.95 and "%.0f%s") or (x >= 9.995 and "%.1f%s") or "%.2f%s"):format(x, units[i])
end

function draw.bytes(n) return scaled(n, { " B", " KiB", " MiB", " GiB", " TiB", " PiB" }, 1024) end
function draw.count(n) return scaled(n, { "", "K", "M", "B", "T" }, 1000) end

function draw.seconds(s)
  if s < 1e-3 then return ("%.0f us"):format(s * 1e6) end
  return s < 1 and ("%.2f ms"):format(s * 1e3) or ("%.2f s"):format(s)
end

-- Lines that are too long go on below, four blanks further in; a word that is longer than a line is cut.
function draw.wrap(text)
  local out = {}
  for line in text:gmatch "([^\n]*)\n?" do
    local indent = line:match "^ *"
    while #line > WIDTH do
      local at = line:sub(1, WIDTH + 1):match "^.*() "
      if not at or at <= #indent + 4 then at = WIDTH + 1 end
      out[#out + 1] = line:sub(1, at - 1):gsub(" +$", "")
      line = indent .. "    " .. line:sub(at):gsub("^ +", "")
      indent = line:match "^ *":sub(5)
    end
    out[#out + 1] = line
  end
  while #out > 0 and out[#out] == "" do out[#out] = nil end
  return table.concat(out, "\n") .. "\n"
end

-- Words in as many columns as fit.
function draw.columns(words)
  local wide = 0
  for _, w in ipairs(words) do wide = math.max(wide, #w) end
  local n = math.max(1, (WIDTH + 2) // (wide + 2))
  local rows, out = (#words + n - 1) // n, {}
  for r = 1, rows do
    local line = {}
    for c = 0, n - 1 do
      local w = words[r + c * rows]
      if w then line[#line + 1] = w .. (" "):rep(wide - #w) end
    end
    out[r] = table.concat(line, "  "):gsub(" +$", "")
  end
  return table.concat(out, "\n") .. "\n"
end

-- A Lua table, one level.
function draw.table(t)
  local out, n = {}, 0
  for k, v in pairs(t) do
    n = n + 1
    if n <= 100 then out[n] = ("  %s = %s"):format(tostring(k), type(v) == "string" and ("%q"):format(v) or tostring(v)) end
  end
  if n == 0 then return "{}\n" end
  if n > 100 then out[101] = ("  .. %d more"):format(n - 100) end
  return draw.wrap("{\n" .. table.concat(out, "\n") .. "\n}\n")
end

---------------------------------------------------------------------------------------------- the model
local function grow(parameters)
  local root = { name = "", children = {}, by_name = {}, elements = 0 }
  for _, p in ipairs(parameters) do
    local at = root
    at.elements = at.elements + p.elements
    for part in p.name:gmatch "[^.]+" do
      local child = at.by_name[part]
      if not child then
        child = { name = part, children = {}, by_name = {}, elements = 0 }
        at.by_name[part] = child
        at.children[#at.children + 1] = child
      end
      child.elements = child.elements + p.elements
      at = child
    end
    at.leaf = p
  end
  return root
end

-- Equal texts: equal subtrees, but for their own names.
local function form(node)
  local out = { node.leaf and node.leaf.shape .. node.leaf.dtype or "" }
  for _, c in ipairs(node.children) do out[#out + 1] = c.name .. "(" .. form(c) .. ")" end
  return table.concat(out, ",")
end

local function add_tree(out, node, indent, all)
  local i = 1
  while i <= #node.children do
    local c, last = node.children[i], i
    if c.name:match "^%d+$" then
      local own = form(c)
      while node.children[last + 1] and node.children[last + 1].name:match "^%d+$" and form(node.children[last + 1]) == own do
        last = last + 1
      end
    end
    local times = last - i + 1
    local name = times == 1 and c.name or ("%s .. %s (%d alike)"):format(c.name, node.children[last].name, times)
    local elements = c.elements * times
    while not c.leaf and #c.children == 1 do
      c = c.children[1]
      name = name .. "." .. c.name
    end
    local leaf = c.leaf
    out[#out + 1] = ("%-36s %-16s %-5s %8s %6.2f %%"):format(
      indent .. name, leaf and leaf.shape or "", leaf and leaf.dtype or "", draw.count(elements), 100 * elements / all)
    add_tree(out, c, indent .. "  ", all)
    i = last + 1
  end
end

function draw.model(parameters)
  local root = grow(parameters)
  local out = { ("%-36s %-16s %-5s %8s"):format("module", "shape", "dtype", "elements") }
  add_tree(out, root, "", math.max(1, root.elements))
  out[#out + 1] = ("%-36s %-16s %-5s %8s  (%d)"):format("in all", "", "", draw.count(root.elements), root.elements)
  return draw.wrap(table.concat(out, "\n") .. "\n")
end

---------------------------------------------------------------------------------------------- the graph
-- "%a : f32[..] {..} = op(%b) x=1 @path F microbatch s0": names and types, then what they are made of, under the module.
function draw.graph(text)
  local out, under = {}, nil
  for line in text:gmatch "[^\n]+" do
    local results, op, rest, path, phase = line:match "^(%%.-) = ([%w_]+)(%b().*) @(%S*) (%S+)"
    if results then
      if path .. phase ~= under then out[#out + 1] = ("%s   %s"):format(path == "" and "the step" or path, phase) end
      under = path .. phase
      out[#out + 1] = draw.wrap("  " .. results):sub(1, -2)
      out[#out + 1] = draw.wrap("      = " .. op .. rest):sub(1, -2)
    end
  end
  return table.concat(out, "\n") .. "\n"
end

---------------------------------------------------------------------------------------------- memory
local parts = { { "activations", "#" }, { "gathered", "+" }, { "gradients", "=" }, { "weight_gradients", "%" }, { "update", "-" } }
local BAR = 36

local function bar(moment, most)
  local out, sum, drawn = {}, 0, 0
  for _, p in ipairs(parts) do
    sum = sum + moment[p[1]]
    local upto = math.floor(sum / most * BAR + 0.5)
    out[#out + 1] = p[2]:rep(upto - drawn)
    drawn = upto
  end
  return table.concat(out)
end

-- The end of a path says most: it loses parts from the front.
local function tail(text, n)
  if #text <= n then return text end
  local rest = text
  while #rest > n - 2 and rest:find(".", 1, true) do rest = rest:gsub("^[^.]*%.", "") end
  return ".." .. rest:sub(-(n - 2))
end

function draw.memory(t, owners)
  local out, most = {}, math.max(1, t.peak)
  out[#out + 1] = ("%s and the update: %s of work; arena %s, bound %s"):format(
    t.microbatches == 1 and "a microbatch" or ("one of %d microbatches"):format(t.microbatches), draw.seconds(t.seconds),
    draw.bytes(t.peak), draw.bytes(t.bound))
  out[#out + 1] = ("%9s %9s  %-20s |%s"):format("from", "bytes", "where", ("%-" .. BAR .. "s"):format(" to " .. draw.bytes(most)))
  for _, m in ipairs(t) do
    out[#out + 1] = ("%9s %9s  %-20s |%s"):format(
      draw.seconds(m.s), draw.bytes(m.bytes), tail(m.path and (m.path == "" and m.op or m.path) or "", 20), bar(m, most))
  end
  out[#out + 1] = "  # activations  + gathered weights  = gradients  % weight gradients  - update"
  out[#out + 1] = ""
  local p = t.planned
  out[#out + 1] = ("beside it: parameters %s, optimizer %s, inputs %s, mail %s, scratch %s, process %s; in all %s"):format(
    draw.bytes(p.parameters), draw.bytes(p.optimizer), draw.bytes(p.inputs), draw.bytes(p.mail), draw.bytes(p.scratch),
    draw.bytes(p.process), draw.bytes(p.total))
  out[#out + 1] = ""
  out[#out + 1] = ("live at the peak, %d buffers:"):format(#owners)
  table.sort(owners, function(a, b) return a.bytes > b.bytes or a.bytes == b.bytes and a.name < b.name end)
  local rest = 0
  for i, o in ipairs(owners) do
    if i <= 10 then
      out[#out + 1] = ("  %9s  %-32s read last by %s"):format(draw.bytes(o.bytes), tail(o.name, 32), o.reader)
    else
      rest = rest + o.bytes
    end
  end
  if #owners > 10 then out[#out + 1] = ("  %9s  in %d more"):format(draw.bytes(rest), #owners - 10) end
  return draw.wrap(table.concat(out, "\n") .. "\n")
end

return draw
