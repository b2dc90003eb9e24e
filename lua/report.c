#include "lua/report.h"

#include "graph/cost.h"
#include "graph/events.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/recompute.h"
#include "lua/classes.h"
#include "lua/inspect.h"

#include <stdlib.h>
#include <string.h>

enum { TOP = 12 };

/* ------------------------------------------------------------ figures */

double tn_report_saved_bytes(const tn_program *p, int64_t *n_blocks_out)
{
    const tn_graph *g = p->g;
    double bytes = 0;
    int64_t blocks = 0;
    size_t last = 0;
    const char *current = "";
    for (int64_t i = 0; i < g->n_nodes; i++) { /* blocks follow one another in forward */
        const tn_node *n = &g->nodes[i];
        size_t k = n->phase == TN_PHASE_F && n->scope == TN_SCOPE_MICROBATCH
                       ? tn_recompute_block(n->path)
                       : 0;
        if (k && (k != last || strncmp(current, n->path, k))) {
            blocks++;
            last = k;
            current = n->path;
        }
    }
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        const tn_node *n = &g->nodes[g->values[b->value].node], *user = &g->nodes[b->last_user];
        if (b->region != TN_REGION_STEP || n->phase != TN_PHASE_F ||
            n->scope != TN_SCOPE_MICROBATCH)
            continue;
        if ((user->phase != TN_PHASE_B && user->phase != TN_PHASE_W) ||
            !tn_recompute_block(n->path))
            continue;
        bytes += (double)b->bytes;
    }
    if (n_blocks_out) *n_blocks_out = blocks;
    /* of the tokens whose rows this rank has; what other axes split counts as it lies here */
    int64_t dp = (int64_t)g->mesh.size[TN_AXIS_DP_REPLICATE] * g->mesh.size[TN_AXIS_DP_SHARD];
    return blocks ? bytes / (double)blocks / (double)(g->rows / dp * g->seq) : 0;
}

static int by_size(const void *pa, const void *pb)
{
    const tn_buffer *a = *(const tn_buffer *const *)pa, *b = *(const tn_buffer *const *)pb;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* What is live at the peak of the step region, largest first; in `arena`. */
static tn_status live_at_peak(const tn_program *p, tn_arena *arena, const tn_buffer ***out,
                              int64_t *n_out)
{
    void *mem;
    int64_t n = 0;
    TN_TRY(tn_arena_alloc(arena, (size_t)(p->n_buffers + 1) * sizeof(tn_buffer *), &mem));
    const tn_buffer **live = mem;
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        if (b->region == TN_REGION_STEP && b->start <= p->pack.peak_tick &&
            p->pack.peak_tick < b->end)
            live[n++] = b;
    }
    qsort(live, (size_t)n, sizeof *live, by_size);
    *out = live;
    *n_out = n;
    return TN_OK;
}

/* ------------------------------------------------------------ text */

/* What one rank receives from others in a step: by kind of collective and axes. */
static void print_traffic(const tn_class *c, tn_text *out)
{
    const tn_traffic *t = &c->traffic;
    if (!c->received) return;
    tn_text_add(out, "traffic     a rank receives %s in a step\n", tn_text_bytes(c->received).s);
    for (int k = 0; k < TN_TRAFFIC_KINDS; k++)
        for (unsigned s = 0; s < TN_TRAFFIC_SETS; s++)
            if (t->count[k][s])
                tn_text_add(out, "  %-14s over %-20s %6lld times %12s\n",
                            tn_traffic_kind_name((tn_traffic_kind)k), tn_traffic_axes(s).s,
                            (long long)t->count[k][s], tn_text_bytes(t->bytes[k][s]).s);
}

static void print_layout(const tn_session *s, const tn_classes *c, tn_text *out)
{
    const tn_mesh *mesh = &s->shape.mesh;
    const int *n = mesh->size;
    int64_t ranks = tn_inspect_ranks(mesh);
    tn_text_add(out,
                "layout      %lld rank%s: pp %d, dp_replicate %d, dp_shard %d, cp %d, tp %d%s; "
                "bubble %.1f %%\n",
                (long long)ranks, ranks == 1 ? "" : "s", mesh->pp, n[TN_AXIS_DP_REPLICATE],
                n[TN_AXIS_DP_SHARD], n[TN_AXIS_CP], n[TN_AXIS_TP],
                ranks == 1 ? "; no collectives" : "", 100 * c->forecast.bubble);
    if (ranks == 1) return;
    tn_inspect_mesh(mesh, tn_inspect_node(s->recipe), out);
    if (c->n > 1) tn_classes_print(s, c, out);
    else print_traffic(&c->of[0], out);
}

