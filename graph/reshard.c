/* reshard.c - a pair of placements as a search (graph/reshard_search.h), the way that moves one
 * axis after the other beside it, and the plan. */
#include "graph/reshard_search.h"

#include <string.h>

/* The slowest of a set's axes in each respect. */
static void set_links(tn_reshard_search *q, const tn_reshard_links *links)
{
    q->link[0] = (tn_reshard_set){.ranks = 1};
    for (unsigned set = 1; set < 1u << q->n; set++) {
        int a = 31 - __builtin_clz(set);
        const tn_reshard_link *x = &links->axis[q->axis[a]];
        tn_reshard_set *l = &q->link[set];
        *l = q->link[set ^ 1u << a];
        l->ranks *= q->size[a];
        if (x->start_s > l->start_s) l->start_s = x->start_s;
        if (x->hop_s > l->hop_s) l->hop_s = x->hop_s;
        if (1 / x->bytes_per_s > l->s_per_byte) l->s_per_byte = 1 / x->bytes_per_s;
    }
}

/* ------------------------------------------------------------ one axis after the other */

/* The move of axis a straight to its place, if it can go there now. */
static bool direct(const tn_reshard_search *q, uint64_t s, const tn_reshard_view *w, int a,
                   tn_reshard_move *m)
{
    int from = w->what[a] - TN_RESHARD_SHARD,
        to = tn_reshard_search_what(q->goal, a) - TN_RESHARD_SHARD,
        want = (int)(q->goal >> (6 * a + 3) & 7);
    *m = (tn_reshard_move){.n = 1,
                           .axes = {(uint8_t)a},
                           .from = (int8_t)(from < 0 ? -1 : from),
                           .to = (int8_t)(to < 0 ? -1 : to)};
    if ((s >> (6 * a) & 63) == (q->goal >> (6 * a) & 63)) return false;
    if (from >= 0 && w->list[from][w->n[from] - 1] != a) return false;
    if (to >= 0) {
        if (to == from || w->n[to] != want) return false;
        for (int i = 0; i < want; i++) {
            int b = w->list[to][i];
            if ((s >> (6 * b) & 63) != (q->goal >> (6 * b) & 63)) return false;
        }
    }
    if (tn_reshard_search_what(q->goal, a) == TN_RESHARD_PENDING) m->kind = TN_RESHARD_PAD;
    else if (w->what[a] == TN_RESHARD_PENDING)
        m->kind = to < 0 ? TN_RESHARD_ALL_REDUCE : TN_RESHARD_REDUCE_SCATTER;
    else if (w->what[a] == TN_RESHARD_COPIES) m->kind = TN_RESHARD_SLICE;
    else m->kind = to < 0 ? TN_RESHARD_ALL_GATHER : TN_RESHARD_ALL_TO_ALL;
    return true;
}

/* When no axis can go straight: the innermost one of a dim that is out of place becomes copies. */
static bool aside(const tn_reshard_search *q, uint64_t s, const tn_reshard_view *w,
                  tn_reshard_move *m)
{
    for (int a = q->n - 1; a >= 0; a--) {
        int from = w->what[a] - TN_RESHARD_SHARD;
        *m = (tn_reshard_move){
            .n = 1, .axes = {(uint8_t)a}, .from = (int8_t)(from < 0 ? -1 : from), .to = -1};
        m->kind = from < 0 ? TN_RESHARD_ALL_REDUCE : TN_RESHARD_ALL_GATHER;
        if (w->what[a] == TN_RESHARD_PENDING && !q->pads[a]) return true;
        if (from < 0 || w->list[from][w->n[from] - 1] != a) continue;
        for (int i = 0; i < w->n[from]; i++) {
            int b = w->list[from][i];
            if ((s >> (6 * b) & 63) != (q->goal >> (6 * b) & 63)) return true;
        }
    }
    return false;
}

static tn_status by_axis(tn_reshard_search *q, tn_reshard *out)
{
    uint64_t s = q->start;
    q->limit_s = 0;
    while (s != q->goal) {
        tn_reshard_view w, v;
        tn_reshard_move m;
        int a = q->n - 1;
        tn_reshard_search_open(q, s, &w);
        while (a >= 0 && !direct(q, s, &w, a, &m)) a--;
        if (a < 0 && !aside(q, s, &w, &m))
            TN_FAIL(TN_FAILED, "reshard: stuck after %d steps", out->by_axis_steps);
        if (++out->by_axis_steps > 8 * TN_N_AXES)
            TN_FAIL(TN_FAILED, "reshard: no end after %d steps", out->by_axis_steps);
        s = tn_reshard_search_apply(&w, s, &m);
        tn_reshard_search_open(q, s, &v);
        int64_t bytes;
        double seconds;
        tn_reshard_search_cost(q, &m, tn_reshard_search_local(q, &w),
                               tn_reshard_search_local(q, &v), &bytes, &seconds);
        out->by_axis_bytes += bytes;
        q->limit_s += seconds;
    }
    out->by_axis_s = q->limit_s;
    q->limit_s *= 1 + 1e-9;
    return TN_OK;
}

