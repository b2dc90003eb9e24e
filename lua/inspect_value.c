/* inspect_value.c - where one value lies: its dims and their axes, one rank's slice, who holds
 * which slice. */
#include "graph/names.h"
#include "graph/op.h"
#include "lua/inspect.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, BAR = 64, ROWS = 12, COLUMNS = 4 };

/* ------------------------------------------------------------ finding */

static bool is_param(const tn_node *n)
{
    return n->op == TN_OP_state && strcmp(tn_node_attr_text(n, "kind"), "moment");
}

/* The nearest of the names that begin like `name`: those of the modules above it. */
static tn_status unknown(const tn_graph *g, const char *name)
{
    tn_arena arena = {0};
    tn_names seen = {0};
    void *mem;
    int n = 0;
    TN_TRY(tn_arena_alloc(&arena, (size_t)(2 * g->n_nodes + 1) * sizeof(char *), &mem));
    const char **all = mem;
    tn_status st = TN_OK;
    for (int64_t i = 0; i < g->n_nodes && !st; i++) {
        const tn_node *q = &g->nodes[i];
        const char *names[2] = {is_param(q) ? tn_node_attr_text(q, "name") : "", q->path};
        int64_t old;
        for (int k = 0; k < 2 && !st; k++) {
            if (!names[k][0] || tn_names_find(&seen, names[k], &old)) continue;
            st = tn_names_put(&seen, names[k], 1);
            all[n++] = names[k];
        }
    }
    if (!st)
        st = tn_error(TN_BAD_INPUT, "%s: no parameter, module or value of that name%s%s", name,
                      tn_text_hint(name, all, n).s,
                      tn_text_nearest(name, all, n) ? ""
                                                    : "; `titan graph RECIPE` prints all of them");
    tn_names_fini(&seen);
    tn_arena_fini(&arena);
    return st;
}

/* By parameter name, by the value's own name (with or without %), by module path: the last that its
 * forward computes, else (what it computes was fused into another's) its parameter. */
static tn_status find(const tn_graph *g, const char *name, const char **names, int32_t *out)
{
    int32_t last = -1, param = -1;
    if (name[0] == '%') name++;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        for (int k = 0; k < n->n_out; k++)
            if (!strcmp(names[n->out0 + k], name)) {
                *out = n->out0 + k;
                return TN_OK;
            }
        if (n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "name"), name)) {
            *out = n->out0;
            return TN_OK;
        }
        if (param < 0 && is_param(n) && !strcmp(n->path, name)) param = n->out0;
        bool computed = n->n_in && n->n_out && n->phase == TN_PHASE_F;
        size_t k = strlen(name);
        bool inside = !strncmp(n->path, name, k) && (!n->path[k] || n->path[k] == '.');
        if (computed && inside && n->op != TN_OP_unshard) last = n->out0;
    }
    if (last < 0 && param < 0) return unknown(g, name);
    *out = last < 0 ? param : last;
    return TN_OK;
}

tn_status tn_inspect_find(const tn_graph *g, const char *name, int32_t *out)
{
    tn_arena arena = {0};
    const char **names;
    tn_status st = tn_names_build(g, &arena, &names);
    if (!st) st = find(g, name, names, out);
    tn_arena_fini(&arena);
    return st;
}

/* How much of the word the hint of the last error shares, "did you mean 'layers.0.attention'?". */
static size_t shared(const char *word)
{
    const char *hint = strchr(tn_error_text(), '\'');
    size_t n = 0;
    while (hint && word[n] && word[n] == hint[1 + n]) n++;
    return n;
}

/* The nearest of all the hints. */
static tn_status search(const tn_inspect_stages *s, const char *name, int *at)
{
    char best[2048] = "";
    size_t most = 0;
    int32_t id;
    for (int i = 0; i < s->n; i++) {
        *at = i;
        tn_status st = name ? tn_inspect_find(s->graphs[i], name, &id) : TN_OK;
        if (st != TN_BAD_INPUT) return st;
        if (best[0] && shared(name) <= most) continue;
        most = shared(name);
        tn_error_take(best, sizeof best);
    }
    return tn_error_give(TN_BAD_INPUT, best);
}

