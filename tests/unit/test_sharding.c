/* Sharding tables and forward functions that are wrong, blocks that are swapped, traces that fail
 * half way: what is said, what is kept. */
#include "tests/traced.h"

/* A recipe whose feed-forward block inherits from the shipped one; `patch` runs in its sharding
 * function (t: the table). */
static const char *patched(const char *patch)
{
    static char text[2048];
    snprintf(
        text, sizeof text,
        "local titan, nn, llama3 = require 'titan', require 'titan.nn', require 'models.llama3'\n"
        "local R, I, P, S, ACT, SEQ, param = nn.R, nn.I, nn.P, nn.S, nn.ACT, nn.SEQ, nn.param\n"
        "local My = nn.module('My', llama3.FeedForward)\n"
        "function My:sharding(on) local t = llama3.FeedForward.sharding(self, on); local w = "
        "param(S(0)); %s; "
        "return t end\n"
        "return titan.recipe { model = llama3.debug { n_layers = 1, feed_forward = My } }\n",
        patch);
    return text;
}

static void test_tables(void)
{
    static const struct {
        const char *patch, *said;
    } cases[] = {
        {"t.w1 = { state = { weight = { dp = R, tp = S(0) } }, out_src = ACT(S(-1)) }",
         "layers.0.feed_forward.w1.weight: state: no placement for axis cp; a layout names every "
         "axis"},
        {"t.w1 = { state = { weight = { cp = R, tp = S(0) } } }", "no placement for axis dp"},
        {"t.in_src = { x = { dp = S(0), cp = S(1), tp = I, pp = R } }",
         "layers.0.feed_forward: in_src of x: unknown axis 'pp'; a layout names every axis: dp (or "
         "dp_replicate "
         "and dp_shard), cp, tp"},
        {"t.in_src = { x = { S(0), S(1), I } }", "a layout is written by axis"},
        {"t.in_src = { x = ACT }",
         "in_src of x: a layout is a table such as ACT(R), not a function"},
        {"t.in_src = { x = { dp = S(0), cp = S(3), tp = I } }",
         "cp = S(3) on a tensor of rank 3; S(0) to S(2), or S(-1)"},
        {"t.in_src = { x = { dp = S(-4), cp = S(1), tp = I } }",
         "dp = S(-4) on a tensor of rank 3"},
        {"t.in_src = { x = { dp_replicate = S(0), dp_shard = S(0), cp = S(1), tp = I } }",
         "dp_replicate and dp_shard both split dim 0"},
        {"t.in_src = { x = { dp = S(0), cp = S(0), tp = I } }",
         "dp and cp both split dim 0; give their order, outer to inner: spec = { [1] = { \"dp\", "
         "\"cp\" } }"},
        {"t.in_src = { x = { dp = S(0), cp = S(1), tp = 'R' } }",
         "tp = \"R\" is text; write nn.R, nn.I, nn.P or nn.S(d)"},
        {"t.in_src = { x = { dp = S, cp = S(1), tp = R } }",
         "dp is a function; S takes the number of a dim"},
        {"t.in_src = { x = { dp = S(0), cp = S(1), tp = 3 } }",
         "tp is a number where a placement is needed; write R, I, P or S(d)"},
        {"t.in_src = { x = { dp = S(0), dp_shard = R, cp = S(1), tp = R } }",
         "axis dp_shard is given twice"},
        {"t.in_src = { x = { dp = S(0), tp = R, spec = { nil, 'cp' } } }",
         "S(d) together with a spec"},
        {"t.in_src = { x = { tp = R, spec = { 'dp', 'tp' } } }", "axis tp is given twice"},
        {"t.in_src = { x = { tp = R, spec = { 'dp', { } } } }", "dim 1 has an empty list"},
        {"t.in_src = { x = { tp = R, spec = { 'dp', 'cp', nil, 'tp' } } }",
         "no dim of a tensor of rank 3; at most 3 entries"},
        {"t.in_src = { x = { tp = R, spec = { 'dp', 'xp' } } }", "spec: unknown axis 'xp'"},
        {"t.in_src = { x = { tp = R, spec = { 'dp', { 7 } } } }",
         "dim 1 lists a number where the name of an axis is needed"},
        {"t.in_src = { x = { tp = R, spec = 'dp' } }", "spec is a string"},
        /* what is asserted is not so */
        {"t.in_src = { x = { dp = S(0), cp = S(2), tp = I } }",
         "layers.0.feed_forward: in_src of x: on axis cp the value is S(1), the table says S(2)"},
        {"t.in_src = { x = { dp = S(1), cp = R, tp = I } }",
         "on axis dp the value is S(0), the table says S(1)"},
        {"t.in_src = { x = ACT(R) }", "on axis tp the value is I, the table says R"},
        {"t.w1.out_src = nil; t.w1 = { state = { weight = w }, out_src = ACT(P) }",
         "layers.0.feed_forward.w1: out_src: on axis tp the value is S(2), the table says P"},
        {"t.w2 = { state = { weight = param(S(1)) }, out_src = ACT(I) }",
         "layers.0.feed_forward.w2: out_src: on axis tp the value is P, the table says I ({dp:0 "
         "cp:1 tp:P} where "
         "{dp:0 cp:1 tp:I} is written); reduce it where it is made"},
        /* a missing or wrong move */
        {"t.w2 = { state = { weight = param(S(1)) }, out_src = ACT(P) }",
         "layers.0: add: axis tp: operand 1 is a pending sum (P); reduce it where it is made"},
        {"t.w2 = { state = { weight = param(S(1)) } }", "is a pending sum (P)"},
        {"t.w2 = nn.rowwise(ACT(R))", "layers.0: add: axis tp: R mixed with I"},
        {"t.in_dst = nil",
         "layers.0.feed_forward: linear: axis tp: an I operand meets a split one"},
        {"t.in_dst = { x = { dp = S(0), cp = S(1), tp = P } }",
         "layers.0.feed_forward: redistribute: axis tp: no transition from I to P"},
        {"t.w3 = { state = { weight = param(S(1)) } }", "layers.0.feed_forward"},
        {"t.w2 = { state = { weight = param(S(0)) } }", "layers.0.feed_forward.w2: linear"},
        /* the table itself */
        {"t.in_src = nil", "layers.0.feed_forward: in_dst of x without in_src"},
        {"t.in_src.y = ACT(R)",
         "layers.0.feed_forward: in_src names 'y', which is no argument of its forward; "},
        {"t.in_scr = t.in_src",
         "layers.0.feed_forward: its sharding table has a field 'in_scr'; did you mean in_src?"},
        {"t.w4 = t.w1", "layers.0.feed_forward: its sharding table has a field 'w4'"},
        {"t.w1 = { out_src = ACT(S(-1)) }",
         "layers.0.feed_forward.w1: no state for parameter 'weight' in its sharding table"},
        {"t.w1 = nil", "layers.0.feed_forward.w1: no state for parameter 'weight'"},
        {"t.state = { gain = w }",
         "layers.0.feed_forward: state of 'gain', but it has no parameters"},
        {"t.w1 = { state = { weight = w, bias = w } }",
         "layers.0.feed_forward.w1: state of 'bias', which it has not"},
        {"t.out_dst = ACT(R)", "layers.0.feed_forward: out_dst without out_src"},
        {"t.out_src = { ACT(I), ACT(I) }",
         "layers.0.feed_forward: forward returns 1 values, out_src lists 2"},
        {"t.out_src = { ACT(I) }; t.out_dst = ACT(I)", "list a different number of outputs"},
        {"t.local_map = { at = 'x' }", "local_map.at is 'x'; the one form is"},
        {"t.out_src = ACT(I); t.local_map = { grad = { x = ACT(I) } }",
         "layers.0.feed_forward: local_map.grad of x: on axis tp the value is P, the table says I"},
        {"t.out_src = ACT(I); t.local_map = { grads = {} }", "local_map has a field 'grads'"},
        {"t.in_src_shardings = t.in_src", "in_src stands in its own table and in its parent's"},
        {"t.w1 = 3", "layers.0.feed_forward.w1: a sharding table is a table, not a number"},
        {"if on.tp then t.w1 = nil end",
         "r.lua:4: a sharding table may depend on on.sp and on.ep only, not on on.tp"},
        {"t.w1 = { state = { weight = nn.Shard(0) } }", "r.lua:4: nn.Shard: titan writes nn.S(d)"},
        {"t.w1 = { state = { weight = nn.Replicate } }",
         "r.lua:4: nn.Replicate: titan writes nn.R"},
        {"t.w1 = { state = { weight = nn.Partial } }", "r.lua:4: nn.Partial: titan writes nn.P"},
        {"t.w1 = { state = { weight = Replicate } }",
         "r.lua:4: 'Replicate' is not available in a recipe; titan writes nn.R"},
        {"t.w1 = { state = { weight = Shard(0) } }",
         "r.lua:4: 'Shard' is not available in a recipe; titan writes nn.S(d)"},
        {"t = nn.join(t, { in_src = {} })", "r.lua:4: nn.join: two of the tables give 'in_src'"},
        {"t.in_src = { x = ACT(S('a')) }", "r.lua:4: S needs the number of a dim"},
        {"t.in_src = { x = ACT(R(0)) }", "r.lua:4: R takes no argument; S(d) does"},
    };
    TN_CHECK_OK(trace_text(patched(""), false));
    TN_CHECK_OK(trace_text(patched("t.in_src_shardings, t.in_src = t.in_src, nil; "
                                   "t.in_dst_shardings, t.in_dst = t.in_dst, nil"),
                           true));
    TN_CHECK_OK(trace_text(
        patched("t.w1 = { state_shardings = { weight = w }, out_src_shardings = { ACT(S(2)) } }"),
        true));
    TN_CHECK_OK(trace_text(
        patched("t.in_src = { x = { tp = I, spec = { { 'dp_replicate', 'dp_shard' }, 'cp' } } }"),
        false));
    for (int i = 0; i < TN_COUNT(cases); i++)
        TN_CHECK_FAILS(trace_text(patched(cases[i].patch), false), TN_BAD_INPUT, cases[i].said);
}

