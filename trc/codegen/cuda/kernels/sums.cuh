// What a bias does to the sums of a batch.

// From the sums of y and of y * y over n rows to those of z = y + bias:
// sum z = sum y + n b, sum z z = sum y y + 2 b sum y + n b b.
template <int C>
DEVICE void shift_sums(float* sum, float* sumsq, const float* bias, float n)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    const float s = sum[c], b = bias[c];
    sumsq[c] += b * (2.f * s + n * b);
    sum[c] = s + n * b;
}
