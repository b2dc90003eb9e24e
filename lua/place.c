#include "lua/place.h"

#include <stdio.h>
#include <string.h>

static const char mend_axes[] =
    "a layout names every axis: dp (or dp_replicate and dp_shard), cp, tp";

typedef struct reading {
    lua_State *L;
    const char *where;
    int rank;
    tn_layout out;
    bool given[TN_N_AXES];
    const char *word[TN_N_AXES]; /* the key that gave it: "dp" or the axis */
    int s_dim[TN_N_AXES];        /* of an axis given as S(d), else -1 */
    bool has_spec, has_s;
} reading;

/* "dp" is two axes; -> their number, 0 for an unknown word. */
static int axes_of(const char *word, tn_axis out[2])
{
    if (!strcmp(word, "dp")) {
        out[0] = TN_AXIS_DP_REPLICATE;
        out[1] = TN_AXIS_DP_SHARD;
        return 2;
    }
    return tn_axis_parse(word, &out[0]) ? 1 : 0;
}

static tn_status claim(reading *r, const char *word, tn_axis axis)
{
    if (r->given[axis])
        TN_FAIL(TN_BAD_INPUT, "%s: axis %s is given twice (%s and %s); give it once", r->where,
                tn_axis_name(axis), r->word[axis], word);
    r->given[axis] = true;
    r->word[axis] = word;
    return TN_OK;
}

static tn_status read_dim(reading *r, const char *word, int dim, int *out)
{
    int d = dim < 0 ? dim + r->rank : dim;
    if (d < 0 || d >= r->rank)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s = S(%d) on a tensor of rank %d; S(0) to S(%d), or S(-1) for the last dim",
                r->where, word, dim, r->rank, r->rank - 1);
    *out = d;
    return TN_OK;
}

/* The placement at the stack's top. Placements are tables { type = "S", dim = 0 } made by
 * lua/prelude/layout.lua.
 */
static tn_status read_placement(reading *r, const char *word, char *type, int *dim)
{
    lua_State *L = r->L;
    *type = 0;
    if (lua_type(L, -1) == LUA_TTABLE) {
        lua_pushliteral(L, "type");
        lua_rawget(L, -2);
        lua_pushliteral(L, "dim");
        lua_rawget(L, -3);
        const char *t = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        *type = t[0] && strchr("RIVPS", t[0]) && !t[1] ? t[0] : (char)0;
        *dim = (int)lua_tointeger(L, -1);
        lua_pop(L, 2);
    }
    if (*type) return TN_OK;
    if (lua_type(L, -1) == LUA_TFUNCTION)
        TN_FAIL(TN_BAD_INPUT, "%s: %s is a function; S takes the number of a dim, as in %s = S(0)",
                r->where, word, word);
    if (lua_type(L, -1) == LUA_TSTRING)
        TN_FAIL(TN_BAD_INPUT, "%s: %s = \"%s\" is text; write nn.R, nn.I, nn.P or nn.S(d)",
                r->where, word, lua_tostring(L, -1));
    TN_FAIL(TN_BAD_INPUT, "%s: %s is a %s where a placement is needed; write R, I, P or S(d)",
            r->where, word, luaL_typename(L, -1));
}

static tn_status read_axis(reading *r, const char *word)
{
    tn_axis axes[2];
    char type;
    int dim = 0, d = 0, n = axes_of(word, axes);
    if (!n) TN_FAIL(TN_BAD_INPUT, "%s: unknown axis '%s'; %s", r->where, word, mend_axes);
    TN_TRY(read_placement(r, word, &type, &dim));
    if (type == 'S') TN_TRY(read_dim(r, word, dim, &d));
    for (int i = 0; i < n; i++) {
        TN_TRY(claim(r, word, axes[i]));
        switch (type) {
        case 'R':
            r->out.type[axes[i]] = TN_TYPE_R;
            break;
        case 'I':
            r->out.type[axes[i]] = TN_TYPE_I;
            break;
        case 'V':
            r->out.type[axes[i]] = TN_TYPE_V;
            break;
        case 'P':
            r->out.type[axes[i]] = TN_TYPE_P;
            break;
        default:
            r->s_dim[axes[i]] = d;
            r->has_s = true;
        }
    }
    return TN_OK;
}

