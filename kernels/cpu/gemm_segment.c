/* gemm_segment.c - cuts the program of a sum into stretches that fit the caches (gemm_plan.h). */
#include "kernels/cpu/gemm_plan.h"

#include <assert.h>

/* Which k of each source the segment covers. */
static void find_sources(tn_gemm_segment *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const tn_order_ins *in = &s->ins[i];
        int64_t k0 = in->k0 + (i == 0 ? s->skip : 0),
                k1 = i == s->n - 1 ? in->k0 + s->stop : in->k1;
        if (in->op != TN_ORDER_LEAF || k0 == k1) continue;
        assert(in->src < TN_GEMM_MAX &&
               (s->begin[in->src] == s->end[in->src] || s->end[in->src] == k0));
        if (s->begin[in->src] == s->end[in->src]) s->begin[in->src] = k0;
        s->end[in->src] = k1;
    }
}

bool tn_gemm_segment_next(const tn_order_run *run, int64_t k_most, tn_gemm_cursor *c,
                          tn_gemm_segment *s)
{
    if (c->begun && c->at == run->n) return false;
    *s = (tn_gemm_segment){
        .ins = run->ins + c->at, .skip = c->done, .open = c->open, .first = !c->begun};
    s->depth_in = c->begun ? c->depth : run->depth_in;
    c->begun = true;
    s->resume = c->open || run->n == 0 || s->ins[0].op == TN_ORDER_ADD;
    c->depth = s->depth_in;
    bool full = false;
    while (c->at < run->n && !full) {
        const tn_order_ins *in = &run->ins[c->at];
        if (in->op == TN_ORDER_ADD) {
            c->depth--;
        } else {
            int64_t rest = in->k1 - in->k0 - c->done;
            if (s->k + rest > k_most && s->k >= k_most / 2 && s->k > 0) break;
            if (!c->open) c->depth++;
            full = s->k + rest > k_most;
            if (full) rest = k_most - s->k;
            s->k += rest;
            s->stop = c->done + rest;
            c->done = full ? s->stop : 0;
            c->open = full || in->more;
        }
        s->n++;
        if (!full) c->at++;
    }
    s->depth_out = c->depth;
    s->last = c->at == run->n;
    find_sources(s);
    return true;
}

int tn_gemm_segment_levels(const tn_order_run *run, int64_t k_most)
{
    tn_gemm_cursor c = {0};
    tn_gemm_segment s;
    int most = run->depth_in > run->depth_out ? run->depth_in : run->depth_out;
    while (tn_gemm_segment_next(run, k_most, &c, &s)) {
        int depth = s.depth_in;
        bool open = s.open;
        if (depth > most) most = depth;
        for (int64_t i = 0; i < s.n; i++) {
            if (s.ins[i].op == TN_ORDER_ADD) {
                depth--;
            } else {
                if (!open) depth++;
                open = s.ins[i].more;
            }
            if (depth - 1 > most) most = depth - 1; /* the top level is in registers */
        }
    }
    return most > 1 ? most : 1;
}
