// CUDA on a CPU, for tests of the kernels: the threads of a block are fibers that take turns and meet at barriers and
// shuffles; blocks run one after another. Included before kernels.cu, which then is plain C++.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // one block at a time

struct Index {
    unsigned int x, y, z;
};
struct alignas(8) uint2 {
    unsigned int x, y;
};
struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};
inline void __stwb(uint4* to, uint4 word) { *to = word; }
using std::memcpy;
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

enum State { RUNNING, AT_BARRIER, AT_SHUFFLE, DONE };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    unsigned int slot[2];  // what the thread offers to the others of its warp, by turns
    int turn;
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned int current;
static void (*body)(void**);
static void** arguments;
static int any[2];  // of __syncthreads_or, by turns
static int any_turn;

static void start()
{
    body(arguments);
    fibers[current].state = DONE;
    swapcontext(&fibers[current].context, &scheduler);
}

static void wait(State state)
{
    const unsigned int me = current;
    fibers[me].state = state;
    swapcontext(&fibers[me].context, &scheduler);
}

static void resume(unsigned int t)
{
    current = t;
    threadIdx = {t, 0, 0};
    fibers[t].state = RUNNING;
    swapcontext(&scheduler, &fibers[t].context);
}

// Let every thread run to its next meeting; when all of a warp, or of the block, have come to one, let them on.
static void run_block(unsigned int threads)
{
    for (unsigned int t = 0; t < threads; ++t) {
        Fiber& f = fibers[t];
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = f.stack.size();
        f.context.uc_link = nullptr;
        f.turn = 0;
        makecontext(&f.context, start, 0);
        resume(t);
    }
    for (;;) {
        bool moved = false;
        for (unsigned int w = 0; w < threads; w += 32) {
            const unsigned int end = w + 32 < threads ? w + 32 : threads;
            bool meet = true, shuffle = false;
            for (unsigned int t = w; t < end; ++t) {
                shuffle |= fibers[t].state == AT_SHUFFLE;
                meet &= fibers[t].state == AT_SHUFFLE || fibers[t].state == DONE;
            }
            if (meet && shuffle) {
                for (unsigned int t = w; t < end; ++t)
                    if (fibers[t].state == AT_SHUFFLE) fibers[t].state = RUNNING;
                for (unsigned int t = w; t < end; ++t)
                    if (fibers[t].state == RUNNING) resume(t);
                moved = true;
            }
        }
        if (moved) continue;
        unsigned int waiting = 0, done = 0;
        for (unsigned int t = 0; t < threads; ++t) {
            waiting += fibers[t].state == AT_BARRIER;
            done += fibers[t].state == DONE;
        }
        if (done == threads) return;
        if (waiting + done != threads) {
            std::fprintf(stderr, "emulator: a block is stuck, %u threads at a barrier, %u done\n", waiting, done);
            std::abort();
        }
        any_turn ^= 1;
        any[any_turn] = 0;
        std::vector<char> released(threads);
        for (unsigned int t = 0; t < threads; ++t) released[t] = fibers[t].state == AT_BARRIER;
        for (unsigned int t = 0; t < threads; ++t)
            if (released[t]) resume(t);
    }
}

static void launch(void (*kernel)(void**), void** args, const unsigned int* grid, const unsigned int* block)
{
    body = kernel;
    arguments = args;
    if (fibers.size() < block[0]) fibers.resize(block[0]);
    for (Fiber& f : fibers)
        if (f.stack.empty()) f.stack.resize(1 << 16);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], 1, 1};
    for (unsigned int z = 0; z < grid[2]; ++z)
        for (unsigned int y = 0; y < grid[1]; ++y)
            for (unsigned int x = 0; x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                run_block(block[0]);
            }
}

}  // namespace emulator

inline void __syncthreads() { emulator::wait(emulator::AT_BARRIER); }

inline int __syncthreads_or(int flag)
{
    const int turn = emulator::any_turn;
    emulator::any[turn] |= flag != 0;
    emulator::wait(emulator::AT_BARRIER);
    return emulator::any[turn];
}

template <typename N>
inline N __shfl_xor_sync(unsigned int, N value, int mask)
{
    static_assert(sizeof(N) == 4, "one word");
    emulator::Fiber& me = emulator::fibers[emulator::current];
    const int turn = me.turn;
    me.turn ^= 1;
    std::memcpy(&me.slot[turn], &value, 4);
    const unsigned int other = emulator::current ^ mask;
    emulator::wait(emulator::AT_SHUFFLE);
    if (other < blockDim.x) std::memcpy(&value, &emulator::fibers[other].slot[turn], 4);
    return value;
}

inline float __uint_as_float(unsigned int bits)
{
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline unsigned int __float_as_uint(float x)
{
    unsigned int bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }

#include "tensor.h"
