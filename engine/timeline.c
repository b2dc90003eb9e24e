#include "engine/timeline.h"

#include "engine/base/clock.h"
#include "engine/base/jsonout.h"
#include "graph/events.h"
#include "graph/names.h"
#include "graph/occupancy.h"
#include "graph/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PREDICTED = 100, MARK_DATA = -1, MARK_IDLE = -2, DATA_TRACK = 50 };

typedef struct record {
    double end_s, waited_s; /* waited: in all, so far */
    int32_t node;           /* or a mark */
    int32_t iteration;
} record;

struct tn_timeline {
    const tn_program *p;
    const tn_comm *comm;
    tn_cost_machine m;
    int rank;
    tn_arena arena;
    const char **names;
    tn_occupancy *live;
    tn_occupancy_owners owners;
    uint8_t *stream; /* by node */
    record *records;
    int64_t capacity, n, step;
    double begin_s, waited_s;
};

tn_status tn_timeline_create(const tn_program *p, const tn_comm *comm, const tn_cost_machine *m,
                             int rank, tn_timeline **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_timeline), &mem));
    tn_timeline *t = mem;
    *t = (tn_timeline){.p = p, .comm = comm, .m = *m, .rank = rank, .capacity = 8};
    for (int64_t i = 0; i < p->n_entries; i++)
        t->capacity += tn_cost_runs(p->g, &p->g->nodes[p->entries[i].node]);
    tn_status st = tn_names_build(p->g, &t->arena, &t->names);
    if (!st) st = tn_occupancy_build(p, &t->arena, &t->live);
    if (!st) st = tn_occupancy_owners_build(p, &t->arena, &t->owners);
    if (!st) st = tn_arena_alloc(&t->arena, (size_t)p->g->n_nodes + 1, &mem);
    if (!st) {
        t->stream = mem;
        for (int64_t i = 0; i < p->n_entries; i++)
            t->stream[p->entries[i].node] = p->entries[i].stream;
        st = tn_arena_alloc(&t->arena, (size_t)t->capacity * sizeof(record), &mem);
    }
    if (st) {
        tn_timeline_destroy(t);
        return st;
    }
    t->records = mem;
    *out = t;
    return TN_OK;
}

void tn_timeline_destroy(tn_timeline *t)
{
    if (!t) return;
    tn_arena_fini(&t->arena);
    tn_free(t);
}

/* ------------------------------------------------------------ recording */

static double waited(const tn_timeline *t)
{
    return t->comm ? tn_comm_waited_s(t->comm) : 0;
}

static void add(tn_timeline *t, int32_t node, int64_t iteration)
{
    if (t->n < t->capacity)
        t->records[t->n++] = (record){tn_clock_s(), waited(t), node, (int32_t)iteration};
}

void tn_timeline_begin(tn_timeline *t, int64_t step)
{
    t->step = step;
    t->n = 0;
    t->waited_s = waited(t);
    t->begin_s = tn_clock_s();
}

bool tn_timeline_entry(void *timeline, const tn_call *c)
{
    add(timeline, (int32_t)(c->n - c->g->nodes), c->iteration);
    return false;
}

void tn_timeline_mark(tn_timeline *t, const char *what)
{
    add(t, strcmp(what, "data") ? MARK_IDLE : MARK_DATA, 0);
}

/* ------------------------------------------------------------ writing */

static int64_t ns(double s)
{
    return (int64_t)llround(s * 1e9);
}

/* An event up to its arguments; microseconds with three decimals are nanoseconds. */
static void head(tn_jsonout *w, const char *ph, const char *name, const tn_timeline *t, int tid)
{
    tn_jsonout_open(w, NULL, '{');
    tn_jsonout_string(w, "ph", ph);
    tn_jsonout_string(w, "name", name);
    tn_jsonout_int(w, "pid", t->rank);
    tn_jsonout_int(w, "tid", tid);
}

static void time_at(tn_jsonout *w, const char *key, int64_t at)
{
    tn_text_add(w->text, ", \"%s\": %lld.%03d", key, (long long)(at / 1000), (int)(at % 1000));
}

static void end(tn_jsonout *w)
{
    tn_jsonout_close(w);
    tn_text_add(w->text, "\n");
}

static void name_track(const tn_timeline *t, int tid, const char *name, tn_text *out)
{
    static const char *const what[2][2] = {{"thread_name", "name"},
                                           {"thread_sort_index", "sort_index"}};
    for (int i = 0; i < 2; i++) {
        tn_jsonout w = {.text = out};
        head(&w, "M", what[i][0], t, tid);
        tn_jsonout_open(&w, "args", '{');
        if (i) tn_jsonout_int(&w, what[i][1], tid);
        else tn_jsonout_string(&w, what[i][1], name);
        tn_jsonout_close(&w);
        end(&w);
    }
}

