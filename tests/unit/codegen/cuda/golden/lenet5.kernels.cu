// What all families share: types, accesses of several elements, conversions, sums over a block.
//
// Values are stored as __half, __nv_bfloat16 or float, and computed in float. A matrix of activations has rows of P
// elements in memory, of which the first C count; the others are never read as numbers, and written as zero. Two matrices
// of the same channels may differ in P: half images have rows of a multiple of 4, what layers make of them of 8.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef signed char i8;
typedef unsigned char u8;

#define DEVICE __device__ __forceinline__

DEVICE float infinity() { return __uint_as_float(0x7f800000u); }
DEVICE float not_a_number() { return __uint_as_float(0x7fc00000u); }

// ---------------------------------------------------------------- vectors

// V elements as they lie in memory; loads and stores of it are single accesses of up to 16 bytes.
template <typename T, int V>
struct alignas(sizeof(T) * V <= 16 ? sizeof(T) * V : 16) Vec {
    T at[V];
};

// V numbers in registers.
template <int V>
struct Lanes {
    float at[V];
};

// An integer (vector) of that many bytes: what one access moves. Copies go through it, or the compiler may split them.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

// The compiler would cut some plain stores of 16 bytes into four.
template <typename W>
DEVICE void put(W* to, W word) { *to = word; }
DEVICE void put(uint4* to, uint4 word) { __stwb(to, word); }

template <int V, typename T>
DEVICE Vec<T, V> load(const T* from)
{
    typedef typename Word<sizeof(T) * V>::type W;
    const W word = *reinterpret_cast<const W*>(from);
    Vec<T, V> value;
    memcpy(&value, &word, sizeof(word));
    return value;
}

// V elements from channel c on of a row of P elements, by a thread whose c runs over rows of MOST: zeros behind the row.
template <int V, int P, int MOST, typename T>
DEVICE Vec<T, V> load_channels(const T* row, int c)
{
    if (P < MOST && c >= P) return Vec<T, V>{};
    return load<V>(row + c);
}

template <int V, typename T>
DEVICE void store(T* to, Vec<T, V> value)
{
    typedef typename Word<sizeof(T) * V>::type W;
    W word;
    memcpy(&word, &value, sizeof(word));
    put(reinterpret_cast<W*>(to), word);
}

DEVICE float widen(float x) { return x; }
DEVICE float widen(__half x) { return __half2float(x); }
DEVICE float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
DEVICE float widen(i8 x) { return (float)x; }

template <typename T> DEVICE T narrow(float x);
template <> DEVICE float narrow<float>(float x) { return x; }
template <> DEVICE __half narrow<__half>(float x) { return __float2half_rn(x); }
template <> DEVICE __nv_bfloat16 narrow<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

template <typename T, int V>
DEVICE Lanes<V> widen(Vec<T, V> x)
{
    Lanes<V> y;
#pragma unroll
    for (int i = 0; i < V; ++i) y.at[i] = widen(x.at[i]);
    return y;
}

// Two numbers as they lie side by side in memory.
template <typename T> DEVICE u32 narrow2(float x, float y);
template <> DEVICE u32 narrow2<__half>(float x, float y)
{
    const __half2 pair = __floats2half2_rn(x, y);
    u32 bits;
    memcpy(&bits, &pair, 4);
    return bits;
}
template <> DEVICE u32 narrow2<__nv_bfloat16>(float x, float y)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    u32 bits;
    memcpy(&bits, &pair, 4);
    return bits;
}

// V numbers of type T as one access moves them.
template <typename T, int V>
struct Stored {
    typename Word<sizeof(T) * V>::type bits;
};

DEVICE void pack(Stored<float, 1>& to, const Lanes<1>& x) { to.bits = __float_as_uint(x.at[0]); }
DEVICE void pack(Stored<float, 4>& to, const Lanes<4>& x)
{
    to.bits.x = __float_as_uint(x.at[0]);
    to.bits.y = __float_as_uint(x.at[1]);
    to.bits.z = __float_as_uint(x.at[2]);
    to.bits.w = __float_as_uint(x.at[3]);
}
template <typename T>
DEVICE void pack(Stored<T, 1>& to, const Lanes<1>& x)
{
    const T value = narrow<T>(x.at[0]);
    memcpy(&to.bits, &value, sizeof(T));
}
template <typename T>
DEVICE void pack(Stored<T, 4>& to, const Lanes<4>& x)
{
    to.bits.x = narrow2<T>(x.at[0], x.at[1]);
    to.bits.y = narrow2<T>(x.at[2], x.at[3]);
}
template <typename T>
DEVICE void pack(Stored<T, 8>& to, const Lanes<8>& x)
{
    to.bits.x = narrow2<T>(x.at[0], x.at[1]);
    to.bits.y = narrow2<T>(x.at[2], x.at[3]);
    to.bits.z = narrow2<T>(x.at[4], x.at[5]);
    to.bits.w = narrow2<T>(x.at[6], x.at[7]);
}

template <typename T, int V>
DEVICE Stored<T, V> narrow(Lanes<V> x)
{
    Stored<T, V> y;
    pack(y, x);
    return y;
}

template <int V, typename T>
DEVICE void store(T* to, Stored<T, V> value)
{
    typedef typename Word<sizeof(T) * V>::type W;
    put(reinterpret_cast<W*>(to), value.bits);
}

// The same, with zeros in the lanes that are padding: lane i is channel c + i. P is the row's length in memory, where that
// is more than C rounded up to whole vectors.
template <typename T, int C, int P = C, int V>
DEVICE Stored<T, V> narrow_channels(Lanes<V> x, int c)
{
    if (C % V != 0 || P > C) {
#pragma unroll
        for (int i = 0; i < V; ++i)
            if (c + i >= C) x.at[i] = 0.f;
    }
    return narrow<T>(x);
}

