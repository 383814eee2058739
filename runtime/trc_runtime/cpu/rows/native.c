/* Half conversion and batch norm over rows of channels, for the CPU target of trc. Built by rows/library.py.
 *
 * A matrix is (rows, channels) with `stride` elements from row to row; what lies between is neither read nor written.
 * kind: 0 = float, 1 = IEEE half, 2 = bfloat16. Arithmetic is float, sums are double. Built without contraction: a
 * product and a sum are two roundings, as in NumPy. Results may lie where an operand lies.
 */
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

typedef int64_t I;
#define INLINE static inline __attribute__((always_inline))
#define LOOP _Pragma("GCC ivdep") for

enum { F32, F16, BF16 };
#define COLUMNS 512 /* channels that are worked on at a time, a multiple of 16 */

INLINE uint32_t bits_of(float v) {
  uint32_t b;
  memcpy(&b, &v, 4);
  return b;
}

INLINE float float_of(uint32_t b) {
  float v;
  memcpy(&v, &b, 4);
  return v;
}

/* ---------------------------------------------------------------- conversion */

INLINE float widen(uint16_t h) {
  /* exponent and mantissa moved into place and scaled by 2^112 are exact, subnormals included */
  uint32_t b = (uint32_t)(h & 0x7fff) << 13;
  float v = float_of(b) * 0x1p112f;
  uint32_t special = (h & 0x7c00) == 0x7c00 ? b | 0x7f800000 : bits_of(v);
  return float_of(special | (uint32_t)(h & 0x8000) << 16);
}

INLINE uint16_t narrow(float v) {
  uint32_t b = bits_of(v), sign = b >> 16 & 0x8000, m = b & 0x7fffffff;
  if (m > 0x7f800000) return sign | 0x7e00 | (m >> 13 & 0x3ff);
  if (m >= 0x477ff000) return sign | 0x7c00; /* rounds beyond the largest */
  if (m < 0x38800000) { /* a subnormal: adding 0.5 lets the hardware round to multiples of 2^-24 */
    return sign | (bits_of(float_of(m) + 0.5f) - 0x3f000000);
  }
  return sign | ((m + 0xfff + (m >> 13 & 1) - 0x38000000) >> 13);
}

INLINE void from_f16(const uint16_t *h, float *v, I n) {
  I i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(v + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(h + i))));
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(v + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
#endif
  for (; i < n; i++) v[i] = widen(h[i]);
}