static void print_program(const tn_program *p, tn_text *out)
{
    int64_t on[TN_N_STREAMS] = {0}, meetings = 0;
    for (int64_t i = 0; i < p->n_entries; i++) on[p->entries[i].stream]++;
    tn_text_add(out, "program     %lld entries, %lld buffers", (long long)p->n_entries,
                (long long)p->n_buffers);
    for (int i = 1; i < TN_N_STREAMS && p->n_events; i++)
        if (on[i])
            tn_text_add(out, ", %lld on stream %s", (long long)on[i],
                        tn_events_stream((tn_stream)i));
    for (int64_t i = 0; i < p->n_entries; i++)
        if (p->entries[i].meets & TN_MEETS_BEFORE)
            meetings += tn_cost_runs(p->g, &p->g->nodes[p->entries[i].node]);
    if (p->n_events)
        tn_text_add(out, ", %lld events, %lld meetings a step", (long long)p->n_events,
                    (long long)meetings);
    tn_text_add(out, "\n");
}

static void print_model(const tn_session *s, const tn_classes *all, tn_text *out)
{
    const tn_graph *g = all->of[all->largest].p->g;
    const tn_cost *c = &s->trains.cost;
    tn_text_add(out, "model       %s parameters (%lld), %s FLOPs per token\n",
                tn_text_count((double)c->parameters).s, (long long)c->parameters,
                tn_text_count(c->flops_per_token).s);
    tn_text_add(out,
                "batch       microbatch %lld x accumulation %lld x dp %lld = global %lld rows of "
                "%lld: %lld tokens per step, %lld loss chunks\n",
                (long long)s->shape.rows, (long long)s->shape.n_microbatches,
                (long long)s->shape.dp, (long long)s->global_batch, (long long)s->shape.seq,
                (long long)(s->global_batch * s->shape.seq), (long long)g->n_chunks);
    print_layout(s, all, out);
    tn_text_add(out, "sums        %s, grid tp %d, seq %d, rows %d\n",
                g->canonical ? "canonical (the same bits on every layout)" : "fast", g->grid.tp,
                g->grid.seq, g->grid.rows);
    print_program(all->of[all->largest].p, out);
}

static void print_memory(const tn_session *s, const tn_classes *c, tn_text *out)
{
    const tn_program *p = c->of[c->largest].p;
    tn_session_bytes b = c->of[c->largest].bytes;
    char whose[32] = "";
    const struct {
        const char *what;
        int64_t bytes;
    } rows[] = {{"parameters", b.parameters},
                {"optimizer state", b.moments},
                {"buffers, inputs", b.buffers + b.inputs},
                {"activations, gradients", b.step},
                {"mail of other stages", b.mail},
                {"kernel scratch", b.scratch},
                {"process", b.process}};
    int64_t blocks;
    double saved = tn_report_saved_bytes(p, &blocks);
    if (c->n > 1) snprintf(whose, sizeof whose, ", of pp %d", c->largest);
    tn_text_add(out, "\nmemory      planned peak %s%s\n", tn_text_bytes(b.total).s, whose);
    for (int i = 0; i < TN_COUNT(rows); i++)
        if (rows[i].bytes || rows[i].what[0] != 'm')
            tn_text_add(out, "  %-24s %12s\n", rows[i].what, tn_text_bytes(rows[i].bytes).s);
    tn_text_add(out, "  step arena %s, lower bound %s (%.4f), packed by %s\n",
                tn_text_bytes(p->pack.peak).s, tn_text_bytes(p->pack.bound).s,
                p->pack.bound ? (double)p->pack.peak / (double)p->pack.bound : 1.0, p->pack.order);
    if (blocks)
        tn_text_add(out,
                    "  saved from forward to backward: %.2f KiB per token and layer (%lld layers, "
                    "recompute %s)\n",
                    saved / 1024, (long long)blocks,
                    tn_recompute_text(s->shape.recompute, s->shape.recompute_every).s);
}

