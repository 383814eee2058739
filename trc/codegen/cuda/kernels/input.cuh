// Images that come as unsigned bytes become numbers.

// y = x * scale + shift, one factor and one term a channel, product and sum each rounded to float (never fused, so that
// the host gets the same bits), then to T. Rows of C bytes become rows of P elements, with zeros behind the first C.
//
// Each block writes a tile of blockDim.x * U vectors of 16 bytes. The bytes of a tile are one run of memory: they come
// into shared memory in vectors too, whatever C is, since a row of one or three bytes suits no vector.
template <typename T, int C, int P, int U>
DEVICE void normalise_input(const u8* x, const float* scale, const float* shift, T* y, i64 rows)
{
    constexpr int V = 16 / (int)sizeof(T), MOST = 256 * U * V;
    // A tile has no more bytes than elements, and up to 15 before and behind them that fill whole vectors.
    __shared__ uint4 vectors[MOST / 16 + 2];
    u8* const tile = reinterpret_cast<u8*>(vectors);
    const i64 size = (i64)blockDim.x * U * V, first = blockIdx.x * size;
    const i64 count = rows * P, bytes = rows * C;
    const i64 row = first / P, next = first + size;
    const int column = V % P == 0 ? 0 : (int)(first % P);
    const i64 begin = row * C + (column < C ? column : C);
    const i64 begun = begin / 16 * 16;
    i64 end = next / P * C + (next % P < C ? next % P : C);
    if (end > bytes) end = bytes;
    for (i64 at = begun + threadIdx.x * 16; at < end; at += blockDim.x * 16) {
        u8* const to = tile + (at - begun);
        if (at + 16 <= bytes) {
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(x + at);
        } else {
            for (int i = 0; at + i < bytes; ++i) to[i] = x[at + i];
        }
    }
    __syncthreads();
    // Where the tile's first row would begin in shared memory, which may be in front of it.
    const int base = (int)(row * C - begun);
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const int at = (u * (int)blockDim.x + (int)threadIdx.x) * V;
        if (first + at >= count) continue;
        Lanes<V> value;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const int e = column + at + i, c = V % P == 0 ? i % P : e % P;
            value.at[i] = 0.f;
            if (c < C) {  // lanes behind the last row have a place in the tile too, but are not stored
                const float pixel = (float)tile[base + e / P * C + c];
                value.at[i] = __fadd_rn(__fmul_rn(pixel, scale[c]), shift[c]);
            }
        }
        T* const to = y + first + at;
        if (P % V == 0 || first + at + V <= count) {
            store<V>(to, narrow<T>(value));
        } else {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (first + at + i < count) to[i] = narrow<T>(value.at[i]);
        }
    }
}