INLINE void to_f16(const float *v, uint16_t *h, I n) {
  I i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256((__m256i *)(h + i), _mm512_cvtps_ph(_mm512_loadu_ps(v + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(h + i), _mm256_cvtps_ph(_mm256_loadu_ps(v + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; i++) h[i] = narrow(v[i]);
}

INLINE void from_bf16(const uint16_t *h, float *v, I n) {
  LOOP(I i = 0; i < n; i++) v[i] = float_of((uint32_t)h[i] << 16);
}

INLINE void to_bf16(const float *v, uint16_t *h, I n) {
  LOOP(I i = 0; i < n; i++) {
    uint32_t b = bits_of(v[i]);
    uint32_t nan = (b >> 16) | 0x40, near = (b + 0x7fff + (b >> 16 & 1)) >> 16;
    h[i] = (b & 0x7fffffff) > 0x7f800000 ? nan : near;
  }
}

/* The row's values: where they lie, or converted into `room`. */
INLINE const float *get(const int kind, const void *p, I at, I n, float *room) {
  if (kind == F32) return (const float *)p + at;
  if (kind == F16)
    from_f16((const uint16_t *)p + at, room, n);
  else
    from_bf16((const uint16_t *)p + at, room, n);
  return room;
}

/* Where the row's results are computed; `put` brings them to their place. */
INLINE float *place(const int kind, void *p, I at, float *room) { return kind == F32 ? (float *)p + at : room; }

INLINE void put(const int kind, void *p, I at, I n, const float *room) {
  if (kind == F16) to_f16(room, (uint16_t *)p + at, n);
  if (kind == BF16) to_bf16(room, (uint16_t *)p + at, n);
}

void trc_load(I kind, const void *p, I stride, float *v, I to, I rows, I n) {
  for (I r = 0; r < rows; r++) {
    if (kind == F16) from_f16((const uint16_t *)p + r * stride, v + r * to, n);
    if (kind == BF16) from_bf16((const uint16_t *)p + r * stride, v + r * to, n);
  }
}

void trc_store(I kind, const float *v, I from, void *p, I stride, I rows, I n) {
  for (I r = 0; r < rows; r++) {
    if (kind == F16) to_f16(v + r * from, (uint16_t *)p + r * stride, n);
    if (kind == BF16) to_bf16(v + r * from, (uint16_t *)p + r * stride, n);
  }
}

/* ---------------------------------------------------------------- forward */

INLINE void affine(const int kind, const void *x, I xs, const void *o, I os, void *y, I ys, I rows, I channels,
                   const float *scale, const float *shift, const float *scale2, const float *shift2, I act) {
  float a[COLUMNS], b[COLUMNS], t[COLUMNS];
  for (I c = 0; c < channels; c += COLUMNS) {
    I n = channels - c < COLUMNS ? channels - c : COLUMNS;
    const float *s = scale + c, *h = shift + c, *s2 = scale2 ? scale2 + c : 0, *h2 = scale2 ? shift2 + c : 0;
    for (I r = 0; r < rows; r++) {
      const float *v = get(kind, x, r * xs + c, n, a);
      float *d = place(kind, y, r * ys + c, t);
      if (!o) {
        LOOP(I i = 0; i < n; i++) d[i] = v[i] * s[i] + h[i];
      } else {
        const float *w = get(kind, o, r * os + c, n, b);
        if (scale2)
          LOOP(I i = 0; i < n; i++) d[i] = (v[i] * s[i] + h[i]) + (w[i] * s2[i] + h2[i]);
        else
          LOOP(I i = 0; i < n; i++) d[i] = (v[i] * s[i] + h[i]) + w[i];
      }
      if (act) LOOP(I i = 0; i < n; i++) d[i] = d[i] < 0 ? 0 : d[i];
      if (act == 2) LOOP(I i = 0; i < n; i++) d[i] = d[i] > 6 ? 6 : d[i];
      put(kind, y, r * ys + c, n, t);
    }
  }
}

/* y = act(x scale + shift [+ other [scale2 + shift2]]); act: 0 = none, 1 = relu, 2 = relu6, NaN stays */
void trc_affine(I kind, const void *x, I xs, const void *o, I os, void *y, I ys, I rows, I channels, const float *scale,
                const float *shift, const float *scale2, const float *shift2, I act) {
  if (kind == F32) affine(F32, x, xs, o, os, y, ys, rows, channels, scale, shift, scale2, shift2, act);
  if (kind == F16) affine(F16, x, xs, o, os, y, ys, rows, channels, scale, shift, scale2, shift2, act);
  if (kind == BF16) affine(BF16, x, xs, o, os, y, ys, rows, channels, scale, shift, scale2, shift2, act);
}

INLINE void centred(const int kind, const void *x, I xs, void *y, I ys, I rows, I channels, const float *mean,
                    const float *factor, const float *beta) {
  float a[COLUMNS], t[COLUMNS];
  for (I c = 0; c < channels; c += COLUMNS) {
    I n = channels - c < COLUMNS ? channels - c : COLUMNS;
    for (I r = 0; r < rows; r++) {
      const float *v = get(kind, x, r * xs + c, n, a), *m = mean + c, *f = factor + c, *h = beta + c;
      float *d = place(kind, y, r * ys + c, t);
      LOOP(I i = 0; i < n; i++) d[i] = (v[i] - m[i]) * f[i] + h[i];
      put(kind, y, r * ys + c, n, t);
    }
  }
}

/* y = (x - mean) factor + beta */
void trc_centred(I kind, const void *x, I xs, void *y, I ys, I rows, I channels, const float *mean, const float *factor,
                 const float *beta) {
  if (kind == F32) centred(F32, x, xs, y, ys, rows, channels, mean, factor, beta);
  if (kind == F16) centred(F16, x, xs, y, ys, rows, channels, mean, factor, beta);
  if (kind == BF16) centred(BF16, x, xs, y, ys, rows, channels, mean, factor, beta);
}

/* ---------------------------------------------------------------- sums */

INLINE void moments(const int kind, const void *x, I xs, I rows, I channels, const float *mean, double *sums) {
  float a[COLUMNS];
  for (I c = 0; c < channels; c += COLUMNS) {
    I n = channels - c < COLUMNS ? channels - c : COLUMNS;
    double one[COLUMNS] = {0}, two[COLUMNS] = {0};
    for (I r = 0; r < rows; r++) {
      const float *v = get(kind, x, r * xs + c, n, a), *m = mean ? mean + c : 0;
      if (m)
        LOOP(I i = 0; i < n; i++) {
          double d = v[i] - m[i];
          one[i] += d;
          two[i] += d * d;
        }
      else
        LOOP(I i = 0; i < n; i++) {
          double d = v[i];
          one[i] += d;
          two[i] += d * d;
        }
    }
    memcpy(sums + c, one, n * sizeof(double));
    memcpy(sums + channels + c, two, n * sizeof(double));
  }
}

/* sums = those of x - mean (of x, without mean), then of its squares, for each channel */
void trc_moments(I kind, const void *x, I xs, I rows, I channels, const float *mean, double *sums) {
  if (kind == F32) moments(F32, x, xs, rows, channels, mean, sums);
  if (kind == F16) moments(F16, x, xs, rows, channels, mean, sums);
  if (kind == BF16) moments(BF16, x, xs, rows, channels, mean, sums);
}

/* ---------------------------------------------------------------- backward */

/* g = dy where low < x scale + shift < high, or that is NaN; else 0 */
INLINE void gate(const float *x, const float *dy, const float *scale, const float *shift, float low, float high,
                 float *g, I n) {
  LOOP(I i = 0; i < n; i++) {
    float z = x[i] * scale[i] + shift[i];
    g[i] = (z <= low) | (z >= high) ? 0 : dy[i];
  }
}

INLINE void reduce(const int kind, const void *dy, I ds, const void *x, I xs, I rows, I channels, const float *scale,
                   const float *shift, float low, float high, const float *mean, double *sums) {
  float a[COLUMNS], b[COLUMNS], t[COLUMNS];
  for (I c = 0; c < channels; c += COLUMNS) {
    I n = channels - c < COLUMNS ? channels - c : COLUMNS;
    double one[COLUMNS] = {0}, two[COLUMNS] = {0};
    const float *m = mean + c;
    for (I r = 0; r < rows; r++) {
      const float *v = get(kind, x, r * xs + c, n, a), *g = get(kind, dy, r * ds + c, n, b);
      if (scale) gate(v, g, scale + c, shift + c, low, high, t, n), g = t;
      LOOP(I i = 0; i < n; i++) {
        one[i] += g[i];
        two[i] += (v[i] - m[i]) * g[i];
      }
    }
    memcpy(sums + c, one, n * sizeof(double));
    memcpy(sums + channels + c, two, n * sizeof(double));
  }
}

/* sums = those of g, then of g (x - mean); no gate without scale */
void trc_reduce(I kind, const void *dy, I ds, const void *x, I xs, I rows, I channels, const float *scale,
                const float *shift, float low, float high, const float *mean, double *sums) {
  if (kind == F32) reduce(F32, dy, ds, x, xs, rows, channels, scale, shift, low, high, mean, sums);
  if (kind == F16) reduce(F16, dy, ds, x, xs, rows, channels, scale, shift, low, high, mean, sums);
  if (kind == BF16) reduce(BF16, dy, ds, x, xs, rows, channels, scale, shift, low, high, mean, sums);
}

INLINE void back(const int kind, const void *dy, I ds, const void *x, I xs, void *dx, I rs, I rows, I channels,
                 const float *scale, const float *shift, float low, float high, const float *mean, const float *slope,
                 const float *level, const float *outer) {
  float a[COLUMNS], b[COLUMNS], t[COLUMNS], u[COLUMNS];
  for (I c = 0; c < channels; c += COLUMNS) {
    I n = channels - c < COLUMNS ? channels - c : COLUMNS;
    const float *m = mean + c, *k = slope + c, *l = level + c, *o = outer + c;
    for (I r = 0; r < rows; r++) {
      const float *v = get(kind, x, r * xs + c, n, a), *g = get(kind, dy, r * ds + c, n, b);
      if (scale) gate(v, g, scale + c, shift + c, low, high, t, n), g = t;
      float *d = place(kind, dx, r * rs + c, u);
      LOOP(I i = 0; i < n; i++) d[i] = (g[i] - ((v[i] - m[i]) * k[i] + l[i])) * o[i];
      put(kind, dx, r * rs + c, n, u);
    }
  }
}

/* dx = (g - ((x - mean) slope + level)) outer */
void trc_back(I kind, const void *dy, I ds, const void *x, I xs, void *dx, I rs, I rows, I channels, const float *scale,
              const float *shift, float low, float high, const float *mean, const float *slope, const float *level,
              const float *outer) {
  if (kind == F32)
    back(F32, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
  if (kind == F16)
    back(F16, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
  if (kind == BF16)
    back(BF16, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
}
