/* SPDX-License-Identifier: MIT */
/* test_embedding.c - embedding rows and their gradients of every instruction set. */
#include "support.h"

enum { B = 3, T = 11, ROWS = B * T, V = 13 };

static const size_t widths[] = {1, 3, 16, 17, 33, 96};

static void check_width(const struct kernels *k, size_t C)
{
    float *wte = new_uniform(1, V * C, 1), *wpe = new_uniform(2, T * C, 1);
    float *dx = new_uniform(3, ROWS * C, 1), *x = new_poisoned(ROWS * C);
    float *dwte = new_uniform(4, V * C, 1), *dwpe = new_poisoned(T * C);
    int32_t *tokens = new_integers(5, ROWS, V), positions[ROWS];
    double *wte_d = doubles_of(wte, V * C), *wpe_d = doubles_of(wpe, T * C);
    double *dx_d = doubles_of(dx, ROWS * C), *x_d = new_doubles(ROWS * C);
    double *dwte_d = doubles_of(dwte, V * C), *dwpe_d = new_doubles(T * C);

    for (int n = 0; n < ROWS; n++)
        positions[n] = n % T;
    ref_embedding_fwd_d(x_d, wte_d, wpe_d, tokens, positions, ROWS, C);
    ref_embedding_bwd_d(dwte_d, dwpe_d, dx_d, tokens, positions, ROWS, C);
    k->embedding_fwd(x, wte, wpe, tokens, positions, ROWS, C);
    check_close("embedding_fwd", x, x_d, ROWS * C);
    /* Ranges in any order; together each row once. */
    k->embedding_bwd_tokens(dwte, dx, tokens, ROWS, C, 5, V);
    k->embedding_bwd_tokens(dwte, dx, tokens, ROWS, C, 0, 5);
    check_close("embedding_bwd", dwte, dwte_d, V * C);
    k->embedding_bwd_positions(dwpe, dx, B, T, C, 4, T, false);
    k->embedding_bwd_positions(dwpe, dx, B, T, C, 0, 4, false);
    check_close("embedding_bwd", dwpe, dwpe_d, T * C);
    ref_embedding_bwd_d(dwte_d, dwpe_d, dx_d, tokens, positions, ROWS, C);
    k->embedding_bwd_positions(dwpe, dx, B, T, C, 0, T, true);
    check_close("embedding_bwd", dwpe, dwpe_d, T * C);
    free(wte), free(wpe), free(dx), free(x), free(dwte), free(dwpe), free(tokens);
    free(wte_d), free(wpe_d), free(dx_d), free(x_d), free(dwte_d), free(dwpe_d);
}

static void matches_definition(void **state)
{
    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            check_width(*k, widths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_definition)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
