#include "engine/chunk.h"

#include "engine/base/mem.h"

void tn_chunk_fini(tn_chunk *c)
{
    tn_free(c->text_mem);
    tn_free(c->pieces_mem);
    *c = (tn_chunk){0};
}

const char *tn_chunk_text(const tn_chunk *c)
{
    return c->text_mem ? c->text_mem : "";
}

const tn_piece *tn_chunk_pieces(const tn_chunk *c)
{
    return c->pieces_mem;
}

tn_status tn_chunk_add(tn_chunk *c, const tn_piece *piece)
{
    TN_TRY(tn_grow(&c->pieces_mem, &c->pieces_capacity, c->n_pieces + 1, sizeof *piece));
    ((tn_piece *)c->pieces_mem)[c->n_pieces++] = *piece;
    return TN_OK;
}

tn_status tn_chunk_reserve(tn_chunk *c, int64_t n, char **at)
{
    TN_TRY(tn_grow(&c->text_mem, &c->text_capacity, c->n + n, 1));
    *at = (char *)c->text_mem + c->n;
    return TN_OK;
}
