-- titan.lines - in which line of a recipe's text a key stands, for messages and for "where did this come from".
--
-- A scan of the words of the text, no parser: inside `titan.recipe { ... }` every `name =` is entered under its full path
-- ("optimizer.groups[1].lr"); any other `name =` of the text under its name alone, which helps when a section was put together
-- elsewhere. What is not found has no line, and the caller names the line of the call.
local lines = {}

-- Words of Lua text: calls visit(kind, text, line); kind: name, text (the content of a quoted one), mark.
local function words(text, visit)
  local at, line = 1, 1
  local function skip(to)
    for _ in text:sub(at, to):gmatch "\n" do line = line + 1 end
    at = to + 1
  end
  while at <= #text do
    local c = text:sub(at, at)
    local comment = text:find("^%-%-", at)
    local long = text:match("^%[(=*)%[", comment and at + 2 or at)
    if c:find "%s" then
      skip(text:match("^%s+()", at) - 1)
    elseif long then
      local _, stop = text:find("]" .. long .. "]", at, true)
      skip(stop or #text)
      if not comment then visit("text", "", line) end
    elseif comment then
      skip((text:find("\n", at, true) or #text + 1) - 1)
    elseif c:find "[%a_]" then
      local name = text:match("^[%w_]+", at)
      visit("name", name, line)
      at = at + #name
    elseif c == '"' or c == "'" then
      local stop = at + 1
      while stop <= #text and text:sub(stop, stop) ~= c do stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1) end
      visit("text", text:sub(at + 1, stop - 1), line)
      skip(math.min(stop, #text))
    elseif c:find "%d" then
      local number = text:match("^[%w.]+", at)
      visit("number", number, line)
      at = at + #number
    else
      local mark = text:match("^[=~<>]=", at) or c
      visit("mark", mark, line)
      at = at + #mark
    end
  end
end

-- { at = { path -> line }, named = { name -> line of its first `name =` }, call = line of `titan.recipe {` or nil }
function lines.scan(text)
  local out = { at = {}, named = {} }
  local stack, depth = {}, 0        -- open tables; depth of the recipe's own (0: outside)
  local before, last, pending = "", "", nil -- the words before; the key whose value is being read
  local found = false

  local function path(name)
    local parts = {}
    for i = depth + 1, #stack do parts[#parts + 1] = stack[i].name end
    parts[#parts + 1] = name
    return (table.concat(parts, "."):gsub("%.%[", "["))
  end

  words(text, function(kind, word, line)
    local top = stack[#stack]
    if kind == "mark" and word == "{" then
      local name = pending or (top and "[" .. top.n .. "]") or "?"
      stack[#stack + 1] = { name = name, n = 1 }
      if not found and (last == "recipe" or (last == "(" and before == "recipe")) then
        found, depth = true, #stack
        out.call = line
      end
      pending = nil
    elseif kind == "mark" and word == "}" then
      if #stack == depth then depth = math.huge end
      stack[#stack] = nil
    elseif kind == "mark" and (word == "," or word == ";") then
      if top and not top.keyed then top.n = top.n + 1 end
      if top then top.keyed = false end
      pending = nil
    elseif kind == "mark" and word == "=" and last ~= "" then
      pending = last
      if not out.named[last] then out.named[last] = line end
      if top then top.keyed = true end
      if found and depth > 0 and #stack >= depth and not out.at[path(last)] then out.at[path(last)] = line end
    end
    if not (kind == "mark" and word == "]") then before, last = last, word end -- ["key"] = value
  end)
  return out
end

-- The line of a key such as "training.steps", or nil.
function lines.find(scan, key)
  return scan.at[key] or scan.named[key:match "[^.%[%]]*$"]
end

return lines
