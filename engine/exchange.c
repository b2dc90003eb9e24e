#include "engine/exchange.h"

#include "engine/base/plant.h"
#include "graph/op.h"
#include "kernels/cpu/cast.h"
#include "kernels/cpu/exact.h"

#include <string.h>

enum { MAX_MEMBERS = TN_COMM_MAX_RANKS, CHUNK = 4096 };

/* One rectangle: where it lies in the destination, and in each member's source. All counts in
 * elements. */
typedef struct piece {
    int n_src; /* 1, or the members of a pending sum in tree order */
    int16_t rank[MAX_MEMBERS];
    int64_t src_offset[MAX_MEMBERS]; /* of its first element */
    int64_t src_stride[TN_MAX_RANK], dst_stride[TN_MAX_RANK], count[TN_MAX_RANK];
    int64_t dst_offset, run, n_runs; /* contiguous elements, and how many such runs */
    int outer;                       /* dims in front of the run */
} piece;

struct tn_exchange {
    const tn_program *p;
    const tn_node *n;
    tn_comm *comm;
    int group;
    int meets;         /* tn_entry.meets */
    int first_rank;    /* of the world: the ranks of this pipeline rank follow it */
    bool alone;        /* only this rank's own data: no meeting */
    tn_dtype from, to; /* they differ where fp32 is rounded to bf16 on arrival */
    tn_place src, dst;
    int64_t bytes, n_pieces;
    piece *pieces;
};

typedef struct builder {
    const tn_graph *g;
    const tn_value *a, *b; /* global; heads and their elements as one dim */
    tn_value flat[2];
    int heads; /* which of them was made of whole heads: 1 a, 2 b */
    int64_t head_dim;
    bool shared; /* pending over the ranks that share key/value heads */
    int at[TN_N_AXES];
    bool moved[TN_N_AXES];   /* axes on which the layout changes and which are larger than 1 */
    bool pending[TN_N_AXES]; /* of those, P in the source */
    int64_t begin[TN_MAX_RANK], count[TN_MAX_RANK]; /* this rank's rectangle of the destination */
} builder;

static int64_t shard(const builder *q, const tn_value *v, const int *at, int d, int64_t *begin)
{
    bool whole_heads = d == 2 && ((q->heads == 1 && v == q->a) || (q->heads == 2 && v == q->b));
    if (whole_heads) {
        int64_t n = tn_layout_local(&v->layout, &q->g->mesh, at, d, v->dim[d].extent / q->head_dim,
                                    v->dim[d].units, begin);
        *begin *= q->head_dim;
        return n * q->head_dim;
    }
    return tn_layout_local(&v->layout, &q->g->mesh, at, d, v->dim[d].extent, v->dim[d].units,
                           begin);
}

/* The members of the pending sum around coordinates `at`, dp_replicate outermost: the order of the
 * tree. */
static int members(const builder *q, const int *at, int16_t *out)
{
    int n = 0, total = tn_mesh_ranks(&q->g->mesh);
    for (int r = 0; r < total; r++) {
        int other[TN_N_AXES];
        bool in = true;
        tn_mesh_coordinates(&q->g->mesh, r, other);
        for (int x = 0; x < TN_N_AXES; x++)
            in &= q->pending[x] || other[x] == at[x] || (q->shared && x == TN_AXIS_TP);
        if (in && q->shared) {
            int64_t mine, theirs;
            shard(q, q->a, at, 2, &mine);
            shard(q, q->a, other, 2, &theirs);
            in = mine == theirs;
        }
        if (in) out[n++] = (int16_t)r;
    }
    return n;
}

