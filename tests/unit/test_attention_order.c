/* test_attention_order.c - the bits of attention: the order of every sum, executed one scalar
 * operation after the other; rows, heads, queries and documents alone or together; partial sums of
 * ranks. */
#include "tests/attention.h"

/* The order, executed. */

static float exp2_of(float x)
{
    if (x < -126.5f) return 0;
    float n = rintf(x), r = x - n, p = 1.55946781613e-4f;
    p = fmaf(p, r, 1.34066439024e-3f);
    p = fmaf(p, r, 9.61769297299e-3f);
    p = fmaf(p, r, 5.55031055101e-2f);
    p = fmaf(p, r, 2.40226527829e-1f);
    p = fmaf(p, r, 6.93147214968e-1f);
    p = fmaf(p, r, 1.0f);
    return ldexpf(p, (int)n);
}

static float lanes_sum(const float *x)
{
    float t[16];
    memcpy(t, x, sizeof t);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}

static float chain(const float *x, const float *y, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum = fmaf(x[i], y[i], sum);
    return sum;
}

static bool sees(const tn_attention *a, int64_t row, int64_t i, int64_t j)
{
    int64_t q = row * a->s + i, k = row * a->t + j, ahead = (int64_t)a->k_pos[k] - a->q_pos[q];
    return a->q_doc[q] == a->k_doc[k] && (!a->causal || ahead <= 0) &&
           (!a->window || -ahead < a->window);
}

typedef struct query {
    int64_t row, i, kv, at; /* at: of its head in [b s h] */
    float c;
} query;

static int64_t key_at(const tn_attention *a, const query *q, int64_t j)
{
    return (q->row * a->t + j) * a->g + q->kv;
}

static float score(const tn_attention *a, const query *q, int64_t j)
{
    return chain(tn_test_f32(a->q) + q->at * a->d, tn_test_f32(a->k) + key_at(a, q, j) * a->d,
                 a->d);
}

static void order_forward(const tn_attention *a, const query *q, float *o)
{
    float m = -1e30f, l = 0;
    for (int64_t c = 0; c < a->dv; c++) o[c] = 0;
    for (int64_t first = 0; first < a->t; first += 64) {
        float t[64], lanes[16] = {0}, now = m;
        const int64_t n = first + 64 < a->t ? 64 : a->t - first;
        for (int64_t j = 0; j < n; j++) {
            t[j] = sees(a, q->row, q->i, first + j) ? score(a, q, first + j) * q->c : -INFINITY;
            now = t[j] > now ? t[j] : now;
        }
        float f = exp2_of(m - now);
        m = now;
        for (int64_t c = 0; c < a->dv; c++) o[c] *= f;
        for (int64_t j = 0; j < n; j++) {
            if (t[j] == -INFINITY) continue;
            float p = exp2_of(t[j] - now);
            lanes[j % 16] += p;
            for (int64_t c = 0; c < a->dv; c++)
                o[c] = fmaf(p, tn_test_f32(a->v)[key_at(a, q, first + j) * a->dv + c], o[c]);
        }
        l = fmaf(l, f, lanes_sum(lanes));
    }
    for (int64_t c = 0; c < a->dv; c++) o[c] = l == 0 ? 0 : o[c] * (1 / l) + 0;
}

/* p and ds of a query, to p and ds [t]; dq. */
static void order_slopes(const tn_attention *a, const query *q, const float *d_o, float *p,
                         float *ds, float *dq)
{
    float lanes[16] = {0}, lse = a->lse[q->at],
          less = lse == -INFINITY ? 0 : -(lse * 1.44269504088896341f);
    const float *g = d_o + q->at * a->dv, *o = tn_test_f32(a->o) + q->at * a->dv;
    for (int64_t c = 0; c < a->dv; c++) lanes[c % 16] = fmaf(g[c], o[c], lanes[c % 16]);
    const float down = lanes_sum(lanes);
    for (int64_t c = 0; c < a->d; c++) dq[c] = 0;
    for (int64_t j = 0; j < a->t; j++) {
        p[j] = ds[j] = 0;
        if (!sees(a, q->row, q->i, j)) continue;
        p[j] = exp2_of(fmaf(score(a, q, j), q->c, less));
        ds[j] =
            p[j] * (chain(g, tn_test_f32(a->v) + key_at(a, q, j) * a->dv, a->dv) - down) * a->scale;
        for (int64_t c = 0; c < a->d; c++)
            dq[c] = fmaf(ds[j], tn_test_f32(a->k)[key_at(a, q, j) * a->d + c], dq[c]);
    }
    for (int64_t c = 0; c < a->d; c++) dq[c] += 0;
}

/* Per head: sum [t n] = fold over the parts of leaves of weight^T x; weight [s t], x [s] rows of n,
 * `stride` apart. */