tn_status tn_inspect_choose(const tn_inspect_stages *s, const char *name, int64_t rank,
                            const tn_graph **out, int64_t *rank_out)
{
    int64_t ranks = tn_mesh_ranks(&s->graphs[0]->mesh);
    int at = (int)(rank / ranks), has;
    if (rank >= ranks * s->n)
        TN_FAIL(TN_BAD_INPUT, "rank %lld: the layout has %lld ranks; 0 to %lld", (long long)rank,
                (long long)(ranks * s->n), (long long)(ranks * s->n - 1));
    TN_TRY(search(s, name, &has));
    if (rank < 0) at = has;
    int32_t id;
    if (name && at != has && tn_inspect_find(s->graphs[at], name, &id))
        TN_FAIL(TN_BAD_INPUT,
                "%s: lives on ranks %lld to %lld, not on rank %lld; ask without a rank, or one of "
                "them",
                name, (long long)(has * ranks), (long long)(has * ranks + ranks - 1),
                (long long)rank);
    *out = s->graphs[at];
    *rank_out = rank < 0 ? at * ranks : rank;
    return TN_OK;
}

/* ------------------------------------------------------------ slices */

typedef struct slice {
    int64_t begin[TN_MAX_RANK], count[TN_MAX_RANK];
} slice;

typedef struct drawing {
    const tn_mesh *mesh;
    const tn_value *v;
    int64_t rank, first; /* whose slice is pointed at, of the stage's ranks; the first of these */
    tn_text *out;
} drawing;

static slice slice_of(const drawing *q, int64_t rank)
{
    slice s = {0};
    int at[TN_N_AXES];
    tn_mesh_coordinates(q->mesh, (int)rank, at);
    for (int d = 0; d < q->v->rank; d++)
        s.count[d] = tn_layout_local(&q->v->layout, q->mesh, at, d, q->v->dim[d].extent,
                                     q->v->dim[d].units, &s.begin[d]);
    return s;
}

static int64_t bytes_of(const drawing *q, const slice *s)
{
    int64_t n = tn_dtype_bytes((tn_dtype)q->v->dtype);
    for (int d = 0; d < q->v->rank; d++) n *= s->count[d];
    return n;
}

/* The axes of a dim that cut it, outer to inner. */
static int cutting(const drawing *q, int dim, tn_axis out[TN_N_AXES])
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(&q->v->layout, dim, axes), k = 0;
    for (int i = 0; i < n; i++)
        if (q->mesh->size[axes[i]] > 1) out[k++] = axes[i];
    return k;
}

static void add_dims(const drawing *q, tn_text *out)
{
    tn_axis axes[TN_N_AXES];
    for (int d = 0; d < q->v->rank; d++) {
        int n = cutting(q, d, axes);
        int64_t parts = 1;
        for (int i = 0; i < n; i++) parts *= q->mesh->size[axes[i]];
        tn_text_add(out, "  dim %d %8lld", d, (long long)q->v->dim[d].extent);
        if (q->v->dim[d].units) tn_text_add(out, " in %lld heads", (long long)q->v->dim[d].units);
        if (n)
            tn_text_add(out, ", %lld parts of up to %lld: ", (long long)parts,
                        (long long)tn_layout_largest(&q->v->layout, q->mesh, d, q->v->dim[d].extent,
                                                     q->v->dim[d].units));
        else tn_text_add(out, ", whole");
        if (n > 2) tn_text_add(out, "\n                 ");
        for (int i = 0; i < n; i++)
            tn_text_add(out, "%s%s %d", i ? ", then " : "", tn_axis_name(axes[i]),
                        q->mesh->size[axes[i]]);
        tn_text_add(out, "\n");
    }
    for (int a = 0; a < TN_N_AXES; a++) {
        tn_type t = (tn_type)q->v->layout.type[a];
        if (q->mesh->size[a] == 1 || t == TN_TYPE_S) continue;
        tn_text_add(out, "  %s %d: %s\n", tn_axis_name((tn_axis)a), q->mesh->size[a],
                    t == TN_TYPE_R   ? "R, the same data, different work next"
                    : t == TN_TYPE_I ? "I, the same data, the same work"
                    : t == TN_TYPE_P ? "P, a pending sum over these ranks"
                                     : "V, different data without a global meaning");
    }
}