/* The part of this rank's rectangle that the ranks at `at` hold; false if there is none. */
static bool intersect(const builder *q, const int *at, piece *p)
{
    int rank = q->b->rank;
    int64_t src_begin[TN_MAX_RANK], src_count[TN_MAX_RANK], lo[TN_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        src_count[d] = shard(q, q->a, at, d, &src_begin[d]);
        int64_t hi = src_begin[d] + src_count[d], end = q->begin[d] + q->count[d];
        lo[d] = src_begin[d] > q->begin[d] ? src_begin[d] : q->begin[d];
        if (end < hi) hi = end;
        if (hi <= lo[d]) return false;
        p->count[d] = hi - lo[d];
    }
    int64_t ss = 1, ds = 1, so = 0;
    for (int d = rank - 1; d >= 0; d--) {
        p->src_stride[d] = ss;
        p->dst_stride[d] = ds;
        so += (lo[d] - src_begin[d]) * ss;
        p->dst_offset += (lo[d] - q->begin[d]) * ds;
        ss *= src_count[d];
        ds *= q->count[d];
    }
    p->run = 1;
    p->outer = rank;
    while (p->outer > 0) { /* as long as what is behind is whole on both sides, it is one run */
        int d = p->outer - 1;
        if (p->run != p->src_stride[d] || p->run != p->dst_stride[d]) break;
        p->run *= p->count[d];
        p->outer--;
    }
    p->n_runs = 1;
    for (int d = 0; d < p->outer; d++) p->n_runs *= p->count[d];
    p->n_src = members(q, at, p->rank);
    for (int i = 0; i < p->n_src; i++) p->src_offset[i] = so; /* members hold the same rectangle */
    return true;
}

/* Local extents of the flat form follow from the heads where there are heads. */
static void flatten(builder *q, const tn_node *n)
{
    if (n->op != TN_OP_heads && n->op != TN_OP_merge_heads) return;
    const tn_value *v[2] = {q->a, q->b};
    for (int i = 0; i < 2; i++) {
        q->flat[i] = *v[i];
        if (v[i]->rank != 4) continue;
        q->flat[i].rank = 3;
        q->flat[i].dim[2].extent = v[i]->dim[2].extent * v[i]->dim[3].extent;
    }
    q->heads = v[0]->rank == 4 ? 1 : 2;
    q->head_dim = q->heads == 1 ? v[0]->dim[3].extent : v[1]->dim[3].extent;
    q->a = &q->flat[0];
    q->b = &q->flat[1];
    q->moved[TN_AXIS_TP] = true;
}

static tn_status check(const builder *q, const tn_node *n)
{
    for (int x = 0; x < TN_N_AXES; x++) {
        tn_type src = (tn_type)q->a->layout.type[x], dst = (tn_type)q->b->layout.type[x];
        if (q->moved[x] && dst == TN_TYPE_P)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: %s: axis %s: %c to P moves zeros and is not in this build; gather the "
                    "value instead",
                    n->path, tn_op_name((tn_op_id)n->op), tn_axis_name((tn_axis)x),
                    tn_type_letter(src));
    }
    bool sum = q->shared;
    for (int x = 0; x < TN_N_AXES; x++) sum |= q->pending[x];
    bool rounds = q->a->dtype == TN_F32 && q->b->dtype == TN_BF16;
    if ((q->a->dtype != q->b->dtype && !rounds) || (sum && q->a->dtype == TN_BF16))
        TN_FAIL(
            TN_BAD_INPUT,
            "%s: %s: %s to %s, %s, is not in this build; sums are made in f32 and may be rounded "
            "to bf16",
            n->path, tn_op_name((tn_op_id)n->op), tn_dtype_name((tn_dtype)q->a->dtype),
            tn_dtype_name((tn_dtype)q->b->dtype), sum ? "summed" : "moved");
    return TN_OK;
}

static tn_status add_pieces(builder *q, tn_exchange *x, tn_arena *arena)
{
    int n = 1, axes[TN_N_AXES], n_axes = 0;
    void *mem;
    for (int a = 0; a < TN_N_AXES; a++)
        if (q->moved[a] && q->a->layout.type[a] == TN_TYPE_S &&
            q->heads != 1) { /* whole heads hold their own elements */
            axes[n_axes++] = a;
            n *= tn_layout_parts(&q->a->layout, &q->g->mesh, (tn_axis)a);
        }
    TN_TRY(tn_arena_alloc(arena, (size_t)n * sizeof(piece), &mem));
    x->pieces = mem;
    for (int i = 0; i < n; i++) {
        int at[TN_N_AXES], k = i;
        piece p = {0};
        memcpy(at, q->at, sizeof at);
        for (int a = n_axes - 1; a >= 0; a--) {
            int parts = tn_layout_parts(&q->a->layout, &q->g->mesh, (tn_axis)axes[a]);
            at[axes[a]] += k % parts - at[axes[a]] % parts; /* the neighbours that hold all */
            k /= parts;
        }
        if (!intersect(q, at, &p)) continue;
        x->pieces[x->n_pieces++] = p;
        x->bytes += p.run * p.n_runs * p.n_src * tn_dtype_bytes(x->from);
    }
    return TN_OK;
}