/* One word of a spec: the axes that it names split `dim` behind those already there. */
static tn_status spec_word(reading *r, int dim)
{
    tn_axis axes[2];
    if (lua_type(r->L, -1) != LUA_TSTRING)
        TN_FAIL(TN_BAD_INPUT, "%s: spec: dim %d lists a %s where the name of an axis is needed",
                r->where, dim, luaL_typename(r->L, -1));
    const char *word = lua_tostring(r->L, -1);
    int n = axes_of(word, axes);
    if (!n) TN_FAIL(TN_BAD_INPUT, "%s: spec: unknown axis '%s'; %s", r->where, word, mend_axes);
    for (int i = 0; i < n; i++) {
        TN_TRY(claim(r, word, axes[i]));
        tn_layout_shard(&r->out, axes[i], dim);
    }
    return TN_OK;
}

/* The entry of one dim: a word or a list of words. */
static tn_status spec_dim(reading *r, int dim)
{
    lua_State *L = r->L;
    if (lua_type(L, -1) != LUA_TTABLE) return spec_word(r, dim);
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    if (!n)
        TN_FAIL(TN_BAD_INPUT,
                "%s: spec: dim %d has an empty list; write nil for a dim that nothing splits",
                r->where, dim);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        TN_TRY(spec_word(r, dim));
        lua_pop(L, 1);
    }
    return TN_OK;
}

static tn_status read_spec(reading *r, int t)
{
    lua_State *L = r->L;
    lua_pushliteral(L, "spec");
    lua_rawget(L, t);
    if (lua_type(L, -1) != LUA_TTABLE)
        TN_FAIL(TN_BAD_INPUT,
                "%s: spec is a %s; it lists the axes of each dim, as in spec = { \"dp\", { \"cp\", "
                "\"tp\" }, nil }",
                r->where, luaL_typename(L, -1));
    int spec = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, spec)) { /* only to refuse what is not a dim; the order comes below */
        lua_pop(L, 1);
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 || lua_tointeger(L, -1) > r->rank)
            TN_FAIL(
                TN_BAD_INPUT,
                "%s: spec has an entry that is no dim of a tensor of rank %d; at most %d entries",
                r->where, r->rank, r->rank);
    }
    for (int d = 0; d < r->rank; d++) {
        lua_rawgeti(L, spec, d + 1);
        if (!lua_isnil(L, -1)) TN_TRY(spec_dim(r, d));
        lua_pop(L, 1);
    }
    return TN_OK;
}

/* S(d) of several axes: each dim takes one word (dp counts as one), else the order must be said. */
static tn_status place_shards(reading *r)
{
    const char *of_dim[TN_MAX_RANK] = {0};
    for (int a = 0; a < TN_N_AXES; a++) {
        int d = r->s_dim[a];
        if (d < 0) continue;
        if (of_dim[d] && strcmp(of_dim[d], r->word[a]))
            TN_FAIL(TN_BAD_INPUT,
                    "%s: %s and %s both split dim %d; give their order, outer to inner: spec = { "
                    "[%d] = { \"%s\", "
                    "\"%s\" } }",
                    r->where, of_dim[d], r->word[a], d, d + 1, of_dim[d], r->word[a]);
        of_dim[d] = r->word[a];
        tn_layout_shard(&r->out, (tn_axis)a, d);
    }
    return TN_OK;
}

static tn_status read_table(reading *r, int t)
{
    lua_State *L = r->L;
    lua_pushnil(L);
    while (lua_next(L, t)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: a layout is written by axis, as in { dp = S(0), cp = S(1), tp = R }, not "
                    "as a list",
                    r->where);
        const char *word = lua_tostring(L, -2);
        if (!strcmp(word, "spec")) r->has_spec = true;
        else TN_TRY(read_axis(r, word));
        lua_pop(L, 1);
    }
    if (r->has_spec && r->has_s)
        TN_FAIL(TN_BAD_INPUT, "%s: S(d) together with a spec; write all splits in the spec",
                r->where);
    if (r->has_spec) TN_TRY(read_spec(r, t));
    TN_TRY(place_shards(r));
    for (int a = 0; a < TN_N_AXES; a++)
        if (!r->given[a])
            TN_FAIL(TN_BAD_INPUT, "%s: no placement for axis %s; %s", r->where,
                    a <= TN_AXIS_DP_SHARD && !r->given[TN_AXIS_DP_REPLICATE] &&
                            !r->given[TN_AXIS_DP_SHARD]
                        ? "dp"
                        : tn_axis_name((tn_axis)a),
                    mend_axes);
    return TN_OK;
}