/* ------------------------------------------------------------ the plan */

static tn_status open_search(tn_reshard_search *q, const tn_layout *to)
{
    const tn_layout *from = &q->v->layout;
    for (int a = 0; a < TN_N_AXES; a++) {
        tn_type x = (tn_type)from->type[a], y = (tn_type)to->type[a];
        if ((x == TN_TYPE_S && from->dim[a] >= q->v->rank) ||
            (y == TN_TYPE_S && to->dim[a] >= q->v->rank))
            TN_FAIL(TN_BAD_INPUT,
                    "reshard: axis %s: S(%d) of a value with %d dims; the last dim is S(%d)",
                    tn_axis_name((tn_axis)a), y == TN_TYPE_S ? to->dim[a] : from->dim[a],
                    q->v->rank, q->v->rank - 1);
        if (q->mesh->size[a] == 1) continue;
        if ((x == TN_TYPE_V) != (y == TN_TYPE_V))
            TN_FAIL(TN_BAD_INPUT,
                    "reshard: axis %s: no way from %c to %c; V has no global meaning, give the "
                    "value a type in its local_map",
                    tn_axis_name((tn_axis)a), tn_type_letter(x), tn_type_letter(y));
        if (x == TN_TYPE_V || (x == TN_TYPE_P && y == TN_TYPE_P)) continue;
        q->pads[q->n] = y == TN_TYPE_P;
        q->sums[q->n] = x == TN_TYPE_P;
        q->size[q->n] = q->mesh->size[a];
        q->axis[q->n++] = (tn_axis)a;
    }
    return TN_OK;
}

/* Size-1 and resting axes are no part of a list. */
static uint64_t pack(const tn_reshard_search *q, const tn_layout *l)
{
    uint64_t s = 0;
    for (int a = 0; a < q->n; a++) {
        tn_axis x = q->axis[a];
        int order = 0;
        if (l->type[x] != TN_TYPE_S) {
            s = tn_reshard_search_place(
                s, a, l->type[x] == TN_TYPE_P ? TN_RESHARD_PENDING : TN_RESHARD_COPIES, 0);
            continue;
        }
        for (int b = 0; b < q->n; b++)
            order += l->type[q->axis[b]] == TN_TYPE_S && l->dim[q->axis[b]] == l->dim[x] &&
                     l->order[q->axis[b]] < l->order[x];
        s = tn_reshard_search_place(s, a, TN_RESHARD_SHARD + l->dim[x], order);
    }
    return s;
}

static tn_layout unpack(const tn_reshard_search *q, uint64_t s, const tn_layout *to)
{
    tn_reshard_view w;
    tn_layout l = tn_layout_all(TN_TYPE_R);
    tn_reshard_search_open(q, s, &w);
    for (int d = 0; d < q->v->rank; d++)
        for (int i = 0; i < w.n[d]; i++) tn_layout_shard(&l, q->axis[w.list[d][i]], d);
    for (int a = 0, k = 0; a < TN_N_AXES; a++) {
        bool moves = k < q->n && q->axis[k] == (tn_axis)a;
        if (moves && w.what[k] >= TN_RESHARD_SHARD) {
        } else if (moves && w.what[k] == TN_RESHARD_PENDING) {
            l.type[a] = TN_TYPE_P;
        } else if (to->type[a] == TN_TYPE_S) {
            if (!moves) tn_layout_shard(&l, (tn_axis)a, to->dim[a]);
            else if (q->v->layout.type[a] == TN_TYPE_I) l.type[a] = TN_TYPE_I;
        } else if (!moves || to->type[a] != TN_TYPE_P) {
            l.type[a] = to->type[a];
        }
        k += moves;
    }
    return l;
}

/* Placements there can be: k of n axes in ordered lists of `rank` dims, the others copies or P. */
static int32_t count_states(const tn_reshard_search *q)
{
    int32_t n = 0;
    for (unsigned set = 0; set < 1u << q->n; set++) {
        int32_t ways = 1;
        for (int a = 0, k = 0; a < q->n; a++) {
            if (set >> a & 1) ways *= q->v->rank + k++;
            else if (tn_reshard_search_what(q->start, a) == TN_RESHARD_PENDING || q->pads[a])
                ways *= 2;
        }
        n += ways;
    }
    return n;
}

