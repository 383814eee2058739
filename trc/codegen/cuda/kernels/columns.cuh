// Sums over rows for gradients of biases, and the addition of a bias.

// One stage of dbias[c] = sum of dy[row][c]. Block (split, chunk) adds the rows split * TALL + ..., every
// splits * TALL-th, of WIDE * V channels, and writes its sums to out[split][c]: dbias itself if there is one split.
template <typename T, int C, int P, int V, int WIDE, int TALL, int U>
DEVICE void column_sums(const T* __restrict__ dy, float* out, i64 rows)
{
    const int group = blockIdx.y * WIDE + threadIdx.x % WIDE, c = group * V;
    const i64 step = (i64)gridDim.x * TALL;
    Lanes<V> sum = {};
    if (c < P) {
        for (i64 row = (i64)blockIdx.x * TALL + threadIdx.x / WIDE; row < rows; row += step * U) {
            Vec<T, V> in[U];
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (row + u * step < rows) in[u] = load<V>(dy + (row + u * step) * P + c);
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (row + u * step < rows) {
                    const Lanes<V> value = widen(in[u]);
#pragma unroll
                    for (int i = 0; i < V; ++i) sum.at[i] += value.at[i];
                }
        }
    }
    const float total = fold_rows<WIDE, TALL>(sum);
    const int column = blockIdx.y * (WIDE * V) + threadIdx.x;
    if (threadIdx.x < WIDE * V && column < C) out[(i64)blockIdx.x * C + column] = total;
}

struct StoreSum {
    float* out;
    DEVICE void operator()(int c, const double (&sum)[1]) const { out[c] = (float)sum[0]; }
};

// The second stage.
DEVICE void column_sums_finish(const float* partial, float* dbias, int splits, int C)
{
    add_partials<1>(partial, splits, C, StoreSum{dbias});
}

// y[row][c] = act(y[row][c] + bias[c]), in place; U rows at a time a thread.
template <typename T, int C, int P, int V, int WIDE, int TALL, int U, Act ACT>
DEVICE void add_bias(T* y, const float* __restrict__ bias, i64 rows)
{
    const int c = (blockIdx.y * WIDE + threadIdx.x % WIDE) * V;
    if (c >= P) return;
    const Lanes<V> b = channel_values<C, V>(bias, c);
    const i64 first = (i64)blockIdx.x * (TALL * U) + threadIdx.x / WIDE;
    Vec<T, V> in[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (first + u * TALL < rows) in[u] = load<V>(y + (first + u * TALL) * P + c);
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (first + u * TALL < rows) {
            Lanes<V> value = widen(in[u]);
#pragma unroll
            for (int i = 0; i < V; ++i) value.at[i] = activate<ACT>(value.at[i] + b.at[i]);
            store<V>(y + (first + u * TALL) * P + c, narrow_channels<T, C>(value, c));
        }
}
