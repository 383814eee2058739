// Tensor cores and asynchronous copies for the emulator, as kernels/matmul.cuh calls them.
//
// The lanes of a warp meet as they do for a shuffle, with an address or a fragment each. Copies arrive when their
// thread waits for them and not before.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <deque>

#define TRC_EMULATOR

namespace emulator {

struct Copy {
    void* to;
    const void* from;
    int bytes, valid;
};

struct Lane {
    const void* row[2];  // by turns
    unsigned int a[2][4], b[2][2];
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
};

static std::vector<Lane> lanes;

static Lane& lane(unsigned int t)
{
    if (lanes.size() < fibers.size()) lanes.resize(fibers.size());
    return lanes[t];
}

// Meet the warp; the turn of what was offered, and the number of the warp's first thread.
static int meet(unsigned int& first)
{
    Fiber& me = fibers[current];
    const int turn = me.turn;
    me.turn ^= 1;
    first = current / 32 * 32;
    wait(AT_SHUFFLE);
    return turn;
}

static void finish_copies(size_t left)
{
    Lane& me = lane(current);
    for (; me.groups.size() > left; me.groups.pop_front())
        for (const Copy& c : me.groups.front()) {
            std::memset(c.to, 0, c.bytes);
            std::memcpy(c.to, c.from, c.valid);
        }
}

inline float number(__half, unsigned short bits)
{
    __half x;
    std::memcpy(&x, &bits, 2);
    return __half2float(x);
}
inline float number(__nv_bfloat16, unsigned short bits)
{
    __nv_bfloat16 x;
    std::memcpy(&x, &bits, 2);
    return __bfloat162float(x);
}

}  // namespace emulator

template <bool TRANSPOSED>
inline void load_matrices(unsigned int (&to)[4], const void* row)
{
    using namespace emulator;
    const unsigned int me = current;
    if (reinterpret_cast<size_t>(row) % 16) std::fprintf(stderr, "emulator: an unaligned row of a matrix\n"), std::abort();
    lane(me).row[fibers[me].turn] = row;
    unsigned int first;
    const int turn = meet(first), l = me - first;
    for (int m = 0; m < 4; ++m) {
        unsigned short pair[2];
        for (int e = 0; e < 2; ++e) {
            const int r = TRANSPOSED ? l % 4 * 2 + e : l / 4, c = TRANSPOSED ? l / 4 : l % 4 * 2 + e;
            pair[e] = static_cast<const unsigned short*>(lane(first + m * 8 + r).row[turn])[c];
        }
        to[m] = pair[0] | (unsigned int)pair[1] << 16;
    }
}

template <typename T>
inline void multiply_add(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    using namespace emulator;
    const unsigned int me = current;
    const int mine = fibers[me].turn;
    std::memcpy(lane(me).a[mine], a, sizeof(a));
    lane(me).b[mine][0] = b0;
    lane(me).b[mine][1] = b1;
    unsigned int first;
    const int turn = meet(first), l = me - first;
    for (int i = 0; i < 4; ++i) {
        const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
        double sum = c[i];
        for (int k = 0; k < 16; ++k) {
            const unsigned int left = lane(first + row % 8 * 4 + k % 8 / 2).a[turn][row / 8 + k / 8 * 2];
            const unsigned int right = lane(first + column * 4 + k % 8 / 2).b[turn][k / 8];
            sum += (double)number(T(), left >> k % 2 * 16 & 0xffff) * number(T(), right >> k % 2 * 16 & 0xffff);
        }
        c[i] = (float)sum;
    }
}

template <int BYTES>
inline void copy_async(void* to, const void* from, int valid)
{
    if (reinterpret_cast<size_t>(to) % BYTES || reinterpret_cast<size_t>(from) % BYTES || valid < 0 || valid > BYTES)
        std::fprintf(stderr, "emulator: a bad asynchronous copy\n"), std::abort();
    emulator::lane(emulator::current).open.push_back({to, from, BYTES, valid});
}
inline void copies_end_group()
{
    emulator::Lane& me = emulator::lane(emulator::current);
    me.groups.push_back(std::move(me.open));
    me.open.clear();
}
template <int N>
inline void copies_wait()
{
    emulator::finish_copies(N);
}
