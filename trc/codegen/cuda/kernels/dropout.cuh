// Dropout with Philox4x32-10 (Salmon et al. 2011), as trc_runtime/rng.py has it: key = seed, counter =
// (stream, iteration, sample, element / 4); element e takes word e % 4, and is kept where word >= threshold, which is
// 2^8 ceil(2^24 p). So a sample's mask depends neither on its batch nor on the target.

struct Words {
    u32 at[4];
};

DEVICE Words philox(u32 k0, u32 k1, u32 c0, u32 c1, u32 c2, u32 c3)
{
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

// y = x mask scale for samples of `row` elements without padding, V (a multiple of 4) of them a thread.
template <typename T, int V, bool MASK>
DEVICE void dropout(const T* x, T* y, i8* mask, const u32* __restrict__ seed, const int* __restrict__ iteration,
                    int samples, int row, int stream, i64 threshold, float scale)
{
    static_assert(V % 4 == 0, "whole counters");
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (first >= (i64)samples * row) return;
    Vec<T, V> in = load<V>(x + first);
    Lanes<V> value;
    Vec<i8, V> kept;
    const u32 k0 = seed[0], k1 = seed[1], step = (u32)*iteration, sample = (u32)(first / row);
    const u32 quad = (u32)(first % row) / 4;
#pragma unroll
    for (int q = 0; q < V / 4; ++q) {
        const Words words = philox(k0, k1, (u32)stream, step, sample, quad + q);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool keep = (i64)words.at[i] >= threshold;
            kept.at[4 * q + i] = keep;
            value.at[4 * q + i] = widen(in.at[4 * q + i]) * (keep ? 1.f : 0.f) * scale;
        }
    }
    store<V>(y + first, narrow<T>(value));
    if (MASK) store<V>(mask + first, kept);
}

// The same where rows of C elements are PX, PY and PM apart, `cells` rows a sample: one element a thread.
template <typename T, int C, int PX, int PY, int PM, bool MASK>
DEVICE void dropout_rows(const T* x, T* y, i8* mask, const u32* __restrict__ seed, const int* __restrict__ iteration,
                         int samples, int cells, int stream, i64 threshold, float scale)
{
    constexpr int WIDEST = PY > PM ? PY : PM;
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / WIDEST;
    const int c = (int)(at % WIDEST);
    if (row >= (i64)samples * cells) return;
    float value = 0.f;
    bool keep = false;
    if (c < C) {
        const i64 element = row % cells * C + c;
        const Words words = philox(seed[0], seed[1], (u32)stream, (u32)*iteration, (u32)(row / cells), (u32)(element / 4));
        const int i = (int)(element % 4);
        const u32 word = i == 0 ? words.at[0] : i == 1 ? words.at[1] : i == 2 ? words.at[2] : words.at[3];
        keep = (i64)word >= threshold;
        value = widen(x[row * PX + c]) * (keep ? 1.f : 0.f) * scale;
    }
    if (c < PY) y[row * PY + c] = narrow<T>(value);
    if (MASK && c < PM) mask[row * PM + c] = keep;
}

// dx = dy mask scale.
template <typename T, int V>
DEVICE void dropout_backward(const T* dy, const i8* mask, T* dx, i64 n, float scale)
{
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (first >= n) return;
    Lanes<V> value = widen(load<V>(dy + first));
    const Vec<i8, V> kept = load<V>(mask + first);
#pragma unroll
    for (int i = 0; i < V; ++i) value.at[i] = value.at[i] * (float)kept.at[i] * scale;
    store<V>(dx + first, narrow<T>(value));
}

template <typename T, int C, int PX, int PM, int PY>
DEVICE void dropout_backward_rows(const T* dy, const i8* mask, T* dx, i64 rows, float scale)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int c = (int)(at % PY);
    if (row >= rows) return;
    dx[at] = narrow<T>(c < C ? widen(dy[row * PX + c]) * (float)mask[row * PM + c] * scale : 0.f);
}
