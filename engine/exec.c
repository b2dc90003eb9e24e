#include "engine/exec.h"

#include "engine/base/plant.h"
#include "engine/exchange.h"
#include "engine/letter.h"
#include "graph/op.h"
#include "graph/passes.h"

#include <string.h>

typedef struct operand {
    char *base;
    int64_t microbatch_stride, chunk_stride, slot_bytes;
    const int32_t *slot; /* by microbatch; NULL: one place */
} operand;

typedef struct bound { /* one entry, bound */
    tn_call call;
    void (*run)(const tn_call *c);
    const tn_exchange *exchange; /* instead of run */
    const tn_letter *letter;     /* instead of run */
    const operand *operands;     /* inputs, then outputs */
    const tn_order_run *runs;    /* by iteration, or one for all */
    int64_t run_stride;          /* 1: by iteration, 0: one */
} bound;

struct tn_exec {
    tn_memory *m;
    const tn_program *p;
    tn_arena arena;
    bound *entries;
    int64_t update;    /* first optimizer entry */
    int64_t mail_base; /* where this program's mail begins in this rank's */
    tn_cpu cpu;
    tn_step step;
    /* the token sum's runs, shared by all nodes of a scope */
    const tn_order_run *token_runs[2]; /* microbatch, chunk */
};

static bool is_update(const tn_graph *g, int32_t node)
{
    return g->nodes[node].op == TN_OP_adamw || g->nodes[node].op == TN_OP_sgd;
}

/* ------------------------------------------------------------ sum orders */

/* One run per iteration: `step` leaves each. */
static tn_status make_token_runs(tn_exec *e, const tn_order_tokens *t, int64_t step, int64_t n,
                                 const tn_order_run **out)
{
    void *mem;
    TN_TRY(tn_arena_alloc(&e->arena, (size_t)n * sizeof(tn_order_run), &mem));
    tn_order_run *runs = mem;
    for (int64_t i = 0; i < n; i++)
        TN_TRY(tn_order_tokens_run(t, &e->arena, i * step, (i + 1) * step, &runs[i]));
    *out = runs;
    return TN_OK;
}

static tn_status token_order(tn_exec *e, const tn_node *n, bound *b)
{
    const tn_graph *g = e->p->g;
    int chunk = n->scope == TN_SCOPE_CHUNK;
    b->run_stride = 1;
    if (!e->token_runs[chunk]) {
        const tn_order_tokens *t;
        int64_t iterations = g->n_microbatches * (chunk ? g->n_chunks : 1);
        TN_TRY(tn_lower_tokens(g, &e->arena, &t));
        TN_TRY(make_token_runs(e, t, tn_order_tokens_leaves(t) / iterations, iterations,
                               &e->token_runs[chunk]));
    }
    b->runs = e->token_runs[chunk];
    return TN_OK;
}

static tn_status param_order(tn_exec *e, const tn_node *n, bound *b)
{
    const tn_graph *g = e->p->g;
    int64_t extent[TN_MAX_OPERANDS], units[TN_MAX_OPERANDS];
    int n_src = n->op == TN_OP_linear_bwd_x ? n->n_in / 2 : 1;
    void *mem;
    tn_order_node node = {
        .parts = n->parts, .n_src = n_src, .extent = extent, .units = units, .ranks = 1};
    for (int i = 0; i < n_src; i++) {
        const tn_value *x = &g->values[tn_node_in(g, n, i)];
        int last = x->rank - 1;
        extent[i] = x->dim[last].extent;
        units[i] = x->dim[last].units;
        if (x->layout.type[TN_AXIS_TP] == TN_TYPE_S && x->layout.dim[TN_AXIS_TP] == last) {
            node.ranks = g->mesh.size[TN_AXIS_TP];
            node.rank = e->p->at[TN_AXIS_TP];
        }
    }
    if (node.ranks & (node.ranks - 1))
        TN_FAIL(TN_BAD_INPUT,
                "parallelism.tensor_parallel_degree: %d: the layers of this build run on powers of "
                "two, also with debug.reduce = \"fast\"; use a power of two",
                node.ranks);
    if (node.parts < node.ranks) node.parts = node.ranks; /* fast mode: one chain a rank */
    TN_TRY(tn_arena_alloc(&e->arena, sizeof(tn_order_run), &mem));
    TN_TRY(tn_order_param_node(&e->arena, &node, mem));
    b->runs = mem;
    return TN_OK;
}

/* ------------------------------------------------------------ binding */