static tn_status print_peak(const tn_program *p, tn_text *out)
{
    const tn_graph *g = p->g;
    tn_arena arena = {0};
    const char **names;
    const tn_buffer **live;
    int64_t n = 0, rest = 0;
    tn_status st = tn_names_build(g, &arena, &names);
    if (!st) st = live_at_peak(p, &arena, &live, &n);
    if (!st) {
        const tn_node *at =
            &g->nodes[p->pack.peak_tick < g->n_nodes ? p->pack.peak_tick : g->n_nodes - 1];
        tn_text_add(out, "\nlive at the peak (%s of %s), %lld buffers:\n",
                    tn_op_name((tn_op_id)at->op), at->path[0] ? at->path : "the step",
                    (long long)n);
        for (int64_t i = 0; i < n && i < TOP; i++) {
            const tn_node *user = &g->nodes[live[i]->last_user];
            tn_text_add(out, "  %12s  %s, last read by %s of %s\n", tn_text_bytes(live[i]->bytes).s,
                        names[live[i]->value], tn_op_name((tn_op_id)user->op),
                        user->path[0] ? user->path : "the step");
        }
        for (int64_t i = TOP; i < n; i++) rest += live[i]->bytes;
        if (n > TOP)
            tn_text_add(out, "  %12s  in %lld more\n", tn_text_bytes(rest).s, (long long)(n - TOP));
    }
    tn_arena_fini(&arena);
    return st;
}

static void print_step(const tn_session *s, const tn_classes *c, tn_text *out)
{
    const tn_cost *cost = &s->trains.cost;
    const tn_forecast *f = &c->forecast;
    const tn_forecast_class *x = &f->classes[f->slowest];
    double tokens = (double)(s->global_batch * s->shape.seq);
    tn_text_add(out, "\nstep        %s FLOPs, predicted %s, %s tokens/s\n",
                tn_text_count(cost->step_flops).s, tn_text_seconds(f->seconds).s,
                tn_text_count(tokens / f->seconds).s);
    tn_text_add(out, "  computation %s, exchanges %s; nothing is computed in %.1f %% of the time\n",
                tn_text_seconds(x->compute_s).s, tn_text_seconds(x->exchange_s).s,
                100 * (1 - x->compute_s / f->seconds));
    if (!s->device)
        tn_text_add(out, "  model FLOPs %.1f %% of 989 TFLOP/s per rank (MFU)\n",
                    100 * cost->flops_per_token * tokens / f->seconds /
                        (989e12 * (double)tn_inspect_ranks(&s->shape.mesh)));
}

tn_status tn_report_plan(const tn_session *s, tn_text *out)
{
    tn_classes c;
    TN_TRY(tn_classes_make(s, &c));
    print_model(s, &c, out);
    print_memory(s, &c, out);
    tn_status st = print_peak(c.of[c.largest].p, out);
    if (!st) print_step(s, &c, out);
    tn_classes_fini(&c);
    return st ? st : tn_text_end(out);
}

static void json_layout(const tn_session *s, tn_text *out)
{
    const tn_mesh *mesh = &s->shape.mesh;
    tn_text warnings = {0};
    tn_text_add(out, "\"mesh\": {\"pp\": %d", mesh->pp);
    for (int a = 0; a < TN_N_AXES; a++)
        tn_text_add(out, ", \"%s\": %d", tn_axis_name((tn_axis)a), mesh->size[a]);
    tn_inspect_warnings(mesh, tn_inspect_node(s->recipe), &warnings);
    tn_text_add(out, "}, \"ranks_per_node\": %d, \"warnings\": [", tn_inspect_node(s->recipe));
    if (warnings.n_bytes)
        tn_text_add(out, "\"%.*s\"", (int)warnings.n_bytes - 1, tn_text_str(&warnings));
    tn_text_add(out, "], ");
    out->failed |= warnings.failed;
    tn_text_fini(&warnings);
}

