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
