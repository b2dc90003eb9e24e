/* fuse.h - the text of a fused pointwise program, attribute `prog` of op fused.
 *
 * "silu i0; mul r0 i1 > r1": instructions in order, each writing the next register r0, r1, ...;
 * operands are inputs iN or registers; after ">" the registers that are outputs. Names: silu gelu
 * gelu_tanh relu relu2 sigmoid tanh, the same with _bwd (operands dy, x), mul, add, scale=C. */
#ifndef TN_GRAPH_FUSE_H
#define TN_GRAPH_FUSE_H
#include "graph/graph.h"

TN_C_BEGIN

enum { TN_FUSE_MAX_INS = 12, TN_FUSE_MAX_IN = 8, TN_FUSE_MAX_OUT = 4 };

typedef struct tn_fuse_ins {
    tn_op_id op; /* unary, unary_bwd, mul, add, scale */
    char f[16];  /* of unary and unary_bwd */
    double by;   /* of scale */
    int n_in;
    int in[2]; /* >= 0: register; < 0: input -1 - in */
} tn_fuse_ins;

typedef struct tn_fuse_prog {
    int n, n_in, n_out;
    tn_fuse_ins ins[TN_FUSE_MAX_INS];
    int out[TN_FUSE_MAX_OUT]; /* registers */
} tn_fuse_prog;

void tn_fuse_print(const tn_fuse_prog *p, char *out, size_t size);
bool tn_fuse_parse(const char *text, tn_fuse_prog *out); /* false on anything it does not print */

TN_C_END
#endif
