/* attention.h - flash attention, forward and backward: softmax(scale q k^T) v, no row of
 * scores ever held whole.
 *
 * A query sees a key when both have the same document and (not causal, or k_pos <= q_pos) and (no
 * window, or q_pos - k_pos < window). Positions and documents are operands, so that permuted
 * sequences and packed rows need nothing else.
 *
 * The order of every sum (DESIGN.md 7 (2), (3), (11)); none depends on threads, instruction set, or
 * how queries and heads are blocked: score   one chain over d; t = (q . k) c with c = scale / ln 2
 * rounded, so that softmax runs on powers of two o, lse  keys in blocks of 64 from key 0. Per block
 * m' = max(m, max t), f = 2^(m - m'), p = 2^(t - m'), l = l f + sum p (16 lanes, key mod 16;
 * pairwise tree), o = o f and then the chain p v over the block's keys. Last: o (1 / l) + 0 and lse
 * = m ln 2 + log l. A block without a visible key changes nothing D       sum over dv of d_o o: 16
 * lanes, tree dq      one chain over all keys of ds k, ds = (p (dp - D)) scale, p = 2^(t - lse / ln
 * 2) dk, dv  per query head: leaf j chains the queries of part j of seq_parts; leaves are added up
 * in order. Then over the heads of a kv head: those of one slot of head_parts in order, the slots
 * by the balanced tree
 *
 * With `bf16` the arrays are bf16 and the same sums are made in fp32, from widened operands; what
 * is stored is rounded once, at its end.
 */
#ifndef TN_KERNELS_CPU_ATTENTION_H
#define TN_KERNELS_CPU_ATTENTION_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

/* All arrays are contiguous, heads interleaved in the token. */
typedef struct tn_attention {
    int64_t b, s, t, h, g, d,
        dv; /* rows, queries, keys, query heads, kv heads (g divides h), head dims of q, v */
    const void *q, *k, *v; /* [b s h d], [b t g d], [b t g dv]; query head i reads kv head i / (h /
                              g) */
    const int32_t *q_pos, *q_doc; /* [b s] */
    const int32_t *k_pos, *k_doc; /* [b t]; positions lie in [0, 2^31 - 2] */
    bool causal;
    float scale;
    int64_t window; /* 0: none */
    void *o;        /* [b s h dv]; a query that sees no key: 0 */
    float *lse;     /* [b s h] natural log of the sum of exp(scale q.k); a query that sees no key:
                       -infinity */
    int64_t seq_parts; /* J of the reduce grid: part j of the s queries is [j s / J, (j+1) s / J) */
    int64_t head_parts; /* T of it, a power of two: slot r holds the heads [r units / T, (r+1) units
                           / T) */
    int64_t units;      /* query heads of the whole model */
    int64_t first_head; /* the first head of this call among them */
    bool bf16;          /* q, k, v, o and their gradients, */
    bool dkv_fp32;      /* but not dk and d_v, which are parts of a sum */
} tn_attention;

/* Writes o and lse. */
void tn_attention_fwd(const tn_cpu *cpu, const tn_attention *a);

/* Reads o and lse too. d_o [b s h dv]; writes dq [b s h d], dk [b t g d] and d_v [b t g dv]. */
void tn_attention_bwd(const tn_cpu *cpu, const tn_attention *a, const void *d_o, void *dq, void *dk,
                      void *d_v);

/* Depends on extents, formats and the grid only; at most about 2.5 MiB per thread for head dims up
 * to 256, with bf16 backward 6.5. */
size_t tn_attention_scratch(int n_threads, const tn_attention *a, bool backward);

TN_C_END
#endif
