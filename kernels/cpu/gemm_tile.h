/* gemm_tile.h - between gemm.c, which shares work, and gemm_isa.c, which packs panels and computes
 * tiles.
 *
 * A panel is up to mr rows of A (nr columns of B) over the k of one segment, packed k-major:
 * element (r, k) at [k * width + r], width a_width (nr). The k of a segment follow each other in
 * the order of the program, whatever source they come from. A tile is one panel of A times one of
 * B. B whose rows are contiguous is read where it is, if the panel is full.
 *
 * A segment is a stretch of the program that fits the caches; it may begin or end inside a leaf.
 * Between segments a tile keeps its levels (the open chain is the top one) at kept + i * mr * nr.
 */
#ifndef TN_KERNELS_CPU_GEMM_TILE_H
#define TN_KERNELS_CPU_GEMM_TILE_H
#include "kernels/cpu/gemm.h"

TN_C_BEGIN

/* The instructions of a segment. Of the first one (a leaf) `skip` k have been done before; the last
 * one, if it is a leaf, ends at `stop`, counted from its k0. */
typedef struct tn_gemm_segment {
    const tn_order_ins *ins;
    int64_t n, skip, stop, k; /* k: sum of the lengths */
    int depth_in, depth_out;  /* levels before and after, an open chain is one */
    bool resume;              /* it goes on with the top level: continues the chain, or adds it */
    bool open;                /* it begins inside a chain */
    bool first, last;         /* of the run: levels come from, results go to the caller's memory */
    int64_t begin[TN_GEMM_MAX], end[TN_GEMM_MAX]; /* k of each source */
} tn_gemm_segment;

typedef struct tn_gemm_tile {
    float *a;                 /* packed panel; with a_src it is written on the way */
    const float *b;           /* packed panel, or NULL: b_src */
    const tn_gemm_src *a_src; /* NULL, or [source]: rows of A are contiguous (a_m 1), a whole vector
                                 of them is there */
    const tn_gemm_src *b_src; /* rows of B are contiguous (b_n 1), nr of them are there */
    const tn_gemm_segment *segment;
    float *kept; /* levels between segments */
    float *hot;  /* levels of no tile in particular: what the segment pushes above those it found */
    float *edge; /* a tile's worth, for one that is not full */
    const tn_gemm_out *out;
    int64_t row, col; /* of the tile in the output */
    int rows, cols;
    const char *stream; /* what will be packed soon: fetched on the way, stream_step bytes each k */
    int64_t stream_step;
    const char *next; /* what the next tile reads or writes first: next_rows rows of a tile, next_ld
                         bytes apart */
    int64_t next_ld;
    int next_rows;
} tn_gemm_tile;

enum { TN_GEMM_PANELS = 8, TN_GEMM_PIECES = 32 };

/* k [k, k + len) of a source, which stand at position `at` of the panels. */
typedef struct tn_gemm_piece {
    int64_t k, len, at;
} tn_gemm_piece;

/* Some pieces of consecutive panels: panel i has rows row[i] .. row[i + 1] of src and goes to dst +
 * i * panel_stride. Rows above up to width may hold copies of others. */
typedef struct tn_gemm_pack {
    float *dst;
    int64_t width, panel_stride; /* floats */
    const void *src;
    int64_t r_stride, k_stride; /* one of them is 1 */
    int64_t extent; /* rows of src: a vector may be read across panels, but not across this */
    int n_panels, n_pieces;
    bool pairs; /* k counts pairs; k_stride (not 1) and src are those of bf16 */
    bool bf16;  /* src */
    int64_t row[TN_GEMM_PANELS + 1];
    tn_gemm_piece piece[TN_GEMM_PIECES];
} tn_gemm_pack;

typedef struct tn_gemm_isa {
    int mr, nr, a_width;
    void (*tile)(const tn_gemm_tile *t);
    void (*pack)(const tn_gemm_pack *p);
} tn_gemm_isa;

extern const tn_gemm_isa tn_gemm_isa_avx512, tn_gemm_isa_avx2, tn_gemm_isa_portable,
    tn_gemm_isa_pairs;

TN_C_END
#endif
