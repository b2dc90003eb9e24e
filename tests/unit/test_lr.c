/* test_lr.c - the schedule against golden/lr.json (TorchTitan's own function) and the cosine
 * against libm's. */
#include "engine/lr.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

/* The file is one flat list of objects whose keys always stand in the same order: strtod and strstr
 * read it. */
static const char *after(const char *text, const char *key)
{
    const char *p = text ? strstr(text, key) : NULL;
    return p ? p + strlen(key) : NULL;
}

static double number(const char **text, const char *key)
{
    *text = after(*text, key);
    return *text ? strtod(*text, NULL) : 0; /* null reads as 0: see one_setting */
}

/* Checks one object of the file; returns where it ends, NULL when there is none left. */
static const char *one_setting(const char *text, int *n_factors)
{
    const char *p = text;
    tn_lr_options o = {.decay_ratio = -1};
    double steps = number(&p, "\"steps\": ");
    if (!p) return NULL;
    o.steps = (int64_t)steps;
    o.warmup_steps = (int64_t)number(&p, "\"warmup_steps\": ");
    p = after(p, "\"decay_type\": \"");
    char type[16] = "";
    if (!TN_CHECK(p && sscanf(p, "%15[a-z]", type) == 1)) return NULL;
    o.decay_type = type;
    double ratio = number(&p, "\"decay_ratio\": ");
    if (p && strncmp(p, "null", 4) != 0) o.decay_ratio = ratio;
    o.min_lr_factor = number(&p, "\"min_lr_factor\": ");
    p = after(p, "\"factor\": [");

    tn_lr lr;
    if (!TN_CHECK(p) || !TN_CHECK_OK(tn_lr_init(&o, &lr))) return NULL;
    for (int64_t s = 0; s < o.steps; s++) {
        char *end;
        double want = strtod(p, &end), got = tn_lr_factor(&lr, s);
        if (!TN_CHECK(end != p)) return NULL;
        TN_CHECK_MSG(fabs(got - want) <= 1e-12,
                     "%s, %lld of %lld steps: factor %.17g, expected %.17g", type, (long long)s,
                     (long long)o.steps, got, want);
        p = end + strspn(end, ", ");
        ++*n_factors;
    }
    TN_CHECK(*p == ']');
    return p;
}

static void golden(void)
{
    const char *path = tn_test_golden("lr.json");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!TN_CHECK(f)) return;
    static char text[1 << 16];
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    TN_CHECK(n > 0 && n < sizeof text - 1);

    int settings = 0, factors = 0;
    for (const char *p = text; (p = one_setting(p, &factors));) settings++;
    TN_CHECK_MSG(settings == 14 && factors == 414, "%d settings, %d factors", settings, factors);
}

/* A long cosine visits the whole half wave: own series against libm's cos. */
static void cosine(void)
{
    tn_lr lr;
    TN_CHECK_OK(tn_lr_init(
        &(tn_lr_options){.steps = 100000, .decay_ratio = -1, .decay_type = "cosine"}, &lr));
    double worst = 0;
    for (int64_t s = 1; s < lr.total; s++) {
        double p = (double)s / (double)lr.total;
        double d = fabs(tn_lr_factor(&lr, s) - 0.5 * (1 + cos(3.14159265358979323846 * p)));
        if (d > worst) worst = d;
    }
    TN_CHECK_MSG(worst < 3e-16, "worst error %g", worst);
}

/* Rates never reach zero, whatever the lengths, and rise and fall by no more than the steepest rule
 * allows. */
static void shapes(void)
{
    for (int64_t total = 1; total <= 24; total++) {
        for (int64_t warmup = 0; warmup <= total + 2; warmup++) {
            for (int tenth = -1; tenth <= 10; tenth++) {
                tn_lr lr;
                TN_CHECK_OK(tn_lr_init(&(tn_lr_options){.steps = total,
                                                        .warmup_steps = warmup,
                                                        .decay_ratio = tenth / 10.0,
                                                        .decay_type = "sqrt"},
                                       &lr));
                bool good = true;
                for (int64_t s = 0; s < total; s++) {
                    double f = tn_lr_factor(&lr, s), before = s ? tn_lr_factor(&lr, s - 1) : 0;
                    good &= f > 0 && f <= 1 &&
                            (s < lr.warmup ? f > before : f <= before || s == lr.warmup);
                }
                TN_CHECK(good);
            }
        }
    }
}

/* A schedule longer than the run is cut, not squeezed: its first steps are those of the long one.
 */
static void longer_than_the_run(void)
{
    tn_lr a, b;
    TN_CHECK_OK(
        tn_lr_init(&(tn_lr_options){.steps = 10, .total_steps = 40, .decay_ratio = -1}, &a));
    TN_CHECK_OK(tn_lr_init(&(tn_lr_options){.steps = 40, .decay_ratio = -1}, &b));
    for (int64_t s = 0; s < 10; s++) TN_CHECK(tn_lr_factor(&a, s) == tn_lr_factor(&b, s));
}

/* Python's round: to nearest, half to even. */
static void rounding(void)
{
    static const struct {
        int64_t steps, decay;
        double ratio;
    } cases[] = {{10, 2, 0.25}, {14, 4, 0.25}, {10, 8, 0.77}, {10, 7, 0.74},
                 {10, 10, 1},   {10, 0, 0},    {10, 0, 0.05}};
    for (int i = 0; i < TN_COUNT(cases); i++) {
        tn_lr lr;
        TN_CHECK_OK(tn_lr_init(
            &(tn_lr_options){.steps = cases[i].steps, .decay_ratio = cases[i].ratio}, &lr));
        TN_CHECK_MSG(lr.decay == cases[i].decay, "%lld steps, ratio %g: decay %lld",
                     (long long)cases[i].steps, cases[i].ratio, (long long)lr.decay);
    }
}

static void refusals(void)
{
    const tn_lr_options good = {.steps = 10, .decay_ratio = -1};
    tn_lr lr;
    tn_lr_options o;
    o = good, o.decay_type = "linaer";
    TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT,
                   "lr_scheduler.decay_type: 'linaer' is unknown; use linear, ");
    o = good, o.steps = 0;
    TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT, "training.steps: 0 steps; ");
    o = good, o.total_steps = 9;
    TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT,
                   "lr_scheduler.total_steps: 9 ends before training.steps = 10; ");
    o = good, o.warmup_steps = -1;
    TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT,
                   "lr_scheduler.warmup_steps: -1 is negative; ");
    const double shares[] = {1.5, NAN, INFINITY};
    for (int i = 0; i < TN_COUNT(shares); i++) {
        o = good, o.decay_ratio = shares[i];
        TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT, "lr_scheduler.decay_ratio: ");
        o = good, o.min_lr_factor = shares[i];
        TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT, "lr_scheduler.min_lr_factor: ");
    }
    o = good, o.min_lr_factor = -0.1;
    TN_CHECK_FAILS(tn_lr_init(&o, &lr), TN_BAD_INPUT,
                   "lr_scheduler.min_lr_factor: -0.1 is not a share; ");
}

int main(void)
{
    golden();
    cosine();
    shapes();
    rounding();
    longer_than_the_run();
    refusals();
    return tn_test_done("lr");
}
