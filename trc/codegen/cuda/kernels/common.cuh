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