/* ------------------------------------------------------------ the bar of a dim */

/* Line k shows the parts by the first k + 1 axes, each with its coordinate where there is room. */
static void add_bar(const drawing *q, int dim)
{
    tn_axis axes[TN_N_AXES];
    int n = cutting(q, dim, axes);
    int64_t parts = 1;
    for (int k = 0; k < n; k++) {
        int64_t size = q->mesh->size[axes[k]], before = parts;
        char line[BAR + 2], label[32];
        parts *= size;
        int wide = (int)(BAR / before / size);
        if (wide < 2) {
            label[0] = 0;
            if (!k) snprintf(label, sizeof label, "dim %d", dim);
            tn_text_add(q->out, "  %-6s%s%lld parts by %s\n", label, k ? "each of them in " : "",
                        (long long)size, tn_axis_name(axes[k]));
            continue;
        }
        memset(line, k ? ' ' : '-', sizeof line);
        for (int64_t i = 0; i < parts; i++) {
            int room = wide - 1;
            snprintf(label, sizeof label, "%s %lld", tn_axis_name(axes[k]), (long long)(i % size));
            if ((int)strlen(label) > room)
                snprintf(label, sizeof label, "%lld", (long long)(i % size));
            int len = (int)strlen(label);
            line[i * wide] = '|';
            if (len <= room) memcpy(line + i * wide + 1 + (room - len) / 2, label, (size_t)len);
        }
        line[parts * wide] = '|';
        snprintf(label, sizeof label, "dim %d", dim);
        tn_text_add(q->out, "  %-6s%.*s\n", k ? "" : label, (int)(parts * wide + 1), line);
    }
}

/* ------------------------------------------------------------ who holds what */

