#include "graph/meetings.h"

#include "engine/base/hash.h"
#include "graph/op.h"
#include "graph/traffic.h"

#include <stdio.h>
#include <string.h>

enum { SETS = 1 << TN_N_AXES, MAX_JOINED = 64 };

/* Which group of a rank's meets, 0: none. Of one set of axes there may be several sizes. */
static int64_t group_of(const tn_graph *g, const tn_node *n)
{
    tn_traffic_move m;
    bool meets = n->op != TN_OP_recv && tn_traffic_of_node(g, n, &m);
    return meets ? m.axes | m.ranks << TN_N_AXES : 0; /* letters are fetched, nobody meets */
}

static unsigned axes_of(const tn_graph *g, const tn_node *n)
{
    tn_traffic_move m;
    return n->op != TN_OP_recv && tn_traffic_of_node(g, n, &m) ? m.axes : 0;
}

/* The loop that an entry is in: two of one meeting are in the same. */
static int part_of(const tn_program *p, int64_t i)
{
    int s = 0;
    if (i < p->microbatch) return 0;
    if (i >= p->tail) return 1;
    while (s + 1 < p->n_segments && i >= p->segments[s].end) s++;
    return 2 + 3 * s + (i < p->chunk ? 0 : i < p->chunk_end ? 1 : 2);
}

/* ------------------------------------------------------------ buckets */

static bool share_memory(const tn_program *p, int32_t a, int32_t b)
{
    const tn_buffer *x = &p->buffers[p->places[a].buffer], *y = &p->buffers[p->places[b].buffer];
    return x->region == y->region && x->offset < y->offset + y->bytes &&
           y->offset < x->offset + x->bytes;
}

static bool is_moving(const tn_program *p, int32_t v)
{
    return p->places[v].microbatch_stride || p->places[v].chunk_stride;
}

/* (3) for two entries of one group. */
static bool may_join(const tn_program *p, int64_t i, int64_t k)
{
    const tn_node *a = &p->g->nodes[p->entries[i].node], *b = &p->g->nodes[p->entries[k].node];
    int32_t from[2] = {tn_node_in(p->g, a, 0), tn_node_in(p->g, b, 0)}, to[2] = {a->out0, b->out0};
    for (int j = 0; j < 2; j++)
        if (is_moving(p, from[j]) || is_moving(p, to[j])) return false;
    return !share_memory(p, to[0], from[1]) && !share_memory(p, to[1], from[0]) &&
           !share_memory(p, to[0], to[1]);
}

void tn_meetings_join(tn_program *p)
{
    int64_t first = 0; /* of the bucket that entry i may join */
    int64_t open = 0;
    for (int64_t i = 0; i < p->n_entries; i++) {
        int64_t axes = group_of(p->g, &p->g->nodes[p->entries[i].node]);
        bool joins = axes && axes == open && part_of(p, first) == part_of(p, i) &&
                     p->entries[first].stream == p->entries[i].stream && i - first < MAX_JOINED;
        for (int64_t k = first; k < i && joins; k++) joins = may_join(p, k, i);
        if (joins) p->entries[i - 1].meets &= (uint8_t)~TN_MEETS_BEHIND;
        else first = i;
        p->entries[i].meets = (uint8_t)(axes ? TN_MEETS_BEHIND | (joins ? 0 : TN_MEETS_BEFORE) : 0);
        open = axes;
    }
}

static tn_status badly_met(const tn_program *p, int64_t i, const char *what)
{
    const tn_node *n = &p->g->nodes[p->entries[i].node];
    TN_FAIL(TN_FAILED, "program: %s: %s (entry %lld): %s", n->path[0] ? n->path : "graph",
            tn_op_name((tn_op_id)n->op), (long long)i, what);
}

tn_status tn_meetings_check_joined(const tn_program *p)
{
    int64_t first = -1; /* of the meeting under way */
    int64_t open = 0;
    for (int64_t i = 0; i < p->n_entries; i++) {
        int64_t axes = group_of(p->g, &p->g->nodes[p->entries[i].node]);
        int meets = p->entries[i].meets;
        if (!axes && (meets || first >= 0))
            return badly_met(p, i, "it meets nobody, but stands in a meeting");
        if (!axes) continue;
        if ((first < 0) != !!(meets & TN_MEETS_BEFORE))
            return badly_met(p, i, "its meeting has no beginning, or two");
        if (first < 0) first = i;
        else if (axes != open || part_of(p, first) != part_of(p, i))
            return badly_met(p, i, "the meeting it stands in is of another group or loop");
        for (int64_t k = first; k < i; k++)
            if (!may_join(p, k, i))
                return badly_met(p, i,
                                 "a rank would overwrite what another still reads in the "
                                 "same meeting");
        open = axes;
        if (meets & TN_MEETS_BEHIND) first = -1;
    }
    return first < 0 ? TN_OK : badly_met(p, first, "its meeting has no end");
}