static void name_all(const tn_timeline *t, tn_text *out)
{
    bool used[TN_N_STREAMS] = {false};
    char name[64];
    tn_jsonout w = {.text = out}, sort = {.text = out};
    snprintf(name, sizeof name, "rank %d", t->rank);
    head(&w, "M", "process_name", t, 0);
    tn_jsonout_open(&w, "args", '{');
    tn_jsonout_string(&w, "name", name);
    tn_jsonout_close(&w);
    end(&w);
    head(&sort, "M", "process_sort_index", t, 0);
    tn_jsonout_open(&sort, "args", '{');
    tn_jsonout_int(&sort, "sort_index", t->rank);
    tn_jsonout_close(&sort);
    end(&sort);
    for (int64_t i = 0; i < t->p->n_entries; i++) used[t->p->entries[i].stream] = true;
    for (int s = 0; s < TN_N_STREAMS; s++) {
        if (!used[s]) continue;
        name_track(t, s, tn_events_stream((tn_stream)s), out);
        snprintf(name, sizeof name, "predicted %s", tn_events_stream((tn_stream)s));
        name_track(t, PREDICTED + s, name, out);
    }
    name_track(t, DATA_TRACK, "host", out);
}

/* FLOPs of this rank: those of the node over the axes that share its work. */
static double flops(const tn_graph *g, const tn_node *n)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    double split = 1;
    for (int x = 0; x < TN_N_AXES; x++) {
        bool shares = false;
        for (int i = 0; i < n->n_in; i++)
            shares |= g->values[tn_node_in(g, n, i)].layout.type[x] == TN_TYPE_S;
        if (shares) split *= g->mesh.size[x];
    }
    return op->flops ? op->flops(g, n) / split : 0;
}

static int64_t bytes_touched(const tn_program *p, const tn_node *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        int32_t v = i < n->n_in ? tn_node_in(p->g, n, i) : n->out0 + i - n->n_in;
        bytes += tn_value_elements(&p->local[v]) * tn_dtype_bytes((tn_dtype)p->local[v].dtype);
    }
    return bytes;
}

typedef struct slice {
    int64_t begin, end; /* ns */
    double predicted_s, measured_s, waited_s;
} slice;

static void add_slice(const tn_timeline *t, const record *r, const slice *s, bool predicted,
                      tn_text *out)
{
    static const char *const phases[] = {"forward", "backward", "weights", "update", "exchange"};
    const tn_node *n = &t->p->g->nodes[r->node];
    const char *name = n->n_out ? t->names[n->out0] : n->path;
    tn_traffic_move m;
    bool moves = tn_traffic_of_node(t->p->g, n, &m);
    tn_jsonout w = {.text = out};
    head(&w, "X", name[0] ? name : tn_op_name((tn_op_id)n->op), t,
         t->stream[r->node] + (predicted ? PREDICTED : 0));
    time_at(&w, "ts", s->begin);
    time_at(&w, "dur", s->end - s->begin);
    tn_jsonout_string(&w, "cat", moves ? "exchange" : phases[n->phase]);
    tn_jsonout_open(&w, "args", '{');
    tn_jsonout_string(&w, "op", tn_op_name((tn_op_id)n->op));
    tn_jsonout_string(&w, "module", n->path);
    if (predicted) {
        tn_jsonout_double(&w, "measured_us", s->measured_s * 1e6);
    } else {
        tn_jsonout_int(&w, "iteration", r->iteration);
        if (moves) {
            tn_jsonout_string(&w, "collective", tn_traffic_kind_name((tn_traffic_kind)m.kind));
            tn_jsonout_string(&w, "axes", tn_traffic_axes(m.axes).s);
        }
        tn_jsonout_int(&w, "bytes", moves ? m.bytes : bytes_touched(t->p, n));
        tn_jsonout_double(&w, "flops", flops(t->p->g, n));
        tn_jsonout_double(&w, "predicted_us", s->predicted_s * 1e6);
        tn_jsonout_double(&w, "waiting_us", s->waited_s * 1e6);
    }
    tn_jsonout_close(&w);
    end(&w);
}

static void add_memory(const tn_timeline *t, int32_t node, int64_t at, tn_text *out)
{
    tn_jsonout w = {.text = out};
    head(&w, "C", "step memory", t, 0);
    time_at(&w, "ts", at);
    tn_jsonout_open(&w, "args", '{');
    for (int k = 0; k < TN_OCCUPANCY_KINDS; k++)
        tn_jsonout_int(&w, tn_occupancy_name((tn_occupancy_kind)k), t->live[node].bytes[k]);
    tn_jsonout_close(&w);
    end(&w);
}