static tn_status make_group(const builder *q, tn_exchange *x)
{
    int ranks[MAX_MEMBERS], n = 0;
    for (int r = 0; r < tn_mesh_ranks(&q->g->mesh); r++) {
        int other[TN_N_AXES];
        bool in = true;
        tn_mesh_coordinates(&q->g->mesh, r, other);
        for (int a = 0; a < TN_N_AXES; a++) {
            tn_type src = (tn_type)q->a->layout.type[a];
            bool far = q->moved[a] && (src == TN_TYPE_P || (src == TN_TYPE_S && q->heads != 1));
            int parts = tn_layout_parts(&q->a->layout, &q->g->mesh, (tn_axis)a);
            far &= other[a] / parts == q->at[a] / parts;
            in &= far || (q->shared && a == TN_AXIS_TP) || other[a] == q->at[a];
        }
        if (in) ranks[n++] = x->first_rank + r;
    }
    x->alone = n == 1;
    return x->alone ? TN_OK : tn_comm_group(x->comm, ranks, n, &x->group);
}

/* A state lies where its owner has it. */
static tn_status place_of(const tn_program *p, const tn_exchange_memory *m, int32_t v,
                          tn_place *out)
{
    const tn_node *n =
        &p->g->nodes[p->g->values[p->buffers ? p->buffers[p->places[v].buffer].value : v].node];
    const tn_place *state;
    *out = p->places[v];
    if (out->region == TN_REGION_PROCESS && m->owner && m->owner != p && n->op == TN_OP_state) {
        TN_TRY(tn_program_state(m->owner, tn_node_attr_text(n, "name"), &state));
        out->offset = state->offset;
    }
    if (out->region == TN_REGION_MAIL) out->offset += m->mail_base;
    out->region = (int8_t)(out->region + m->first_region);
    return TN_OK;
}

tn_status tn_exchange_build(const tn_program *p, const tn_entry *entry, const tn_exchange_memory *m,
                            tn_arena *arena, const tn_exchange **out)
{
    void *mem;
    const tn_node *n = &p->g->nodes[entry->node];
    int32_t in = tn_node_in(p->g, n, 0);
    builder q = {.g = p->g, .a = &p->g->values[in], .b = &p->g->values[n->out0]};
    memcpy(q.at, p->at, sizeof q.at);
    for (int x = 0; x < TN_N_AXES; x++) {
        q.moved[x] = tn_layout_moves(&q.a->layout, &q.b->layout, &q.g->mesh, (tn_axis)x);
        q.pending[x] = q.moved[x] && q.a->layout.type[x] == TN_TYPE_P;
    }
    q.shared = n->op == TN_OP_kv_reduce;
    flatten(&q, n);
    TN_TRY(check(&q, n));
    for (int d = 0; d < q.b->rank; d++) q.count[d] = shard(&q, q.b, q.at, d, &q.begin[d]);
    TN_TRY(tn_arena_alloc(arena, sizeof(tn_exchange), &mem));
    tn_exchange *x = mem;
    *x = (tn_exchange){.p = p,
                       .n = n,
                       .meets = entry->meets,
                       .comm = m->comm,
                       .from = (tn_dtype)q.a->dtype,
                       .to = (tn_dtype)q.b->dtype};
    TN_TRY(place_of(p, m, in, &x->src));
    TN_TRY(place_of(p, m, n->out0, &x->dst));
    if (p->pipeline) x->first_rank = p->pipeline->rank * tn_mesh_ranks(&p->g->mesh);
    TN_TRY(make_group(&q, x));
    TN_TRY(add_pieces(&q, x, arena));
    *out = x;
    return TN_OK;
}

/* ------------------------------------------------------------ running */

typedef struct job {
    const tn_exchange *x;
    const piece *p;
    tn_isa isa;
    const char *src[MAX_MEMBERS];
    char *dst;
    int64_t per_run; /* tiles of one run */
} job;

/* Sixteen at once: this file is not compiled for the machine's widest registers. */
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));

static void add(const float *a, const float *b, int64_t m, float *out)
{
    int64_t i = 0;
    for (; i + 16 <= m; i += 16)
        *(lanes *)(out + i) = *(const lanes *)(a + i) + *(const lanes *)(b + i);
    for (; i < m; i++) out[i] = a[i] + b[i];
}

