/* schedule.h - learning rate, AdamW's constants and clipping, as pure functions. */
#ifndef WEFT_OPTIM_SCHEDULE_H
#define WEFT_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "kernels/kernels.h"

enum schedule_kind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD };
#define SCHEDULE_WORDS "cosine|linear|constant|wsd"

struct schedule {
    enum schedule_kind kind;
    double lr, min_lr; /* peak and final rate */
    uint64_t warmup;   /* steps of linear rise: step k has lr (k + 1) / warmup */
    uint64_t steps;    /* length of the run */
};

/* Rate of step k (0-based). With p = (k - warmup) / (steps - warmup) after the warm-up,
 * clamped to [0, 1]:
 *   cosine    min + (lr - min) (1 + cos(pi p)) / 2
 *   linear    lr - (lr - min) p
 *   constant  lr
 *   wsd       lr, then linear to min over the last fifth of the run (warm-up, stable,
 *             decay: Hu et al., "MiniCPM", 2024) */
double schedule_rate(const struct schedule *s, uint64_t k);

struct adamw_options {
    double beta1, beta2, eps, weight_decay;
};

/* The constants of update number t (1-based); weight_decay is applied by the caller to
 * the tensors that decay. */
struct adamw adamw_constants(const struct adamw_options *o, double lr, uint64_t t,
                             double grad_scale);

/* Factor for clipping by the global norm: min(1, limit / norm), 1 when limit is 0. A
 * non-finite norm gives 0. */
double clip_scale(double norm, double limit);

#endif
