#include "engine/letter.h"

#include "graph/op.h"

#include <string.h>

struct tn_letter {
    const tn_mail *mail;
    tn_comm *comm;
    int peer; /* rank of the world */
    int64_t bytes;
    uint32_t messages; /* of a run, at most */
    char *base;        /* of this program's mail at the receiver */
};

tn_status tn_letter_build(const tn_program *p, int32_t node, const tn_memory *m, tn_arena *arena,
                          const tn_letter **out)
{
    const tn_mail *mail = NULL;
    void *mem;
    for (int64_t i = 0; p->pipeline && i < p->pipeline->n_mails; i++)
        if (p->pipeline->mails[i].node == node) mail = &p->pipeline->mails[i];
    if (!mail)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: there is no pipeline around it", p->g->nodes[node].path,
                tn_op_name((tn_op_id)p->g->nodes[node].op));
    TN_TRY(tn_arena_alloc(arena, sizeof(tn_letter), &mem));
    tn_letter *l = mem;
    const tn_value *v = &p->local[mail->value];
    int ranks = tn_mesh_ranks(&p->g->mesh), to = mail->arrives ? p->pipeline->rank : mail->peer;
    *l = (tn_letter){.mail = mail,
                     .comm = m->comm,
                     .peer = mail->peer * ranks + tn_mesh_rank(&p->g->mesh, p->at),
                     .bytes = tn_value_elements(v) * tn_dtype_bytes((tn_dtype)v->dtype),
                     .messages = (uint32_t)p->g->n_microbatches + 1};
    if (m->comm) {
        int at = mail->arrives ? tn_comm_rank(m->comm) : l->peer;
        l->base =
            (char *)tn_comm_peer(m->comm, at, m->first_region + TN_REGION_MAIL) + m->mail_used[to];
    }
    *out = l;
    return TN_OK;
}

typedef struct job {
    const char *from;
    char *to;
    int64_t bytes;
} job;

enum { TILE = 256 << 10 };

static void copy_tile(void *arg, int64_t t, int thread)
{
    const job *j = arg;
    int64_t at = t * TILE, n = j->bytes - at < TILE ? j->bytes - at : TILE;
    (void)thread;
    memcpy(j->to + at, j->from + at, (size_t)n);
}

tn_status tn_letter_run(const tn_letter *l, const tn_call *c, uint32_t run, int64_t microbatch)
{
    const tn_mail *m = l->mail;
    const char *what = c->n->path[0] ? c->n->path : tn_op_name((tn_op_id)c->n->op);
    int64_t slot = m->slot[microbatch];
    _Atomic uint32_t *flag = (void *)(l->base + m->flags + slot * TN_MAIL_FLAG_BYTES);
    uint32_t value = run * l->messages + (uint32_t)microbatch + 1;
    if (m->arrives) return tn_comm_await(l->comm, flag, value, l->peer, what, l->bytes);
    job j = {c->in[0], l->base + m->slots + slot * m->slot_bytes, l->bytes};
    tn_pool_run(c->cpu->pool, (l->bytes + TILE - 1) / TILE, copy_tile, &j);
    tn_comm_post(l->comm, flag, value, l->peer, what, l->bytes);
    return TN_OK;
}
