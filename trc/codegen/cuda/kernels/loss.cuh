// Softmax cross entropy with exact log-softmax, label smoothing, and counts of top-1 and top-5.
//
// With z = logit - row maximum and L = log(sum of exp z), a sample's loss is
// L - (1 - s) z[label] - s / K * (sum of z). A class beats the label with a greater z, or an equal one and a lower
// index; a sample is top-k if fewer than k classes beat its label. A row with a NaN is never right.
//
// LANES threads share a row: one up to 32 classes, a warp up to 1024, else a block of 256. Rows of logits are P elements
// apart. With WHOLE, one block does all rows and their sums; else a second stage adds the rows.

// The maximum as NumPy takes it: a NaN wins.
DEVICE float max_or_nan(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }

struct PlusF {
    DEVICE float operator()(float a, float b) const { return a + b; }
};
struct PlusI {
    DEVICE int operator()(int a, int b) const { return a + b; }
};
struct MaxF {
    DEVICE float operator()(float a, float b) const { return max_or_nan(a, b); }
};
struct MinI {
    DEVICE int operator()(int a, int b) const { return a < b ? a : b; }
};

// Combine a number of each of LANES threads; all get the result, and the order is fixed.
template <int LANES, typename N, typename Op>
DEVICE N combine(N x, Op op)
{
#pragma unroll
    for (int step = LANES < 32 ? LANES / 2 : 16; step > 0; step >>= 1) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
    if constexpr (LANES > 32) {
        __shared__ N of_warp[LANES / 32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
        __syncthreads();
        x = of_warp[0];
#pragma unroll
        for (int w = 1; w < LANES / 32; ++w) x = op(x, of_warp[w]);
    }
    return x;
}

struct RowResult {
    float max, total, loss;
    int rank;
};

// What a row's loss and counts follow from.
template <typename T, int K, int LANES>
DEVICE RowResult measure_row(const T* __restrict__ logits, int label, float smoothing)
{
    const int lane = threadIdx.x % LANES;
    RowResult row;
    row.max = -infinity();
    for (int c = lane; c < K; c += LANES) row.max = max_or_nan(row.max, widen(logits[c]));
    row.max = combine<LANES>(row.max, MaxF{});
    const bool valid = 0 <= label && label < K;
    const float chosen = valid ? widen(logits[label]) - row.max : not_a_number();
    float exponentials = 0.f, sum = 0.f;
    int rank = 0;
    for (int c = lane; c < K; c += LANES) {
        const float z = widen(logits[c]) - row.max;
        exponentials += expf(z);
        sum += z;
        rank += !(z <= chosen) || (z == chosen && c < label);
    }
    row.total = combine<LANES>(exponentials, PlusF{});
    row.rank = combine<LANES>(rank, PlusI{});
    row.loss = logf(row.total) - (1.f - smoothing) * chosen;
    if (smoothing != 0.f) row.loss -= smoothing / K * combine<LANES>(sum, PlusF{});
    return row;
}

// Sums over the rows: three numbers of each of `samples` rows, added by one block in a fixed order.
template <int THREADS>
DEVICE void add_rows(const float* row_loss, const float* rank, float* loss, float* top1, float* top5, int samples, int K)
{
    double sum = 0.;
    int first = 0, fifth = 0;
    const float most = K < 5 ? (float)K : 5.f;
    for (i64 n = threadIdx.x; n < samples; n += THREADS) {
        sum += (double)row_loss[n];
        first += rank[n] < 1.f;
        fifth += rank[n] < most;
    }
    __shared__ double sums[THREADS];
    __shared__ int firsts[THREADS], fifths[THREADS];
    sums[threadIdx.x] = sum;
    firsts[threadIdx.x] = first;
    fifths[threadIdx.x] = fifth;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            firsts[threadIdx.x] += firsts[threadIdx.x + half];
            fifths[threadIdx.x] += fifths[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        *loss = (float)(sums[0] / samples);
        *top1 = (float)firsts[0];
        *top5 = (float)fifths[0];
    }
}

// Forward: probabilities, and each row's loss and rank in row_loss and rank.
template <typename T, int K, int P, int LANES, int ROWS, bool WHOLE>
DEVICE void softmax_rows(const T* __restrict__ logits, const int* __restrict__ label, float* probs, float* row_loss,
                         float* rank, float* loss, float* top1, float* top5, int samples, float smoothing)
{
    // whole rows leave together
    for (i64 n = (i64)blockIdx.x * ROWS + threadIdx.x / LANES; n < samples; n += (i64)gridDim.x * ROWS) {
        const int lane = threadIdx.x % LANES;
        const T* of_row = logits + n * P;
        const RowResult row = measure_row<T, K, LANES>(of_row, label[n], smoothing);
        for (int c = lane; c < K; c += LANES) probs[n * K + c] = expf(widen(of_row[c]) - row.max) / row.total;
        if (lane == 0) {
            row_loss[n] = row.loss;
            rank[n] = (float)row.rank;
        }
    }
    if (WHOLE) {
        __syncthreads();
        add_rows<LANES * ROWS>(row_loss, rank, loss, top1, top5, samples, K);
    }
}

// Inference: the predicted class, which is the lowest index of the maximum, instead of probabilities.
template <typename T, int K, int P, int LANES, int ROWS, bool WHOLE>
DEVICE void predict_rows(const T* __restrict__ logits, const int* __restrict__ label, int* predicted, float* row_loss,
                         float* rank, float* loss, float* top1, float* top5, int samples, float smoothing)
{
    for (i64 n = (i64)blockIdx.x * ROWS + threadIdx.x / LANES; n < samples; n += (i64)gridDim.x * ROWS) {
        const int lane = threadIdx.x % LANES;
        const T* of_row = logits + n * P;
        const RowResult row = measure_row<T, K, LANES>(of_row, label[n], smoothing);
        int best = K;
        for (int c = lane; c < K; c += LANES) {
            const float x = widen(of_row[c]);
            if ((x == row.max || x != x) && c < best) best = c;
        }
        best = combine<LANES>(best, MinI{});
        if (lane == 0) {
            predicted[n] = best;
            row_loss[n] = row.loss;
            rank[n] = (float)row.rank;
        }
    }
    if (WHOLE) {
        __syncthreads();
        add_rows<LANES * ROWS>(row_loss, rank, loss, top1, top5, samples, K);
    }
}

// dlogits = (probs - target) * scaling / samples; V elements of a row a thread, zeros in the padding.
template <typename T, int K, int P, int V>
DEVICE void softmax_backward(const float* __restrict__ probs, const int* __restrict__ label, T* dlogits,
                             const float* __restrict__ scaling, int samples, float smoothing)
{
    constexpr int GROUPS = P / V;
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 n = at / GROUPS;
    const int c = (int)(at % GROUPS) * V;
    if (n >= samples) return;
    const int right = label[n];
    const float factor = (float)((double)*scaling / samples);
    Lanes<V> x = {};
#pragma unroll
    for (int i = 0; i < V; ++i)
        if (c + i < K) {
            x.at[i] = probs[n * K + c + i] - smoothing / K;
            if (c + i == right) x.at[i] -= 1.f - smoothing;
            x.at[i] *= factor;
        }
    store<V>(dlogits + n * P + c, narrow<T>(x));
}
