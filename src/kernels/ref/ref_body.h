/* ref_body.h - the bodies of ref_list.h for one type REAL. Mathematical functions come
 * from libm through <tgmath.h>, which picks the one for the type. */

void REF(bias_rows)(REAL *y, const REAL *b, const REAL *res, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++)
        for (size_t c = 0; c < C; c++)
            y[n * C + c] = b[c] + (res ? res[n * C + c] : 0);
}

void REF(bias_grad)(REAL *db, const REAL *dy, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++)
        for (size_t c = 0; c < C; c++)
            db[c] += dy[n * C + c];
}

static void row_moments(const REAL *x, size_t C, REAL *mean, REAL *rstd)
{
    REAL sum = 0, squares = 0;

    for (size_t c = 0; c < C; c++)
        sum += x[c];
    *mean = sum / (REAL)C;
    for (size_t c = 0; c < C; c++)
        squares += (x[c] - *mean) * (x[c] - *mean);
    *rstd = 1 / sqrt(squares / (REAL)C + (REAL)1e-5);
}

void REF(layernorm_fwd)(REAL *y, REAL *mean, REAL *rstd, const REAL *x, const REAL *g,
                        const REAL *b, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++) {
        row_moments(x + n * C, C, &mean[n], &rstd[n]);
        for (size_t c = 0; c < C; c++)
            y[n * C + c] = g[c] * (x[n * C + c] - mean[n]) * rstd[n] + b[c];
    }
}

/* With h = (x - mean) rstd and w = dy g, every x[i] moves h[c] directly, through the mean
 * and through the standard deviation:
 * dx[i] = rstd (w[i] - (sum_c w[c]) / C - h[i] (sum_c w[c] h[c]) / C). */
void REF(layernorm_bwd)(REAL *dx, REAL *dg, REAL *db, const REAL *dy, const REAL *x,
                        const REAL *g, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++) {
        const REAL *row = x + n * C, *grad = dy + n * C;
        REAL mean, rstd, sum_w = 0, sum_wh = 0;

        row_moments(row, C, &mean, &rstd);
        for (size_t c = 0; c < C; c++) {
            REAL h = (row[c] - mean) * rstd;

            sum_w += grad[c] * g[c];
            sum_wh += grad[c] * g[c] * h;
            dg[c] += grad[c] * h;
            db[c] += grad[c];
        }
        for (size_t c = 0; c < C; c++) {
            REAL h = (row[c] - mean) * rstd;

            dx[n * C + c] = rstd * (grad[c] * g[c] - (sum_w + h * sum_wh) / (REAL)C);
        }
    }
}

static REAL gelu_tanh(REAL x)
{
    return tanh(sqrt((REAL)(2 / 3.14159265358979323846)) *
                (x + (REAL)0.044715 * x * x * x));
}

void REF(gelu_fwd)(REAL *y, const REAL *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (REAL)0.5 * x[i] * (1 + gelu_tanh(x[i]));
}

void REF(gelu_bwd)(REAL *dx, const REAL *dy, const REAL *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        REAL t = gelu_tanh(x[i]);
        REAL inner = sqrt((REAL)(2 / 3.14159265358979323846)) *
                     (1 + 3 * (REAL)0.044715 * x[i] * x[i]);

        dx[i] = dy[i] * (REAL)0.5 * (1 + t + x[i] * (1 - t * t) * inner);
    }
}

/* Probabilities of one row of scores, in place, stable; returns the log-sum-exp. */
static REAL softmax_row(REAL *x, size_t n)
{
    REAL max = x[0], sum = 0;

    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    for (size_t i = 0; i < n; i++)
        x[i] = exp(x[i] - max) / sum;
    return max + log(sum);
}

void REF(attention_fwd)(REAL *out, REAL *lse, REAL *p, const REAL *qkv, size_t T,
                        size_t C, size_t H)
{
    size_t D = C / H;
    REAL scale = 1 / sqrt((REAL)D);

    for (size_t h = 0; h < H; h++)
        for (size_t t = 0; t < T; t++) {
            REAL *row = p + (h * T + t) * T, *y = out + t * C + h * D;
            const REAL *q = qkv + t * 3 * C + h * D;

            for (size_t s = 0; s < T; s++) {
                const REAL *k = qkv + s * 3 * C + C + h * D;

                row[s] = 0;
                for (size_t d = 0; d < D && s <= t; d++)
                    row[s] += scale * q[d] * k[d];
            }
            lse[h * T + t] = softmax_row(row, t + 1);
            for (size_t d = 0; d < D; d++) {
                y[d] = 0;
                for (size_t s = 0; s <= t; s++)
                    y[d] += row[s] * qkv[s * 3 * C + 2 * C + h * D + d];
            }
        }
}

