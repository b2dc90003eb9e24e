/* loss_bwd.c - dlogits = (softmax - onehot(label)) / valid labels of the step; 0 where the label is
 * -100. Operands: logits, labels, lse, 1 / valid labels. */
#include "graph/op.h"

const tn_op tn_op_loss_bwd = {
    .name = "loss_bwd",
    .sig = "... v, ..., ..., 1 -> ... v",
    .reuse = {1},
};
