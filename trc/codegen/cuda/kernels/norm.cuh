// Batch normalisation: statistics, scale and shift, the pass that applies them, and backward.
//
// Rows are n h w. Thread t of a block is lane t % WIDE along the channels, V of them, and row t / WIDE of TALL; so a
// thread keeps its channels, and reads what belongs to them once. blockIdx.y counts the blocks side by side. V divides the
// pitches of all operands; passes go over the rows of their result, sums over the shortest rows.

template <int C, int P, int V, int WIDE, int TALL>
struct Place {
    int c;      // first channel of the thread
    int row;    // row of the thread in the block's stretch
    bool live;  // whether there is such a channel
    DEVICE Place()
        : c((blockIdx.y * WIDE + threadIdx.x % WIDE) * V), row(threadIdx.x / WIDE), live(c < P)
    {
    }
};

// x scale + shift with two roundings, so that all who compute it agree, the CPU included: backward recomputes the mask.
DEVICE float scaled(float x, float scale, float shift) { return __fadd_rn(__fmul_rn(x, scale), shift); }

// ---------------------------------------------------------------- forward

// One stage of sum and sumsq of x - origin, per channel, where origin is the first row (SHIFTED) or 0. Block
// (split, chunk) writes partial[0][split][c] and partial[1][split][c]. A shift by one of the values keeps the
// difference of the sums meaningful where the mean is large against the deviation.
template <typename T, int C, int P, int V, int WIDE, int TALL, int U, bool SHIFTED>
DEVICE void moments(const T* __restrict__ x, float* __restrict__ partial, i64 rows)
{
    const Place<C, P, V, WIDE, TALL> at;
    const i64 step = (i64)gridDim.x * TALL;
    Lanes<V> sum = {}, square = {}, origin = {};
    if (at.live) {
        if (SHIFTED) origin = widen(load<V>(x + at.c));
        for (i64 row = (i64)blockIdx.x * TALL + at.row; row < rows; row += step * U) {
            Vec<T, V> in[U];
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (row + u * step < rows) in[u] = load<V>(x + (row + u * step) * P + at.c);
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (row + u * step < rows) {
                    const Lanes<V> value = widen(in[u]);
#pragma unroll
                    for (int i = 0; i < V; ++i) {
                        const float d = SHIFTED ? value.at[i] - origin.at[i] : value.at[i];
                        sum.at[i] += d;
                        square.at[i] += d * d;
                    }
                }
        }
    }
    const float total = fold_rows<WIDE, TALL>(sum), squares = fold_rows<WIDE, TALL>(square);
    const int column = blockIdx.y * (WIDE * V) + threadIdx.x;
    if (threadIdx.x < WIDE * V && column < C) {
        partial[(i64)blockIdx.x * C + column] = total;
        partial[((i64)gridDim.x + blockIdx.x) * C + column] = squares;
    }
}

struct StoreMoments {
    float *sum, *sumsq;
    DEVICE void operator()(int c, const double (&sums)[2]) const
    {
        sum[c] = (float)sums[0];
        sumsq[c] = (float)sums[1];
    }
};

// bn_stats, second stage.
DEVICE void store_moments(const float* partial, float* sum, float* sumsq, int splits, int C)
{
    add_partials<2>(partial, splits, C, StoreMoments{sum, sumsq});
}

// Mean and variance to what normalises, what backward needs, and the next running values, which take the unbiased
// variance; of a single row there is none, and the running one stays.
struct Normaliser {
    const float *gamma, *beta, *prev_mean, *prev_var;
    float *next_mean, *next_var, *saved_mean, *saved_invstd;
    double eps;
    float momentum;
    i64 rows;

