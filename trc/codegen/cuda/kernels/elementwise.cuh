// Activations, forward and backward, and sums of two arrays: element by element.
//
// The result may lie where an operand lies: a thread reads all it needs before it writes.

struct Relu {
    DEVICE float operator()(float x) const { return x < 0.f ? 0.f : x; }
};
struct Relu6 {
    DEVICE float operator()(float x) const { return activate<RELU6>(x); }
};
struct LeakyRelu {
    float slope;
    DEVICE float operator()(float x) const { return x > 0.f ? x : slope * x; }
};
struct Tanh {
    DEVICE float operator()(float x) const { return tanhf(x); }
};
DEVICE float sigmoid_of(float x) { return 1.f / (1.f + expf(-x)); }
struct Sigmoid {
    DEVICE float operator()(float x) const { return sigmoid_of(x); }
};
struct Silu {
    DEVICE float operator()(float x) const { return x * sigmoid_of(x); }
};
struct Hardswish {
    DEVICE float operator()(float x) const { return activate<RELU6>(x + 3.f) * x / 6.f; }
};
struct Elu {
    float alpha;
    DEVICE float operator()(float x) const { return x > 0.f ? x : alpha * expm1f(x); }
};

// Backward: the gradient and what was saved, which is the result y but for silu and hardswish (the input x).
struct ReluBwd {
    DEVICE float operator()(float dy, float y) const { return y <= 0.f ? 0.f : dy; }
};
struct Relu6Bwd {
    DEVICE float operator()(float dy, float y) const { return y <= 0.f || y >= 6.f ? 0.f : dy; }
};
struct LeakyReluBwd {
    float slope;
    DEVICE float operator()(float dy, float y) const { return y > 0.f ? dy : slope * dy; }
};
struct TanhBwd {
    DEVICE float operator()(float dy, float y) const { return (1.f - y * y) * dy; }
};
struct SigmoidBwd {
    DEVICE float operator()(float dy, float y) const { return (1.f - y) * y * dy; }
};
struct SiluBwd {
    DEVICE float operator()(float dy, float x) const
    {
        const float s = sigmoid_of(x);
        return ((1.f - s) * x + 1.f) * s * dy;
    }
};
struct HardswishBwd {
    DEVICE float operator()(float dy, float x) const
    {
        return x <= -3.f ? 0.f : x >= 3.f ? dy : (x / 3.f + 0.5f) * dy;
    }
};
struct EluBwd {
    float alpha;
    DEVICE float operator()(float dy, float y) const { return y > 0.f ? dy : (y + alpha) * dy; }
};
struct Add {
    DEVICE float operator()(float a, float b) const { return a + b; }
};

// ---------------------------------------------------------------- flat arrays

// y[i] = op(x[i]) of n elements. A block does U stretches of blockDim.x vectors, all loaded before the first is used.
template <typename T, int V, int U, typename Op>
DEVICE void map1(const T* x, T* y, i64 n, Op op)
{
    const i64 vectors = n / V, first = (i64)blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Vec<T, V> in[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) in[u] = load<V>(x + v * V);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            Lanes<V> value = widen(in[u]);
#pragma unroll
            for (int i = 0; i < V; ++i) value.at[i] = op(value.at[i]);
            store<V>(y + v * V, narrow<T>(value));
        }
    }
    const i64 rest = vectors * V + threadIdx.x;  // fewer than V elements behind the last vector
    if (blockIdx.x == 0 && rest < n) y[rest] = narrow<T>(op(widen(x[rest])));
}

// y[i] = op(a[i], b[i]).
template <typename T, int V, int U, typename Op>
DEVICE void map2(const T* a, const T* b, T* y, i64 n, Op op)
{
    const i64 vectors = n / V, first = (i64)blockIdx.x * (blockDim.x * U) + threadIdx.x;
    Vec<T, V> left[U], right[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            left[u] = load<V>(a + v * V);
            right[u] = load<V>(b + v * V);
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const i64 v = first + u * blockDim.x;
        if (v < vectors) {
            Lanes<V> value = widen(left[u]);
            const Lanes<V> other = widen(right[u]);
#pragma unroll
            for (int i = 0; i < V; ++i) value.at[i] = op(value.at[i], other.at[i]);
            store<V>(y + v * V, narrow<T>(value));
        }
    }
    const i64 rest = vectors * V + threadIdx.x;
    if (blockIdx.x == 0 && rest < n) y[rest] = narrow<T>(op(widen(a[rest]), widen(b[rest])));
}

// ---------------------------------------------------------------- padded rows

// The same for rows of C elements that are PX (PA, PB) and PY apart: one element of y a thread, padding included.
template <typename T, int C, int PX, int PY, typename Op>
DEVICE void map1_rows(const T* x, T* y, i64 rows, Op op)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int c = (int)(at % PY);
    if (row < rows) y[at] = narrow<T>(c < C ? op(widen(x[row * PX + c])) : 0.f);
}

template <typename T, int C, int PA, int PB, int PY, typename Op>
DEVICE void map2_rows(const T* a, const T* b, T* y, i64 rows, Op op)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = at / PY;
    const int c = (int)(at % PY);
    if (row < rows) y[at] = narrow<T>(c < C ? op(widen(a[row * PA + c]), widen(b[row * PB + c])) : 0.f);
}
