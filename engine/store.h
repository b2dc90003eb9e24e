/* store.h - a small table of keys and values over TCP, by which ranks that have no launcher find
 * each other.
 *
 * One rank serves, all ask. Everything is bounded: the connections, the table, the time that a half
 * request may take; whoever sends what is no request is cut off. The server listens on the address
 * it is given and no other.
 */
#ifndef TN_ENGINE_STORE_H
#define TN_ENGINE_STORE_H
#include "engine/base/base.h"

TN_C_BEGIN

enum {
    TN_STORE_MAX_KEY = 64,
    TN_STORE_MAX_VALUE = 4096,
    TN_STORE_MAX_KEYS = 4096,
    TN_STORE_MAX_CLIENTS = 256
};

/* A thread that serves until tn_store_stop. Port 0: the system chooses; tn_store_port tells. */
typedef struct tn_store_server tn_store_server;
tn_status tn_store_serve(const char *host, int port, tn_store_server **out) TN_MUST_USE;
int tn_store_port(const tn_store_server *s);
void tn_store_stop(tn_store_server *s); /* NULL is fine */

/* Tries until the server is there or the time is up. One request at a time. */
typedef struct tn_store tn_store;
tn_status tn_store_open(const char *host, int port, double timeout_s, tn_store **out) TN_MUST_USE;
void tn_store_close(tn_store *s); /* NULL is fine */

tn_status tn_store_set(tn_store *s, const char *key, const void *data, size_t n) TN_MUST_USE;

/* Waits until someone has set the key. A value of more than `capacity` bytes is an error. */
tn_status tn_store_get(tn_store *s, const char *key, double timeout_s, void *out, size_t capacity,
                       size_t *n_out) TN_MUST_USE;

/* A counter, from 0: adds and returns the sum. */
tn_status tn_store_add(tn_store *s, const char *key, int64_t delta, int64_t *out) TN_MUST_USE;

TN_C_END
#endif