// V numbers of a table with one entry a channel, from channel c on; 0 where there is no channel. P as above.
template <int C, int V, int P = C, typename T>
DEVICE Lanes<V> channel_values(const T* table, int c)
{
    Lanes<V> y;
    if (C % V == 0 && P <= C) {
        constexpr int W = (V * (int)sizeof(T) <= 16) ? V : 16 / (int)sizeof(T);
#pragma unroll
        for (int i = 0; i < V; i += W) {
            Vec<T, W> part = load<W>(table + c + i);
#pragma unroll
            for (int j = 0; j < W; ++j) y.at[i + j] = widen(part.at[j]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; ++i) y.at[i] = c + i < C ? widen(table[c + i]) : 0.f;
    }
    return y;
}

// A number as it is after a visit to memory.
template <typename T>
DEVICE float stored(float x)
{
    return widen(narrow<T>(x));
}

// ---------------------------------------------------------------- activations of fused kernels

enum Act { NONE, RELU, RELU6 };

// NaN passes through.
template <Act ACT>
DEVICE float activate(float x)
{
    if (ACT != NONE) x = x < 0.f ? 0.f : x;
    if (ACT == RELU6) x = x > 6.f ? 6.f : x;
    return x;
}

// The gradient that an activation lets through, given what went into it.
template <Act ACT>
DEVICE float masked(float gradient, float input)
{
    if (ACT != NONE && input <= 0.f) return 0.f;
    if (ACT == RELU6 && input >= 6.f) return 0.f;
    return gradient;
}

// ---------------------------------------------------------------- sums over a warp or a block

template <typename N>
DEVICE N warp_sum(N x)
{
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// Sum V columns a lane over the TALL rows of a block: thread t < WIDE * V gets the sum of column t, in a fixed order.
// All threads of the block must come here. Thread t is lane t % WIDE of row t / WIDE.
template <int WIDE, int TALL, int V>
DEVICE float fold_rows(Lanes<V> x)
{
    static_assert(TALL >= V, "a thread a column");
    __shared__ float rows[TALL][WIDE * V];
    __syncthreads();  // whoever still reads the last call's rows
#pragma unroll
    for (int i = 0; i < V; ++i) rows[threadIdx.x / WIDE][threadIdx.x % WIDE * V + i] = x.at[i];
    __syncthreads();
    float sum = 0.f;
    if (threadIdx.x < WIDE * V) {
#pragma unroll 8
        for (int r = 0; r < TALL; ++r) sum += rows[r][threadIdx.x];
    }
    return sum;
}

// The second stage of sums over rows: partial holds K times `splits` rows of C numbers. A block of 32 columns times 16
// adds them in a fixed order, in double precision; finish(c, sums) gets the K sums of column c, once for each column.
template <int K, typename Finish>
DEVICE void add_partials(const float* partial, int splits, int C, Finish finish)
{
    constexpr int TALL = 16;
    __shared__ double rows[K][TALL][32];
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
    double sum[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        sum[k] = 0.;
        if (c < C) {
#pragma unroll 4
            for (int s = row; s < splits; s += TALL) sum[k] += (double)partial[((i64)k * splits + s) * C + c];
        }
        rows[k][row][lane] = sum[k];
    }
    __syncthreads();
    if (row == 0 && c < C) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            sum[k] = 0.;
            for (int r = 0; r < TALL; ++r) sum[k] += rows[k][r][lane];
        }
        finish(c, sum);
    }
}

namespace trc {

// Activations, forward and backward, and sums of two arrays: element by element.
//
// The result may lie where an operand lies: a thread reads all it needs before it writes.

struct Relu {
    DEVICE float operator()(float x) const { return x < 0.f ? 0.f : x; }
};
struct Relu6 {
    DEVICE float operator()(float x) const { return activate<RELU6>(x); }
};
struct LeakyRelu {
    float slope;
    DEVICE float operator()(float x) const { return x > 0.f ? x : slope * x; }
};
struct Tanh {
    DEVICE float operator()(float x) const { return tanhf(x); }
};
DEVICE float sigmoid_of(float x) { return 1.f / (1.f + expf(-x)); }
struct Sigmoid {
    DEVICE float operator()(float x) const { return sigmoid_of(x); }
};
struct Silu {
    DEVICE float operator()(float x) const { return x * sigmoid_of(x); }
};
struct Hardswish {
    DEVICE float operator()(float x) const { return activate<RELU6>(x + 3.f) * x / 6.f; }
};
struct Elu {
    float alpha;
    DEVICE float operator()(float x) const { return x > 0.f ? x : alpha * expm1f(x); }
};

// Backward: the gradient and what was saved, which is the result y but for silu and hardswish (the input x).
struct ReluBwd {
    DEVICE float operator()(float dy, float y) const { return y <= 0.f ? 0.f : dy; }
};
struct Relu6Bwd {
    DEVICE float operator()(float dy, float y) const { return y <= 0.f || y >= 6.f ? 0.f : dy; }
};
struct LeakyReluBwd {
    float slope;
    DEVICE float operator()(float dy, float y) const { return y > 0.f ? dy : slope * dy; }
};
struct TanhBwd {
    DEVICE float operator()(float dy, float y) const { return (1.f - y * y) * dy; }
};
struct SigmoidBwd {
    DEVICE float operator()(float dy, float y) const { return (1.f - y) * y * dy; }
};
struct SiluBwd {
    DEVICE float operator()(float dy, float x) const
    {
        const float s = sigmoid_of(x);
        return ((1.f - s) * x + 1.f) * s * dy;
    }
};
struct HardswishBwd {
    DEVICE float operator()(float dy, float x) const
    {
        return x <= -3.f ? 0.f : x >= 3.f ? dy : (x / 3.f + 0.5f) * dy;
    }
};
struct EluBwd {
    float alpha;
    DEVICE float operator()(float dy, float y) const { return y > 0.f ? dy : (y + alpha) * dy; }
};
struct Add {
    DEVICE float operator()(float a, float b) const { return a + b; }
};

// ---------------------------------------------------------------- flat arrays

// y[i] = op(x[i]) of n elements. A block does U stretches of blockDim.x vectors, all loaded before the first is used.
template <typename T, int V, int U, typename Op>
DEVICE void map1(const T* x, T* y, i64 n, Op op)
{
    const i64 vectors = n / V, first = (i64)blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Vec<T, V> in[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) in[u] = load<V>(x + v * V);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            Lanes<V> value = widen(in[u]);
#pragma unroll
            for (int i = 0; i < V; ++i) value.at[i] = op(value.at[i]);
            store<V>(y + v * V, narrow<T>(value));
        }
    }
    const i64 rest = vectors * V + threadIdx.x;  // fewer than V elements behind the last vector
    if (blockIdx.x == 0 && rest < n) y[rest] = narrow<T>(op(widen(x[rest])));
}