    // Returns gamma * invstd; `var` is biased; `offset` is added to the mean for the running one.
    DEVICE double operator()(int c, double mean, double var, double offset = 0.) const
    {
        const double invstd = 1. / sqrt(var + eps), n = (double)rows;
        saved_mean[c] = (float)mean;
        saved_invstd[c] = (float)invstd;
        const double old_mean = prev_mean[c], old_var = prev_var[c];
        next_mean[c] = (float)(old_mean + momentum * (mean + offset - old_mean));
        next_var[c] = rows > 1 ? (float)(old_var + momentum * (var * n / (n - 1.) - old_var)) : prev_var[c];
        return gamma[c] * invstd;
    }
};

// bn_finalize: sums over `rows` rows to scale = gamma invstd and shift = beta - mean scale, rounded once. `offset`, where
// there is one, is what every row lacks.
template <typename S>
DEVICE void finalize(const float* sum, const float* sumsq, const float* offset, S* scale, S* shift, int C,
                     Normaliser normalise)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    const double n = (double)normalise.rows, mean = sum[c] / n, var = sumsq[c] / n - mean * mean;
    const double factor = normalise(c, mean, var > 0. ? var : 0., offset ? offset[c] : 0.);
    scale[c] = narrow<S>((float)factor);
    shift[c] = narrow<S>((float)(normalise.beta[c] - mean * factor));
}

template <typename T>
struct FinishForward {
    const T* origin;
    float* factor;
    Normaliser normalise;
    DEVICE void operator()(int c, const double (&sums)[2]) const
    {
        const double n = (double)normalise.rows, mean = sums[0] / n, var = sums[1] / n - mean * mean;
        factor[c] = (float)normalise(c, widen(origin[c]) + mean, var > 0. ? var : 0.);
    }
};

// bn_fwd, second stage: from the shifted sums; factor = gamma invstd for the third.
template <typename T>
DEVICE void finish_forward(const float* partial, const T* x, float* factor, int splits, int C, Normaliser normalise)
{
    add_partials<2>(partial, splits, C, FinishForward<T>{x, factor, normalise});
}

