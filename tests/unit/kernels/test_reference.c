/* SPDX-License-Identifier: MIT */
/* test_reference.c - the gradients of the definitions against central differences of
 * their forward sides, in double. The loss is a fixed random weighting of the outputs. */
#include "support.h"

enum { ROWS = 3, C = 6, T = 5, HEADS = 2, V = 7, OUT = 4, MOST = 128 };

struct problem {
    double x[MOST], w[MOST], b[MOST]; /* inputs that may be varied */
    double weight[MOST];              /* of each output in the loss */
    int32_t index[ROWS], position[ROWS];
};

static void fill(double *out, uint64_t stream, double size)
{
    float *x = new_uniform(stream, MOST, size);

    for (size_t i = 0; i < MOST; i++)
        out[i] = (double)x[i];
    free(x);
}

static struct problem make_problem(void)
{
    struct problem p = {.index = {2, 6, 2}, .position = {0, 1, 0}};

    fill(p.x, 1, 1.5);
    fill(p.w, 2, 1);
    fill(p.b, 3, 1);
    fill(p.weight, 4, 1);
    return p;
}

static double weigh(const struct problem *p, const double *y, size_t n)
{
    double loss = 0;

    for (size_t i = 0; i < n; i++)
        loss += p->weight[i] * y[i];
    return loss;
}

static double layernorm_loss(void *arg)
{
    struct problem *p = arg;
    double y[MOST], mean[ROWS], rstd[ROWS];

    ref_layernorm_fwd_d(y, mean, rstd, p->x, p->w, p->b, ROWS, C);
    return weigh(p, y, ROWS * C);
}

static void layernorm_gradient(void **state)
{
    struct problem p = make_problem();
    double dx[MOST], dg[MOST] = {0}, db[MOST] = {0};

    (void)state;
    ref_layernorm_bwd_d(dx, dg, db, p.weight, p.x, p.w, ROWS, C);
    check_gradient("gradient", layernorm_loss, &p, p.x, dx, ROWS * C);
    check_gradient("gradient", layernorm_loss, &p, p.w, dg, C);
    check_gradient("gradient", layernorm_loss, &p, p.b, db, C);
}

static double gelu_loss(void *arg)
{
    struct problem *p = arg;
    double y[MOST];

    ref_gelu_fwd_d(y, p->x, MOST);
    return weigh(p, y, MOST);
}

static void gelu_gradient(void **state)
{
    struct problem p = make_problem();
    double dx[MOST];

    (void)state;
    fill(p.x, 1, 5);
    ref_gelu_bwd_d(dx, p.weight, p.x, MOST);
    check_gradient("gradient", gelu_loss, &p, p.x, dx, MOST);
}

static double attention_loss(void *arg)
{
    struct problem *p = arg;
    double out[MOST], lse[HEADS * T], prob[HEADS * T * T];

    ref_attention_fwd_d(out, lse, prob, p->x, T, C, HEADS);
    return weigh(p, out, T * C);
}

static void attention_gradient(void **state)
{
    struct problem p = make_problem();
    double out[MOST], lse[HEADS * T], prob[HEADS * T * T], dqkv[MOST], dp[T];

    (void)state;
    ref_attention_fwd_d(out, lse, prob, p.x, T, C, HEADS);
    ref_attention_bwd_d(dqkv, p.weight, p.x, prob, dp, T, C, HEADS);
    check_gradient("gradient", attention_loss, &p, p.x, dqkv, T * 3 * C);
}

static double cross_entropy_loss(void *arg)
{
    struct problem *p = arg;
    double loss[ROWS], lse[ROWS];

    ref_cross_entropy_fwd_d(loss, lse, p->x, p->index, ROWS, V);
    return 0.37 * (loss[0] + loss[1] + loss[2]);
}

static void cross_entropy_gradient(void **state)
{
    struct problem p = make_problem();
    double dlogits[MOST];

    (void)state;
    p.index[1] = -1; /* a row without a target adds nothing */
    ref_cross_entropy_bwd_d(dlogits, p.x, p.index, ROWS, V, 0.37);
    check_gradient("gradient", cross_entropy_loss, &p, p.x, dlogits, ROWS * V);
}