// y[i] = op(a[i], b[i]).
template <typename T, int V, int U, typename Op>
DEVICE void map2(const T* a, const T* b, T* y, i64 n, Op op)
{
    const i64 vectors = n / V, first = (i64)blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Vec<T, V> left[U], right[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            left[u] = load<V>(a + v * V);
            right[u] = load<V>(b + v * V);
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            Lanes<V> value = widen(left[u]);
            const Lanes<V> other = widen(right[u]);
#pragma unroll
            for (int i = 0; i < V; ++i) value.at[i] = op(value.at[i], other.at[i]);
            store<V>(y + v * V, narrow<T>(value));
        }
    }
    const i64 rest = vectors * V + threadIdx.x;
    if (blockIdx.x == 0 && rest < n) y[rest] = narrow<T>(op(widen(a[rest]), widen(b[rest])));
}

// ---------------------------------------------------------------- padded rows

// The same for rows of C elements that are PX (PA, PB) and PY apart: one element of y a thread, padding included.
template <typename T, int C, int PX, int PY, typename Op>
DEVICE void map1_rows(const T* x, T* y, i64 rows, Op op)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int c = (int)(at % PY);
    if (row < rows) y[at] = narrow<T>(c < C ? op(widen(x[row * PX + c])) : 0.f);
}

template <typename T, int C, int PA, int PB, int PY, typename Op>
DEVICE void map2_rows(const T* a, const T* b, T* y, i64 rows, Op op)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int c = (int)(at % PY);
    if (row < rows) y[at] = narrow<T>(c < C ? op(widen(a[row * PA + c]), widen(b[row * PB + c])) : 0.f);
}

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

// Matrix products of small fully connected layers on the tensor cores: half operands, float sums.
//
// What counts is latency, so tiles are small and fill the device once, and the warps of a block share the K of its tile.
// Their sums meet in shared memory and are added in a fixed order; there the result is finished and rounded once.

// ---------------------------------------------------------------- warps and asynchronous copies

#ifndef TRC_EMULATOR  // the emulator has its own

