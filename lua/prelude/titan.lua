-- titan - what a recipe starts with: local titan = require "titan"; return titan.recipe { ... }
local resolve = require "titan.resolve"

local titan = {}

-- Checks sections and keys against the schema and returns the recipe; overrides and defaults come when the file is done.
-- The result can be read (recipe.training.steps) but not changed.
function titan.recipe(t) return resolve.recipe(t) end

return titan