/* Of the class that needs most memory; times are those of the busiest. */
static void json_largest(const tn_session *s, const tn_classes *c, tn_text *out)
{
    const tn_class *x = &c->of[c->largest];
    const tn_forecast_class *f = &c->forecast.classes[c->forecast.slowest];
    tn_session_bytes b = x->bytes;
    tn_text_add(out, "\"collective_bytes\": ");
    tn_classes_json_traffic(&x->traffic, out);
    tn_text_add(out, ", \"entries\": %lld, \"buffers\": %lld, \"step_s\": %s, ",
                (long long)x->p->n_entries, (long long)x->p->n_buffers,
                tn_text_double(c->forecast.seconds).s);
    tn_text_add(out, "\"compute_s\": %s, \"exchange_s\": %s, ", tn_text_double(f->compute_s).s,
                tn_text_double(f->exchange_s).s);
    tn_text_add(out, "\"saved_bytes_per_token_layer\": %s, ",
                tn_text_double(tn_report_saved_bytes(x->p, NULL)).s);
    tn_text_add(out,
                "\"memory\": {\"parameters\": %lld, \"optimizer\": %lld, \"buffers\": %lld, "
                "\"inputs\": %lld, \"step\": %lld, \"mail\": %lld, \"scratch\": %lld, "
                "\"process\": %lld, \"total\": %lld}, ",
                (long long)b.parameters, (long long)b.moments, (long long)b.buffers,
                (long long)b.inputs, (long long)b.step, (long long)b.mail, (long long)b.scratch,
                (long long)b.process, (long long)b.total);
    tn_classes_json(s, c, out);
    tn_text_add(out, "\"arena\": {\"peak\": %lld, \"bound\": %lld, \"order\": \"%s\"}}\n",
                (long long)x->p->pack.peak, (long long)x->p->pack.bound, x->p->pack.order);
}

tn_status tn_report_plan_json(const tn_session *s, tn_text *out)
{
    tn_classes c;
    TN_TRY(tn_classes_make(s, &c));
    const tn_cost *cost = &s->trains.cost;
    const tn_graph *g = c.of[0].p->g;
    tn_text_add(out, "{\"parameters\": %lld, \"flops_per_token\": %s, \"step_flops\": %s, ",
                (long long)cost->parameters, tn_text_double(cost->flops_per_token).s,
                tn_text_double(cost->step_flops).s);
    tn_text_add(out,
                "\"rows\": %lld, \"seq\": %lld, \"microbatches\": %lld, \"chunks\": %lld, "
                "\"ranks\": %lld, \"bubble\": %s, ",
                (long long)g->rows, (long long)g->seq, (long long)g->n_microbatches,
                (long long)g->n_chunks, (long long)tn_inspect_ranks(&g->mesh),
                tn_text_double(c.forecast.bubble).s);
    json_layout(s, out);
    json_largest(s, &c, out);
    tn_classes_fini(&c);
    return tn_text_end(out);
}

void tn_report_groups(const tn_session *s, FILE *out)
{
    const tn_graph *g = s->train->g;
    tn_groups *q;
    if (tn_groups_create(s->recipe, &q)) return;
    int n = tn_groups_count(q);
    for (int i = 0; n > 1 && i < n; i++) {
        const tn_optimizer_group *o = tn_groups_get(q, i);
        int64_t tensors = 0, elements = 0;
        for (int64_t k = 0; k < g->n_nodes; k++) {
            const tn_node *p = &g->nodes[k];
            if (p->op != TN_OP_state || strcmp(tn_node_attr_text(p, "kind"), "param") ||
                tn_groups_of(q, tn_node_attr_text(p, "name")) != i)
                continue;
            tensors++;
            elements += tn_value_elements(&g->values[p->out0]);
        }
        fprintf(out, "group %d: %s%s%s: lr %g, weight_decay %g: %lld tensors, %s parameters\n",
                i + 1, o->pattern[0] ? "'" : "", o->pattern[0] ? o->pattern : "the rest",
                o->pattern[0] ? "'" : "", o->lr, o->weight_decay, (long long)tensors,
                tn_text_count((double)elements).s);
    }
    tn_groups_destroy(q);
}