DEVICE u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Four matrices of 8 x 8 halves. Lane l gives the address of row l % 8 of matrix l / 8, and gets of each the elements
// 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 (of column l / 4 if TRANSPOSED).
template <bool TRANSPOSED>
DEVICE void load_matrices(u32 (&to)[4], const void* row)
{
    const u32 from = shared_address(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

// c += a b of 16 x 16 and 16 x 8, as the lanes of a warp hold them.
template <typename T> DEVICE void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> DEVICE void multiply_add<__half>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> DEVICE void multiply_add<__nv_bfloat16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copy the first `valid` of BYTES bytes (4, 8 or 16) to shared memory, and zeros behind them.
template <int BYTES>
DEVICE void copy_async(void* to, const void* from, int valid)
{
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(shared_address(to)), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(shared_address(to)), "l"(from), "n"(BYTES), "r"(valid) : "memory");
}
DEVICE void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait for this thread's groups but the last N.
template <int N>
DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

#endif

// ---------------------------------------------------------------- tiles in shared memory

// Where element (r, c) of a tile with WIDE columns lies. Pieces of 16 bytes are permuted within a row so that eight
// rows' pieces of one column lie in different banks.
template <int WIDE>
DEVICE int place(int r, int c)
{
    constexpr int PIECES = WIDE / 8, GROUP = PIECES < 8 ? PIECES : 8, ROWS = 8 / GROUP;
    return r * WIDE + ((c / 8) ^ (r / ROWS % GROUP)) * 8 + c % 8;
}

// A matrix operand: `rows` rows of C elements, P apart. K runs along a row if K_INNER, else from row to row.
template <typename T, int C, int P, bool K_INNER>
struct Operand {
    const T* at;
    int rows;

    // Copy the tile of R x WIDE elements at (row, column) to shared memory, zeros where there is no element.
    template <int R, int WIDE, int THREADS>
    DEVICE void fetch(T* tile, int row, int column) const
    {
        constexpr int V = P % 8 == 0 ? 8 : P % 4 == 0 ? 4 : P % 2 == 0 ? 2 : 1, PIECES = WIDE / V, ALL = R * PIECES;
#pragma unroll
        for (int i = 0; i < ALL; i += THREADS) {
            const int piece = i + threadIdx.x, r = piece / PIECES, c = piece % PIECES * V;
            if (ALL % THREADS != 0 && piece >= ALL) break;
            const int left = row + r < rows ? C - (column + c) : 0, count = left < 0 ? 0 : left < V ? left : V;
            const T* from = count ? at + (row + r) * P + column + c : at;
            T* to = tile + place<WIDE>(r, c);
            if constexpr (V == 1)
                *to = count ? *from : narrow<T>(0.f);
            else
                copy_async<V * (int)sizeof(T)>(to, from, count * (int)sizeof(T));
        }
    }

    // The tile of SIDE rows or columns of the result from `first` on, and DEPTH of K from `k` on.
    template <int SIDE, int DEPTH, int THREADS>
    DEVICE void fetch_slab(T* tile, int first, int k) const
    {
        if (K_INNER)
            fetch<SIDE, DEPTH, THREADS>(tile, first, k);
        else
            fetch<DEPTH, SIDE, THREADS>(tile, k, first);
    }

    // 16 rows (columns if not LEFT) of the result from `side` on, and 16 of K, as multiply_add takes them.
    template <bool LEFT, int SIDE, int DEPTH>
    DEVICE static void fragment(u32 (&to)[4], const T* tile, int side, int k)
    {
        const int lane = threadIdx.x % 32, matrix = lane / 8;
        const int low = matrix % 2 * 8, high = matrix / 2 * 8;
        const int s = side + (LEFT ? low : high), d = k + (LEFT ? high : low);
        if (K_INNER)
            load_matrices<false>(to, tile + place<DEPTH>(s + lane % 8, d));
        else
            load_matrices<true>(to, tile + place<SIDE>(d + lane % 8, s));
    }
};

// ---------------------------------------------------------------- the product

// The larger of a block's two uses of shared memory: STAGES slabs of both operands, or the sums of SPLITS warps.
template <typename T, int BM, int BN, int BK, int SPLITS, int STAGES>
struct Room {
    static constexpr int SLAB = (BM + BN) * BK, PITCH = BN + 8;  // sums of eight rows lie in different banks
    static constexpr int SLABS = STAGES * SLAB * (int)sizeof(T), SUMS = SPLITS * BM * PITCH * 4;
    static constexpr int BYTES = SLABS > SUMS ? SLABS : SUMS;
};

// finish(m, n, sums) for the result's tile of BM x BN at block (y, x), where result[m][n] = sum over k of
// a[m][k] b[n][k]; `finish.before(m, n)` is asked first, so that what it loads is there in time.
//
// A warp has 32 x 32 of the tile (16 where it has no more) and every SPLITS-th 16 of K. Slabs of BK of K are fetched
// STAGES - 1 ahead.
template <typename T, int BM, int BN, int BK, int SPLITS, int STAGES, typename A, typename B, typename Finish>
DEVICE void product(A a, B b, int K, Finish finish)
{
    constexpr int TM = BM < 32 ? BM : 32, TN = BN < 32 ? BN : 32, DOWN = BM / TM, ACROSS = BN / TN;
    constexpr int THREADS = 32 * DOWN * ACROSS * SPLITS, V = Finish::V, GROUPS = BN / V, ALL = BM * GROUPS;
    constexpr int ITEMS = (ALL + THREADS - 1) / THREADS;
    typedef Room<T, BM, BN, BK, SPLITS, STAGES> R;
    static_assert(BK % (16 * SPLITS) == 0 && STAGES >= 2, "each warp has its share of a slab");
    __shared__ uint4 memory[R::BYTES / 16];
    T* const slabs = reinterpret_cast<T*>(memory);
    float* const sums = reinterpret_cast<float*>(memory);
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int split = warp / (DOWN * ACROSS), m1 = warp % DOWN * TM, n1 = warp / DOWN % ACROSS * TN;
    const int count = (K + BK - 1) / BK;

    typename Finish::Before before[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int item = i * THREADS + threadIdx.x;
        if (ALL % THREADS == 0 || item < ALL) before[i] = finish.before(m0 + item / GROUPS, n0 + item % GROUPS * V);
    }
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) {
            a.template fetch_slab<BM, BK, THREADS>(slabs + s * R::SLAB, m0, s * BK);
            b.template fetch_slab<BN, BK, THREADS>(slabs + s * R::SLAB + BM * BK, n0, s * BK);
        }
        copies_end_group();
    }
    float c[TM / 16][TN / 8][4] = {};
    for (int s = 0; s < count; ++s) {
        copies_wait<STAGES - 2>();
        __syncthreads();  // the slab is there, and the one before it has been used by all
        if (const int next = s + STAGES - 1; next < count) {
            T* const to = slabs + next % STAGES * R::SLAB;
            a.template fetch_slab<BM, BK, THREADS>(to, m0, next * BK);
            b.template fetch_slab<BN, BK, THREADS>(to + BM * BK, n0, next * BK);
        }
        copies_end_group();
        const T* const slab = slabs + s % STAGES * R::SLAB;
#pragma unroll
        for (int j = 0; j < BK; j += 16 * SPLITS) {
            const int k = j + split * 16;
            u32 left[TM / 16][4], right[TN / 16][4];
#pragma unroll
            for (int i = 0; i < TM / 16; ++i) A::template fragment<true, BM, BK>(left[i], slab, m1 + i * 16, k);
#pragma unroll
            for (int i = 0; i < TN / 16; ++i) B::template fragment<false, BN, BK>(right[i], slab + BM * BK, n1 + i * 16, k);
#pragma unroll
            for (int i = 0; i < TM / 16; ++i)
#pragma unroll
                for (int n = 0; n < TN / 8; ++n)
                    multiply_add<T>(c[i][n], left[i], right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TM / 16; ++i)
#pragma unroll
        for (int n = 0; n < TN / 8; ++n)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = split * BM + m1 + i * 16 + h * 8 + lane / 4, column = n1 + n * 8 + lane % 4 * 2;
                store<2>(sums + row * R::PITCH + column, Vec<float, 2>{c[i][n][h * 2], c[i][n][h * 2 + 1]});
            }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int item = i * THREADS + threadIdx.x, row = item / GROUPS, column = item % GROUPS * V;
        if (ALL % THREADS != 0 && item >= ALL) break;
        Lanes<V> sum = {};
#pragma unroll
        for (int p = 0; p < SPLITS; ++p) {
            constexpr int W = V < 4 ? V : 4;
#pragma unroll
            for (int v = 0; v < V; v += W) {
                const Vec<float, W> part = load<W>(sums + (p * BM + row) * R::PITCH + column + v);
#pragma unroll
                for (int w = 0; w < W; ++w) sum.at[v + w] += part.at[w];
            }
        }
        finish(m0 + row, n0 + column, sum, before[i]);
    }
}

