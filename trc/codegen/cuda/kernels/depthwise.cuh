// Depthwise convolutions: each channel with its own window of K by K, stride S, padding Q. Activations are n h w c, the
// weight is c k k as a dense array. Arithmetic in float, one rounding at the end.
//
// A thread does V channels of a strip of STRIP cells along the width. A block has WIDE lanes along the channels; its
// weights lie in shared memory by place in the window, so that a lane reads its V channels at once. PX is the pitch of the
// input and of its gradient, PY that of the result and of its gradient; V divides both.

// The weights of the block's channels, as weights[place][lane's channel]; with zeros where there is no channel.
template <typename T, int C, int K, int COLUMNS>
DEVICE void share_weights(const T* __restrict__ weight, float (&weights)[K * K][COLUMNS], int first)
{
    for (int i = threadIdx.x; i < K * K * COLUMNS; i += blockDim.x) {
        const int column = i / (K * K), place = i % (K * K), c = first + column;
        weights[place][column] = c < C ? widen(weight[(i64)c * (K * K) + place]) : 0.f;
    }
    __syncthreads();
}

// The strip of a thread: strips are counted along the width, then the height, then the batch.
struct Strip {
    int n, h, w;
    bool live;
    DEVICE Strip(i64 index, int batch, int height, int width, int cells)
    {
        const u32 strips = (width + cells - 1) / cells, at = (u32)index;
        live = index < (i64)strips * height * batch;
        w = (int)(at % strips) * cells;
        h = (int)(at / strips % height);
        n = (int)(at / strips / height);
    }
};

// y[n][oh][ow][c] = sum of x[n][oh S - Q + r][ow S - Q + s][c] weight[c][r][s], plus bias[c] if there is one.
template <typename T, int C, int PX, int PY, int V, int WIDE, int TALL, int K, int S, int Q, int STRIP, bool BIAS>
DEVICE void depthwise(const T* __restrict__ x, const T* __restrict__ weight, const float* __restrict__ bias,
                      T* __restrict__ y, int batch, int height, int width, int out_height, int out_width)
{
    __shared__ float weights[K * K][WIDE * V];
    share_weights<T, C, K>(weight, weights, blockIdx.y * (WIDE * V));
    const int lane = threadIdx.x % WIDE * V, c = blockIdx.y * (WIDE * V) + lane;
    const Strip at((i64)blockIdx.x * TALL + threadIdx.x / WIDE, batch, out_height, out_width, STRIP);
    if (!at.live || c >= PY) return;
    constexpr int SPAN = (STRIP - 1) * S + K;  // cells of the input that a strip touches
    Lanes<V> sum[STRIP];
    Lanes<V> start = {};
    if (BIAS) start = channel_values<C, V, PY>(bias, c);
#pragma unroll
    for (int j = 0; j < STRIP; ++j) sum[j] = start;
#pragma unroll 1
    for (int r = 0; r < K; ++r) {
        const int h = at.h * S - Q + r;
        if (h < 0 || h >= height) continue;
        const T* row = x + ((i64)at.n * height + h) * width * PX;
#pragma unroll
        for (int d = 0; d < SPAN; ++d) {
            const int w = at.w * S - Q + d;
            if (w < 0 || w >= width) continue;
            const Lanes<V> value = widen(load_channels<V, PX, PY>(row + (i64)w * PX, c));
#pragma unroll
            for (int j = 0; j < STRIP; ++j) {
                const int s = d - j * S;
                if (s < 0 || s >= K) continue;
#pragma unroll
                for (int i = 0; i < V; ++i) sum[j].at[i] = fmaf(value.at[i], weights[r * K + s][lane + i], sum[j].at[i]);
            }
        }
    }
    T* out = y + (((i64)at.n * out_height + at.h) * out_width + at.w) * PY + c;
#pragma unroll
    for (int j = 0; j < STRIP; ++j)
        if (at.w + j < out_width) store<V>(out + (i64)j * PY, narrow_channels<T, C, PY>(sum[j], c));
}