/* A recipe whose feed-forward block is defined by `body`, on lines 3 and following. */
static const char *with_block(const char *body)
{
    static char text[2048];
    snprintf(
        text, sizeof text,
        "local titan, nn, llama3 = require 'titan', require 'titan.nn', require 'models.llama3'\n"
        "local My, R, I, P, S = nn.module('My', llama3.FeedForward), nn.R, nn.I, nn.P, nn.S\n"
        "%s\n"
        "return titan.recipe { model = llama3.debug { n_layers = 2, feed_forward = My } }\n",
        body);
    return text;
}

static void test_forward(void)
{
    static const struct {
        const char *body, *said;
    } cases[] = {
        {"function My:forward(x)\n return self.w9(x) end",
         "r.lua:4: attempt to call a nil value (field 'w9')"},
        {"function My:forward(x)\n return x + 1 end", "a number added to a value is no op"},
        {"function My:forward(x)\n return x / x end", "division by a value is no op"},
        {"function My:forward(x) return self.w2(x) end", "layers.0.feed_forward.w2: linear: "},
        {"function My:forward(x) return nn.op('gelu', { x }) end", "nn.op: no op 'gelu'"},
        {"function My:forward(x) return nn.op('lineer', { x, self.w1.weight }) end",
         "no op 'lineer'; did you mean 'linear'?"},
        {"function My:forward(x) return nn.op('state', {}) end", "'state' is made by modules"},
        {"function My:forward(x) return nn.op('unary', { x }, { f = 'swish' }) end",
         "layers.0.feed_forward: unary: no function 'swish'"},
        {"function My:forward(x) return nn.op('unary', { x }, { g = 'silu' }) end",
         "layers.0.feed_forward: unary: no attribute 'g'"},
        {"function My:forward(x) return nn.op('unary', { x }, { f = {} }) end",
         "unary: attribute 'f' is a table"},
        {"function My:forward(x) return nn.op('add', { x, 3 }) end",
         "layers.0.feed_forward: add: operand 1 is a number where a value is needed"},
        {"function My:forward(x) return nn.op('add', { x }) end",
         "layers.0.feed_forward: add: 1 operands do not fit its form"},
        {"function My:forward(x)\n return nn.linears(x, self.w1, 3) end",
         "layers.0.feed_forward: nn.linears takes a value and nn.linear modules"},
        {"function My:forward(x) return nn.rope(x, {}, { theta = 1.0 }) end",
         "nn.rope needs heads [b s h k]"},
        {"function My:forward(x) return nil end", "a nil where a value is needed"},
        {"function My:forward(x) end",
         "layers.0: the right operand is a nil where a value is needed"},
        {"function My:build(c)\n self.w1 = nn.linear(c.dim, 0) end",
         "a dim is a whole number from 1 on or nn.heads, not 0"},
        {"function My:build(c)\n self.w1 = nn.linear(c.dim, 1.5) end",
         "a dim is a whole number from 1 on or nn.heads, not 1.5"},
        {"function My:build(c)\n self.w1 = nn.linear(c.dim, 8, { tied = 1 }) end",
         "r.lua:4: nn.linear: unknown option 'tied'; one of init, tied_to"},
        {"function My:build(c)\n self.w1 = nn.linear(c.dim, nn.heads(3, 8, { of = 4 })) end",
         "r.lua:4: nn.heads: 4 query heads cannot share 3"},
        {"function My:build(c)\n self.w1 = nn.attention { windw = 3 } end",
         "nn.attention: unknown option 'windw'; did you mean window?"},
        {"function My:build(c)\n self.w1 = nn.list(0, print) end",
         "r.lua:4: nn.list needs a number of modules from 1 on, not 0"},
        {"function My:build(c)\n self.w1 = nn.list(1, function() return 3 end) end",
         "r.lua:4: nn.list: entry 0 is a number where a module is needed"},
        {"function My:build(c)\n self.x = c.dmi end",
         "r.lua:4: the model has no key 'dmi'; did you mean dim?"},
        {"function My:build(c) llama3.FeedForward.build(self, c); self.w4 = self.w1 end",
         "the same module stands at layers.0.feed_forward.w1"},
        {"function My:build(c) llama3.FeedForward.build(self, c); self.all = { nn.rmsnorm(c.dim) } "
         "end\n"
         "function My:forward(x) return self.all[1](x) end",
         "layers.0.feed_forward: RMSNorm has no place in the model"},
        {"function My:build(c) llama3.FeedForward.build(self, c); self.w1 = nn.linear(c.dim, "
         "c.ffn_dim, { init = 3 "
         "}) end",
         "w1.weight: its initialiser is a number"},
        {"local keep\nfunction My:forward(x) local y = keep or x; keep = x; return "
         "self.w2(nn.silu(self.w1(y))) * "
         "1.0 end",
         ""},
        {"local My2 = nn.module(3)", "r.lua:3: nn.module needs the name of the module"},
        {"local My2 = nn.module('a', 3)", "r.lua:3: nn.module \"a\": the base is no module class"},
        {"nn.linear = 3", "r.lua:3: titan.nn cannot be changed"},
        {"local x = nn.Linear", "r.lua:3: titan.nn has no 'Linear'; did you mean linear?"},
        {"local i = nn.normal(0)", "r.lua:3: nn.normal needs a standard deviation above 0, not 0"},
        {"local x = My({})({})", "a forward function runs only while a graph is traced"},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        if (!cases[i].said[0]) TN_CHECK_OK(trace_text(with_block(cases[i].body), false));
        else
            TN_CHECK_FAILS(trace_text(with_block(cases[i].body), false), TN_BAD_INPUT,
                           cases[i].said);
    }
}