/* The state of the same name in the owner's process region. */
static tn_status owner_place(const tn_exec *e, const tn_node *n, char **out)
{
    const tn_place *at;
    TN_TRY(tn_program_state(e->m->owner, tn_node_attr_text(n, "name"), &at));
    *out = (char *)e->m->base[TN_REGION_PROCESS] + at->offset;
    return TN_OK;
}

static tn_status bind_value(const tn_exec *e, int32_t v, operand *out)
{
    const tn_program *p = e->p;
    const tn_place *at = &p->places[v];
    const tn_node *first = &p->g->nodes[p->g->values[p->buffers[at->buffer].value].node];
    *out = (operand){.base = (char *)e->m->base[at->region] + at->offset,
                     .microbatch_stride = at->microbatch_stride,
                     .chunk_stride = at->chunk_stride,
                     .slot_bytes = at->slot_bytes,
                     .slot = at->saved ? p->saved[at->saved - 1].slot : NULL};
    if (at->region == TN_REGION_MAIL) out->base += e->mail_base;
    if (at->region == TN_REGION_PROCESS && p != e->m->owner)
        TN_TRY(owner_place(e, first, &out->base));
    return TN_OK;
}

static tn_status bind_entry(tn_exec *e, const tn_entry *entry, bound *b)
{
    const tn_graph *g = e->p->g;
    const tn_node *n = &g->nodes[entry->node];
    const tn_kernel *k = e->m->device->ops->kernel((tn_op_id)n->op);
    void *mem;
    if (n->n_in > TN_CALL_MAX_IN || n->n_out > TN_CALL_MAX_OUT)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: %d operands; a kernel takes at most %d", n->path,
                tn_op_name((tn_op_id)n->op), n->n_in, TN_CALL_MAX_IN);
    bool exchange = tn_node_is_exchange(g, n);
    if (!exchange && !k->run)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: the %s backend has no kernel for it", n->path,
                tn_op_name((tn_op_id)n->op), e->m->device->ops->name);
    TN_TRY(tn_arena_alloc(&e->arena, (size_t)(n->n_in + n->n_out) * sizeof(operand), &mem));
    operand *o = mem;
    for (int i = 0; i < n->n_in; i++) TN_TRY(bind_value(e, tn_node_in(g, n, i), &o[i]));
    for (int i = 0; i < n->n_out; i++) TN_TRY(bind_value(e, n->out0 + i, &o[n->n_in + i]));
    *b = (bound){.call = {.cpu = &e->cpu,
                          .p = e->p,
                          .g = g,
                          .n = n,
                          .level_bytes = e->p->places[n->out0].level_bytes,
                          .step = &e->step},
                 .run = k->run,
                 .operands = o};
    tn_exchange_memory memory = {e->m->comm, e->m->first_region, e->mail_base, e->m->owner};
    if (n->op == TN_OP_send || n->op == TN_OP_recv)
        TN_TRY(tn_letter_build(e->p, entry->node, e->m, &e->arena, &b->letter));
    else if (exchange && e->m->comm)
        TN_TRY(tn_exchange_build(e->p, entry, &memory, &e->arena, &b->exchange));
    for (int i = 0; i < n->n_in; i++) b->call.in[i] = o[i].base;
    for (int i = 0; i < n->n_out; i++) b->call.out[i] = o[n->n_in + i].base;
    if (n->order == TN_ORDER_OVER_PARAM) TN_TRY(param_order(e, n, b));
    if (n->order == TN_ORDER_OVER_TOKENS) TN_TRY(token_order(e, n, b));
    b->call.order = b->runs;
    return k->prepare ? k->prepare(g, n, &e->arena, &b->call.prepared) : TN_OK;
}

static tn_status bind(tn_exec *e)
{
    const tn_program *p = e->p;
    void *mem;
    TN_TRY(tn_arena_alloc(&e->arena, (size_t)(p->n_entries + 1) * sizeof(bound), &mem));
    e->entries = mem;
    e->update = p->n_entries;
    for (int64_t i = 0; i < p->n_entries; i++) {
        TN_TRY(bind_entry(e, &p->entries[i], &e->entries[i]));
        if (e->update == p->n_entries && is_update(p->g, p->entries[i].node)) e->update = i;
    }
    return TN_OK;
}