// ---------------------------------------------------------------- what becomes of the sums

// y[m][n] = act(sum + bias[n]), of `rows` rows of C elements, P apart; the rest of a row is zero.
template <typename T, int C, int P, bool BIAS, Act ACT>
struct StoreRows {
    static constexpr int V = P % 8 == 0 ? 8 : 1;
    T* y;
    const float* bias;
    int rows;
    typedef Lanes<V> Before;
    DEVICE Before before(int, int n) const
    {
        Before b = {};
        if (BIAS && n < P) b = channel_values<C, V>(bias, n);
        return b;
    }
    DEVICE void operator()(int m, int n, Lanes<V> sum, const Before& b) const
    {
        if (m >= rows || n >= P) return;
#pragma unroll
        for (int i = 0; i < V; ++i) sum.at[i] = activate<ACT>(sum.at[i] + b.at[i]);
        store<V>(y + m * P + n, narrow_channels<T, C>(sum, n));
    }
};

// dx[m][n] = sum, where the activation whose result was x[m][n] lets it through.
template <typename T, int C, int P, Act ACT>
struct StoreMasked {
    static constexpr int V = P % 8 == 0 ? 8 : 1;
    T* dx;
    const T* x;
    int rows;
    typedef Vec<T, V> Before;
    DEVICE Before before(int m, int n) const
    {
        Before b = {};
        if (ACT != NONE && m < rows && n < P) b = load<V>(x + m * P + n);
        return b;
    }
    DEVICE void operator()(int m, int n, Lanes<V> sum, const Before& b) const
    {
        if (m >= rows || n >= P) return;
#pragma unroll
        for (int i = 0; i < V; ++i)
            if (ACT != NONE) sum.at[i] = masked<ACT>(sum.at[i], widen(b.at[i]));
        store<V>(dx + m * P + n, narrow_channels<T, C>(sum, n));
    }
};

// A dense float result of `rows` rows of C elements.
template <int C>
struct StoreSums {
    static constexpr int V = C % 4 == 0 ? 4 : 1;
    float* out;
    int rows;
    struct Before {};
    DEVICE Before before(int, int) const { return {}; }
    DEVICE void operator()(int m, int n, Lanes<V> sum, Before) const
    {
        if (m < rows && n < C) store<V>(out + m * C + n, narrow<float>(sum));
    }
};

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

// Optimizers as updates of whole ranges of float32 numbers, four at a time.
//
//   g' = g / scaling;  g' += weight_decay w                        decay l2
//   SGD        w -= lr g'
//   momentum   m = beta1 m + g';  w -= lr m;  nesterov: w -= lr (g' + beta1 m)
//   Adam       m += (1 - beta1) (g' - m);  v += (1 - beta2) (g'^2 - v);  w -= lr bc1 / r * m / (sqrt(v) + eps / r)
//              with r = sqrt(bc2)
//   decay decoupled: w -= lr weight_decay w besides, with the old w
//
// Nothing changes when has_nan is set. The gaps between slots hold zeros, and stay zero. Ranges are multiples of 64
// elements, since slots are of 256 bytes.

enum Decay { NO_DECAY, L2, DECOUPLED };

// The shortest decimal number that is stored as x, a number in (0, 1]: 1 - beta loses most digits of a stored beta, so
// what the user wrote is recovered.
DEVICE double decimal_of(float x)
{
    double power = 1.;
    for (int digits = 0; digits < 18; ++digits) {
        const double candidate = rint((double)x * power) / power;
        if ((float)candidate == x) return candidate;
        power *= 10.;
    }
    return (double)x;
}

// Division by the loss scale. The product with the inverse is exact where the scale is a power of two, as it is unless
// somebody chose otherwise.
struct Unscale {
    float scaling, inverse;
    bool exact;
    DEVICE explicit Unscale(float s) : scaling(s), inverse(1.f / s), exact((__float_as_uint(s) & 0x7fffffu) == 0u) {}
    DEVICE float operator()(float g) const { return exact ? g * inverse : __fdiv_rn(g, scaling); }
};

template <int DECAY>
DEVICE float decayed(float g, float w, float weight_decay)
{
    return DECAY == L2 ? w * weight_decay + g : g;
}

template <int DECAY>
DEVICE float stepped(float w, float step, float shrink)
{
    return w - (DECAY == DECOUPLED ? w * shrink + step : step);
}

template <int DECAY>
DEVICE void sgd(const float* g, float* w, i64 n, const float* lr, const float* weight_decay, const float* scaling,
                const int* has_nan)
{
    const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (at >= n || *has_nan) return;
    Vec<float, 4> gradient = load<4>(g + at), weight = load<4>(w + at);
    const float rate = *lr, decay = DECAY ? *weight_decay : 0.f;
    const Unscale unscale(*scaling);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float d = decayed<DECAY>(unscale(gradient.at[i]), weight.at[i], decay);
        weight.at[i] = stepped<DECAY>(weight.at[i], d * rate, rate * decay);
    }
    store<4>(w + at, weight);
}

