/* comm_page.h - what the ranks of one host share beside their regions. Zeroed memory is its initial state. */
#ifndef TN_ENGINE_COMM_PAGE_H
#define TN_ENGINE_COMM_PAGE_H
#include "engine/comm.h"

#include <stdatomic.h>

TN_C_BEGIN

enum { TN_COMM_MAX_GROUPS = 256 };

typedef struct tn_comm_page {
    struct {
        _Atomic uint32_t arrived[TN_COMM_MAX_RANKS]; /* how many syncs of the group each rank has entered */
        _Atomic uint32_t bell;                       /* futex: rings at every arrival */
        _Atomic uint64_t mask;                       /* its ranks; 0: free */
    } group[TN_COMM_MAX_GROUPS];
    struct {
        _Atomic int pid, fd[TN_COMM_MAX_REGIONS];
        _Atomic int64_t bytes[TN_COMM_MAX_REGIONS];
        _Atomic uint64_t word; /* of tn_comm_agree */
    } rank[TN_COMM_MAX_RANKS];
    _Atomic int aborted; /* 1 + rank of the first abort */
    char reason[512];
} tn_comm_page;

TN_C_END
#endif