void REF(attention_bwd)(REAL *dqkv, const REAL *dout, const REAL *qkv, const REAL *p,
                        REAL *dp, size_t T, size_t C, size_t H)
{
    size_t D = C / H;
    REAL scale = 1 / sqrt((REAL)D);

    for (size_t i = 0; i < T * 3 * C; i++)
        dqkv[i] = 0;
    for (size_t h = 0; h < H; h++)
        for (size_t t = 0; t < T; t++) {
            const REAL *row = p + (h * T + t) * T, *dy = dout + t * C + h * D;
            REAL mean = 0;

            for (size_t s = 0; s <= t; s++) {
                size_t value = s * 3 * C + 2 * C + h * D;

                dp[s] = 0;
                for (size_t d = 0; d < D; d++) {
                    dp[s] += dy[d] * qkv[value + d];
                    dqkv[value + d] += row[s] * dy[d];
                }
                mean += row[s] * dp[s];
            }
            for (size_t s = 0; s <= t; s++) {
                size_t query = t * 3 * C + h * D, key = s * 3 * C + C + h * D;
                REAL slope = scale * row[s] * (dp[s] - mean);

                for (size_t d = 0; d < D; d++) {
                    dqkv[query + d] += slope * qkv[key + d];
                    dqkv[key + d] += slope * qkv[query + d];
                }
            }
        }
}

void REF(embedding_fwd)(REAL *x, const REAL *wte, const REAL *wpe, const int32_t *tokens,
                        const int32_t *positions, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++)
        for (size_t c = 0; c < C; c++)
            x[n * C + c] =
                wte[(size_t)tokens[n] * C + c] + wpe[(size_t)positions[n] * C + c];
}

void REF(embedding_bwd)(REAL *dwte, REAL *dwpe, const REAL *dx, const int32_t *tokens,
                        const int32_t *positions, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++)
        for (size_t c = 0; c < C; c++) {
            dwte[(size_t)tokens[n] * C + c] += dx[n * C + c];
            dwpe[(size_t)positions[n] * C + c] += dx[n * C + c];
        }
}

static REAL log_sum_exp(const REAL *x, size_t n)
{
    REAL max = x[0], sum = 0;

    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

void REF(cross_entropy_fwd)(REAL *loss, REAL *lse, const REAL *logits,
                            const int32_t *target, size_t rows, size_t cols)
{
    for (size_t n = 0; n < rows; n++) {
        lse[n] = log_sum_exp(logits + n * cols, cols);
        loss[n] = target[n] < 0 ? 0 : lse[n] - logits[n * cols + (size_t)target[n]];
    }
}

void REF(cross_entropy_bwd)(REAL *dlogits, const REAL *logits, const int32_t *target,
                            size_t rows, size_t cols, REAL scale)
{
    for (size_t n = 0; n < rows; n++) {
        REAL lse = log_sum_exp(logits + n * cols, cols);

        for (size_t c = 0; c < cols; c++) {
            REAL p = exp(logits[n * cols + c] - lse);
            REAL one = target[n] >= 0 && c == (size_t)target[n] ? 1 : 0;

            dlogits[n * cols + c] = target[n] < 0 ? 0 : scale * (p - one);
        }
    }
}

void REF(matmul)(bool ta, bool tb, size_t m, size_t n, size_t k, const REAL *A,
                 size_t lda, const REAL *B, size_t ldb, REAL beta, REAL *C, size_t ldc)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            REAL sum = beta == 0 ? 0 : beta * C[i * ldc + j];

            for (size_t l = 0; l < k; l++)
                sum += (ta ? A[l * lda + i] : A[i * lda + l]) *
                       (tb ? B[j * ldb + l] : B[l * ldb + j]);
            C[i * ldc + j] = sum;
        }
}

void REF(linear_fwd)(REAL *y, const REAL *x, const REAL *w, const REAL *b, size_t rows,
                     size_t in, size_t out)
{
    for (size_t n = 0; n < rows; n++)
        for (size_t o = 0; o < out; o++) {
            y[n * out + o] = b[o];
            for (size_t i = 0; i < in; i++)
                y[n * out + o] += x[n * in + i] * w[o * in + i];
        }
}

void REF(linear_bwd)(REAL *dx, REAL *dw, REAL *db, const REAL *dy, const REAL *x,
                     const REAL *w, size_t rows, size_t in, size_t out)
{
    for (size_t n = 0; n < rows; n++) {
        for (size_t i = 0; i < in; i++) {
            dx[n * in + i] = 0;
            for (size_t o = 0; o < out; o++)
                dx[n * in + i] += dy[n * out + o] * w[o * in + i];
        }
        for (size_t o = 0; o < out; o++) {
            db[o] += dy[n * out + o];
            for (size_t i = 0; i < in; i++)
                dw[o * in + i] += dy[n * out + o] * x[n * in + i];
        }
    }
}

void REF(adamw)(REAL *p, REAL *m, REAL *v, const REAL *g, size_t n, const struct adamw *a)
{
    REAL lr = a->lr, beta1 = a->beta1, beta2 = a->beta2, eps = a->eps;
    REAL decay = a->weight_decay, c1 = a->correction1, c2 = a->correction2;

    for (size_t i = 0; i < n; i++) {
        REAL grad = g[i] * (REAL)a->grad_scale;

        m[i] = beta1 * m[i] + (1 - beta1) * grad;
        v[i] = beta2 * v[i] + (1 - beta2) * grad * grad;
        p[i] -= lr * (m[i] / c1 / (sqrt(v[i] / c2) + eps) + decay * p[i]);
    }
}