static tn_status get_tables(tn_reshard_search *q, tn_arena *scratch)
{
    void *mem;
    q->cap_nodes = count_states(q);
    q->table_mask = 1;
    while (q->table_mask < 2 * q->cap_nodes) q->table_mask = 2 * q->table_mask + 1;
    for (int i = 0; i < 2; i++) {
        tn_reshard_side *s = &q->side[i];
        TN_TRY(tn_arena_alloc(scratch, (size_t)q->cap_nodes * sizeof *s->nodes, &mem));
        s->nodes = mem;
        TN_TRY(tn_arena_alloc(scratch, (size_t)q->cap_nodes * sizeof *s->heap, &mem));
        s->heap = mem;
        TN_TRY(tn_arena_alloc(scratch, ((size_t)q->table_mask + 1) * sizeof *s->table, &mem));
        s->table = mem;
    }
    return TN_OK;
}

static void write_plan(const tn_reshard_search *q, const tn_reshard_way *way, const tn_layout *to,
                       tn_reshard *out)
{
    out->n_steps = way->n - 1;
    out->n_states = q->side[0].n_nodes + q->side[1].n_nodes;
    out->peak_bytes = way->at[0]->local;
    for (int k = 1; k < way->n; k++) {
        const tn_reshard_move *m = &way->by[k];
        tn_reshard_step *s = &out->step[k - 1];
        *s = (tn_reshard_step){.kind = m->kind, .n_axes = m->n, .from = m->from, .to = m->to};
        tn_reshard_search_cost(q, m, way->at[k - 1]->local, way->at[k]->local, &s->bytes,
                               &s->seconds);
        for (int i = 0; i < m->n; i++) s->axes[i] = (uint8_t)q->axis[m->axes[i]];
        s->after = k == way->n - 1 ? *to : unpack(q, way->at[k]->state, to);
        out->bytes += s->bytes;
        out->seconds += s->seconds;
        if (way->at[k]->local > out->peak_bytes) out->peak_bytes = way->at[k]->local;
    }
}

tn_status tn_reshard_plan(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                          const tn_layout *to, tn_arena *scratch, tn_reshard *out)
{
    tn_reshard plan = {0};
    void *mem;
    TN_TRY(tn_arena_alloc(scratch, sizeof(tn_reshard_search), &mem));
    tn_reshard_search *q = mem;
    q->mesh = mesh;
    q->v = v;
    TN_TRY(open_search(q, to));
    set_links(q, links);
    q->start = pack(q, &v->layout);
    q->goal = pack(q, to);
    TN_TRY(by_axis(q, &plan));
    q->inner_first = links->inner_first;
    q->limit_bytes = plan.by_axis_bytes;
    if (q->inner_first) q->limit_s = 1e300; /* one axis after the other need not be in that order */
    TN_TRY(get_tables(q, scratch));
    tn_reshard_way way;
    bool found;
    TN_TRY(tn_reshard_search_run(q, false, &found, &way));
    if (found && q->best_bytes > plan.by_axis_bytes && !q->inner_first)
        TN_TRY(tn_reshard_search_run(q, true, &found, &way));
    if (!found) TN_FAIL(TN_FAILED, "reshard: no plan found");
    write_plan(q, &way, to, &plan);
    *out = plan;
    return TN_OK;
}

tn_reshard_links tn_reshard_guess(const tn_mesh *mesh, int ranks_per_node)
{
    tn_reshard_links l = {0};
    int64_t span = 1;
    for (int a = TN_N_AXES - 1; a >= 0; a--) {
        span *= mesh->size[a];
        bool inside = span <= ranks_per_node;
        l.axis[a] = (tn_reshard_link){6.6e-6, inside ? 0.6e-6 : 2.7e-6, inside ? 370e9 : 45e9};
    }
    return l;
}

/* ------------------------------------------------------------ text */

const char *tn_reshard_kind_name(tn_reshard_kind k)
{
    static const char *const names[TN_RESHARD_KINDS] = {
        "slice", "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "permute", "pad"};
    return names[k];
}

void tn_reshard_print(const tn_reshard *r, tn_text *out)
{
    if (!r->n_steps) tn_text_add(out, "nothing moves");
    for (int i = 0; i < r->n_steps; i++) {
        const tn_reshard_step *s = &r->step[i];
        tn_text_add(out, "%s%s ", i ? "; " : "", tn_reshard_kind_name((tn_reshard_kind)s->kind));
        for (int k = 0; k < s->n_axes; k++)
            tn_text_add(out, "%s%s", k ? "," : "", tn_axis_name((tn_axis)s->axes[k]));
        if (s->from >= 0) tn_text_add(out, " of dim %d", s->from);
        if (s->to >= 0 && s->to != s->from) tn_text_add(out, " to dim %d", s->to);
        if (s->bytes)
            tn_text_add(out, ": %s, %s", tn_text_bytes(s->bytes).s, tn_text_seconds(s->seconds).s);
    }
}
