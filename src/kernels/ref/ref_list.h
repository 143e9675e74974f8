/* ref_list.h - the functions of ref.h for one type REAL; included by ref.h only. */

/* y[n] = b (+ res[n]) */
void REF(bias_rows)(REAL *y, const REAL *b, const REAL *res, size_t rows, size_t C);
/* db += column sums of dy */
void REF(bias_grad)(REAL *db, const REAL *dy, size_t rows, size_t C);

/* y = g (x - mean) / sqrt(variance + 1e-5) + b */
void REF(layernorm_fwd)(REAL *y, REAL *mean, REAL *rstd, const REAL *x, const REAL *g,
                        const REAL *b, size_t rows, size_t C);
/* mean and rstd are computed again from x */
void REF(layernorm_bwd)(REAL *dx, REAL *dg, REAL *db, const REAL *dy, const REAL *x,
                        const REAL *g, size_t rows, size_t C);

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
void REF(gelu_fwd)(REAL *y, const REAL *x, size_t n);
void REF(gelu_bwd)(REAL *dx, const REAL *dy, const REAL *x, size_t n);

/* All heads of one sequence. qkv [T][3C], out [T][C], lse [H][T],
 * p [H][T][T]: the probabilities, 0 right of the diagonal */
void REF(attention_fwd)(REAL *out, REAL *lse, REAL *p, const REAL *qkv, size_t T,
                        size_t C, size_t H);
/* dqkv [T][3C] "="; p from attention_fwd; dp [T]: scratch */
void REF(attention_bwd)(REAL *dqkv, const REAL *dout, const REAL *qkv, const REAL *p,
                        REAL *dp, size_t T, size_t C, size_t H);

void REF(embedding_fwd)(REAL *x, const REAL *wte, const REAL *wpe, const int32_t *tokens,
                        const int32_t *positions, size_t rows, size_t C);
void REF(embedding_bwd)(REAL *dwte, REAL *dwpe, const REAL *dx, const int32_t *tokens,
                        const int32_t *positions, size_t rows, size_t C);

/* loss[n] = log sum_c exp(logits[n][c]) - logits[n][target[n]], 0 where target[n] < 0;
 * lse[n] the first term. logits [rows][cols] */
void REF(cross_entropy_fwd)(REAL *loss, REAL *lse, const REAL *logits,
                            const int32_t *target, size_t rows, size_t cols);
/* dlogits = scale * d(sum of loss) / d logits */
void REF(cross_entropy_bwd)(REAL *dlogits, const REAL *logits, const int32_t *target,
                            size_t rows, size_t cols, REAL scale);

/* C = op(A) op(B) + beta C, as gemm() */
void REF(matmul)(bool ta, bool tb, size_t m, size_t n, size_t k, const REAL *A,
                 size_t lda, const REAL *B, size_t ldb, REAL beta, REAL *C, size_t ldc);
/* y [rows][out] = x [rows][in] w^T + b, w [out][in] */
void REF(linear_fwd)(REAL *y, const REAL *x, const REAL *w, const REAL *b, size_t rows,
                     size_t in, size_t out);
void REF(linear_bwd)(REAL *dx, REAL *dw, REAL *db, const REAL *dy, const REAL *x,
                     const REAL *w, size_t rows, size_t in, size_t out);

void REF(adamw)(REAL *p, REAL *m, REAL *v, const REAL *g, size_t n,
                const struct adamw *a);