tn_status tn_place_read(lua_State *L, int t, int rank, const char *where, tn_layout *out)
{
    reading r = {.L = L, .where = where, .rank = rank, .out = tn_layout_all(TN_TYPE_R)};
    int top = lua_gettop(L);
    t = lua_absindex(L, t);
    for (int a = 0; a < TN_N_AXES; a++) r.s_dim[a] = -1;
    if (lua_type(L, t) != LUA_TTABLE)
        TN_FAIL(TN_BAD_INPUT, "%s: a layout is a table such as ACT(R), not a %s", where,
                luaL_typename(L, t));
    luaL_checkstack(L, 10, "layout");
    tn_status st = read_table(&r, t);
    lua_settop(L, top);
    if (!st) *out = r.out;
    return st;
}

/* ------------------------------------------------------------ checks */

static bool same_on(const tn_layout *a, const tn_layout *b, int axis, bool no_gradient)
{
    uint8_t x = a->type[axis], y = b->type[axis];
    if (no_gradient && x == TN_TYPE_I) x = TN_TYPE_R;
    if (no_gradient && y == TN_TYPE_I) y = TN_TYPE_R;
    return x == y && a->dim[axis] == b->dim[axis] && a->order[axis] == b->order[axis];
}

static void type_text(const tn_layout *l, int axis, char out[24])
{
    if (l->type[axis] == TN_TYPE_S) snprintf(out, 24, "S(%d)", l->dim[axis]);
    else snprintf(out, 24, "%c", tn_type_letter((tn_type)l->type[axis]));
}

static const char *mend_of(tn_type have, tn_type want, bool other_dim)
{
    if (have == TN_TYPE_S && want == TN_TYPE_S)
        return other_dim
                   ? "move it at a boundary (src S of the one dim, dst S of the other), or correct "
                     "the dim"
                   : "the order of the axes on that dim differs: write the same spec on both sides";
    if (have == TN_TYPE_P)
        return "reduce it where it is made: out_src with P, out_dst with R, I or S";
    if (want == TN_TYPE_P) return "nothing is pending here: write the type it has";
    if (have == TN_TYPE_S) return "gather it at a boundary (in_dst or out_dst), or write S here";
    if (want == TN_TYPE_S)
        return "split it at a boundary (in_dst or out_dst), or write the type it has";
    return "convert it at a boundary (in_dst or out_dst), or write the type it has";
}

tn_status tn_place_check(const tn_value *v, const tn_layout *want, const char *where)
{
    char have_text[128], want_text[128], have[24], wants[24];
    const tn_layout *l = &v->layout;
    for (int a = 0; a < TN_N_AXES; a++) {
        if (same_on(l, want, a, v->dtype == TN_I32)) continue;
        bool dp =
            a == TN_AXIS_DP_REPLICATE && !same_on(l, want, TN_AXIS_DP_SHARD, v->dtype == TN_I32);
        type_text(l, a, have);
        type_text(want, a, wants);
        tn_layout_print(l, have_text, sizeof have_text);
        tn_layout_print(want, want_text, sizeof want_text);
        TN_FAIL(TN_BAD_INPUT,
                "%s: on axis %s the value is %s, the table says %s (%s where %s is written); %s",
                where, dp ? "dp" : tn_axis_name((tn_axis)a), have, wants, have_text, want_text,
                mend_of((tn_type)l->type[a], (tn_type)want->type[a], l->dim[a] != want->dim[a]));
    }
    return TN_OK;
}

tn_layout tn_place_follow(const tn_value *like, int rank)
{
    tn_layout out = tn_layout_all(TN_TYPE_R);
    for (int d = 0; d < rank; d++) {
        tn_axis axes[TN_N_AXES];
        int n = tn_layout_axes(&like->layout, d, axes);
        for (int i = 0; i < n; i++) tn_layout_shard(&out, axes[i], d);
    }
    return out;
}
