// Copies that change how rows are padded: flatten, channel padding, copies between pitches; casts between types.

// Bytes from one place to another, 16 at a time; n is a multiple of 16 or the rest is done by single bytes.
template <int U>
DEVICE void copy_bytes(const u8* from, u8* to, i64 n)
{
    const i64 vectors = n / 16, first = (i64)blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Vec<u32, 4> value[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) value[u] = load<4>(reinterpret_cast<const u32*>(from) + v * 4);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) store<4>(reinterpret_cast<u32*>(to) + v * 4, value[u]);
    }
    const i64 rest = vectors * 16 + threadIdx.x;
    if (blockIdx.x == 0 && rest < n) to[rest] = from[rest];
}

// Rows of C elements, PX apart, to rows of D elements, PY apart, in the order of memory without padding: with C = D
// the padding changes, with D a multiple of C rows are joined (flatten), with C a multiple of D they are cut.
template <typename T, int C, int PX, int D, int PY>
DEVICE void reshape_rows(const T* x, T* y, i64 rows)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int d = (int)(at % PY);
    if (row >= rows) return;
    T value = narrow<T>(0.f);
    if (d < D) {
        const i64 element = row * D + d;
        value = x[element / C * PX + element % C];
    }
    y[at] = value;
}

// The first channels of each row, and zeros behind them: C are there, D are wanted.
template <typename T, int C, int PX, int D, int PY>
DEVICE void resize_rows(const T* x, T* y, i64 rows)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int d = (int)(at % PY);
    if (row < rows) y[at] = d < C && d < D ? x[row * PX + d] : narrow<T>(0.f);
}

// n numbers from one type to another, V at a time, U vectors a thread.
template <typename X, typename Y, int V, int U>
DEVICE void cast(const X* x, Y* y, i64 n)
{
    const i64 vectors = n / V, first = (i64)blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Lanes<V> value[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            constexpr int W = 16 / (int)sizeof(X) < V ? 16 / (int)sizeof(X) : V;
#pragma unroll
            for (int i = 0; i < V; i += W) {
                const Vec<X, W> part = load<W>(x + v * V + i);
#pragma unroll
                for (int j = 0; j < W; ++j) value[u].at[i + j] = widen(part.at[j]);
            }
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            constexpr int W = 16 / (int)sizeof(Y) < V ? 16 / (int)sizeof(Y) : V;
#pragma unroll
            for (int i = 0; i < V; i += W) {
                Lanes<W> part;
#pragma unroll
                for (int j = 0; j < W; ++j) part.at[j] = value[u].at[i + j];
                store<W>(y + v * V + i, narrow<Y>(part));
            }
        }
    }
    const i64 rest = vectors * V + threadIdx.x;
    if (blockIdx.x == 0 && rest < n) y[rest] = narrow<Y>(widen(x[rest]));
}
