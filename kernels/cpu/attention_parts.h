/* attention_parts.h - what attention.c (cuts the work) and the *_isa.c files (do it) share.
 *
 * Work is cut into items: a row, a kv head with its query heads, a range of query blocks, a range
 * of key blocks. A thread packs the keys of its item a chunk at a time, then runs each block of 64
 * queries against each block of 64 keys that it can see.
 *
 * Everything packed has the panel form [columns / 16][rows of the block][16], rows and columns
 * beyond the data zero: a panel serves as the vector operand (one line per row), as the broadcast
 * operand along rows and as that along columns, and no access has a power-of-two stride. Weights
 * (p, ds) are kept as [strip of 16 queries][64 keys][16].
 */
#ifndef TN_KERNELS_CPU_ATTENTION_PARTS_H
#define TN_KERNELS_CPU_ATTENTION_PARTS_H
#include "kernels/cpu/attention.h"

TN_C_BEGIN

enum {
    TN_ATT_BLOCK = 64, /* queries or keys; of keys it is part of the result */
    TN_ATT_STRIP = 16, /* queries in a vector */
    TN_ATT_STRIPS = TN_ATT_BLOCK / TN_ATT_STRIP,
    TN_ATT_GROUP = 8, /* what visibility is known of */
    TN_ATT_GROUPS = TN_ATT_BLOCK / TN_ATT_GROUP,
    TN_ATT_PANEL = TN_ATT_BLOCK * 16, /* floats */
};

/* Positions and documents of a block of keys; entry TN_ATT_GROUPS of the bounds is the whole block.
 * Keys beyond the data have position INT32_MAX, which no query sees. */
typedef struct tn_att_keys {
    int32_t pos[TN_ATT_BLOCK], doc[TN_ATT_BLOCK];
    int32_t pos_min[TN_ATT_GROUPS + 1], pos_max[TN_ATT_GROUPS + 1];
    int32_t doc_min[TN_ATT_GROUPS + 1], doc_max[TN_ATT_GROUPS + 1];
} tn_att_keys;

/* A query sees the keys of its document with lo < pos <= hi. Queries beyond the data repeat the
 * last one. */
typedef struct tn_att_queries {
    int32_t lo[TN_ATT_BLOCK], hi[TN_ATT_BLOCK], doc[TN_ATT_BLOCK];
    int32_t lo_min[TN_ATT_GROUPS + 1], lo_max[TN_ATT_GROUPS + 1];
    int32_t hi_min[TN_ATT_GROUPS + 1], hi_max[TN_ATT_GROUPS + 1];
    int32_t doc_min[TN_ATT_GROUPS + 1], doc_max[TN_ATT_GROUPS + 1];
    int64_t n; /* real ones */
} tn_att_queries;

/* The queries of a block that belong to one position part. */
typedef struct tn_att_segment {
    int64_t begin, end, part;
    bool continues, ends; /* the part began before the block; its last query is in it */
} tn_att_segment;

typedef struct tn_att_plan {
    const tn_attention *a;
    const void *d_o;
    void *dq, *dk, *d_v;
    bool backward, want_dq, want_dkv, apart;
    float c;             /* scale / ln 2 */
    int64_t rep, nd, nv; /* query heads per kv head; panels of q and k, of v */
    int64_t s_blocks, t_blocks;
    int64_t chunk;              /* key blocks packed at a time */
    int64_t q_blocks, k_blocks; /* of an item */
    int64_t q_items, n_items;
    int64_t heads;  /* forward: query heads that share one pass over the keys */
    int64_t states; /* forward: query blocks x heads whose state is kept between chunks */
    int64_t kept; /* backward: dq of so many query blocks x heads is kept between chunks (bf16); 0:
                     it waits in its memory */
    int64_t sums; /* backward: partial dk, dv of a chunk that are alive at once */
    bool leaves;  /* backward: some part crosses a query block */
} tn_att_plan;

/* Forward: what is known of the queries of a block after some keys. */
typedef struct tn_att_state {
    float m[TN_ATT_BLOCK], l[TN_ATT_BLOCK];
    float o[]; /* panels */
} tn_att_state;

/* The scratch of one thread. */
typedef struct tn_att_mem {
    float *k, *v;      /* panels of each block of the chunk */
    tn_att_keys *keys; /* of the chunk */
    tn_att_queries *queries;
    float *qt;    /* q as [strip][d][16] */
    float *p;     /* weights */
    char *states; /* forward */
    size_t state_bytes;
    float *q, *d_o, *dot; /* backward: panels of q and d_o, d_o as qt */
    float *ds, *dq;
    float *sums, *leaf; /* per block of the chunk: panels of dk, then of dv */
    int64_t sum_floats;
    int64_t *open; /* per block of the chunk: the part that leaf holds a beginning of, or -1 */
    tn_att_segment *segments;
} tn_att_mem;

/* Lays out the scratch of one thread from `base` on (NULL: only counts); returns its bytes. */
size_t tn_attention_carve(const tn_att_plan *p, void *base, tn_att_mem *out);

void tn_attention_keys(const tn_attention *a, int64_t row, int64_t first, tn_att_keys *out);
void tn_attention_queries(const tn_attention *a, int64_t row, int64_t first, tn_att_queries *out);

/* The parts that the n queries from `first` on belong to; at most n. Returns how many. */
int64_t tn_attention_segments(const tn_attention *a, int64_t first, int64_t n, tn_att_segment *out);

/* The slot of head_parts that a head (of the whole model) belongs to. */
int64_t tn_attention_slot(const tn_attention *a, int64_t head);

/* Where an item lies: blocks [q_first, q_last) of queries with blocks [k_first, k_last) of keys.
 * The longest come first. */
typedef struct tn_att_place {
    int64_t row, kv_head, q_first, q_last, k_first, k_last;
} tn_att_place;

tn_att_place tn_attention_place(const tn_att_plan *p, int64_t item);

typedef struct tn_attention_fns {
    void (*item)(const tn_att_plan *p, int64_t item, void *scratch);
} tn_attention_fns;

TN_C_END
#endif