template <int DECAY, bool NESTEROV>
DEVICE void momentum(const float* g, float* w, float* m, i64 n, const float* lr, const float* beta1,
                     const float* weight_decay, const float* scaling, const int* has_nan)
{
    const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (at >= n || *has_nan) return;
    Vec<float, 4> gradient = load<4>(g + at), weight = load<4>(w + at), moment = load<4>(m + at);
    const float rate = *lr, decay = DECAY ? *weight_decay : 0.f, beta = *beta1;
    const Unscale unscale(*scaling);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float d = decayed<DECAY>(unscale(gradient.at[i]), weight.at[i], decay);
        moment.at[i] = moment.at[i] * beta + d;
        const float direction = NESTEROV ? moment.at[i] * beta + d : moment.at[i];
        weight.at[i] = stepped<DECAY>(weight.at[i], direction * rate, rate * decay);
    }
    store<4>(w + at, weight);
    store<4>(m + at, moment);
}

// The factors of a step are computed by one thread of each block, in double precision, while the others load.
template <int DECAY>
DEVICE void adam(const float* g, float* w, float* m, float* v, i64 n, const float* lr, const float* beta1,
                 const float* beta2, const float* eps, const float* weight_decay, const float* correction1,
                 const float* correction2, const float* scaling, const int* has_nan)
{
    __shared__ float factors[4];
    if (*has_nan) return;
    const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    Vec<float, 4> gradient, weight, first, second;
    if (at < n) {
        gradient = load<4>(g + at);
        weight = load<4>(w + at);
        first = load<4>(m + at);
        second = load<4>(v + at);
    }
    const float rate = *lr, decay = DECAY ? *weight_decay : 0.f;
    const Unscale unscale(*scaling);
    if (threadIdx.x == 0) {
        const double root = sqrt((double)*correction2);
        factors[0] = (float)(1. - decimal_of(*beta1));
        factors[1] = (float)(1. - decimal_of(*beta2));
        factors[2] = (float)((double)rate * (double)*correction1 / root);
        factors[3] = (float)((double)*eps / root);
    }
    __syncthreads();
    if (at >= n) return;
    const float new1 = factors[0], new2 = factors[1], factor = factors[2], small = factors[3];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float d = decayed<DECAY>(unscale(gradient.at[i]), weight.at[i], decay);
        first.at[i] += (d - first.at[i]) * new1;
        second.at[i] += (d * d - second.at[i]) * new2;
        const float step = first.at[i] / (sqrtf(second.at[i]) + small) * factor;
        weight.at[i] = stepped<DECAY>(weight.at[i], step, rate * decay);
    }
    store<4>(w + at, weight);
    store<4>(m + at, first);
    store<4>(v + at, second);
}

// What steers a step: learning rate, counters, loss scale, metrics, the check for NaN, running statistics.
// The kernels of a few numbers run in one thread.

DEVICE void fetch_rate(const float* table, const int* iteration, float* lr, int length)
{
    const int at = *iteration;
    *lr = table[at < length ? at : length - 1];
}

// The iteration always counts, applied only steps that were not skipped.
DEVICE void count_step(int* iteration, int* applied, const int* has_nan)
{
    *iteration += 1;
    if (!*has_nan) *applied += 1;
}

// 1 / (1 - beta ^ (applied + 1)), in double precision and rounded once.
DEVICE void bias_correction(const float* beta1, const float* beta2, const int* applied, float* correction1,
                            float* correction2)
{
    const double time = (double)*applied + 1.;
    *correction1 = (float)(1. / (1. - pow(decimal_of(*beta1), time)));
    *correction2 = (float)(1. / (1. - pow(decimal_of(*beta2), time)));
}

// Halve the scale after a skipped step, down to 1; double it after every 2000 good ones, up to 2^24.
DEVICE void scale_update(float* scaling, int* growth_counter, const int* has_nan)
{
    if (*has_nan) {
        *scaling = fmaxf(*scaling / 2.f, 1.f);
        *growth_counter = 0;
    } else if (*growth_counter + 1 >= 2000) {
        *scaling = fminf(*scaling * 2.f, 16777216.f);
        *growth_counter = 0;
    } else {
        *growth_counter += 1;
    }
}

DEVICE void accumulate_metrics(const float* loss, const float* top1, const float* top5, float* sum_loss,
                               float* sum_top1, float* sum_top5, const int* batch_size, const int* has_nan)
{
    if (*has_nan) return;
    *sum_loss += (float)((double)*loss * *batch_size);
    *sum_top1 += *top1;
    *sum_top5 += *top5;
}

// First stage of has_nan = whether any of n numbers is NaN or infinite: a flag a block.
template <int U>
DEVICE void find_nan(const float* __restrict__ x, int* flags, i64 n)
{
    const i64 vectors = n / 4, step = (i64)gridDim.x * blockDim.x;
    bool bad = false;
    for (i64 v = (i64)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += step * U) {
        Vec<float, 4> in[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (v + u * step < vectors) in[u] = load<4>(x + (v + u * step) * 4);
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (v + u * step < vectors) {
#pragma unroll
                for (int i = 0; i < 4; ++i) bad |= !(fabsf(in[u].at[i]) <= 3.402823466e38f);
            }
    }
    const int any = __syncthreads_or(bad);
    if (threadIdx.x == 0) flags[blockIdx.x] = any != 0;
}

// The second stage, one block.
DEVICE void any_flag(const int* flags, int* has_nan, int count)
{
    int bad = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) bad |= flags[i];
    const int any = __syncthreads_or(bad);
    if (threadIdx.x == 0) *has_nan = any != 0;
}

