// Pools over square windows of K by K, stride S, padding Q, and over whole maps. Activations are n h w c.
//
// A thread has V channels of one cell of the result (forward) or of the input's gradient (backward). Backward gathers,
// so that each sum has a fixed order. PX is the pitch of the input and of its gradient, PY that of the result and of its
// gradient, PM the mask's; V divides all of them.

// The cell of a thread in an array of `rows` cells of P elements.
template <int P, int V>
struct Cell {
    i64 index;
    int c;
    DEVICE Cell()
    {
        constexpr int GROUPS = P / V;
        const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
        index = at / GROUPS;
        c = (int)(at % GROUPS) * V;
    }
};

// y = the maximum of each window; mask, if there is one, the place (row * K + column) of its first maximum, -1 where
// the window has no cell. A NaN is the maximum, the last one if there are several, as in PyTorch.
template <typename T, int C, int PX, int PY, int PM, int V, int K, int S, int Q, bool MASK>
DEVICE void max_pool(const T* __restrict__ x, T* __restrict__ y, i8* __restrict__ mask, int batch, int height,
                     int width, int out_height, int out_width)
{
    const Cell<PY, V> at;
    if (at.index >= (i64)batch * out_height * out_width) return;
    const u32 cell = (u32)at.index;
    const int ow = cell % out_width, oh = cell / out_width % out_height, n = cell / out_width / out_height;
    Lanes<V> best;
    Vec<i8, V> place;
#pragma unroll
    for (int i = 0; i < V; ++i) {
        best.at[i] = -infinity();
        place.at[i] = -1;
    }
#pragma unroll
    for (int kh = 0; kh < K; ++kh) {
        const int h = oh * S - Q + kh;
        if (h < 0 || h >= height) continue;
#pragma unroll
        for (int kw = 0; kw < K; ++kw) {
            const int w = ow * S - Q + kw;
            if (w < 0 || w >= width) continue;
            const Lanes<V> value = widen(load_channels<V, PX, PY>(x + (((i64)n * height + h) * width + w) * PX, at.c));
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (value.at[i] > best.at[i] || value.at[i] != value.at[i] || place.at[i] < 0) {
                    best.at[i] = value.at[i];
                    place.at[i] = (i8)(kh * K + kw);
                }
        }
    }
    store<V>(y + at.index * PY + at.c, narrow_channels<T, C, PY>(best, at.c));
    if (MASK) {
        if (C % V != 0 || PY > C) {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (at.c + i >= C) place.at[i] = 0;
        }
        store<V>(mask + at.index * PM + at.c, place);
    }
}

// The windows that a cell is in: first and last along one dimension, for a cell at `at`.
template <int K, int S, int Q>
DEVICE int first_window(int at) { return at + Q < K ? 0 : (at + Q - K) / S + 1; }
template <int S, int Q>
DEVICE int last_window(int at, int windows) { return (at + Q) / S < windows ? (at + Q) / S : windows - 1; }

// dx = the sum of the gradients of the windows whose maximum the cell was.
template <typename T, int C, int PX, int PY, int PM, int V, int K, int S, int Q>
DEVICE void max_pool_backward(const T* __restrict__ dy, const i8* __restrict__ mask, T* __restrict__ dx, int batch,
                              int height, int width, int out_height, int out_width)
{
    const Cell<PX, V> at;
    if (at.index >= (i64)batch * height * width) return;
    const u32 cell = (u32)at.index;
    const int w = cell % width, h = cell / width % height, n = cell / width / height;
    const int first = first_window<K, S, Q>(h), last = last_window<S, Q>(h, out_height);
    const int left = first_window<K, S, Q>(w), right = last_window<S, Q>(w, out_width);
    Lanes<V> sum = {};
    for (int oh = first; oh <= last; ++oh)
        for (int ow = left; ow <= right; ++ow) {
            const int here = (h + Q - oh * S) * K + w + Q - ow * S;
            const i64 window = ((i64)n * out_height + oh) * out_width + ow;
            const Vec<i8, V> place = load_channels<V, PM, PX>(mask + window * PM, at.c);
            const Lanes<V> gradient = widen(load_channels<V, PY, PX>(dy + window * PY, at.c));
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (place.at[i] == here) sum.at[i] += gradient.at[i];
        }
    store<V>(dx + at.index * PX + at.c, narrow_channels<T, C, PX>(sum, at.c));
}

// Cells of a window along one dimension that exist.
template <int K, int S, int Q>
DEVICE int window_cells(int window, int size)
{
    const int begin = window * S - Q, end = begin + K;
    return (end < size ? end : size) - (begin > 0 ? begin : 0);
}

