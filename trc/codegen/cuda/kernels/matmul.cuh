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
