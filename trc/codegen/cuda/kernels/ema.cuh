// The moving average of the weights over whole ranges of float32 numbers, and the sums of what it is measured by.
//
//   e += alpha (w - e)                   alpha = 1 - decay
//   warmup: alpha = max(alpha, 9 / (10 + t)), so decay = min(decay, (1 + t) / (10 + t)), with t applied steps
//
// Nothing changes when has_nan is set. The gaps between slots hold zeros, and stay zero. Ranges are multiples of 64
// elements, since slots are of 256 bytes.

// A thread moves U times four numbers, so that enough bytes are in flight: it does two operations on twelve bytes.
template <bool WARMUP, int U>
DEVICE void ema(const float* __restrict__ w, float* __restrict__ e, i64 n, const float* alpha, const int* applied,
                const int* has_nan)
{
    const i64 first = ((i64)blockIdx.x * U * blockDim.x + threadIdx.x) * 4, step = (i64)blockDim.x * 4;
    if (*has_nan) return;
    Vec<float, 4> weight[U], average[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (first + u * step < n) {
            weight[u] = load<4>(w + first + u * step);
            average[u] = load<4>(e + first + u * step);
        }
    float share = *alpha;
    if (WARMUP) share = fmaxf(share, __fdiv_rn(9.f, 10.f + (float)*applied));
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (first + u * step < n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) average[u].at[i] += (weight[u].at[i] - average[u].at[i]) * share;
            store<4>(e + first + u * step, average[u]);
        }
}

DEVICE void accumulate_batch(const float* loss, const float* top1, const float* top5, float* sum_loss, float* sum_top1,
                             float* sum_top5, int samples)
{
    *sum_loss += (float)((double)*loss * samples);
    *sum_top1 += *top1;
    *sum_top5 += *top5;
}