/* Where the walk comes to another layer. */
static void add_owners(const tn_timeline *t, int32_t node, int64_t at, tn_text *out)
{
    tn_jsonout w = {.text = out};
    if (!t->owners.n) return;
    head(&w, "C", "step memory by owner", t, 0);
    time_at(&w, "ts", at);
    tn_jsonout_open(&w, "args", '{');
    for (int k = 0; k < t->owners.n; k++)
        tn_jsonout_int(&w, t->owners.name[k], t->owners.bytes[node][k]);
    tn_jsonout_close(&w);
    end(&w);
}

static bool same_layer(const tn_timeline *t, int32_t a, int32_t b)
{
    const char *x = a < 0 ? "" : t->p->g->nodes[a].path, *y = t->p->g->nodes[b].path;
    size_t n = tn_names_layer(x);
    return a >= 0 && n == tn_names_layer(y) && !strncmp(x, y, n);
}

static void add_mark(const tn_timeline *t, const record *r, const slice *s, tn_text *out)
{
    tn_jsonout w = {.text = out};
    if (r->node != MARK_DATA) return;
    head(&w, "X", "data", t, DATA_TRACK);
    time_at(&w, "ts", s->begin);
    time_at(&w, "dur", s->end - s->begin);
    tn_jsonout_string(&w, "cat", "data");
    end(&w);
}

/* An event between streams, from the end of one slice to the begin of another. */
static void add_flow(const tn_timeline *t, int64_t id, int32_t from, int64_t from_ns, int32_t to,
                     int64_t to_ns, tn_text *out)
{
    for (int i = 0; i < 2; i++) {
        tn_jsonout w = {.text = out};
        head(&w, i ? "f" : "s", "event", t, t->stream[i ? to : from]);
        time_at(&w, "ts", i ? to_ns : from_ns);
        tn_jsonout_string(&w, "cat", "event");
        tn_jsonout_int(&w, "id", ((int64_t)t->rank << 32) + id);
        if (i) tn_jsonout_string(&w, "bp", "e");
        end(&w);
    }
}

/* Arrows into this run of `entry`, from the latest runs of what it waits for. */
static void add_flows(const tn_timeline *t, int64_t entry, const slice *last, const slice *now,
                      int64_t *id, tn_text *out)
{
    const tn_program *p = t->p;
    for (int64_t i = 0; i < p->n_events; i++) {
        if (p->events[i].entry != entry) continue;
        int32_t from = p->entries[p->events[i].after].node;
        if (last[from].end)
            add_flow(t, (*id)++, from, last[from].begin, p->entries[entry].node, now->begin, out);
    }
}

static void count(const tn_timeline *t, const record *r, double took, double in_wait,
                  tn_timeline_sum *sum)
{
    tn_traffic_move m;
    if (r->node == MARK_DATA) sum->data_s += took;
    else if (r->node == MARK_IDLE) sum->idle_s += took;
    else {
        sum->waiting_s += in_wait;
        if (tn_traffic_of_node(t->p->g, &t->p->g->nodes[r->node], &m))
            sum->exposed_s[m.kind] += took - in_wait;
        else sum->compute_s += took - in_wait;
    }
}

static tn_status entries_of(const tn_timeline *t, tn_arena *arena, int64_t **out)
{
    void *mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)(t->p->g->n_nodes + 1) * sizeof(int64_t), &mem));
    *out = mem;
    for (int64_t i = 0; i < t->p->n_entries; i++) (*out)[t->p->entries[i].node] = i;
    return TN_OK;
}

static tn_status print_all(const tn_timeline *t, bool memory, tn_arena *arena, tn_text *out,
                           tn_timeline_sum *sum)
{
    void *mem;
    int64_t *entry, id = 0;
    int64_t planned = 0; /* ns: sums of doubles would differ by one between an end and a begin */
    double before = t->begin_s, waited_s = t->waited_s, predicted = 0;
    TN_TRY(entries_of(t, arena, &entry));
    TN_TRY(tn_arena_alloc(arena, (size_t)(t->p->g->n_nodes + 1) * sizeof(slice), &mem));
    slice *last = mem; /* by node: its latest run */
    int32_t node = -1; /* the entry before */
    name_all(t, out);
    for (int64_t i = 0; i < t->n; i++) {
        const record *r = &t->records[i];
        slice s = {.begin = ns(before), .end = ns(r->end_s), .waited_s = r->waited_s - waited_s};
        count(t, r, r->end_s - before, s.waited_s, sum);
        before = r->end_s;
        waited_s = r->waited_s;
        if (r->node < 0) {
            add_mark(t, r, &s, out);
            continue;
        }
        if (planned == 0) planned = s.begin;
        s.predicted_s = tn_cost_seconds(t->p->g, &t->p->g->nodes[r->node], &t->m);
        slice q = {.begin = planned,
                   .end = planned + ns(s.predicted_s),
                   .measured_s = (double)(s.end - s.begin) / 1e9};
        planned = q.end;
        predicted += s.predicted_s;
        if (memory) add_memory(t, r->node, s.begin, out);
        if (memory && !same_layer(t, node, r->node)) add_owners(t, r->node, s.begin, out);
        node = r->node;
        add_slice(t, r, &s, false, out);
        if (q.end > q.begin) add_slice(t, r, &q, true, out);
        add_flows(t, entry[r->node], last, &s, &id, out);
        last[r->node] = s;
    }
    sum->step_s = before - t->begin_s;
    sum->predicted_s = predicted;
    return tn_text_end(out);
}