/* out = the tree over src[0 .. n), from which `at` elements on, `m` of them. */
static void tree(const float *const *src, int n, int64_t at, int64_t m, float *out)
{
    float right[CHUNK];
    if (n == 1) {
        memcpy(out, src[0] + at, (size_t)m * sizeof *out);
        return;
    }
    if (n == 2) {
        add(src[0] + at, src[1] + at, m, out);
        return;
    }
    int half = 1;
    while (half * 2 < n) half *= 2;
    if (tn_plant_is(TN_PLANT_SUM_ORDER)) half = n - 1;
    tree(src, half, at, m, out);
    tree(src + half, n - half, at, m, right);
    add(out, right, m, out);
}

static void add_floats(const job *j, int64_t src, int64_t dst, int64_t m)
{
    float sum[CHUNK];
    const float *const *from = (const float *const *)j->src;
    float *out = j->x->to == TN_F32 ? (float *)j->dst + dst : sum;
    tree(from, tn_plant_is(TN_PLANT_SUM_DROPPED) ? 1 : j->p->n_src, src, m, out);
    for (int64_t i = 0; i < m && tn_plant_is(TN_PLANT_SUM_DOUBLED); i++) out[i] += out[i];
    if (out != sum) return;
    tn_cast_block(j->isa, &(tn_cast_args){m, sum, false, (uint16_t *)j->dst + dst, true});
}

static void add_counts(const job *j, int64_t src, int64_t dst, int64_t m)
{
    for (int64_t i = 0; i < m; i++) {
        int32_t sum = 0;
        for (int k = 0; k < j->p->n_src; k++) sum += ((const int32_t *)j->src[k])[src + i];
        ((int32_t *)j->dst)[dst + i] = sum;
    }
}

static void add_exact(const job *j)
{
    tn_exact sum = {0};
    for (int k = 0; k < j->p->n_src; k++) tn_exact_merge(&sum, (const tn_exact *)j->src[k]);
    memcpy(j->dst, &sum, sizeof sum);
}

static void tile(void *arg, int64_t t, int thread)
{
    const job *j = arg;
    const piece *p = j->p;
    int64_t run = t / j->per_run, first = t % j->per_run * CHUNK,
            m = p->run - first < CHUNK ? p->run - first : CHUNK;
    int64_t src = p->src_offset[0] + first, dst = p->dst_offset + first,
            bytes = tn_dtype_bytes(j->x->from);
    (void)thread;
    for (int d = p->outer - 1; d >= 0; d--) {
        int64_t i = run % p->count[d];
        run /= p->count[d];
        src += i * p->src_stride[d];
        dst += i * p->dst_stride[d];
    }
    if (j->x->from == TN_EXACT) add_exact(j);
    else if (p->n_src == 1 && j->x->from == j->x->to)
        memcpy(j->dst + dst * bytes, j->src[0] + src * bytes, (size_t)(m * bytes));
    else if (j->x->from == TN_I32) add_counts(j, src, dst, m);
    else add_floats(j, src, dst, m);
}

tn_status tn_exchange_run(const tn_exchange *x, const tn_cpu *cpu, int64_t microbatch,
                          int64_t chunk)
{
    const char *what = x->n->path[0] ? x->n->path : tn_op_name((tn_op_id)x->n->op);
    int64_t src = tn_program_offset(x->p, &x->src, microbatch, chunk),
            dst = tn_program_offset(x->p, &x->dst, microbatch, chunk);
    if (!x->alone && x->meets & TN_MEETS_BEFORE)
        TN_TRY(tn_comm_sync(x->comm, x->group, what, x->bytes));
    bool stale = x->n->op == TN_OP_unshard && tn_plant_since(TN_PLANT_GATHER_STALE, 100);
    for (int64_t i = 0; i < x->n_pieces && !stale; i++) {
        const piece *p = &x->pieces[i];
        job j = {.x = x, .p = p, .isa = cpu->isa, .per_run = (p->run + CHUNK - 1) / CHUNK};
        for (int k = 0; k < p->n_src; k++)
            j.src[k] =
                (const char *)tn_comm_peer(x->comm, x->first_rank + p->rank[k], x->src.region) +
                src;
        j.dst = (char *)tn_comm_peer(x->comm, tn_comm_rank(x->comm), x->dst.region) + dst;
        tn_pool_run(cpu->pool, p->n_runs * j.per_run, tile, &j);
    }
    return x->alone || !(x->meets & TN_MEETS_BEHIND) ? TN_OK
                                                     : tn_comm_sync(x->comm, x->group, what, 0);
}