static void order_fold(const tn_attention *a, const float *weight, const float *x, int64_t stride,
                       int64_t n, float *sum)
{
    for (int64_t j = 0; j < a->t; j++)
        for (int64_t c = 0; c < n; c++) {
            float *to = sum + j * n + c;
            *to = 0;
            for (int64_t part = 0; part < a->seq_parts; part++) {
                float leaf = 0;
                for (int64_t i = part * a->s / a->seq_parts; i < (part + 1) * a->s / a->seq_parts;
                     i++)
                    leaf = fmaf(weight[i * a->t + j], x[i * stride + c], leaf);
                *to += leaf + 0;
            }
        }
}

/* The node over slots [lo, hi): false if it has no head of the group. The heads of a group have n
 * floats each in `sums`. */
static bool order_tree(const tn_attention *a, int64_t kv, int64_t lo, int64_t hi, const float *sums,
                       int64_t n, float *out)
{
    const int64_t rep = a->h / a->g;
    bool any = false;
    if (hi - lo == 1) {
        for (int64_t i = 0; i < rep; i++) {
            int64_t head = a->first_head + kv * rep + i;
            if (head < lo * a->units / a->head_parts || head >= hi * a->units / a->head_parts)
                continue;
            for (int64_t k = 0; k < n; k++)
                out[k] = any ? out[k] + sums[i * n + k] : sums[i * n + k];
            any = true;
        }
        return any;
    }
    float *right = tn_test_floats(n);
    any = order_tree(a, kv, lo, (lo + hi) / 2, sums, n, out);
    if (order_tree(a, kv, (lo + hi) / 2, hi, sums, n, right)) {
        for (int64_t k = 0; k < n; k++) out[k] = any ? out[k] + right[k] : right[k];
        any = true;
    }
    tn_test_free(right);
    return any;
}

static void same_group(const char *what, const float *got, int64_t heads, int64_t d, const query *q,
                       const tn_attention *a, const float *want)
{
    for (int64_t j = 0; j < a->t; j++) {
        const float *x = got + ((q->row * a->t + j) * heads + q->kv) * d;
        if (!TN_CHECK_MSG(same(x, want + j * d, d), "%s of key %lld differs from its order", what,
                          (long long)j))
            return;
    }
}

static void order_group(const sample *x, const result *r, int64_t row, int64_t kv)
{
    tn_attention a = x->a;
    a.o = r->o, a.lse = r->lse;
    const int64_t rep = a.h / a.g, nk = a.t * a.d, nv = a.t * a.dv;
    float *p = tn_test_floats(a.s * a.t), *ds = tn_test_floats(a.s * a.t),
          *o = tn_test_floats(a.dv), *dq = tn_test_floats(a.d);
    float *dk = tn_test_floats(rep * nk), *d_v = tn_test_floats(rep * nv),
          *dk_want = tn_test_floats(nk), *dv_want = tn_test_floats(nv);
    query q = {.row = row, .kv = kv, .c = (float)((double)a.scale * 1.4426950408889634)};
    for (int64_t i = 0; i < rep; i++) {
        for (q.i = 0; q.i < a.s; q.i++) {
            q.at = (row * a.s + q.i) * a.h + kv * rep + i;
            order_forward(&a, &q, o);
            order_slopes(&a, &q, x->d_o, p + q.i * a.t, ds + q.i * a.t, dq);
            TN_CHECK_MSG(same(o, r->o + q.at * a.dv, a.dv),
                         "o of query %lld differs from its order", (long long)q.i);
            TN_CHECK_MSG(same(dq, r->dq + q.at * a.d, a.d),
                         "dq of query %lld differs from its order", (long long)q.i);
        }
        const int64_t at = row * a.s * a.h + kv * rep + i;
        order_fold(&a, ds, tn_test_f32(a.q) + at * a.d, a.h * a.d, a.d, dk + i * nk);
        order_fold(&a, p, x->d_o + at * a.dv, a.h * a.dv, a.dv, d_v + i * nv);
    }
    TN_CHECK(order_tree(&a, kv, 0, a.head_parts, dk, nk, dk_want));
    TN_CHECK(order_tree(&a, kv, 0, a.head_parts, d_v, nv, dv_want));
    same_group("dk", r->dk, a.g, a.d, &q, &a, dk_want);
    same_group("dv", r->d_v, a.g, a.dv, &q, &a, dv_want);
    const float *mine[] = {p, ds, o, dq, dk, d_v, dk_want, dv_want};
    for (int i = 0; i < TN_COUNT(mine); i++) tn_test_free(mine[i]);
}