static int64_t scratch_of(tn_exec *e)
{
    const tn_program *p = e->p;
    int64_t most = 0;
    for (int64_t i = 0; i < p->n_entries; i++) {
        bound *b = &e->entries[i];
        const tn_kernel *k = e->m->device->ops->kernel((tn_op_id)b->call.n->op);
        int64_t iterations =
            b->run_stride
                ? p->g->n_microbatches * (b->call.n->scope == TN_SCOPE_CHUNK ? p->g->n_chunks : 1)
                : 1;
        for (int64_t r = 0; k->scratch && r < iterations; r++) {
            b->call.order = b->runs ? &b->runs[r * b->run_stride] : NULL;
            int64_t bytes = (int64_t)k->scratch(&b->call);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

tn_status tn_exec_scratch_bytes(const tn_program *p, const tn_device *d, int64_t *out)
{
    /* Bound to a memory that is not there: kernels read pointers only as identities. */
    tn_memory m = {.device = (tn_device *)(uintptr_t)d, .owner = p};
    for (int r = 0; r < TN_N_REGIONS; r++) m.base[r] = (void *)((uintptr_t)(r + 1) << 44);
    tn_exec e = {.m = &m, .p = p, .cpu = d->cpu};
    tn_status st = bind(&e);
    if (!st) *out = scratch_of(&e);
    tn_arena_fini(&e.arena);
    return st;
}

/* ------------------------------------------------------------ memory */

/* The regions of several ranks are numbered as tn_region, so that a place means the same to all. */
static tn_status get_region(tn_memory *m, int r)
{
    if (m->comm) return tn_comm_region(m->comm, m->first_region + r, m->bytes[r], &m->base[r]);
    return m->device->ops->alloc(m->device, m->bytes[r], &m->base[r]);
}

tn_status tn_memory_create(tn_device *d, tn_comm *comm, int first_region,
                           const tn_program *const *programs, int n, tn_memory **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_memory), &mem));
    tn_memory *m = mem;
    tn_status st = TN_OK;
    m->device = d;
    m->comm = comm;
    m->first_region = first_region;
    m->owner = programs[0];
    for (int i = 0; i < n && !st; i++) {
        int64_t scratch = 0;
        st = tn_exec_scratch_bytes(programs[i], d, &scratch);
        if (scratch > m->scratch_bytes) m->scratch_bytes = scratch;
        for (int r = 0; r < TN_N_REGIONS; r++)
            if (r == TN_REGION_MAIL) m->bytes[r] += programs[i]->region_bytes[r];
            else if ((r != TN_REGION_PROCESS || i == 0) &&
                     programs[i]->region_bytes[r] > m->bytes[r])
                m->bytes[r] = programs[i]->region_bytes[r];
    }
    for (int r = 0; r < TN_N_REGIONS && !st; r++)
        if (m->comm || m->bytes[r]) st = get_region(m, r);
    if (!st) st = d->ops->alloc(d, m->scratch_bytes, &m->scratch);
    if (st) {
        tn_memory_destroy(m);
        return st;
    }
    *out = m;
    return TN_OK;
}

void tn_memory_destroy(tn_memory *m)
{
    if (!m) return;
    for (int r = 0; r < TN_N_REGIONS && !m->comm; r++)
        if (m->base[r]) m->device->ops->free(m->device, m->base[r], m->bytes[r]);
    m->device->ops->free(m->device, m->scratch, m->scratch_bytes);
    tn_free(m);
}

tn_status tn_exec_create(tn_memory *m, const tn_program *p, tn_exec **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_exec), &mem));
    tn_exec *e = mem;
    e->m = m;
    e->p = p;
    e->cpu = m->device->cpu;
    e->cpu.scratch = m->scratch;
    e->cpu.scratch_bytes = (size_t)m->scratch_bytes;
    if (p->pipeline) e->mail_base = m->mail_used[p->pipeline->rank];
    tn_status st = bind(e);
    for (int r = 0; p->pipeline && r < p->pipeline->n_ranks; r++)
        m->mail_used[r] += p->pipeline->mail_bytes[r];
    if (st) {
        tn_exec_destroy(e);
        return st;
    }
    *out = e;
    return TN_OK;
}

void tn_exec_destroy(tn_exec *e)
{
    if (!e) return;
    tn_arena_fini(&e->arena);
    tn_free(e);
}

/* ------------------------------------------------------------ running */

typedef struct walk {
    tn_exec *e;
    int64_t from, to; /* entries to run */
    tn_exec_hook hook;
    void *user;
    int32_t found;
} walk;

static void *address(const operand *o, int64_t mb, int64_t chunk)
{
    char *at = o->base + mb * o->microbatch_stride + chunk * o->chunk_stride;
    return o->slot ? at + o->slot[mb] * o->slot_bytes : at;
}

