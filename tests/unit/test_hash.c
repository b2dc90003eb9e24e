/* XXH64: published values, pieces against the whole. */
#include "engine/base/hash.h"

#include "tests/test.h"

int main(void)
{
    /* from the specification and the reference implementation's own checks */
    TN_CHECK(tn_hash_xxh64("", 0, 0) == 0xef46db3751d8e999u);
    TN_CHECK(tn_hash_text("a") == 0xd24ec4f1a98c6e5bu);
    TN_CHECK(tn_hash_text("abc") == 0x44bc2cf5ad770999u);
    TN_CHECK(tn_hash_text("abc") == tn_hash_xxh64("abc", 3, 0));
    TN_CHECK(tn_hash_xxh64("abc", 3, 1) != tn_hash_xxh64("abc", 3, 0));
    char data[300];
    for (int i = 0; i < 300; i++) data[i] = (char)(i * 7);
    for (size_t cut = 0; cut <= 300; cut += 13) {
        tn_hash h;
        tn_hash_start(&h, 5);
        tn_hash_add(&h, data, cut);
        TN_CHECK(tn_hash_value(&h) == tn_hash_xxh64(data, cut, 5));
        tn_hash_add(&h, data + cut, 300 - cut);
        TN_CHECK(tn_hash_value(&h) == tn_hash_xxh64(data, 300, 5));
    }
    return tn_test_done("hash");
}