static void orders(void)
{
    static const extents cases[] = {
        {2, 150, 150, 6, 2, 20, 12, 0, 8, 8, true, 2, 0},
        {1, 70, 200, 5, 1, 16, 32, 90, 3, 4, true, 3,
         130}, /* slots of one and two heads; parts across blocks */
        {1, 128, 128, 8, 1, 32, 32, 0, 8, 4, true, 0, 0},
        {1, 200, 66, 3, 3, 33, 47, 0, 16, 16, false, 0, 0},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        sample x = sample_build(&cases[i], 80 + (uint64_t)i);
        if (i == 2)
            x.a.scale = 20; /* scores far apart: weights down to nothing, and what lies between */
        result r = run_everywhere("order", &x.a, x.d_o);
        for (int64_t row = 0; row < x.a.b; row++)
            for (int64_t kv = 0; kv < x.a.g; kv++) order_group(&x, &r, row, kv);
        result_free(&r);
        sample_free(&x);
    }
}

/* Copies heads [first, first + n) of `all` interleaved ones. */
static float *heads_of(const float *x, int64_t tokens, int64_t all, int64_t d, int64_t first,
                       int64_t n)
{
    float *y = tn_test_floats(tokens * n * d);
    for (int64_t i = 0; i < tokens; i++)
        memcpy(y + i * n * d, x + (i * all + first) * d, (size_t)(n * d) * sizeof *x);
    return y;
}

/* Heads [first, first + n) computed alone; kv heads [kv, kv + n_kv). */
static result run_heads(const sample *x, int64_t first, int64_t n, int64_t kv, int64_t n_kv)
{
    tn_attention a = x->a;
    float *q = heads_of(a.q, a.b * a.s, a.h, a.d, first, n),
          *d_o = heads_of(x->d_o, a.b * a.s, a.h, a.dv, first, n);
    float *k = heads_of(a.k, a.b * a.t, a.g, a.d, kv, n_kv),
          *v = heads_of(a.v, a.b * a.t, a.g, a.dv, kv, n_kv);
    a.q = q, a.k = k, a.v = v;
    a.h = n, a.g = n_kv;
    a.first_head = first;
    result r = run_alone(&a, d_o);
    const float *mine[] = {q, k, v, d_o};
    for (int i = 0; i < 4; i++) tn_test_free(mine[i]);
    return r;
}

static void same_heads(const char *what, const float *all, int64_t tokens, int64_t heads, int64_t d,
                       int64_t first, int64_t n, const float *part)
{
    float *y = heads_of(all, tokens, heads, d, first, n);
    TN_CHECK_MSG(same(y, part, tokens * n * d), "%s of heads %lld.. alone differs", what,
                 (long long)first);
    tn_test_free(y);
}

/* A kv head with its query heads alone; then a group cut over ranks as tensor parallelism cuts it.
 */
static void heads(void)
{
    static const extents cases[] = {
        {2, 130, 130, 6, 2, 20, 20, 0, 8, 8, true, 0, 0},
        {1, 70, 70, 8, 2, 16, 16, 0, 8, 8, true, 0, 0},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        sample x = sample_build(&cases[i], 11);
        const tn_attention *a = &x.a;
        const int64_t rep = a->h / a->g, queries = a->b * a->s, keys = a->b * a->t;
        result all = run_alone(a, x.d_o);
        for (int64_t kv = 0; kv < a->g; kv++) {
            result r = run_heads(&x, kv * rep, rep, kv, 1);
            same_heads("o", all.o, queries, a->h, a->dv, kv * rep, rep, r.o);
            same_heads("lse", all.lse, queries, a->h, 1, kv * rep, rep, r.lse);
            same_heads("dq", all.dq, queries, a->h, a->d, kv * rep, rep, r.dq);
            same_heads("dk", all.dk, keys, a->g, a->d, kv, 1, r.dk);
            same_heads("dv", all.d_v, keys, a->g, a->dv, kv, 1, r.d_v);
            result_free(&r);
        }
        /* two ranks share kv head 0; each makes the node of its slots, the exchange adds them */
        int64_t half = a->h == 6 ? 1 : 2;
        result left = run_heads(&x, 0, half, 0, 1), right = run_heads(&x, half, rep - half, 0, 1);
        for (int64_t j = 0; j < keys * a->d; j++) left.dk[j] += right.dk[j];
        for (int64_t j = 0; j < keys * a->dv; j++) left.d_v[j] += right.d_v[j];
        same_heads("dk of two ranks", all.dk, keys, a->g, a->d, 0, 1, left.dk);
        same_heads("dv of two ranks", all.d_v, keys, a->g, a->dv, 0, 1, left.d_v);
        result_free(&left);
        result_free(&right);
        result_free(&all);
        sample_free(&x);
    }
}

