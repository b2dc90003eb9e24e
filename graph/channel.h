/* channel.h - how many messages of a channel between pipeline ranks may lie unread at once. */
#ifndef TN_GRAPH_CHANNEL_H
#define TN_GRAPH_CHANNEL_H
#include "graph/schedule.h"

TN_C_BEGIN

typedef struct tn_channel_user {
    int32_t stage;
    uint8_t kind;
} tn_channel_user;

/* A value that travels for every microbatch. */
typedef struct tn_channel {
    int32_t from, to; /* pipeline ranks */
    tn_channel_user maker;
    int64_t n_users; /* the first is where it is received */
    tn_channel_user *users;
    int32_t n_slots; /* out */
    int32_t *slot;   /* out: by microbatch */
} tn_channel;

/* Slots of every channel; in `arena`. Fails where the lists wait for each other. */
tn_status tn_channel_size(const tn_schedule *s, tn_channel *channels, int64_t n,
                          tn_arena *arena) TN_MUST_USE;

TN_C_END
#endif