// y = the mean of the cells of each window that exist; of none it is NaN, as in PyTorch.
template <typename T, int C, int PX, int PY, int V, int K, int S, int Q>
DEVICE void avg_pool(const T* __restrict__ x, T* __restrict__ y, int batch, int height, int width, int out_height,
                     int out_width)
{
    const Cell<PY, V> at;
    if (at.index >= (i64)batch * out_height * out_width) return;
    const u32 cell = (u32)at.index;
    const int ow = cell % out_width, oh = cell / out_width % out_height, n = cell / out_width / out_height;
    Lanes<V> sum = {};
#pragma unroll
    for (int kh = 0; kh < K; ++kh) {
        const int h = oh * S - Q + kh;
        if (h < 0 || h >= height) continue;
#pragma unroll
        for (int kw = 0; kw < K; ++kw) {
            const int w = ow * S - Q + kw;
            if (w < 0 || w >= width) continue;
            const Lanes<V> value = widen(load_channels<V, PX, PY>(x + (((i64)n * height + h) * width + w) * PX, at.c));
#pragma unroll
            for (int i = 0; i < V; ++i) sum.at[i] += value.at[i];
        }
    }
    const float share = 1.f / (float)(window_cells<K, S, Q>(oh, height) * window_cells<K, S, Q>(ow, width));
#pragma unroll
    for (int i = 0; i < V; ++i) sum.at[i] *= share;
    store<V>(y + at.index * PY + at.c, narrow_channels<T, C, PY>(sum, at.c));
}

// dx = the sum over the windows that a cell is in of gradient / cells.
template <typename T, int C, int PX, int PY, int V, int K, int S, int Q>
DEVICE void avg_pool_backward(const T* __restrict__ dy, T* __restrict__ dx, int batch, int height, int width,
                              int out_height, int out_width)
{
    const Cell<PX, V> at;
    if (at.index >= (i64)batch * height * width) return;
    const u32 cell = (u32)at.index;
    const int w = cell % width, h = cell / width % height, n = cell / width / height;
    const int first = first_window<K, S, Q>(h), last = last_window<S, Q>(h, out_height);
    const int left = first_window<K, S, Q>(w), right = last_window<S, Q>(w, out_width);
    Lanes<V> sum = {};
    for (int oh = first; oh <= last; ++oh)
        for (int ow = left; ow <= right; ++ow) {
            const i64 window = ((i64)n * out_height + oh) * out_width + ow;
            const Lanes<V> gradient = widen(load_channels<V, PY, PX>(dy + window * PY, at.c));
            const float share = 1.f / (float)(window_cells<K, S, Q>(oh, height) * window_cells<K, S, Q>(ow, width));
#pragma unroll
            for (int i = 0; i < V; ++i) sum.at[i] += gradient.at[i] * share;
        }
    store<V>(dx + at.index * PX + at.c, narrow_channels<T, C, PX>(sum, at.c));
}

// Global mean: y[n][c] = the mean of x[n][.][c] over `cells`. A block has one sample and WIDE * V channels; TALL rows of
// threads share the cells.
template <typename T, int C, int PX, int PY, int V, int WIDE, int TALL, int U>
DEVICE void global_mean(const T* __restrict__ x, T* __restrict__ y, int cells)
{
    const int c = (blockIdx.y * WIDE + threadIdx.x % WIDE) * V;
    const T* sample = x + (i64)blockIdx.x * cells * PX;
    Lanes<V> sum = {};
    if (c < PY) {
        for (int cell = threadIdx.x / WIDE; cell < cells; cell += TALL * U) {
            Vec<T, V> in[U];
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (cell + u * TALL < cells) in[u] = load_channels<V, PX, PY>(sample + (i64)(cell + u * TALL) * PX, c);
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (cell + u * TALL < cells) {
                    const Lanes<V> value = widen(in[u]);
#pragma unroll
                    for (int i = 0; i < V; ++i) sum.at[i] += value.at[i];
                }
        }
    }
    const float total = fold_rows<WIDE, TALL>(sum);
    const int column = blockIdx.y * (WIDE * V) + threadIdx.x;
    if (threadIdx.x < WIDE * V && column < PY)
        y[(i64)blockIdx.x * PY + column] = narrow<T>(column < C ? total / cells : 0.f);
}

// dx[n][.][c] = dy[n][c] / cells.
template <typename T, int C, int PX, int PY, int V>
DEVICE void spread_mean(const T* __restrict__ dy, T* __restrict__ dx, int batch, int cells)
{
    const Cell<PX, V> at;
    if (at.index >= (i64)batch * cells) return;
    Lanes<V> value = widen(load_channels<V, PY, PX>(dy + (u32)at.index / (u32)cells * (i64)PY, at.c));
    const float share = 1.f / (float)cells;
#pragma unroll
    for (int i = 0; i < V; ++i) value.at[i] *= share;
    store<V>(dx + at.index * PX + at.c, narrow_channels<T, C, PX>(value, at.c));
}