/* ------------------------------------------------------------ sequences */

static void hash_entry(const tn_program *p, int64_t i, tn_hash *h)
{
    const tn_node *n = &p->g->nodes[p->entries[i].node];
    const tn_value *v = &p->g->values[n->out0];
    const char *op = tn_op_name((tn_op_id)n->op);
    const tn_place *from = &p->places[tn_node_in(p->g, n, 0)], *to = &p->places[n->out0];
    int64_t about[] = {part_of(p, i), p->entries[i].meets, group_of(p->g, n), v->dtype,  v->rank,
                       from->region,  from->offset,        to->region,        to->offset};
    for (int d = 0; d < v->rank; d++) tn_hash_add(h, &v->dim[d].extent, sizeof v->dim[d].extent);
    tn_hash_add(h, op, strlen(op) + 1);
    tn_hash_add(h, n->path, strlen(n->path) + 1);
    tn_hash_add(h, about, sizeof about);
}

static bool meets_over(const tn_program *p, int64_t i, unsigned axes)
{
    unsigned own = axes_of(p->g, &p->g->nodes[p->entries[i].node]);
    return own && (!axes || own == axes);
}

uint64_t tn_meetings_hash(const tn_program *p, unsigned axes)
{
    tn_hash h;
    int64_t loops[2] = {p->g->n_microbatches, p->g->n_chunks};
    tn_hash_start(&h, axes);
    tn_hash_add(&h, loops, sizeof loops);
    for (int64_t i = 0; i < p->n_entries; i++)
        if (meets_over(p, i, axes)) hash_entry(p, i, &h);
    return tn_hash_value(&h);
}

/* The next entry at or behind i that meets over `axes`; n_entries if there is none. */
static int64_t next_meeting(const tn_program *p, int64_t i, unsigned axes)
{
    while (i < p->n_entries && !meets_over(p, i, axes)) i++;
    return i;
}

static void name_meeting(const tn_program *p, int64_t i, char *out, size_t size)
{
    if (i >= p->n_entries) {
        snprintf(out, size, "none");
        return;
    }
    const tn_node *n = &p->g->nodes[p->entries[i].node];
    snprintf(out, size, "%s of %s", tn_op_name((tn_op_id)n->op), n->path[0] ? n->path : "the step");
}

static tn_status differ(const tn_program *const *programs, int a, int b, unsigned axes)
{
    const tn_program *p = programs[a], *q = programs[b];
    int64_t i = next_meeting(p, 0, axes), k = next_meeting(q, 0, axes), number = 1;
    char mine[256], theirs[256];
    tn_text_short set = tn_traffic_axes(axes);
    const char *over = axes ? set.s : "several axes, in another order";
    for (; i < p->n_entries && k < q->n_entries; number++) {
        tn_hash x, y;
        tn_hash_start(&x, 0);
        tn_hash_start(&y, 0);
        hash_entry(p, i, &x);
        hash_entry(q, k, &y);
        if (tn_hash_value(&x) != tn_hash_value(&y)) break;
        i = next_meeting(p, i + 1, axes);
        k = next_meeting(q, k + 1, axes);
    }
    if (i >= p->n_entries && k >= q->n_entries)
        TN_FAIL(TN_FAILED, "program: ranks %d and %d meet over %s in loops of other lengths", a, b,
                over);
    name_meeting(p, i, mine, sizeof mine);
    name_meeting(q, k, theirs, sizeof theirs);
    TN_FAIL(TN_FAILED,
            "program: ranks %d and %d meet over %s: meeting %lld is %s on rank %d, %s on rank %d; "
            "they would wait for each other",
            a, b, over, (long long)number, mine, a, theirs, b);
}

tn_status tn_meetings_check(const tn_program *const *programs, int n_ranks)
{
    const tn_mesh *mesh = &programs[0]->g->mesh;
    if (n_ranks != tn_mesh_ranks(mesh))
        TN_FAIL(TN_FAILED, "program: %d programs for %d ranks", n_ranks, tn_mesh_ranks(mesh));
    for (unsigned set = 1; set <= SETS; set++) {
        unsigned axes = set % SETS; /* the last: all at once */
        for (int r = 0; r < n_ranks; r++) {
            int at[TN_N_AXES];
            tn_mesh_coordinates(mesh, r, at);
            for (int a = 0; a < TN_N_AXES; a++)
                if (!axes || axes >> a & 1) at[a] = 0;
            int first = tn_mesh_rank(mesh, at);
            if (programs[first] == programs[r]) continue;
            if (tn_meetings_hash(programs[first], axes) != tn_meetings_hash(programs[r], axes))
                return differ(programs, first, r, axes);
        }
    }
    return TN_OK;
}
