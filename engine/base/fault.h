/* fault.h - named places that can be made to fail, so that every write, sync and rename is seen
 * failing by a test.
 *
 * A place asks tn_fault_hit just before it acts and, told so, behaves as if the call behind it had
 * failed. Nothing is armed unless a test or the recipe (debug.fault = "file.write:3") says so; then
 * the n-th hit from now fails, once.
 */
#ifndef TN_ENGINE_BASE_FAULT_H
#define TN_ENGINE_BASE_FAULT_H
#include "engine/base/base.h"

TN_C_BEGIN

/* One line for each place: identifier, name, errno that the place reports. */
#define TN_FAULTS(X)                                                                               \
    X(FILE_OPEN, "file.open", EACCES)                                                              \
    X(FILE_READ, "file.read", EIO)                                                                 \
    X(FILE_WRITE, "file.write", ENOSPC)                                                            \
    X(FILE_SYNC, "file.sync", EIO)                                                                 \
    X(FILE_RENAME, "file.rename", EACCES)                                                          \
    X(FILE_MKDIR, "file.mkdir", EACCES)                                                            \
    X(MAP, "map", ENOMEM)

typedef enum tn_fault {
#define TN_FAULT_ID(id, name, error) TN_FAULT_##id,
    TN_FAULTS(TN_FAULT_ID)
#undef TN_FAULT_ID
        TN_N_FAULTS
} tn_fault;

/* True: the caller must fail now; errno is set. */
bool tn_fault_hit(tn_fault place);

/* The n-th hit from now fails (n >= 1; 0 disarms). */
void tn_fault_arm(tn_fault place, int64_t n);
void tn_fault_clear(void);

/* "file.write:3, file.rename" (:1 when left out). `where` names the recipe key in errors. "" arms
 * nothing. */
tn_status tn_fault_parse(const char *where, const char *spec) TN_MUST_USE;

TN_C_END
#endif
