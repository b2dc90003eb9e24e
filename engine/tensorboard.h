/* tensorboard.h - scalars as TensorBoard reads them: an event file of TFRecords.
 *
 * A record is its length (8 bytes, little endian), the masked CRC-32C of these 8 bytes, the data,
 * the masked CRC-32C of the data. The data is a protobuf Event: 1 wall_time double, 2 step int64, 3
 * file_version text (first record), 5 summary { 1 value { 1 tag text, 2 simple_value float } }.
 * Each put is one write, so a reader that follows the file sees whole records. */
#ifndef TN_ENGINE_TENSORBOARD_H
#define TN_ENGINE_TENSORBOARD_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_tensorboard tn_tensorboard;

typedef struct tn_tensorboard_scalar {
    const char *tag;
    double value; /* written as fp32, as the format wants it */
} tn_tensorboard_scalar;

/* A new file in `folder`, which is made; event files of an earlier run in it are removed. */
tn_status tn_tensorboard_open(const char *folder, tn_tensorboard **out) TN_MUST_USE;
void tn_tensorboard_close(tn_tensorboard *t); /* NULL is fine */

tn_status tn_tensorboard_put(tn_tensorboard *t, int64_t step, const tn_tensorboard_scalar *s,
                             int n) TN_MUST_USE;

TN_C_END
#endif