// bn_fwd, third stage: y = (x - mean) factor + beta.
template <typename T, int C, int PX, int PY, int V, int WIDE, int TALL, int U>
DEVICE void apply_centred(const T* x, const float* __restrict__ mean, const float* __restrict__ factor,
                          const float* __restrict__ beta, T* y, i64 rows)
{
    const Place<C, PY, V, WIDE, TALL> at;
    if (!at.live) return;
    const Lanes<V> m = channel_values<C, V, PY>(mean, at.c), f = channel_values<C, V, PY>(factor, at.c),
                   b = channel_values<C, V, PY>(beta, at.c);
    for (i64 first = (i64)blockIdx.x * (TALL * U) + at.row; first < rows; first += (i64)gridDim.x * (TALL * U)) {
        Vec<T, V> in[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (first + u * TALL < rows) in[u] = load_channels<V, PX, PY>(x + (first + u * TALL) * PX, at.c);
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (first + u * TALL < rows) {
                Lanes<V> value = widen(in[u]);
#pragma unroll
                for (int i = 0; i < V; ++i) value.at[i] = fmaf(value.at[i] - m.at[i], f.at[i], b.at[i]);
                store<V>(y + (first + u * TALL) * PY + at.c, narrow_channels<T, C, PY>(value, at.c));
            }
    }
}

enum Shortcut { NO_SHORTCUT, PLAIN, NORMALISED };

// y = act(x scale + shift + shortcut), the shortcut normalised with scale2 and shift2 where it is to be. S is the type
// of the scales: the storage type where they were computed from the batch, float in inference. PS is the shortcut's pitch.
template <typename T, typename S, int C, int PX, int PS, int PY, int V, int WIDE, int TALL, int U, Act ACT,
          Shortcut SHORTCUT>
DEVICE void apply_norm(const T* x, const S* __restrict__ scale, const S* __restrict__ shift, const T* shortcut,
                       const S* __restrict__ scale2, const S* __restrict__ shift2, T* y, i64 rows)
{
    const Place<C, PY, V, WIDE, TALL> at;
    if (!at.live) return;
    const Lanes<V> a = channel_values<C, V, PY>(scale, at.c), b = channel_values<C, V, PY>(shift, at.c);
    Lanes<V> a2 = {}, b2 = {};
    if (SHORTCUT == NORMALISED) {
        a2 = channel_values<C, V, PY>(scale2, at.c);
        b2 = channel_values<C, V, PY>(shift2, at.c);
    }
    for (i64 first = (i64)blockIdx.x * (TALL * U) + at.row; first < rows; first += (i64)gridDim.x * (TALL * U)) {
        Vec<T, V> in[U], other[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (first + u * TALL < rows) {
                in[u] = load_channels<V, PX, PY>(x + (first + u * TALL) * PX, at.c);
                if (SHORTCUT != NO_SHORTCUT)
                    other[u] = load_channels<V, PS, PY>(shortcut + (first + u * TALL) * PS, at.c);
            }
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (first + u * TALL < rows) {
                Lanes<V> value = widen(in[u]);
#pragma unroll
                for (int i = 0; i < V; ++i) {
                    float z = scaled(value.at[i], a.at[i], b.at[i]);
                    if (SHORTCUT == PLAIN) z += widen(other[u].at[i]);
                    if (SHORTCUT == NORMALISED) z += scaled(widen(other[u].at[i]), a2.at[i], b2.at[i]);
                    value.at[i] = activate<ACT>(z);
                }
                store<V>(y + (first + u * TALL) * PY + at.c, narrow_channels<T, C, PY>(value, at.c));
            }
    }
}

// ---------------------------------------------------------------- backward

// The gradient dz of what the activation got, x scale + shift as it was stored.
template <typename T, Act ACT>
DEVICE float before_act(float dy, float x, float scale, float shift)
{
    return ACT == NONE ? dy : masked<ACT>(dy, stored<T>(scaled(x, scale, shift)));
}

// First stage: the sums of dz and of dz (x - mean), as `moments` leaves its two. PG is the pitch of dy.
template <typename T, typename S, int C, int PG, int PX, int V, int WIDE, int TALL, int U, Act ACT>
DEVICE void norm_gradients(const T* __restrict__ dy, const T* __restrict__ x, const S* __restrict__ scale,
                           const S* __restrict__ shift, const float* __restrict__ mean, float* __restrict__ partial,
                           i64 rows)
{
    const Place<C, (PG < PX ? PG : PX), V, WIDE, TALL> at;
    const i64 step = (i64)gridDim.x * TALL;
    Lanes<V> sum = {}, product = {}, a = {}, b = {};
    if (at.live) {
        const Lanes<V> m = channel_values<C, V>(mean, at.c);
        if (ACT != NONE) {
            a = channel_values<C, V>(scale, at.c);
            b = channel_values<C, V>(shift, at.c);
        }
        for (i64 row = (i64)blockIdx.x * TALL + at.row; row < rows; row += step * U) {
            Vec<T, V> gradient[U], in[U];
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (row + u * step < rows) {
                    gradient[u] = load<V>(dy + (row + u * step) * PG + at.c);
                    in[u] = load<V>(x + (row + u * step) * PX + at.c);
                }
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (row + u * step < rows) {
#pragma unroll
                    for (int i = 0; i < V; ++i) {
                        const float value = widen(in[u].at[i]);
                        const float dz = before_act<T, ACT>(widen(gradient[u].at[i]), value, a.at[i], b.at[i]);
                        sum.at[i] += dz;
                        product.at[i] = fmaf(dz, value - m.at[i], product.at[i]);
                    }
                }
        }
    }
    const float total = fold_rows<WIDE, TALL>(sum), products = fold_rows<WIDE, TALL>(product);
    const int column = blockIdx.y * (WIDE * V) + threadIdx.x;
    if (threadIdx.x < WIDE * V && column < C) {
        partial[(i64)blockIdx.x * C + column] = total;
        partial[((i64)gridDim.x + blockIdx.x) * C + column] = products;
    }
}

struct FinishGradients {
    const float *gamma, *invstd;
    float *dgamma, *dbeta, *factors;
    i64 rows;
    int C;
    DEVICE void operator()(int c, const double (&sums)[2]) const
    {
        const double inv = invstd[c], outer = gamma[c] * inv, n = (double)rows;
        dbeta[c] = (float)sums[0];
        dgamma[c] = (float)(sums[1] * inv);
        if (factors) {
            factors[c] = (float)outer;
            factors[C + c] = (float)(-outer * inv * inv * sums[1] / n);
            factors[2 * C + c] = (float)(-outer * sums[0] / n);
        }
    }
};

// Second stage: dbeta, dgamma, and the three factors of each channel that the third stage needs (unless null).
DEVICE void finish_gradients(const float* partial, const float* gamma, const float* invstd, float* dgamma,
                             float* dbeta, float* factors, int splits, int C, i64 rows)
{
    add_partials<2>(partial, splits, C, FinishGradients{gamma, invstd, dgamma, dbeta, factors, rows, C});
}

// Third stage: dx = gamma invstd (dz - (dbeta + h dgamma) / rows) with h = (x - mean) invstd, as
// factor0 dz + factor1 (x - mean) + factor2. Rows go backwards: what the first stage read last may still be cached. PY is
// the pitch of dx.
template <typename T, typename S, int C, int PG, int PX, int PY, int V, int WIDE, int TALL, int U, Act ACT>
DEVICE void apply_gradients(const T* dy, const T* x, const S* __restrict__ scale, const S* __restrict__ shift,
                            const float* __restrict__ mean, const float* __restrict__ factors, T* dx, i64 rows)
{
    const Place<C, PY, V, WIDE, TALL> at;
    if (!at.live) return;
    const Lanes<V> m = channel_values<C, V, PY>(mean, at.c), f0 = channel_values<C, V, PY>(factors, at.c);
    const Lanes<V> f1 = channel_values<C, V, PY>(factors + C, at.c), f2 = channel_values<C, V, PY>(factors + 2 * C, at.c);
    Lanes<V> a = {}, b = {};
    if (ACT != NONE) {
        a = channel_values<C, V, PY>(scale, at.c);
        b = channel_values<C, V, PY>(shift, at.c);
    }
    for (i64 first = (i64)(gridDim.x - 1 - blockIdx.x) * (TALL * U) + at.row; first < rows;
         first += (i64)gridDim.x * (TALL * U)) {
        Vec<T, V> gradient[U], in[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (first + u * TALL < rows) {
                gradient[u] = load_channels<V, PG, PY>(dy + (first + u * TALL) * PG, at.c);
                in[u] = load_channels<V, PX, PY>(x + (first + u * TALL) * PX, at.c);
            }
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (first + u * TALL < rows) {
                Lanes<V> result;
#pragma unroll
                for (int i = 0; i < V; ++i) {
                    const float value = widen(in[u].at[i]);
                    const float dz = before_act<T, ACT>(widen(gradient[u].at[i]), value, a.at[i], b.at[i]);
                    result.at[i] = fmaf(f0.at[i], dz, fmaf(f1.at[i], value - m.at[i], f2.at[i]));
                }
                store<V>(dx + (first + u * TALL) * PY + at.c, narrow_channels<T, C, PY>(result, at.c));
            }
    }
}

// ---------------------------------------------------------------- inference

// scale = gamma / sqrt(var + eps), bias = beta - mean scale.
DEVICE void fold(const float* gamma, const float* beta, const float* mean, const float* var, float* scale, float* bias,
                 int C, float eps)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    const float s = gamma[c] / sqrtf(var[c] + eps);
    scale[c] = s;
    bias[c] = beta[c] - mean[c] * s;
}
