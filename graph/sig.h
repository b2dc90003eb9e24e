/* sig.h - the factor string of an op, parsed (grammar in op.h). */
#ifndef TN_GRAPH_SIG_H
#define TN_GRAPH_SIG_H
#include "engine/base/base.h"
#include "graph/types.h"

TN_C_BEGIN

enum { TN_SIG_OPERANDS = 16, TN_SIG_FACTORS = 26 };

typedef struct tn_sig_dim {
    uint8_t n;         /* factors, outer to inner; 1 for a plain dim */
    uint8_t factor[3]; /* letter - 'a' */
    bool whole;
} tn_sig_dim;

typedef struct tn_sig_operand {
    bool ellipsis, repeat, optional;
    uint8_t n_dims; /* beside the ellipsis, which always comes first */
    tn_sig_dim dim[TN_MAX_RANK];
} tn_sig_operand;

typedef struct tn_sig {
    uint8_t n_in, n_out, n_repeat,
        n_optional; /* input groups that repeat; optional inputs at the end */
    tn_sig_operand in[TN_SIG_OPERANDS], out[8];
    uint32_t shared; /* factors that occur outside of braces: one instance for all repeats */
} tn_sig;

/* Fails only on a malformed string, which is a bug of the table: TN_FAILED. */
tn_status tn_sig_parse(const char *text, tn_sig *out) TN_MUST_USE;

/* How often the repeated groups occur with n_in operands; false if the count does not fit. */
bool tn_sig_count(const tn_sig *s, int n_in, int *repeats, int *n_out);

TN_C_END
#endif