static double embedding_loss(void *arg)
{
    struct problem *p = arg;
    double y[MOST];

    ref_embedding_fwd_d(y, p->x, p->w, p->index, p->position, ROWS, C);
    return weigh(p, y, ROWS * C);
}

static void embedding_gradient(void **state)
{
    struct problem p = make_problem();
    double dwte[MOST] = {0}, dwpe[MOST] = {0};

    (void)state;
    ref_embedding_bwd_d(dwte, dwpe, p.weight, p.index, p.position, ROWS, C);
    check_gradient("gradient", embedding_loss, &p, p.x, dwte, V * C);
    check_gradient("gradient", embedding_loss, &p, p.w, dwpe, 2 * C);
}

static double bias_loss(void *arg)
{
    struct problem *p = arg;
    double y[MOST];

    ref_bias_rows_d(y, p->b, p->x, ROWS, C);
    return weigh(p, y, ROWS * C);
}

static void bias_gradient(void **state)
{
    struct problem p = make_problem();
    double db[MOST] = {0};

    (void)state;
    ref_bias_grad_d(db, p.weight, ROWS, C);
    check_gradient("gradient", bias_loss, &p, p.b, db, C);
}

static double linear_loss(void *arg)
{
    struct problem *p = arg;
    double y[MOST];

    ref_linear_fwd_d(y, p->x, p->w, p->b, ROWS, C, OUT);
    return weigh(p, y, ROWS * OUT);
}

static void linear_gradient(void **state)
{
    struct problem p = make_problem();
    double dx[MOST], dw[MOST] = {0}, db[MOST] = {0}, dx2[MOST], dw2[MOST];

    (void)state;
    ref_linear_bwd_d(dx, dw, db, p.weight, p.x, p.w, ROWS, C, OUT);
    check_gradient("gradient", linear_loss, &p, p.x, dx, ROWS * C);
    check_gradient("gradient", linear_loss, &p, p.w, dw, OUT * C);
    check_gradient("gradient", linear_loss, &p, p.b, db, OUT);
    /* The same as the products that the model makes of it. */
    ref_matmul_d(false, false, ROWS, C, OUT, p.weight, OUT, p.w, C, 0, dx2, C);
    ref_matmul_d(true, false, OUT, C, ROWS, p.weight, OUT, p.x, C, 0, dw2, C);
    for (size_t i = 0; i < ROWS * C; i++)
        assert_true(dx2[i] == dx[i]);
    for (size_t i = 0; i < OUT * C; i++)
        assert_true(dw2[i] == dw[i]);
}

/* Both builds of the one source say the same. */
static void float_build_agrees(void **state)
{
    struct problem p = make_problem();
    float x[MOST], y[MOST], w[MOST], dx[MOST], ones[MOST];
    double y_d[MOST], dx_d[MOST], ones_d[MOST];
    float lse[HEADS * T], prob[HEADS * T * T];
    double lse_d[HEADS * T], prob_d[HEADS * T * T];

    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        x[i] = (float)p.x[i];
        w[i] = (float)p.w[i];
        ones[i] = 1;
        ones_d[i] = 1;
    }
    ref_gelu_fwd_f(y, x, MOST);
    ref_gelu_fwd_d(y_d, p.x, MOST);
    check_close("reference_float", y, y_d, MOST);
    ref_gelu_bwd_f(dx, ones, x, MOST);
    ref_gelu_bwd_d(dx_d, ones_d, p.x, MOST);
    check_close("reference_float", dx, dx_d, MOST);
    ref_attention_fwd_f(y, lse, prob, x, T, C, HEADS);
    ref_attention_fwd_d(y_d, lse_d, prob_d, p.x, T, C, HEADS);
    check_close("reference_float", y, y_d, T * C);
    ref_matmul_f(false, true, ROWS, OUT, C, x, C, w, C, 0, y, OUT);
    ref_matmul_d(false, true, ROWS, OUT, C, p.x, C, p.w, C, 0, y_d, OUT);
    check_close("reference_float", y, y_d, ROWS * OUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layernorm_gradient), cmocka_unit_test(gelu_gradient),
        cmocka_unit_test(attention_gradient), cmocka_unit_test(cross_entropy_gradient),
        cmocka_unit_test(embedding_gradient), cmocka_unit_test(bias_gradient),
        cmocka_unit_test(linear_gradient),    cmocka_unit_test(float_build_agrees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