tn_status tn_timeline_print(const tn_timeline *t, bool memory, tn_text *out, tn_timeline_sum *sum)
{
    tn_arena arena = {0};
    *sum = (tn_timeline_sum){0};
    tn_status st = print_all(t, memory, &arena, out, sum);
    tn_arena_fini(&arena);
    return st;
}

/* ------------------------------------------------------------ letters */

static const tn_mail *mail_of(const tn_program *p, int32_t node)
{
    for (int64_t i = 0; p->pipeline && i < p->pipeline->n_mails; i++)
        if (p->pipeline->mails[i].node == node) return &p->pipeline->mails[i];
    return NULL;
}

/* Begins where the send begins, ends in the last moment of the receive, which waits for it. */
static void add_letter(const tn_timeline *t, const record *r, const tn_mail *m, double before,
                       tn_text *out)
{
    const tn_graph *g = t->p->g;
    int64_t id = (m->channel * g->n_microbatches + r->iteration) * tn_mesh_ranks(&g->mesh) +
                 tn_mesh_rank(&g->mesh, t->p->at);
    int64_t begin = ns(before), last = ns(r->end_s) - 1;
    tn_jsonout w = {.text = out};
    head(&w, m->arrives ? "f" : "s", "letter", t, t->stream[r->node]);
    time_at(&w, "ts", m->arrives && last > begin ? last : begin);
    tn_jsonout_string(&w, "cat", "letter");
    tn_jsonout_int(&w, "id", id);
    if (m->arrives) tn_jsonout_string(&w, "bp", "e");
    end(&w);
}

tn_status tn_timeline_letters(const tn_timeline *t, tn_text *out)
{
    double before = t->begin_s;
    for (int64_t i = 0; i < t->n; i++) {
        const record *r = &t->records[i];
        const tn_mail *m = r->node >= 0 ? mail_of(t->p, r->node) : NULL;
        if (m) add_letter(t, r, m, before, out);
        before = r->end_s;
    }
    return tn_text_end(out);
}

/* ------------------------------------------------------------ the sum */

enum { FIXED = 4, PARTS = FIXED + TN_TRAFFIC_KINDS };

/* Tenths of a percent that add up to 1000: the largest remainders are rounded up. */
static void share(const double *part, double whole, int *tenths)
{
    double rest[PARTS];
    int left = 1000;
    for (int i = 0; i < PARTS; i++) {
        double exact = whole > 0 ? 1000 * part[i] / whole : 0;
        tenths[i] = (int)exact;
        rest[i] = exact - tenths[i];
        left -= tenths[i];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < PARTS; i++)
            if (rest[i] > rest[best]) best = i;
        tenths[best]++;
        rest[best] -= 1;
    }
}

void tn_timeline_summary(const tn_timeline_sum *s, tn_text *out)
{
    static const char *const fixed[FIXED] = {"computation", "waiting for ranks", "data", "idle"};
    double part[PARTS] = {s->compute_s, s->waiting_s, s->data_s, s->idle_s}, whole = 0;
    int tenths[PARTS];
    for (int k = 0; k < TN_TRAFFIC_KINDS; k++) part[FIXED + k] = s->exposed_s[k];
    for (int i = 0; i < PARTS; i++) whole += part[i];
    share(part, whole, tenths);
    tn_text_add(out, "step %s, predicted %s\n", tn_text_seconds(s->step_s).s,
                tn_text_seconds(s->predicted_s).s);
    for (int i = 0; i < PARTS; i++) {
        char name[64];
        if (i >= FIXED && part[i] <= 0 && !tenths[i]) continue;
        snprintf(name, sizeof name, "%s%s", i < FIXED ? "" : "exposed ",
                 i < FIXED ? fixed[i] : tn_traffic_kind_name((tn_traffic_kind)(i - FIXED)));
        tn_text_add(out, "  %-24s %10s %3d.%d %%\n", name, tn_text_seconds(part[i]).s,
                    tenths[i] / 10, tenths[i] % 10);
    }
    tn_text_add(out, "  %-24s %10s 100.0 %%\n", "in all", tn_text_seconds(whole).s);
}
