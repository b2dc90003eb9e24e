/* comm_page.h - what the ranks of one host share beside their regions: who has arrived where, the
 * first abort, and each rank's last exchanges. Zeroed memory is its initial state; the launcher
 * maps it too.
 *
 * NOTES
 * (1) A rank counts its arrivals in a cache line of its own and in the group's one shared counter;
 * the last arrival wakes. (2) The first abort stays: `aborted` goes 0 -> -(1 + writer) -> 1 +
 * culprit, and `reason` is written in between. Only the launcher may take the middle state back,
 * when the writer has died in it. (3) Events are written by their rank only, read by others when
 * the rank has ended or failed.
 */
#ifndef TN_ENGINE_COMM_PAGE_H
#define TN_ENGINE_COMM_PAGE_H
#include "engine/comm.h"

#include <stdatomic.h>

TN_C_BEGIN

enum {
    TN_COMM_PAGE_GROUPS = 256,
    TN_COMM_PAGE_EVENTS = 64,
    TN_COMM_PAGE_REASON = 4096,
    TN_COMM_PAGE_FOLDER = 1024
};

/* One meeting, as one rank saw it. */
typedef struct tn_comm_page_event {
    double enter_s, leave_s; /* tn_clock_s; leave 0: it waits */
    int64_t bytes;
    uint64_t mask;     /* ranks of the group */
    uint32_t sequence; /* of this group's meetings */
    char what[60];
} tn_comm_page_event;

typedef struct tn_comm_page_rank {
    _Alignas(64) _Atomic int pid;
    _Atomic int fd[TN_COMM_MAX_REGIONS];
    _Atomic int64_t bytes[TN_COMM_MAX_REGIONS];
    _Atomic uint64_t word; /* of tn_comm_agree */
    _Atomic int waits;     /* 1 + the group it waits in */
    _Atomic int waits_for; /* 1 + the rank whose flag it waits for */
    _Atomic int ended;     /* 1 + its wait status, from the launcher */
    _Atomic int logged;    /* its output goes to its own log file */
    _Atomic uint32_t n_events;
    _Atomic uint32_t arrived[TN_COMM_PAGE_GROUPS];
    tn_comm_page_event events[TN_COMM_PAGE_EVENTS]; /* the last ones, a ring */
} tn_comm_page_rank;

typedef struct tn_comm_page_group {
    _Alignas(64) _Atomic uint32_t count; /* arrivals of all members; the futex */
    _Atomic uint64_t mask;               /* its ranks; 0: free */
} tn_comm_page_group;

typedef struct tn_comm_page {
    _Atomic uint64_t nonce; /* tells that this is the page of this job */
    _Atomic int launched;   /* a launcher watches the ranks */
    _Atomic int64_t timeout_ms;
    _Atomic int aborted;
    int plain; /* where in `reason` the text begins behind "rank R: " */
    char reason[TN_COMM_PAGE_REASON];
    _Atomic int has_folder;
    char folder[TN_COMM_PAGE_FOLDER]; /* the run's, for flight_rank_R.json */
    tn_comm_page_group group[TN_COMM_PAGE_GROUPS];
    tn_comm_page_rank rank[TN_COMM_MAX_RANKS];
} tn_comm_page;

/* The job's page: from the launcher, else rank 0 makes it and the others find it by the store at
 * the world's master address. *fd_out (-1: none) stays open until all have it. */
tn_status tn_comm_page_join(const tn_world *w, double timeout_s, tn_comm_page **out,
                            int *fd_out) TN_MUST_USE;
tn_status tn_comm_page_map(int fd, tn_comm_page **out) TN_MUST_USE;
void tn_comm_page_unmap(tn_comm_page *p); /* NULL is fine */

/* (2); `writer` calls, `culprit` is to blame: "rank CULPRIT" and `text`, with ": " between them
 * when it is the writer's own. Wakes everyone. False: there was an abort before. */
bool tn_comm_page_abort(tn_comm_page *p, int writer, int culprit, const char *text);

/* What the system says of a rank's process: "died: signal 9 (Killed)", "is stopped", "is running",
 * "has not started". */
typedef struct tn_comm_page_state {
    bool dead;
    char s[96];
} tn_comm_page_state;
tn_comm_page_state tn_comm_page_look(const tn_comm_page *p, int rank);

/* The flight recorder of one rank as JSON. */
tn_status tn_comm_page_record(const tn_comm_page *p, int rank, const char *path) TN_MUST_USE;

TN_C_END
#endif
