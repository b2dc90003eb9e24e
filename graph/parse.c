/* parse.c - text.h, read back. The reader trusts nothing: sizes, counts and names are bounded
 * before they are used. */
#include "graph/names.h"
#include "graph/op.h"
#include "graph/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 600, MAX_NODES = 1 << 20, MAX_RANKS = 1 << 20, MAX_GRID = 256 };
static const int64_t MAX_EXTENT = (int64_t)1 << 40;

typedef struct reader {
    const char *where, *p, *end;
    int64_t line;
    tn_graph *g;
    tn_names names; /* keys in g->arena */
} reader;

static tn_status bad(const reader *r, const char *what, const char *mend)
{
    int n = 0;
    while (r->p + n < r->end && n < 24 && r->p[n] >= 32) n++;
    TN_FAIL(TN_BAD_INPUT, "%s:%lld: %s at '%.*s'; %s", r->where, (long long)r->line, what, n, r->p,
            mend);
}

static void blanks(reader *r)
{
    while (r->p < r->end && *r->p == ' ') r->p++;
}

static bool eat(reader *r, const char *word)
{
    size_t n = strlen(word);
    blanks(r);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n)) return false;
    r->p += n;
    return true;
}

/* Of the line, but for a comment. */
static bool at_end(reader *r)
{
    blanks(r);
    return r->p == r->end || *r->p == '\n' || *r->p == '#';
}

/* To the next line that says something. */
static void next_line(reader *r)
{
    for (;;) {
        while (r->p < r->end && *r->p != '\n') r->p++;
        if (r->p == r->end) return;
        r->p++;
        r->line++;
        if (r->p < r->end && *r->p != '#' && *r->p != '\n') return;
    }
}

static tn_status integer(reader *r, int64_t min, int64_t max, int64_t *out)
{
    int64_t x = 0;
    const char *p = r->p;
    bool minus = p < r->end && *p == '-';
    if (minus) p++;
    if (p == r->end || *p < '0' || *p > '9')
        return bad(r, "a number is missing", "write a decimal integer");
    for (; p < r->end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(x, (int64_t)10, &x) ||
            __builtin_add_overflow(x, (int64_t)(*p - '0'), &x))
            return bad(r, "a number is too large", "at most 2^63 - 1");
    if (minus) x = -x;
    if (x < min || x > max)
        TN_FAIL(TN_BAD_INPUT, "%s:%lld: %lld is out of range; %lld to %lld", r->where,
                (long long)r->line, (long long)x, (long long)min, (long long)max);
    r->p = p;
    *out = x;
    return TN_OK;
}

/* "name=INT" */
static tn_status setting(reader *r, const char *name, int64_t min, int64_t max, int64_t *out)
{
    if (!eat(r, name) || r->p == r->end || *r->p != '=')
        return bad(r, "a setting is missing", name);
    r->p++;
    return integer(r, min, max, out);
}

/* Characters up to one of `stop` or a blank; not empty. */
static tn_status word(reader *r, const char *stop, char *out, size_t size)
{
    size_t n = 0;
    blanks(r);
    while (r->p + n < r->end && (unsigned char)r->p[n] > 32 && !strchr(stop, r->p[n])) n++;
    if (n == 0) return bad(r, "a name is missing", "see `titan help graph`");
    if (n >= size) return bad(r, "a name is too long", "at most 600 characters");
    memcpy(out, r->p, n);
    out[n] = 0;
    r->p += n;
    return TN_OK;
}

static tn_status header(reader *r)
{
    int64_t pp, size[TN_N_AXES], grid[3], step[4];
    if (!eat(r, "graph titan 1") || !at_end(r))
        return bad(r, "no graph", "the first line reads 'graph titan 1'");
    next_line(r);
    if (!eat(r, "mesh "))
        return bad(r, "no mesh", "the second line reads 'mesh pp=1 dp_replicate=1 ...'");
    TN_TRY(setting(r, "pp", 1, MAX_RANKS, &pp));
    int64_t ranks = pp;
    for (int a = 0; a < TN_N_AXES; a++) {
        TN_TRY(setting(r, tn_axis_name((tn_axis)a), 1, MAX_RANKS, &size[a]));
        ranks *= size[a];
        if (ranks > MAX_RANKS) return bad(r, "too many ranks", "at most 2^20");
    }
    next_line(r);
    bool canonical = eat(r, "sums canonical ");
    if (!canonical && !eat(r, "sums fast "))
        return bad(r, "no order of sums",
                   "the third line reads 'sums canonical tp=8 seq=8 rows=8'");
    const char *const names[3] = {"tp", "seq", "rows"}, *const steps[4] = {"rows", "seq",
                                                                           "microbatches",
                                                                           "chunks"};
    for (int i = 0; i < 3; i++) {
        TN_TRY(setting(r, names[i], 1, MAX_GRID, &grid[i]));
        if (grid[i] & (grid[i] - 1))
            return bad(r, "the reduce grid is no power of two", "1, 2, 4, 8, ...");
    }
    next_line(r);
    if (!eat(r, "step "))
        return bad(r, "no step",
                   "the fourth line reads 'step rows=8 seq=512 microbatches=1 chunks=1'");
    for (int i = 0; i < 4; i++) TN_TRY(setting(r, steps[i], 0, (int64_t)1 << 24, &step[i]));
    if (step[2] < 1 || step[3] < 1)
        return bad(r, "no iterations", "microbatches and chunks are at least 1");
    tn_mesh mesh = {.pp = (int)pp};
    for (int a = 0; a < TN_N_AXES; a++) mesh.size[a] = (int)size[a];
    TN_TRY(tn_graph_create(&mesh, (tn_order_grid){(int)grid[0], (int)grid[1], (int)grid[2]},
                           canonical, &r->g));
    r->g->rows = step[0];
    r->g->seq = step[1];
    r->g->n_microbatches = step[2];
    r->g->n_chunks = step[3];
    next_line(r);
    return TN_OK;
}

