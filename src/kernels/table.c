/* SPDX-License-Identifier: MIT */
/* table.c - the table of kernels of one instruction set. */
#include "kernels/dispatch.h"
#include "kernels/isa.h"

#define TEXT(word)    #word
#define TEXT_OF(word) TEXT(word)

const struct kernels KERNEL(kernels) = {
    .isa = TEXT_OF(KERNEL_ISA),
    .bias_rows = KERNEL(bias_rows),
    .bias_grad = KERNEL(bias_grad),
    .layernorm_fwd = KERNEL(layernorm_fwd),
    .layernorm_redo = KERNEL(layernorm_redo),
    .layernorm_bwd = KERNEL(layernorm_bwd),
    .add_partials = KERNEL(add_partials),
    .gelu_fwd = KERNEL(gelu_fwd),
    .gelu_bwd = KERNEL(gelu_bwd),
    .attention_fwd = KERNEL(attention_fwd),
    .attention_bwd = KERNEL(attention_bwd),
    .embedding_fwd = KERNEL(embedding_fwd),
    .embedding_bwd_tokens = KERNEL(embedding_bwd_tokens),
    .embedding_bwd_positions = KERNEL(embedding_bwd_positions),
    .softmax_stats = KERNEL(softmax_stats),
    .softmax_grad = KERNEL(softmax_grad),
    .adamw = KERNEL(adamw),
    .dot_rows = KERNEL(dot_rows),
    .attention_row = KERNEL(attention_row),
};
