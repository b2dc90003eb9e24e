#include "lua/classes.h"

#include "lua/inspect.h"
#include "lua/stage_plan.h"

/* Ranks of a CPU plan lie on one host, up to ranks_per_node of them, and share its cores. */
tn_cost_machine tn_classes_machine(const tn_session *s)
{
    int64_t ranks = tn_inspect_ranks(&s->shape.mesh), node = tn_inspect_node(s->recipe);
    tn_cost_machine m = tn_cost_guess(&s->shape.mesh, !s->device, (int)node);
    if (!s->device) return m;
    int64_t here = ranks < node ? ranks : node, asked = tn_recipe_int(s->recipe, "device.threads");
    double cores = (double)tn_pool_cores() / (double)here;
    tn_cost_share(&m, asked && (double)asked < cores ? (double)asked : cores, here);
    return m;
}

static tn_status make(const tn_session *s, tn_classes *c)
{
    void *mem;
    tn_cost_machine m = tn_classes_machine(s);
    c->n = s->trains.n;
    TN_TRY(tn_arena_alloc(&c->arena, (size_t)c->n * sizeof(tn_class), &mem));
    c->of = mem;
    for (int i = 0; i < c->n; i++) {
        tn_class *x = &c->of[i];
        x->p = s->trains.of[i];
        x->bytes = tn_session_memory_of(s, i);
        tn_traffic_add(x->p->g, 0, x->p->g->n_nodes, &x->traffic);
        for (int k = 0; k < TN_TRAFFIC_KINDS; k++)
            for (unsigned a = 0; a < TN_TRAFFIC_SETS; a++) x->received += x->traffic.bytes[k][a];
        if (x->bytes.total > c->of[c->largest].bytes.total) c->largest = i;
    }
    return tn_forecast_make(s->trains.of, c->n, &m, &c->arena, &c->forecast);
}

tn_status tn_classes_make(const tn_session *s, tn_classes *out)
{
    *out = (tn_classes){0};
    tn_status st = make(s, out);
    if (st) tn_classes_fini(out);
    return st;
}

void tn_classes_fini(tn_classes *c)
{
    tn_arena_fini(&c->arena);
    *c = (tn_classes){0};
}

static double ratio(const tn_program *p)
{
    return p->pack.bound ? (double)p->pack.peak / (double)p->pack.bound : 1;
}

/* Stages of a pipeline rank and the layers in them. */
static int32_t stages_of(const tn_session *s, int rank, tn_text *out)
{
    const tn_stage_plan *plan = s->trains.stages;
    int32_t layers = 0, n = 0;
    for (int32_t i = 0; plan && i < plan->n_stages; i++) {
        if (plan->schedule->rank_of[i] != rank) continue;
        tn_text_add(out, "%s%d", n++ ? "," : "", i);
        layers += plan->n_layers[i];
    }
    return layers;
}

/* "all_gather dp_shard 20.3 GiB, tp 39.8 GiB; send_recv pp 1.00 GiB" */
static void print_traffic(const tn_traffic *t, tn_text *out)
{
    int kinds = 0;
    for (int k = 0; k < TN_TRAFFIC_KINDS; k++) {
        int n = 0;
        for (unsigned a = 0; a < TN_TRAFFIC_SETS; a++) {
            if (!t->count[k][a]) continue;
            if (!n && kinds++) tn_text_add(out, "; ");
            if (!n) tn_text_add(out, "%s", tn_traffic_kind_name((tn_traffic_kind)k));
            tn_text_add(out, "%s %s %s", n++ ? "," : "", tn_traffic_axes(a).s,
                        tn_text_bytes(t->bytes[k][a]).s);
        }
    }
}

void tn_classes_print(const tn_session *s, const tn_classes *c, tn_text *out)
{
    if (c->n == 1) return;
    const tn_stage_plan *plan = s->trains.stages;
    tn_text_add(out, "stages      %d on %d pipeline ranks, %d microbatches a step\n",
                plan->n_stages, c->n, plan->schedule->n_microbatches);
    for (int i = 0; i < c->n; i++) {
        const tn_class *x = &c->of[i];
        const tn_forecast_class *f = &c->forecast.classes[i];
        tn_text stages = {0};
        int32_t layers = stages_of(s, i, &stages);
        double all = f->busy_s + f->idle_s;
        tn_text_add(out,
                    "  pp %-3d stage %s, %d layers: peak %s, arena %.4f of its bound, works %s, "
                    "waits %s (%.1f %%), receives %s\n         ",
                    i, tn_text_str(&stages), layers, tn_text_bytes(x->bytes.total).s, ratio(x->p),
                    tn_text_seconds(f->busy_s).s, tn_text_seconds(f->idle_s).s,
                    all > 0 ? 100 * f->idle_s / all : 0, tn_text_bytes(x->received).s);
        print_traffic(&x->traffic, out);
        tn_text_add(out, "\n");
        out->failed |= stages.failed;
        tn_text_fini(&stages);
    }
}

/* ------------------------------------------------------------ JSON */

void tn_classes_json_traffic(const tn_traffic *t, tn_text *out)
{
    tn_text_add(out, "{");
    for (int k = 0, kinds = 0; k < TN_TRAFFIC_KINDS; k++) {
        int rows = 0;
        for (unsigned a = 0; a < TN_TRAFFIC_SETS; a++) {
            if (!t->count[k][a]) continue;
            if (!rows)
                tn_text_add(out, "%s\"%s\": {", kinds++ ? ", " : "",
                            tn_traffic_kind_name((tn_traffic_kind)k));
            tn_text_add(out, "%s\"%s\": %lld", rows++ ? ", " : "", tn_traffic_axes(a).s,
                        (long long)t->bytes[k][a]);
        }
        if (rows) tn_text_add(out, "}");
    }
    tn_text_add(out, "}");
}

void tn_classes_json(const tn_session *s, const tn_classes *c, tn_text *out)
{
    int64_t ranks = tn_mesh_ranks(&s->shape.mesh);
    tn_text_add(out, "\"classes\": [");
    for (int i = 0; i < c->n; i++) {
        const tn_class *x = &c->of[i];
        const tn_forecast_class *f = &c->forecast.classes[i];
        tn_text stages = {0};
        int32_t layers = stages_of(s, i, &stages);
        tn_text_add(out, "%s{\"first_rank\": %lld, \"ranks\": %lld, \"stages\": [%s], ",
                    i ? ", " : "", (long long)(i * ranks), (long long)ranks,
                    c->n > 1 ? tn_text_str(&stages) : "0");
        if (c->n > 1) tn_text_add(out, "\"layers\": %d, ", layers);
        tn_text_add(out, "\"memory\": %lld, \"arena\": {\"peak\": %lld, \"bound\": %lld}, ",
                    (long long)x->bytes.total, (long long)x->p->pack.peak,
                    (long long)x->p->pack.bound);
        tn_text_add(out,
                    "\"compute_s\": %s, \"exchange_s\": %s, \"busy_s\": %s, \"idle_s\": %s, "
                    "\"collective_bytes\": ",
                    tn_text_double(f->compute_s).s, tn_text_double(f->exchange_s).s,
                    tn_text_double(f->busy_s).s, tn_text_double(f->idle_s).s);
        tn_classes_json_traffic(&x->traffic, out);
        tn_text_add(out, "}");
        out->failed |= stages.failed;
        tn_text_fini(&stages);
    }
    tn_text_add(out, "], ");
}