static tn_status dims(reader *r, tn_value *v)
{
    int64_t total = 1;
    v->rank = 0;
    if (!eat(r, "[")) return bad(r, "dims are missing", "as in f32[8,512]");
    while (!eat(r, "]")) {
        if (v->rank == TN_MAX_RANK) return bad(r, "too many dims", "at most 6");
        if (v->rank && !eat(r, ",")) return bad(r, "a comma is missing", "as in f32[8,512]");
        tn_dim *d = &v->dim[v->rank++];
        TN_TRY(integer(r, 1, MAX_EXTENT, &d->extent));
        if (eat(r, "/")) TN_TRY(integer(r, 1, 1 << 16, &d->units));
        if (__builtin_mul_overflow(total, d->extent, &total) || total > TN_MAX_ELEMENTS)
            return bad(r, "the value is too large", "at most 2^48 elements");
    }
    return TN_OK;
}

static tn_status layout(reader *r, tn_layout *out)
{
    char buf[160];
    size_t n = 0;
    blanks(r);
    while (r->p + n < r->end && r->p[n] != '}' && r->p[n] != '\n') n++;
    if (r->p + n == r->end || r->p[n] != '}' || n + 2 > sizeof buf)
        return bad(r, "a placement is missing", "as in {dp:0 cp:1 tp:R}");
    memcpy(buf, r->p, n + 1);
    buf[n + 1] = 0;
    if (!tn_layout_parse(buf, out))
        return bad(r, "no placement",
                   "every axis once with R, I, V, P or a dim, as in {dp:0 cp:1 tp:R}");
    r->p += n + 1;
    return TN_OK;
}

typedef struct line {
    int n_out, n_in, n_attrs;
    const char *out_name[TN_MAX_OPERANDS];
    tn_value out[TN_MAX_OPERANDS];
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_op_id op;
    char path[MAX_NAME];
    int64_t phase, scope, stage, order, parts;
} line;

static tn_status outputs(reader *r, line *l)
{
    do {
        char buf[MAX_NAME];
        tn_value *v = &l->out[l->n_out];
        tn_dtype dtype;
        int64_t levels = 1, seen;
        if (l->n_out == TN_MAX_OPERANDS) return bad(r, "too many outputs", "at most 64");
        *v = (tn_value){.levels = 1};
        if (!eat(r, "%")) return bad(r, "no value", "a line begins with %NAME : TYPE");
        TN_TRY(word(r, ",()=", buf, sizeof buf));
        if (tn_names_find(&r->names, buf, &seen))
            return bad(r, "a name is used twice", "names are unique");
        TN_TRY(tn_arena_text(&r->g->arena, buf, &l->out_name[l->n_out]));
        if (!eat(r, ":")) return bad(r, "a colon is missing", "%NAME : TYPE");
        TN_TRY(word(r, "[", buf, sizeof buf));
        if (!tn_dtype_parse(buf, &dtype)) return bad(r, "no dtype", "f32, bf16, f16, i32 or exact");
        v->dtype = (uint8_t)dtype;
        TN_TRY(dims(r, v));
        TN_TRY(layout(r, &v->layout));
        if (eat(r, "carried")) {
            if (!eat(r, "=")) return bad(r, "levels are missing", "carried=1");
            TN_TRY(integer(r, 1, TN_ORDER_MAX_DEPTH, &levels));
            v->carried = true;
        }
        v->levels = (int8_t)levels;
        l->n_out++;
    } while (eat(r, ","));
    return eat(r, "=") ? TN_OK : bad(r, "no '='", "OUTPUTS = op(OPERANDS)");
}

