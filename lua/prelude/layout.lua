-- titan.layout - placements (R I P V S) and the layouts that sharding tables are written with.
--
-- A layout says, for every mesh axis, how a value lies on it:  { dp = S(0), cp = S(1), tp = R }
-- Where several axes split one dim, a spec gives their order, outer to inner, one entry per dim:
--   { spec = { "dp", { "cp", "tp" }, nil } }
-- `dp` stands for dp_replicate and dp_shard together. lua/layout.c checks what is written and turns it into types.
local M = {}

local Placement = { kind = "placement" }
Placement.__index = Placement
Placement.__tostring = function(p) return p.type == "S" and ("S(%d)"):format(p.dim) or p.type end
Placement.__call = function(p) error(("%s takes no argument; S(d) does"):format(p.type), 2) end

local function placement(type, dim) return setmetatable({ type = type, dim = dim }, Placement) end

M.R = placement "R" -- same data on every rank, which go on to do different work
M.I = placement "I" -- same data, same work
M.V = placement "V" -- different data without a global meaning (inside a local_map)
M.P = placement "P" -- a pending sum

-- Split in dim d, counted from 0; -1 is the last.
function M.S(d)
  if math.type(d) ~= "integer" then error("S needs the number of a dim, as in S(0) or S(-1)", 2) end
  return placement("S", d)
end

local R, P, S = M.R, M.P, M.S

function M.param(x) return { dp = R, cp = R, tp = x } end     -- every dense parameter and buffer
function M.ACT(x) return { dp = S(0), cp = S(1), tp = x } end -- activations [b s d]
M.SEQ = { spec = { "dp", { "cp", "tp" } } }                   -- [b s d], sequence parallel
M.TOK = { dp = S(0), cp = S(1), tp = R }                      -- token ids, positions, documents [b s]
M.LBL = { dp = S(0), cp = S(1), tp = M.I }                    -- labels [b s]
M.HEADS = { dp = S(0), cp = S(1), tp = S(2) }                 -- [b s h k]
M.KVFULL = { dp = S(0), cp = R, tp = S(2) }                   -- keys and values of all positions
M.KVGRAD = { dp = S(0), cp = P, tp = S(2) }                   -- their gradients

-- The usual tables of a linear: split by its outputs, or by its inputs (then the sum is placed as X).
M.colwise = { state = { weight = M.param(S(0)) }, out_src = M.ACT(S(-1)) }
function M.rowwise(X) return { state = { weight = M.param(S(1)) }, out_src = M.ACT(P), out_dst = X } end

-- One table out of several; a field that two of them give is an error.
function M.join(...)
  local out = {}
  for _, t in ipairs { ... } do
    for k, v in pairs(t) do
      if out[k] ~= nil then
        error(("nn.join: two of the tables give '%s'; leave it out of one"):format(tostring(k)), 2)
      end
      out[k] = v
    end
  end
  return out
end

-- Names of other systems, answered with titan's.
M.elsewhere = { Replicate = "R", Shard = "S(d)", Partial = "P", Invariant = "I", Varying = "V" }

return M