// prev = next, unless the step is skipped; n is a multiple of 4.
DEVICE void commit_stats(const float* next, float* prev, i64 n, const int* has_nan)
{
    const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (at < n && !*has_nan) store<4>(prev + at, load<4>(next + at));
}

}  // namespace trc

using namespace trc;

extern "C" __global__ void __launch_bounds__(1)
accumulate_metrics__f32(const float* loss, const float* top1, const float* top5, float* accum_loss, float* accum_top1, float* accum_top5, const int* batch_size, const int* has_nan)
{
    accumulate_metrics(loss, top1, top5, accum_loss, accum_top1, accum_top5, batch_size, has_nan);
}

extern "C" __global__ void __launch_bounds__(256)
adam_update__f32_decoupled(const float* g, float* w, float* m, float* v, i64 n, const float* lr, const float* beta1, const float* beta2, const float* eps, const float* weight_decay, const float* correction1, const float* correction2, const float* scaling, const int* has_nan)
{
    adam<DECOUPLED>(g, w, m, v, n, lr, beta1, beta2, eps, weight_decay, correction1, correction2, scaling, has_nan);
}

extern "C" __global__ void __launch_bounds__(256)
adam_update__f32_none(const float* g, float* w, float* m, float* v, i64 n, const float* lr, const float* beta1, const float* beta2, const float* eps, const float* weight_decay, const float* correction1, const float* correction2, const float* scaling, const int* has_nan)
{
    adam<NO_DECAY>(g, w, m, v, n, lr, beta1, beta2, eps, weight_decay, correction1, correction2, scaling, has_nan);
}

extern "C" __global__ void __launch_bounds__(256)
any_flag__i32(const int* flags, int* has_nan, int count)
{
    any_flag(flags, has_nan, count);
}

extern "C" __global__ void __launch_bounds__(256, 4)
avg_pool_bwd__f16_c16_p16_k2_s2_q0(const __half* dy, __half* dx, int batch, int height, int width, int out_height, int out_width)
{
    avg_pool_backward<__half, 16, 16, 16, 8, 2, 2, 0>(dy, dx, batch, height, width, out_height, out_width);
}

extern "C" __global__ void __launch_bounds__(256, 4)
avg_pool_bwd__f16_c8_p8_k2_s2_q0(const __half* dy, __half* dx, int batch, int height, int width, int out_height, int out_width)
{
    avg_pool_backward<__half, 8, 8, 8, 8, 2, 2, 0>(dy, dx, batch, height, width, out_height, out_width);
}

extern "C" __global__ void __launch_bounds__(256, 4)
avg_pool_fwd__f16_c16_p16_k2_s2_q0(const __half* x, __half* y, int batch, int height, int width, int out_height, int out_width)
{
    avg_pool<__half, 16, 16, 16, 8, 2, 2, 0>(x, y, batch, height, width, out_height, out_width);
}

extern "C" __global__ void __launch_bounds__(256, 4)
avg_pool_fwd__f16_c8_p8_k2_s2_q0(const __half* x, __half* y, int batch, int height, int width, int out_height, int out_width)
{
    avg_pool<__half, 8, 8, 8, 8, 2, 2, 0>(x, y, batch, height, width, out_height, out_width);
}

extern "C" __global__ void __launch_bounds__(1)
bias_correction__f32(const float* beta1, const float* beta2, const int* applied, float* correction1, float* correction2)
{
    bias_correction(beta1, beta2, applied, correction1, correction2);
}

extern "C" __global__ void __launch_bounds__(256)
cast__f16_f32(const __half* x, float* y, i64 n)
{
    cast<__half, float, 8, 2>(x, y, n);
}

extern "C" __global__ void __launch_bounds__(256)
cast__f32_f16(const float* x, __half* y, i64 n)
{
    cast<float, __half, 8, 2>(x, y, n);
}

extern "C" __global__ void __launch_bounds__(256)
column_sums__f16_c10_p16(const __half* dy, float* out, i64 rows)
{
    column_sums<__half, 10, 16, 8, 2, 128, 4>(dy, out, rows);
}

extern "C" __global__ void __launch_bounds__(255)
column_sums__f16_c120_p120(const __half* dy, float* out, i64 rows)
{
    column_sums<__half, 120, 120, 8, 15, 17, 4>(dy, out, rows);
}

extern "C" __global__ void __launch_bounds__(253)
column_sums__f16_c88_p88(const __half* dy, float* out, i64 rows)
{
    column_sums<__half, 88, 88, 8, 11, 23, 4>(dy, out, rows);
}

extern "C" __global__ void __launch_bounds__(1)
count_step__f32(int* iteration, int* applied, const int* has_nan)
{
    count_step(iteration, applied, has_nan);
}

extern "C" __global__ void __launch_bounds__(32)
fc_bwd_data__f16_k10_p16_n88_p88_of_relu_t16x16x32_w1_s2(const __half* dy, const __half* weight, const __half* x, __half* dx, int rows)
{
    product<__half, 16, 16, 32, 1, 2>(Operand<__half, 10, 16, true>{dy, rows}, Operand<__half, 88, 88, false>{weight, 10}, 10, StoreMasked<__half, 88, 88, RELU>{dx, x, rows});
}

extern "C" __global__ void __launch_bounds__(256)
fc_bwd_data__f16_k120_p120_n400_p400_t16x32x128_w8_s2(const __half* dy, const __half* weight, __half* dx, int rows)
{
    product<__half, 16, 32, 128, 8, 2>(Operand<__half, 120, 120, true>{dy, rows}, Operand<__half, 400, 400, false>{weight, 120}, 120, StoreMasked<__half, 400, 400, NONE>{dx, nullptr, rows});
}