static tn_status operands(reader *r, line *l)
{
    char buf[MAX_NAME];
    bool found;
    TN_TRY(word(r, "(", buf, sizeof buf));
    l->op = tn_op_find(buf, &found);
    if (!found)
        TN_FAIL(TN_BAD_INPUT, "%s:%lld: no op '%s'; `titan help ops` lists them", r->where,
                (long long)r->line, buf);
    if (!eat(r, "(")) return bad(r, "no operands", "op(%a, %b)");
    while (!eat(r, ")")) {
        int64_t id;
        if (l->n_in == TN_MAX_OPERANDS) return bad(r, "too many operands", "at most 64");
        if (l->n_in && !eat(r, ",")) return bad(r, "a comma is missing", "op(%a, %b)");
        if (!eat(r, "%")) return bad(r, "no operand", "operands are values, %NAME");
        TN_TRY(word(r, ",()=", buf, sizeof buf));
        if (!tn_names_find(&r->names, buf, &id))
            TN_FAIL(TN_BAD_INPUT, "%s:%lld: value %%%s is not defined above", r->where,
                    (long long)r->line, buf);
        l->in[l->n_in++] = (int32_t)id;
    }
    return TN_OK;
}

static tn_status quoted(reader *r, const char **out)
{
    char buf[1024];
    size_t n = 0;
    while (r->p < r->end && *r->p != '"' && *r->p != '\n') {
        char c = *r->p++;
        if (n + 1 >= sizeof buf) return bad(r, "a text is too long", "at most 1,000 characters");
        if (c == '\\' && r->p < r->end) {
            c = *r->p++;
            if (c == 'x') {
                char hex[3] = {0}, *end;
                if (r->end - r->p < 2) return bad(r, "a text is not closed", "end it with \"");
                memcpy(hex, r->p, 2);
                c = (char)strtol(hex, &end, 16);
                if (*end || !c) return bad(r, "no character", "\\x01 to \\xff");
                r->p += 2;
            } else if (c != '"' && c != '\\') {
                return bad(r, "no escape", "\\\", \\\\ or \\xHH");
            }
        }
        buf[n++] = c;
    }
    if (r->p == r->end || *r->p != '"') return bad(r, "a text is not closed", "end it with \"");
    r->p++;
    buf[n] = 0;
    return tn_arena_text(&r->g->arena, buf, out);
}

static tn_status attribute_value(reader *r, tn_attr *out)
{
    char buf[64], *end;
    size_t n = 0;
    if (r->p < r->end && *r->p == '"') {
        r->p++;
        out->kind = 's';
        return quoted(r, &out->u.s);
    }
    while (r->p + n < r->end && n + 1 < sizeof buf && (unsigned char)r->p[n] > 32) n++;
    memcpy(buf, r->p, n);
    buf[n] = 0;
    bool whole = n && buf[strspn(buf, "-0123456789")] == 0 && strcmp(buf, "-0");
    out->kind = whole ? 'i' : 'f';
    errno = 0;
    if (whole) out->u.i = strtoll(buf, &end, 10);
    else out->u.f = strtod(buf, &end);
    if (!n || *end || (whole && errno == ERANGE)) return bad(r, "no value", "a number or \"text\"");
    r->p += n;
    return TN_OK;
}

static tn_status attributes(reader *r, line *l)
{
    for (;;) {
        char buf[64];
        blanks(r);
        if (r->p == r->end || *r->p == '@' || *r->p == '\n') return TN_OK;
        if (l->n_attrs == TN_COUNT(l->attrs)) return bad(r, "too many attributes", "at most 16");
        TN_TRY(word(r, "=", buf, sizeof buf));
        if (!eat(r, "=")) return bad(r, "no '='", "name=value");
        TN_TRY(tn_arena_text(&r->g->arena, buf, &l->attrs[l->n_attrs].name));
        TN_TRY(attribute_value(r, &l->attrs[l->n_attrs].value));
        l->n_attrs++;
    }
}

static tn_status one_of(reader *r, const char *const *names, int n, int64_t *out)
{
    char buf[32];
    TN_TRY(word(r, "", buf, sizeof buf));
    for (int i = 0; i < n; i++)
        if (!strcmp(buf, names[i])) {
            *out = i;
            return TN_OK;
        }
    TN_FAIL(TN_BAD_INPUT,
            "%s:%lld: '%s' is no phase or scope; F B W OPT COMM, then head microbatch chunk tail",
            r->where, (long long)r->line, buf);
}

