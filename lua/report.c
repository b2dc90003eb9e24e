#include "lua/report.h"

#include "graph/cost.h"
#include "graph/events.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/recompute.h"
#include "graph/traffic.h"
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
    return blocks ? bytes / (double)blocks / (double)(g->rows * g->seq) : 0;
}

/* Ranks of a CPU plan lie on one host, up to ranks_per_node of them, and share its cores. */
static tn_cost_machine machine_of(const tn_session *s)
{
    int64_t ranks = tn_inspect_ranks(&s->shape.mesh), node = tn_inspect_node(s->recipe);
    tn_cost_machine m = tn_cost_guess(&s->shape.mesh, !s->device, (int)node);
    if (!s->device) return m;
    int64_t here = ranks < node ? ranks : node, asked = tn_recipe_int(s->recipe, "device.threads");
    double cores = (double)tn_pool_cores() / (double)here;
    tn_cost_share(&m, asked && (double)asked < cores ? (double)asked : cores, here);
    return m;
}

static tn_status step_of(const tn_session *s, tn_cost_step *out)
{
    tn_cost_machine m = machine_of(s);
    return tn_cost_walk(s->train->g, &m, out);
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
static void print_traffic(const tn_graph *g, tn_text *out)
{
    tn_traffic t = {0};
    int64_t all = 0;
    tn_traffic_add(g, 0, g->n_nodes, &t);
    for (int k = 0; k < TN_TRAFFIC_KINDS; k++)
        for (unsigned s = 0; s < TN_TRAFFIC_SETS; s++) all += t.bytes[k][s];
    if (!all) return;
    tn_text_add(out, "traffic     a rank receives %s in a step\n", tn_text_bytes(all).s);
    for (int k = 0; k < TN_TRAFFIC_KINDS; k++)
        for (unsigned s = 0; s < TN_TRAFFIC_SETS; s++)
            if (t.count[k][s])
                tn_text_add(out, "  %-14s over %-20s %6lld times %12s\n",
                            tn_traffic_kind_name((tn_traffic_kind)k), tn_traffic_axes(s).s,
                            (long long)t.count[k][s], tn_text_bytes(t.bytes[k][s]).s);
}

static void print_layout(const tn_session *s, tn_text *out)
{
    const tn_graph *g = s->train->g;
    const int *n = g->mesh.size;
    int64_t ranks = tn_inspect_ranks(&g->mesh);
    tn_text_add(out,
                "layout      %lld rank%s: pp %d, dp_replicate %d, dp_shard %d, cp %d, tp %d%s\n",
                (long long)ranks, ranks == 1 ? "" : "s", g->mesh.pp, n[TN_AXIS_DP_REPLICATE],
                n[TN_AXIS_DP_SHARD], n[TN_AXIS_CP], n[TN_AXIS_TP],
                ranks == 1 ? "; no collectives, bubble 0 %" : "; bubble 0 %");
    if (ranks == 1) return;
    tn_inspect_mesh(&g->mesh, tn_inspect_node(s->recipe), out);
    print_traffic(g, out);
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

static void print_model(const tn_session *s, const tn_cost *c, tn_text *out)
{
    const tn_graph *g = s->train->g;
    tn_text_add(out, "model       %s parameters (%lld), %s FLOPs per token\n",
                tn_text_count((double)c->parameters).s, (long long)c->parameters,
                tn_text_count(c->flops_per_token).s);
    tn_text_add(out,
                "batch       microbatch %lld x accumulation %lld x dp %lld = global %lld rows of "
                "%lld: %lld tokens per step, %lld loss chunks\n",
                (long long)s->shape.rows, (long long)s->shape.n_microbatches,
                (long long)s->shape.dp, (long long)s->global_batch, (long long)s->shape.seq,
                (long long)(s->global_batch * s->shape.seq), (long long)g->n_chunks);
    print_layout(s, out);
    tn_text_add(out, "sums        %s, grid tp %d, seq %d, rows %d\n",
                g->canonical ? "canonical (the same bits on every layout)" : "fast", g->grid.tp,
                g->grid.seq, g->grid.rows);
    print_program(s->train, out);
}

static void print_memory(const tn_session *s, tn_text *out)
{
    tn_session_bytes b = tn_session_memory(s);
    const struct {
        const char *what;
        int64_t bytes;
    } rows[] = {{"parameters", b.parameters},
                {"optimizer state", b.moments},
                {"buffers, inputs", b.buffers + b.inputs},
                {"activations, gradients", b.step},
                {"kernel scratch", b.scratch},
                {"process", b.process}};
    int64_t blocks;
    double saved = tn_report_saved_bytes(s->train, &blocks);
    tn_text_add(out, "\nmemory      planned peak %s\n", tn_text_bytes(b.total).s);
    for (int i = 0; i < TN_COUNT(rows); i++)
        tn_text_add(out, "  %-24s %12s\n", rows[i].what, tn_text_bytes(rows[i].bytes).s);
    tn_text_add(out, "  step arena %s, lower bound %s (%.4f), packed by %s\n",
                tn_text_bytes(s->train->pack.peak).s, tn_text_bytes(s->train->pack.bound).s,
                s->train->pack.bound ? (double)s->train->pack.peak / (double)s->train->pack.bound
                                     : 1.0,
                s->train->pack.order);
    if (blocks)
        tn_text_add(out,
                    "  saved from forward to backward: %.2f KiB per token and layer (%lld layers, "
                    "recompute %s)\n",
                    saved / 1024, (long long)blocks,
                    tn_recompute_text(s->shape.recompute, s->shape.recompute_every).s);
}

static tn_status print_peak(const tn_session *s, tn_text *out)
{
    const tn_program *p = s->train;
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

tn_status tn_report_plan(const tn_session *s, tn_text *out)
{
    tn_cost c = tn_cost_of(s->train->g);
    print_model(s, &c, out);
    print_memory(s, out);
    TN_TRY(print_peak(s, out));
    tn_cost_step step;
    TN_TRY(step_of(s, &step));
    double tokens = (double)(s->global_batch * s->shape.seq);
    tn_text_add(out, "\nstep        %s FLOPs, predicted %s, %s tokens/s\n",
                tn_text_count(c.step_flops).s, tn_text_seconds(step.seconds).s,
                tn_text_count(tokens / step.seconds).s);
    tn_text_add(out, "  computation %s, exchanges %s, of these %s exposed (%.1f %%)\n",
                tn_text_seconds(step.compute_s).s, tn_text_seconds(step.exchange_s).s,
                tn_text_seconds(step.exposed_s).s, 100 * step.exposed_s / step.seconds);
    if (!s->device)
        tn_text_add(out, "  model FLOPs %.1f %% of 989 TFLOP/s per rank (MFU)\n",
                    100 * c.flops_per_token * tokens / step.seconds /
                        (989e12 * (double)tn_inspect_ranks(&s->shape.mesh)));
    return tn_text_end(out);
}

static void json_layout(const tn_session *s, tn_text *out)
{
    const tn_graph *g = s->train->g;
    tn_traffic t = {0};
    tn_text warnings = {0};
    tn_traffic_add(g, 0, g->n_nodes, &t);
    tn_text_add(out, "\"mesh\": {\"pp\": %d", g->mesh.pp);
    for (int a = 0; a < TN_N_AXES; a++)
        tn_text_add(out, ", \"%s\": %d", tn_axis_name((tn_axis)a), g->mesh.size[a]);
    tn_inspect_warnings(&g->mesh, tn_inspect_node(s->recipe), &warnings);
    tn_text_add(out, "}, \"ranks_per_node\": %d, \"warnings\": [", tn_inspect_node(s->recipe));
    if (warnings.n_bytes)
        tn_text_add(out, "\"%.*s\"", (int)warnings.n_bytes - 1, tn_text_str(&warnings));
    tn_text_add(out, "], \"collective_bytes\": {");
    for (int k = 0, kinds = 0; k < TN_TRAFFIC_KINDS; k++) {
        int rows = 0;
        for (unsigned x = 0; x < TN_TRAFFIC_SETS; x++) {
            if (!t.count[k][x]) continue;
            if (!rows)
                tn_text_add(out, "%s\"%s\": {", kinds++ ? ", " : "",
                            tn_traffic_kind_name((tn_traffic_kind)k));
            tn_text_add(out, "%s\"%s\": %lld", rows++ ? ", " : "", tn_traffic_axes(x).s,
                        (long long)t.bytes[k][x]);
        }
        if (rows) tn_text_add(out, "}");
    }
    tn_text_add(out, "}, ");
    out->failed |= warnings.failed;
    tn_text_fini(&warnings);
}

tn_status tn_report_plan_json(const tn_session *s, tn_text *out)
{
    tn_cost c = tn_cost_of(s->train->g);
    tn_session_bytes b = tn_session_memory(s);
    const tn_graph *g = s->train->g;
    tn_cost_step step;
    TN_TRY(step_of(s, &step));
    tn_text_add(out, "{\"parameters\": %lld, \"flops_per_token\": %s, \"step_flops\": %s, ",
                (long long)c.parameters, tn_text_double(c.flops_per_token).s,
                tn_text_double(c.step_flops).s);
    tn_text_add(out,
                "\"rows\": %lld, \"seq\": %lld, \"microbatches\": %lld, \"chunks\": %lld, "
                "\"ranks\": %lld, \"bubble\": 0, ",
                (long long)g->rows, (long long)g->seq, (long long)g->n_microbatches,
                (long long)g->n_chunks, (long long)tn_inspect_ranks(&g->mesh));
    json_layout(s, out);
    tn_text_add(out, "\"entries\": %lld, \"buffers\": %lld, \"step_s\": %s, ",
                (long long)s->train->n_entries, (long long)s->train->n_buffers,
                tn_text_double(step.seconds).s);
    tn_text_add(out, "\"compute_s\": %s, \"exchange_s\": %s, \"exposed_s\": %s, ",
                tn_text_double(step.compute_s).s, tn_text_double(step.exchange_s).s,
                tn_text_double(step.exposed_s).s);
    tn_text_add(out, "\"saved_bytes_per_token_layer\": %s, ",
                tn_text_double(tn_report_saved_bytes(s->train, NULL)).s);
    tn_text_add(
        out,
        "\"memory\": {\"parameters\": %lld, \"optimizer\": %lld, \"buffers\": %lld, \"inputs\": "
        "%lld, \"step\": %lld, \"scratch\": %lld, \"process\": %lld, \"total\": %lld}, ",
        (long long)b.parameters, (long long)b.moments, (long long)b.buffers, (long long)b.inputs,
        (long long)b.step, (long long)b.scratch, (long long)b.process, (long long)b.total);
    tn_text_add(out, "\"arena\": {\"peak\": %lld, \"bound\": %lld, \"order\": \"%s\"}}\n",
                (long long)s->train->pack.peak, (long long)s->train->pack.bound,
                s->train->pack.order);
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
