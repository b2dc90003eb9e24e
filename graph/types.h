/* types.h - where a tensor is: one SPMD type per mesh axis, ordered axis lists per dim (DESIGN.md
 * 5, docs/words.md).
 *
 *   R  same data, ranks go on to do different work      gradient P
 *   I  same data, ranks do the same work                gradient I
 *   V  different data, no global meaning (local_map)    gradient V
 *   P  pending sum                                      gradient R
 *   S  shard of dim d                                   gradient S(d)
 *
 * Several axes may shard one dim; `order` says where an axis stands in the dim's list, 0 =
 * outermost.
 */
#ifndef TN_GRAPH_TYPES_H
#define TN_GRAPH_TYPES_H
#include "engine/base/base.h"

TN_C_BEGIN

enum { TN_MAX_RANK = 6 };

typedef enum tn_axis {
    TN_AXIS_DP_REPLICATE,
    TN_AXIS_DP_SHARD,
    TN_AXIS_CP,
    TN_AXIS_TP,
    TN_N_AXES
} tn_axis;

typedef enum tn_type { TN_TYPE_R, TN_TYPE_I, TN_TYPE_V, TN_TYPE_P, TN_TYPE_S } tn_type;

typedef struct tn_layout {
    uint8_t type[TN_N_AXES];  /* tn_type */
    uint8_t dim[TN_N_AXES];   /* of an S axis, else 0 */
    uint8_t order[TN_N_AXES]; /* of an S axis: place in the dim's list, 0 = outermost; else 0 */
    uint8_t among[TN_N_AXES]; /* of an S axis: every so many neighbours hold all of it together; 0:
                                 only all of them do */
} tn_layout;

/* The dense mesh, outer to inner: pp, dp_replicate, dp_shard, cp, tp. */
typedef struct tn_mesh {
    int pp;
    int size[TN_N_AXES];
} tn_mesh;

const char *tn_axis_name(tn_axis axis);
bool tn_axis_parse(const char *name,
                   tn_axis *out); /* "dp_shard"; `dp` is two axes and the caller's to expand */
char tn_type_letter(tn_type type);

tn_layout tn_layout_all(tn_type type); /* R, I, V or P on every axis */
bool tn_layout_equal(const tn_layout *a, const tn_layout *b);
tn_layout tn_layout_of_gradient(const tn_layout *a);
int tn_layout_axes(const tn_layout *l, int dim,
                   tn_axis out[TN_N_AXES]); /* the axes of a dim, outer to inner; their number */
void tn_layout_shard(tn_layout *l, tn_axis axis,
                     int dim); /* appends `axis` as the innermost of dim */

/* Does data move on this axis from one layout to the other? Not from I to R, nor where the axis has
 * one rank; but where an axis further out in the same dim moves, the parts inside are others. */
bool tn_layout_moves(const tn_layout *from, const tn_layout *to, const tn_mesh *mesh, tn_axis axis);

/* In how many parts an S axis cuts its dim. */
int tn_layout_parts(const tn_layout *l, const tn_mesh *mesh, tn_axis axis);

/* "{dp:0 cp:1 tp:R}": dp_replicate and dp_shard fold to dp when they agree; "dp:0.0 tp:0.1" gives
 * the order when several axes share a dim, "dp_shard:0/4" that every four ranks hold it. Parses
 * what it prints; false on anything else. */
int tn_layout_print(const tn_layout *l, char *out, size_t size);
bool tn_layout_parse(const char *text, tn_layout *out);

/* Extent on rank coordinates `at` of a dim of `extent` elements in `units` units (0: elements), cut
 * by its axis list. */
int64_t tn_layout_local(const tn_layout *l, const tn_mesh *mesh, const int at[TN_N_AXES], int dim,
                        int64_t extent, int64_t units, int64_t *begin_out);

/* The largest local extent of any rank: what memory is planned for. */
int64_t tn_layout_largest(const tn_layout *l, const tn_mesh *mesh, int dim, int64_t extent,
                          int64_t units);

/* Ranks of one pipeline stage, and the coordinates of rank r: dp_replicate outermost, tp innermost.
 */
int tn_mesh_ranks(const tn_mesh *mesh);
void tn_mesh_coordinates(const tn_mesh *mesh, int rank, int at[TN_N_AXES]);
int tn_mesh_rank(const tn_mesh *mesh, const int at[TN_N_AXES]);

TN_C_END
#endif