// dx[n][h][w][c] = sum of dy[n][oh][ow][c] weight[c][r][s] over oh S - Q + r = h, ow S - Q + s = w. STRIP is a multiple
// of S, so which places of the window meet a cell of the strip is known at compile time.
template <typename T, int C, int PX, int PY, int V, int WIDE, int TALL, int K, int S, int Q, int STRIP>
DEVICE void depthwise_backward(const T* __restrict__ dy, const T* __restrict__ weight, T* __restrict__ dx, int batch,
                               int height, int width, int out_height, int out_width)
{
    static_assert(STRIP % S == 0, "strips begin at multiples of the stride");
    __shared__ float weights[K * K][WIDE * V];
    share_weights<T, C, K>(weight, weights, blockIdx.y * (WIDE * V));
    const int lane = threadIdx.x % WIDE * V, c = blockIdx.y * (WIDE * V) + lane;
    const Strip at((i64)blockIdx.x * TALL + threadIdx.x / WIDE, batch, height, width, STRIP);
    if (!at.live || c >= PX) return;
    Lanes<V> sum[STRIP] = {};
#pragma unroll 1
    for (int r = 0; r < K; ++r) {
        const int above = at.h + Q - r;
        if (above < 0 || above % S != 0 || above / S >= out_height) continue;
        const T* row = dy + ((i64)at.n * out_height + above / S) * out_width * PY;
        // cell j of the strip meets place s at ow = (w + j + Q - s) / S: go through d = j - s
#pragma unroll
        for (int d = 1 - K; d < STRIP; ++d) {
            if ((Q + d) % S != 0) continue;  // w is a multiple of S
            const int beside = at.w + Q + d, ow = beside / S;
            if (beside < 0 || ow >= out_width) continue;
            const Lanes<V> value = widen(load_channels<V, PY, PX>(row + (i64)ow * PY, c));
#pragma unroll
            for (int j = 0; j < STRIP; ++j) {
                const int s = j - d;
                if (s < 0 || s >= K) continue;
#pragma unroll
                for (int i = 0; i < V; ++i) sum[j].at[i] = fmaf(value.at[i], weights[r * K + s][lane + i], sum[j].at[i]);
            }
        }
    }
    T* out = dx + (((i64)at.n * height + at.h) * width + at.w) * PX + c;
#pragma unroll
    for (int j = 0; j < STRIP; ++j)
        if (at.w + j < width) store<V>(out + (i64)j * PX, narrow_channels<T, C, PX>(sum[j], c));
}

// First stage of dweight[c][r][s] = sum of dy[n][oh][ow][c] x[n][oh S - Q + r][ow S - Q + s][c]: block (split, chunk,
// group of rows of the window) writes partial[split][place][c]. A thread keeps ROWS rows of the window.
template <typename T, int C, int PX, int PY, int V, int WIDE, int TALL, int K, int S, int Q, int STRIP, int ROWS>
DEVICE void depthwise_weight(const T* __restrict__ dy, const T* __restrict__ x, float* __restrict__ partial, int batch,
                             int height, int width, int out_height, int out_width, i64 strips)
{
    constexpr int SPAN = (STRIP - 1) * S + K, NARROW = PX < PY ? PX : PY;  // all channels are in the shorter row
    const int c = (blockIdx.y * WIDE + threadIdx.x % WIDE) * V, top = blockIdx.z * ROWS;
    Lanes<V> sum[ROWS][K] = {};
    for (i64 index = (i64)blockIdx.x * TALL + threadIdx.x / WIDE; index < strips && c < NARROW;
         index += (i64)gridDim.x * TALL) {
        const Strip at(index, batch, out_height, out_width, STRIP);
        Vec<T, V> gradient[STRIP];
        const T* from = dy + (((i64)at.n * out_height + at.h) * out_width + at.w) * PY + c;
#pragma unroll
        for (int j = 0; j < STRIP; ++j)
            if (at.w + j < out_width) gradient[j] = load<V>(from + (i64)j * PY);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int h = at.h * S - Q + top + r;
            if (h < 0 || h >= height || top + r >= K) continue;
            const T* row = x + ((i64)at.n * height + h) * width * PX + c;
#pragma unroll
            for (int d = 0; d < SPAN; ++d) {
                const int w = at.w * S - Q + d;
                if (w < 0 || w >= width) continue;
                const Lanes<V> value = widen(load<V>(row + (i64)w * PX));
#pragma unroll
                for (int j = 0; j < STRIP; ++j) {
                    const int s = d - j * S;
                    if (s < 0 || s >= K || at.w + j >= out_width) continue;
#pragma unroll
                    for (int i = 0; i < V; ++i)
                        sum[r][s].at[i] = fmaf(value.at[i], widen(gradient[j].at[i]), sum[r][s].at[i]);
                }
            }
        }
    }
    const int column = blockIdx.y * (WIDE * V) + threadIdx.x;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int s = 0; s < K; ++s) {
            const float total = fold_rows<WIDE, TALL>(sum[r][s]);
            if (threadIdx.x < WIDE * V && column < C && top + r < K)
                partial[((i64)blockIdx.x * (K * K) + (top + r) * K + s) * C + column] = total;
        }
}

template <typename T>
struct StoreWeight {
    T* dweight;
    int C, places;
    DEVICE void operator()(int column, const double (&sum)[1]) const
    {
        dweight[(i64)(column % C) * places + column / C] = narrow<T>((float)sum[0]);
    }
};

// The second stage: columns are (place, channel) pairs.
template <typename T>
DEVICE void depthwise_weight_finish(const float* partial, T* dweight, int splits, int C, int places)
{
    add_partials<1>(partial, splits, C * places, StoreWeight<T>{dweight, C, places});
}