static bool same(const slice *a, const slice *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* Ranks that hold slice s: all where they fit, else the first ones and how many there are. */
static void add_holders(const drawing *q, const slice *s, int room, tn_text *out)
{
    char text[WIDTH], one[16];
    int n = 0, fits = 0, ranks = tn_mesh_ranks(q->mesh), all = 0, shown = 0;
    for (int r = 0; r < ranks; r++) {
        slice other = slice_of(q, r);
        if (!same(&other, s)) continue;
        int len = snprintf(one, sizeof one, "%s%lld", all ? " " : "", (long long)q->first + r);
        all++;
        if (n + len > room || shown < all - 1) continue;
        n += snprintf(text + n, sizeof text - (size_t)n, "%s", one);
        shown++;
        if (n + 9 <= room) fits = n; /* with " .. (512)" behind it */
    }
    if (!all) tn_text_add(out, "-");
    else if (shown == all) tn_text_add(out, "%s", text);
    else if (fits) tn_text_add(out, "%.*s .. (%d)", fits, text, all);
    else tn_text_add(out, "%d ranks", all);
}

typedef struct cuts { /* the distinct ranges of one dim, in order */
    int dim;
    int n;
    int64_t begin[ROWS * 64], count[ROWS * 64];
} cuts;

static void find_cuts(const drawing *q, int dim, cuts *c)
{
    int ranks = tn_mesh_ranks(q->mesh);
    c->dim = dim;
    c->n = 0;
    for (int r = 0; r < ranks; r++) {
        slice s = slice_of(q, r);
        int i = c->n;
        while (i && c->begin[i - 1] > s.begin[dim]) i--;
        bool known = i && c->begin[i - 1] == s.begin[dim] && c->count[i - 1] == s.count[dim];
        for (int k = i - 1; k >= 0 && c->begin[k] == s.begin[dim]; k--)
            known |= c->count[k] == s.count[dim];
        if (known || c->n == TN_COUNT(c->begin)) continue;
        memmove(c->begin + i + 1, c->begin + i, (size_t)(c->n - i) * sizeof *c->begin);
        memmove(c->count + i + 1, c->count + i, (size_t)(c->n - i) * sizeof *c->count);
        c->begin[i] = s.begin[dim];
        c->count[i] = s.count[dim];
        c->n++;
    }
}

/* At most `most` are drawn: the first ones, `mine`, the last one. */
static bool drawn(const cuts *c, int i, int most, int64_t mine)
{
    return c->n <= most || i < most - 2 || i == c->n - 1 || c->begin[i] == mine;
}

static void add_range(tn_text *out, int64_t begin, int64_t count)
{
    tn_text_add(out, "[%lld, %lld)", (long long)begin, (long long)(begin + count));
}

/* One row: what it is, then a cell per column that is drawn; nothing behind the last. */
typedef struct row {
    const drawing *q;
    int wide, pending; /* of a cell; blanks that the next cell has in front */
} row;

static void add_cell(row *r, tn_text *cell)
{
    tn_text_add(r->q->out, "%*s | %s", r->pending, "", tn_text_str(cell));
    r->pending = r->wide - (int)cell->n_bytes;
    if (r->pending < 0) r->pending = 0;
    r->q->out->failed |= cell->failed;
    tn_text_fini(cell);
}

static void add_row(const drawing *q, const cuts *rows, int i, const cuts *columns, int wide)
{
    slice mine = slice_of(q, q->rank), s = mine;
    row r = {q, wide, 20};
    int d = columns->dim;
    tn_text cell = {0};
    s.begin[rows->dim] = rows->begin[i];
    s.count[rows->dim] = rows->count[i];
    tn_text_add(q->out, "  %c ", rows->begin[i] == mine.begin[rows->dim] ? '*' : ' ');
    add_range(&cell, rows->begin[i], rows->count[i]);
    tn_text_add(q->out, "%s", tn_text_str(&cell));
    r.pending -= cell.n_bytes < 20 ? (int)cell.n_bytes : 20;
    tn_text_fini(&cell);
    for (int k = 0; k < columns->n; k++) {
        if (!drawn(columns, k, COLUMNS, d < 0 ? 0 : mine.begin[d])) continue;
        if (d >= 0) {
            s.begin[d] = columns->begin[k];
            s.count[d] = columns->count[k];
        }
        cell = (tn_text){0};
        add_holders(q, &s, wide, &cell);
        add_cell(&r, &cell);
    }
    tn_text_add(q->out, "\n");
}

static void add_head(const drawing *q, const cuts *rows, const cuts *columns, int wide)
{
    slice mine = slice_of(q, q->rank);
    row r = {q, wide, 20 - 5};
    int d = columns->dim;
    tn_text_add(q->out, "    dim %d", rows->dim);
    for (int k = 0; k < columns->n; k++) {
        tn_text cell = {0};
        if (!drawn(columns, k, COLUMNS, d < 0 ? 0 : mine.begin[d])) continue;
        if (d < 0) tn_text_add(&cell, "ranks that hold it");
        else tn_text_add(&cell, "from %lld", (long long)columns->begin[k]);
        add_cell(&r, &cell);
    }
    tn_text_add(q->out, "\n");
}

/* Rows are the parts of one dim, columns those of another (dim -1: none); the cells say who holds
 * them; * marks the row of the rank. */
static void add_table(const drawing *q, const cuts *rows, const cuts *columns)
{
    slice mine = slice_of(q, q->rank);
    int shown = 0, d = columns->dim;
    bool skipped = false;
    for (int k = 0; k < columns->n; k++)
        shown += drawn(columns, k, COLUMNS, d < 0 ? 0 : mine.begin[d]);
    int wide = (WIDTH - 24) / shown - 3;
    add_head(q, rows, columns, wide);
    for (int i = 0; i < rows->n; i++) {
        bool shows = drawn(rows, i, ROWS, mine.begin[rows->dim]);
        if (shows) add_row(q, rows, i, columns, wide);
        else if (!skipped) tn_text_add(q->out, "    ..\n");
        skipped = !shows;
    }
}

static void add_slices(const drawing *q)
{
    static const cuts none = {.dim = -1, .n = 1};
    int dims[TN_MAX_RANK], n = 0;
    cuts rows, columns;
    tn_axis axes[TN_N_AXES];
    for (int d = 0; d < q->v->rank; d++)
        if (cutting(q, d, axes)) dims[n++] = d;
    if (!n) {
        slice s = slice_of(q, q->rank);
        tn_text_add(q->out, "  every rank has all of it: ");
        add_holders(q, &s, WIDTH - 30, q->out);
        tn_text_add(q->out, "\n");
        return;
    }
    for (int k = 0; k < n; k++) add_bar(q, dims[k]);
    find_cuts(q, dims[0], &rows);
    if (n > 1) find_cuts(q, dims[1], &columns);
    add_table(q, &rows, n > 1 ? &columns : &none);
    if (n > 1)
        tn_text_add(q->out, "    columns: dim %d%s\n", dims[1],
                    n > 2 ? "; the other dims as this rank has them" : "");
}

static void add_mine(const drawing *q)
{
    slice s = slice_of(q, q->rank);
    tn_text_add(q->out, "  rank %lld has ", (long long)(q->first + q->rank));
    for (int d = 0; d < q->v->rank; d++) {
        if (d) tn_text_add(q->out, " x ");
        add_range(q->out, s.begin[d], s.count[d]);
    }
    tn_text_add(q->out, "%s: ", q->v->rank ? "" : "the scalar");
    for (int d = 0; d < q->v->rank; d++)
        tn_text_add(q->out, "%s%lld", d ? " x " : "", (long long)s.count[d]);
    tn_text_add(q->out, "%s%s\n", q->v->rank ? ", " : "", tn_text_bytes(bytes_of(q, &s)).s);
}

static void add_value(drawing *q, const tn_graph *g, const char *name)
{
    const tn_node *n = &g->nodes[q->v->node];
    char layout[128];
    tn_layout_print(&q->v->layout, layout, sizeof layout);
    tn_text_add(q->out, "%s   %s, %s [", name,
                n->op != TN_OP_state ? tn_op_name((tn_op_id)n->op) : tn_node_attr_text(n, "kind"),
                tn_dtype_name((tn_dtype)q->v->dtype));
    for (int d = 0; d < q->v->rank; d++)
        tn_text_add(q->out, "%s%lld", d ? ", " : "", (long long)q->v->dim[d].extent);
    tn_text_add(q->out, "]\n  %s\n", layout);
    add_dims(q, q->out);
    add_mine(q);
    add_slices(q);
}

tn_status tn_inspect_value(const tn_graph *g, const char *name, int64_t rank, tn_text *out)
{
    tn_arena arena = {0};
    const char **names;
    int32_t v;
    int64_t ranks = tn_mesh_ranks(&g->mesh);
    if (rank < 0 || rank >= ranks * g->mesh.pp)
        TN_FAIL(TN_BAD_INPUT, "rank %lld: the layout has %lld ranks; 0 to %lld", (long long)rank,
                (long long)(ranks * g->mesh.pp), (long long)(ranks * g->mesh.pp - 1));
    tn_status st = tn_names_build(g, &arena, &names);
    if (!st) st = find(g, name, names, &v);
    if (!st) {
        drawing q = {.mesh = &g->mesh,
                     .v = &g->values[v],
                     .rank = rank % ranks,
                     .first = rank / ranks * ranks,
                     .out = out};
        const tn_node *n = &g->nodes[q.v->node];
        add_value(&q, g, n->op == TN_OP_state ? tn_node_attr_text(n, "name") : names[v]);
        st = tn_text_end(out);
    }
    tn_arena_fini(&arena);
    return st;
}
