/* trace.h - from a recipe's model to a typed graph: runs the model's Lua once on symbolic values.
 *
 * The prelude (lua/prelude/module.lua and its neighbours) instantiates the modules, names them,
 * applies their sharding tables and calls this file's module `titan.trace`, which reaches every op
 * by the op table; no op has a binding of its own. A graph holds, in this order: the parameters in
 * module order, the inputs of the step, one microbatch.
 *
 * Errors (TN_BAD_INPUT) are those of the checker, of the sharding tables, or of the model's Lua,
 * with the model file and line.
 */
#ifndef TN_LUA_TRACE_H
#define TN_LUA_TRACE_H
#include "graph/graph.h"
#include "lua/door.h"
#include "lua/recipe.h"

TN_C_BEGIN

/* TRAIN: hidden and the loss in chunks (evaluation uses its forward part). LOGITS: hidden and
 * output over all positions. DECODE: the same, keys and values kept in states of `cache` positions;
 * PREFILL: without the output. */
typedef enum tn_trace_kind {
    TN_TRACE_TRAIN,
    TN_TRACE_LOGITS,
    TN_TRACE_DECODE,
    TN_TRACE_PREFILL
} tn_trace_kind;

typedef struct tn_trace_options {
    tn_trace_kind kind;
    tn_mesh mesh;
    tn_order_grid grid;
    bool canonical, sp, ep;
    tn_dtype compute;              /* of parameters and activations; buffers are f32 */
    int64_t rows, seq;             /* of one microbatch, global */
    int64_t cache;                 /* positions that a decoder keeps */
    int64_t n_microbatches;        /* per step */
    int64_t chunk_rows, chunk_seq; /* of one loss chunk; divide rows and seq */
} tn_trace_options;

typedef struct tn_trace {
    tn_graph *g;    /* the caller destroys it */
    int32_t loss;   /* the exact sum, or -1 */
    int32_t logits; /* [rows, seq, vocab], or -1 */
} tn_trace;

tn_status tn_trace_model(tn_recipe *r, const tn_trace_options *o, tn_trace *out) TN_MUST_USE;

/* The Lua module `titan.trace`, for the prelude alone: the host hands it to `require "titan.trace"`
 * (a lua_CFunction). */
int tn_trace_open(lua_State *L);

TN_C_END
#endif
