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