static void rows_alone(void)
{
    const extents e = {3, 100, 100, 4, 2, 32, 32, 0, 8, 8, true, 3, 0};
    sample x = sample_build(&e, 21);
    result all = run_alone(&x.a, x.d_o);
    for (int64_t row = 0; row < e.b; row++) {
        tn_attention a = x.a;
        int64_t q = row * e.s * e.h, k = row * e.t * e.g;
        a.b = 1;
        a.q = tn_test_f32(a.q) + q * e.d, a.k = tn_test_f32(a.k) + k * e.d,
        a.v = tn_test_f32(a.v) + k * e.dv;
        a.q_pos += row * e.s, a.q_doc += row * e.s, a.k_pos += row * e.t, a.k_doc += row * e.t;
        result r = run_alone(&a, x.d_o + q * e.dv);
        TN_CHECK(same(r.o, all.o + q * e.dv, e.s * e.h * e.dv) &&
                 same(r.lse, all.lse + q, e.s * e.h));
        TN_CHECK(same(r.dq, all.dq + q * e.d, e.s * e.h * e.d));
        TN_CHECK(same(r.dk, all.dk + k * e.d, e.t * e.g * e.d) &&
                 same(r.d_v, all.d_v + k * e.dv, e.t * e.g * e.dv));
        result_free(&r);
    }
    result_free(&all);
    sample_free(&x);
}

/* Queries from `first` on alone fall into other blocks; o, lse and dq stay. Documents that begin at
 * a multiple of 64 may stand anywhere in the row: what is masked leaves no trace. */
static void queries_alone(void)
{
    const extents e = {1, 200, 200, 2, 1, 24, 40, 70, 8, 8, true, 2, 0};
    sample x = sample_build(&e, 31);
    result all = run_alone(&x.a, x.d_o);
    for (int64_t first = 1; first < e.s; first += 37) {
        tn_attention a = x.a;
        int64_t q = first * e.h;
        a.s = e.s - first;
        a.q = tn_test_f32(a.q) + q * e.d, a.q_pos += first, a.q_doc += first;
        result r = run_alone(&a, x.d_o + q * e.dv);
        TN_CHECK(same(r.o, all.o + q * e.dv, a.s * e.h * e.dv) &&
                 same(r.lse, all.lse + q, a.s * e.h));
        TN_CHECK(same(r.dq, all.dq + q * e.d, a.s * e.h * e.d));
        result_free(&r);
    }
    result_free(&all);
    sample_free(&x);
}

static void documents_alone(void)
{
    const extents e = {1, 320, 320, 2, 1, 32, 16, 0, 1, 8, true, 0, 0};
    const int64_t first = 128, n = 100;
    sample x = sample_build(&e, 41);
    for (int64_t i = 0; i < e.s; i++)
        x.q_doc[i] = x.k_doc[i] = i < first ? 1 : i < first + n ? 2 : 3;
    result all = run_alone(&x.a, x.d_o);
    tn_attention a = x.a;
    a.s = a.t = n;
    a.q = tn_test_f32(a.q) + first * e.h * e.d, a.k = tn_test_f32(a.k) + first * e.g * e.d,
    a.v = tn_test_f32(a.v) + first * e.g * e.dv;
    a.q_pos += first, a.q_doc += first, a.k_pos += first, a.k_doc += first;
    result r = run_alone(&a, x.d_o + first * e.h * e.dv);
    TN_CHECK(same(r.o, all.o + first * e.h * e.dv, n * e.h * e.dv) &&
             same(r.lse, all.lse + first * e.h, n * e.h));
    TN_CHECK(same(r.dq, all.dq + first * e.h * e.d, n * e.h * e.d));
    TN_CHECK(same(r.dk, all.dk + first * e.g * e.d, n * e.g * e.d));
    TN_CHECK(same(r.d_v, all.d_v + first * e.g * e.dv, n * e.g * e.dv));
    result_free(&r);
    result_free(&all);
    sample_free(&x);
}

/* The grid moves roundings only, and only in dk and dv. */
static void parts(void)
{
    extents e = {1, 150, 150, 4, 1, 32, 32, 0, 1, 1, true, 0, 0};
    sample x = sample_build(&e, 51), y = sample_build(&e, 51);
    y.a.seq_parts = y.a.head_parts = 8;
    result one = run_alone(&x.a, x.d_o), eight = run_alone(&y.a, y.d_o);
    int64_t n = e.t * e.g * e.d, differ = 0;
    TN_CHECK(same(one.o, eight.o, e.s * e.h * e.dv) && same(one.dq, eight.dq, e.s * e.h * e.d));
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        differ += one.dk[i] != eight.dk[i];
        most = fmax(most, fabs((double)one.dk[i] - (double)eight.dk[i]));
    }
    TN_CHECK_MSG(differ > 0 && most < 1e-5, "%lld of %lld differ, by %g", (long long)differ,
                 (long long)n, most);
    result_free(&one);
    result_free(&eight);
    sample_free(&x);
    sample_free(&y);
}

int main(void)
{
    orders();
    heads();
    rows_alone();
    queries_alone();
    documents_alone();
    parts();
    return tn_test_done("attention_order");
}