static tn_status place(reader *r, line *l)
{
    static const char *const phases[] = {"F", "B", "W", "OPT", "COMM"}, *const scopes[] = {
                                                                            "head", "microbatch",
                                                                            "chunk", "tail"};
    size_t n = 0;
    if (!eat(r, "@")) return bad(r, "no module path", "@PATH PHASE SCOPE sSTAGE");
    while (r->p + n < r->end && (unsigned char)r->p[n] > 32) n++;
    if (n >= sizeof l->path) return bad(r, "a path is too long", "at most 600 characters");
    memcpy(l->path, r->p, n);
    l->path[n] = 0;
    r->p += n;
    TN_TRY(one_of(r, phases, 5, &l->phase));
    TN_TRY(one_of(r, scopes, 4, &l->scope));
    if (!eat(r, "s")) return bad(r, "no stage", "s0");
    if (eat(r, "*")) l->stage = -1;
    else TN_TRY(integer(r, 0, 32767, &l->stage));
    l->parts = 0;
    if (eat(r, "order=tokens")) {
        l->order = TN_ORDER_OVER_TOKENS;
    } else if (eat(r, "order=param:")) {
        l->order = TN_ORDER_OVER_PARAM;
        TN_TRY(integer(r, 1, MAX_GRID, &l->parts));
    }
    return at_end(r) ? TN_OK : bad(r, "more than a node", "one node a line");
}

static tn_status compare(const reader *r, const line *l, int32_t first)
{
    const tn_node *n = &r->g->nodes[r->g->n_nodes - 1];
    if (n->n_out != l->n_out)
        TN_FAIL(TN_BAD_INPUT, "%s:%lld: %s has %d outputs, the line names %d", r->where,
                (long long)r->line, tn_op_name(l->op), n->n_out, l->n_out);
    for (int i = 0; i < l->n_out; i++) {
        const tn_value *said = &l->out[i], *is = &r->g->values[first + i];
        char a[128];
        bool same = said->dtype == is->dtype && said->rank == is->rank;
        for (int d = 0; same && d < is->rank; d++)
            same =
                said->dim[d].extent == is->dim[d].extent && said->dim[d].units == is->dim[d].units;
        if (!same)
            TN_FAIL(TN_BAD_INPUT,
                    "%s:%lld: %%%s: its op gives another shape or dtype than the line says",
                    r->where, (long long)r->line, l->out_name[i]);
        tn_layout_print(&is->layout, a, sizeof a);
        if (!tn_layout_equal(&said->layout, &is->layout))
            TN_FAIL(TN_BAD_INPUT,
                    "%s:%lld: %%%s: its op gives the type %s; write that, or redistribute",
                    r->where, (long long)r->line, l->out_name[i], a);
    }
    return TN_OK;
}

static tn_status node(reader *r)
{
    line l = {0};
    int32_t first;
    TN_TRY(outputs(r, &l));
    TN_TRY(operands(r, &l));
    TN_TRY(attributes(r, &l));
    TN_TRY(place(r, &l));
    tn_node_desc d = {.op = l.op,
                      .n_in = l.n_in,
                      .in = l.in,
                      .n_attrs = l.n_attrs,
                      .attrs = l.attrs,
                      .path = l.path,
                      .phase = (tn_phase)l.phase,
                      .scope = (tn_scope)l.scope,
                      .stage = (int)l.stage,
                      .layout = &l.out[0].layout,
                      .like = &l.out[0]};
    TN_TRY_WHILE(tn_graph_add(r->g, &d, &first), "reading %s:%lld", r->where, (long long)r->line);
    TN_TRY(compare(r, &l, first));
    tn_node *n = &r->g->nodes[r->g->n_nodes - 1];
    n->order = (uint8_t)l.order;
    n->parts = (uint16_t)l.parts;
    for (int i = 0; i < l.n_out; i++) {
        r->g->values[first + i].carried = l.out[i].carried;
        r->g->values[first + i].levels = l.out[i].levels;
        TN_TRY(tn_names_put(&r->names, l.out_name[i], first + i));
    }
    return TN_OK;
}

static tn_status read_all(reader *r)
{
    if (r->p < r->end && (*r->p == '#' || *r->p == '\n')) next_line(r);
    TN_TRY(header(r));
    while (r->p < r->end) {
        if (r->g->n_nodes == MAX_NODES) return bad(r, "too many nodes", "at most 2^20");
        if (!at_end(r)) TN_TRY(node(r));
        next_line(r);
    }
    return TN_OK;
}

tn_status tn_graph_parse(const char *where, const char *text, size_t n, tn_graph **out)
{
    reader r = {.where = where, .p = text, .end = text + n, .line = 1};
    tn_status st = memchr(text, 0, n)
                       ? tn_error(TN_BAD_INPUT, "%s: a NUL byte; a graph is text", where)
                       : read_all(&r);
    tn_names_fini(&r.names);
    if (st) {
        tn_graph_destroy(r.g);
        return st;
    }
    *out = r.g;
    return TN_OK;
}
