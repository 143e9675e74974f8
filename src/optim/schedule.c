/* SPDX-License-Identifier: MIT */
#include "optim/schedule.h"

#include <math.h>

static const double pi = 3.141592653589793;
static const double wsd_decay_share = 0.2;

double schedule_rate(const struct schedule *s, uint64_t k)
{
    if (k < s->warmup)
        return s->lr * (double)(k + 1) / (double)s->warmup;

    double length = s->steps > s->warmup ? (double)(s->steps - s->warmup) : 1;
    double p = fmin((double)(k - s->warmup) / length, 1);
    double drop = s->lr - s->min_lr;

    switch (s->kind) {
    case SCHEDULE_COSINE:
        return s->min_lr + drop * 0.5 * (1 + cos(pi * p));
    case SCHEDULE_LINEAR:
        return s->lr - drop * p;
    case SCHEDULE_CONSTANT:
        return s->lr;
    case SCHEDULE_WSD:
        break;
    }
    double done = (double)k / (double)(s->steps ? s->steps : 1);
    double q = (done - (1 - wsd_decay_share)) / wsd_decay_share;

    return s->lr - drop * fmin(fmax(q, 0), 1);
}

struct adamw adamw_constants(const struct adamw_options *o, double lr, uint64_t t,
                             double grad_scale)
{
    return (struct adamw){.lr = (float)lr,
                          .beta1 = (float)o->beta1,
                          .beta2 = (float)o->beta2,
                          .eps = (float)o->eps,
                          .weight_decay = (float)o->weight_decay,
                          .correction1 = (float)(1 - pow(o->beta1, (double)t)),
                          .correction2 = (float)(1 - pow(o->beta2, (double)t)),
                          .grad_scale = (float)grad_scale};
}

double clip_scale(double norm, double limit)
{
    if (!isfinite(norm))
        return 0;
    return limit > 0 && norm > limit ? limit / norm : 1;
}