static tn_status run_range(void *user, int64_t begin, int64_t end, int64_t mb, int64_t chunk)
{
    walk *w = user;
    bool alone = !w->e->m->comm;
    for (int64_t i = begin < w->from ? w->from : begin;
         i < end && i < w->to && (w->found < 0 || !alone); i++) {
        bound *b = &w->e->entries[i];
        const operand *o = b->operands;
        tn_call *c = &b->call;
        bool swapped = tn_plant_is(TN_PLANT_BATCH_SWAPPED) && i >= w->e->p->microbatch;
        int64_t of = swapped && i < w->e->p->tail ? (mb + 1) % w->e->p->g->n_microbatches : mb;
        for (int k = 0; k < c->n->n_in; k++) c->in[k] = address(o++, of, chunk);
        for (int k = 0; k < c->n->n_out; k++) c->out[k] = address(o++, of, chunk);
        int64_t chunks = c->n->scope == TN_SCOPE_CHUNK ? w->e->p->g->n_chunks : 1;
        c->iteration = mb * chunks + (chunks > 1 ? chunk : 0);
        if (b->runs) c->order = &b->runs[c->iteration * b->run_stride];
        if (b->letter) TN_TRY(tn_letter_run(b->letter, c, w->e->m->runs, mb));
        else if (b->exchange) TN_TRY(tn_exchange_run(b->exchange, &w->e->cpu, mb, chunk));
        else b->run(c);
        if (w->hook && w->found < 0 && w->hook(w->user, c))
            w->found = (int32_t)(c->n - w->e->p->g->nodes);
    }
    return TN_OK;
}

/* The ranks of a pipeline begin a run together: none has letters of the next while another reads
 * those of the last. */
static tn_status run_all(walk *w)
{
    const tn_program *p = w->e->p;
    tn_memory *m = w->e->m;
    if (p->pipeline && m->comm && w->from == 0) {
        m->runs++;
        TN_TRY(tn_comm_sync(m->comm, TN_COMM_WORLD, "the step's begin", 0));
    }
    if (w->from >= p->tail) return run_range(w, p->tail, p->n_entries, 0, 0);
    return tn_program_walk(p, p->g->n_microbatches, p->g->n_chunks, run_range, w);
}

static walk begin_walk(tn_exec *e, tn_exec_part part, const tn_step *step)
{
    if (step) e->step = *step;
    return (walk){.e = e,
                  .from = part == TN_EXEC_UPDATE ? e->update : 0,
                  .found = -1,
                  .to = part == TN_EXEC_BEFORE_UPDATE ? e->update : e->p->n_entries};
}

tn_status tn_exec_run(tn_exec *e, tn_exec_part part, const tn_step *step)
{
    walk w = begin_walk(e, part, step);
    return run_all(&w);
}

tn_status tn_exec_search(tn_exec *e, tn_exec_part part, const tn_step *step, tn_exec_hook hook,
                         void *user, int32_t *node_out)
{
    walk w = begin_walk(e, part, step);
    w.hook = hook;
    w.user = user;
    TN_TRY(run_all(&w));
    *node_out = w.found;
    return TN_OK;
}

void *tn_exec_peer(const tn_exec *e, const tn_program *p, int rank, int32_t value)
{
    const tn_place *at = &p->places[value];
    if (!e->m->comm) return tn_exec_value(e, value);
    if (p->pipeline) rank += p->pipeline->rank * tn_mesh_ranks(&p->g->mesh);
    if (p == e->p && rank == tn_comm_rank(e->m->comm)) return tn_exec_value(e, value);
    return (char *)tn_comm_peer(e->m->comm, rank, e->m->first_region + at->region) + at->offset;
}

void *tn_exec_value(const tn_exec *e, int32_t value)
{
    operand o;
    tn_status st = bind_value(e, value, &o);
    return st ? NULL : o.base;
}

void *tn_exec_named(const tn_exec *e, const char *name, const tn_value **value_out)
{
    const tn_graph *g = e->p->g;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if ((n->op != TN_OP_state && n->op != TN_OP_input) ||
            strcmp(tn_node_attr_text(n, "name"), name))
            continue;
        if (value_out) *value_out = &g->values[n->out0];
        return tn_exec_value(e, n->out0);
    }
    return NULL;
}

const tn_program *tn_exec_program(const tn_exec *e)
{
    return e->p;
}

tn_pool *tn_exec_pool(const tn_exec *e)
{
    return e->cpu.pool;
}