extern "C" __global__ void __launch_bounds__(256)
fc_bwd_data__f16_k88_p88_n120_p120_of_relu_t16x16x128_w8_s2(const __half* dy, const __half* weight, const __half* x, __half* dx, int rows)
{
    product<__half, 16, 16, 128, 8, 2>(Operand<__half, 88, 88, true>{dy, rows}, Operand<__half, 120, 120, false>{weight, 88}, 88, StoreMasked<__half, 120, 120, RELU>{dx, x, rows});
}

extern "C" __global__ void __launch_bounds__(256)
fc_bwd_weight__f16_m10_p16_n88_p88_t16x16x128_w8_s2(const __half* dy, const __half* x, float* dweight, int rows)
{
    product<__half, 16, 16, 128, 8, 2>(Operand<__half, 10, 16, false>{dy, rows}, Operand<__half, 88, 88, false>{x, rows}, rows, StoreSums<88>{dweight, 10});
}

extern "C" __global__ void __launch_bounds__(256)
fc_bwd_weight__f16_m120_p120_n400_p400_t16x32x128_w8_s2(const __half* dy, const __half* x, float* dweight, int rows)
{
    product<__half, 16, 32, 128, 8, 2>(Operand<__half, 120, 120, false>{dy, rows}, Operand<__half, 400, 400, false>{x, rows}, rows, StoreSums<400>{dweight, 120});
}

extern "C" __global__ void __launch_bounds__(256)
fc_bwd_weight__f16_m88_p88_n120_p120_t16x16x128_w8_s2(const __half* dy, const __half* x, float* dweight, int rows)
{
    product<__half, 16, 16, 128, 8, 2>(Operand<__half, 88, 88, false>{dy, rows}, Operand<__half, 120, 120, false>{x, rows}, rows, StoreSums<120>{dweight, 88});
}

extern "C" __global__ void __launch_bounds__(256)
fc_fwd__f16_k120_p120_n88_p88_bias_relu_t16x16x128_w8_s2(const __half* x, const __half* weight, const float* bias, __half* y, int rows)
{
    product<__half, 16, 16, 128, 8, 2>(Operand<__half, 120, 120, true>{x, rows}, Operand<__half, 120, 120, true>{weight, 88}, 120, StoreRows<__half, 88, 88, true, RELU>{y, bias, rows});
}

extern "C" __global__ void __launch_bounds__(256)
fc_fwd__f16_k400_p400_n120_p120_bias_relu_t16x16x128_w8_s5(const __half* x, const __half* weight, const float* bias, __half* y, int rows)
{
    product<__half, 16, 16, 128, 8, 5>(Operand<__half, 400, 400, true>{x, rows}, Operand<__half, 400, 400, true>{weight, 120}, 400, StoreRows<__half, 120, 120, true, RELU>{y, bias, rows});
}

extern "C" __global__ void __launch_bounds__(256)
fc_fwd__f16_k88_p88_n10_p16_bias_t16x16x128_w8_s2(const __half* x, const __half* weight, const float* bias, __half* y, int rows)
{
    product<__half, 16, 16, 128, 8, 2>(Operand<__half, 88, 88, true>{x, rows}, Operand<__half, 88, 88, true>{weight, 10}, 88, StoreRows<__half, 10, 16, true, NONE>{y, bias, rows});
}

extern "C" __global__ void __launch_bounds__(1)
fetch_rate__f32(const float* table, const int* iteration, float* lr, int length)
{
    fetch_rate(table, iteration, lr, length);
}

extern "C" __global__ void __launch_bounds__(256)
find_nan__f32(const float* x, int* flags, i64 n)
{
    find_nan<4>(x, flags, n);
}

extern "C" __global__ void __launch_bounds__(256)
relu_bwd__f16(const __half* a, const __half* b, __half* y, i64 n)
{
    map2<__half, 8, 2>(a, b, y, n, ReluBwd{});
}

extern "C" __global__ void __launch_bounds__(256)
relu_fwd__f16(const __half* x, __half* y, i64 n)
{
    map1<__half, 8, 4>(x, y, n, Relu{});
}

extern "C" __global__ void __launch_bounds__(256)
resize__f16_c1_p4_c8_p8(const __half* x, __half* y, i64 rows)
{
    resize_rows<__half, 1, 4, 8, 8>(x, y, rows);
}

extern "C" __global__ void __launch_bounds__(1)
scale_update__f32(float* scaling, int* growth_counter, const int* has_nan)
{
    scale_update(scaling, growth_counter, has_nan);
}

extern "C" __global__ void __launch_bounds__(256)
softmax_ce_bwd__f16_c10_p16(const float* probs, const int* label, __half* dlogits, const float* scaling, int samples, float smoothing)
{
    softmax_backward<__half, 10, 16, 8>(probs, label, dlogits, scaling, samples, smoothing);
}

extern "C" __global__ void __launch_bounds__(256)
softmax_ce_fwd__f16_c10_p16_whole(const __half* logits, const int* label, float* probs, float* row_loss, float* rank, float* loss, float* top1, float* top5, int samples, float smoothing)
{
    softmax_rows<__half, 10, 16, 1, 256, true>(logits, label, probs, row_loss, rank, loss, top1, top5, samples, smoothing);
}

extern "C" __global__ void __launch_bounds__(256)
softmax_ce_infer__f16_c10_p16_whole(const __half* logits, const int* label, int* predicted, float* row_loss, float* rank, float* loss, float* top1, float* top5, int samples, float smoothing)
{
    predict_rows<__half, 10, 16, 1, 256, true>(logits, label, predicted, row_loss, rank, loss, top1, top5, samples, smoothing);
}