/* A model can be traced again and again; a value that a module kept is refused. */
static void test_again(void)
{
    fixture f = {0};
    tn_trace second;
    tn_trace_options o = options_of(TN_TRACE_TRAIN, false);
    if (TN_CHECK_OK(trace_with(gqa, &o, &f))) {
        o.rows = 2;
        TN_CHECK_OK(tn_trace_model(f.r, &o, &second));
        TN_CHECK(second.g->n_nodes == f.t.g->n_nodes && second.g->rows == 2 &&
                 second.loss == f.t.loss);
        tn_graph_destroy(second.g);
    }
    fini(&f);
    if (TN_CHECK_OK(trace_with(with_block("local keep\nfunction My:forward(x) keep = keep or x; "
                                          "return self.w2(nn.silu(self.w1(keep))) end"),
                               &o, &f)))
        TN_CHECK_FAILS(tn_trace_model(f.r, &o, &second), TN_BAD_INPUT,
                       "is a value of another trace; keep no values in modules");
    fini(&f);
}

static void test_swapped(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    const char *body =
        "function My:build(c) self.w1, self.w2 = nn.linear(c.dim, 96), nn.linear(96, c.dim) end\n"
        "function My:forward(x) return self.w2(nn.gelu_tanh(self.w1(x))) end\n"
        "function My:init() return { ['w1.weight'] = nn.normal(0.5) } end\n"
        "function My:sharding(on) local X = on.sp and nn.SEQ or nn.ACT(I)\n"
        "return { in_src = { x = X }, in_dst = { x = nn.ACT(R) }, w1 = nn.colwise, w2 = "
        "nn.rowwise(X) } end";
    if (TN_CHECK_OK(trace_with(with_block(body), &o, &f))) {
        const tn_node *w = find_state(f.t.g, "layers.1.feed_forward.w1.weight");
        TN_CHECK(w && f.t.g->values[w->out0].dim[0].extent == 96 &&
                 !find_state(f.t.g, "layers.1.feed_forward.w3.weight"));
        check_init(f.t.g, "layers.1.feed_forward.w1.weight", "normal", 0.5, 0);
        check_init(f.t.g, "layers.1.feed_forward.w2.weight", "trunc_normal", 0.02, 2);
        TN_CHECK(count_op(f.t.g, TN_OP_unary) == 2 && count_op(f.t.g, TN_OP_mul) == 0);
    }
    fini(&f);
}

/* Whatever allocation fails: an error or a graph, nothing lost (the sanitizers watch). A run makes
 * some ten thousand. */
static void test_memory(void)
{
    int failed = 0;
    for (int64_t n = 1; n < 40000; n += 1 + n / 9) {
        fixture f = {0};
        tn_trace_options o = options_of(TN_TRACE_TRAIN, false);
        tn_mem_fail_at(n);
        tn_status st = trace_with(patched(""), &o, &f);
        tn_mem_fail_at(0);
        TN_CHECK_MSG(st == TN_OK || (st == TN_FAILED && tn_error_text()[0]),
                     "allocation %lld: status %d, '%s'", (long long)n, (int)st, tn_error_text());
        failed += st != TN_OK;
        tn_error_clear();
        fini(&f);
    }
    TN_CHECK(failed > 5);
}

int main(void)
{
    test_tables();
    test_forward();
    test_again();
    test_swapped();
    test_memory();
    return tn_test_done("sharding");
}
