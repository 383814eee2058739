/* Half conversion, batch norm over rows of channels and pools, for the CPU target of trc. Built by rows/library.py.
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

/* ---------------------------------------------------------------- few channels
 *
 * Where rows lie without gaps and are short, several are taken as one, and the numbers of channels repeated for them.
 */
#define SHORT 64

INLINE I together(I channels, I rows) {
  I many = COLUMNS / channels;
  return channels < SHORT && rows >= many ? many : 1;
}

/* The numbers of channels, `many` times over, in `room`; null stays null. */
INLINE const float *repeated(const float *v, I channels, I many, float *room) {
  if (!v) return v;
  for (I k = 0; k < many; k++) memcpy(room + k * channels, v, channels * sizeof(float));
  return room;
}

INLINE const void *after(I kind, const void *p, I elements) {
  return (const char *)p + elements * (kind == F32 ? 4 : 2);
}

/* The sums of wide rows folded into those of rows. */
INLINE void fold(const double *wide, I channels, I many, double *sums) {
  memset(sums, 0, 2 * channels * sizeof(double));
  for (I half = 0; half < 2; half++)
    for (I k = 0; k < many; k++)
      for (I c = 0; c < channels; c++) sums[half * channels + c] += wide[(half * many + k) * channels + c];
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
static void affine_of(I kind, const void *x, I xs, const void *o, I os, void *y, I ys, I rows, I channels, const float *scale,
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
static void centred_of(I kind, const void *x, I xs, void *y, I ys, I rows, I channels, const float *mean, const float *factor,
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
static void moments_of(I kind, const void *x, I xs, I rows, I channels, const float *mean, double *sums) {
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
static void reduce_of(I kind, const void *dy, I ds, const void *x, I xs, I rows, I channels, const float *scale,
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
static void back_of(I kind, const void *dy, I ds, const void *x, I xs, void *dx, I rs, I rows, I channels, const float *scale,
              const float *shift, float low, float high, const float *mean, const float *slope, const float *level,
              const float *outer) {
  if (kind == F32)
    back(F32, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
  if (kind == F16)
    back(F16, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
  if (kind == BF16)
    back(BF16, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
}

/* ---------------------------------------------------------------- the same, few channels included */

void trc_affine(I kind, const void *x, I xs, const void *o, I os, void *y, I ys, I rows, I channels, const float *scale,
                const float *shift, const float *scale2, const float *shift2, I act) {
  I many = xs == channels && ys == channels && (!o || os == channels) ? together(channels, rows) : 1;
  if (many > 1) {
    float r[4][COLUMNS];
    I w = many * channels, whole = rows / many, done = whole * w;
    affine_of(kind, x, w, o, w, y, w, whole, w, repeated(scale, channels, many, r[0]),
              repeated(shift, channels, many, r[1]), repeated(scale2, channels, many, r[2]),
              repeated(shift2, channels, many, r[3]), act);
    x = after(kind, x, done), y = (void *)after(kind, y, done), rows -= whole * many;
    if (o) o = after(kind, o, done);
  }
  affine_of(kind, x, xs, o, os, y, ys, rows, channels, scale, shift, scale2, shift2, act);
}

void trc_centred(I kind, const void *x, I xs, void *y, I ys, I rows, I channels, const float *mean, const float *factor,
                 const float *beta) {
  I many = xs == channels && ys == channels ? together(channels, rows) : 1;
  if (many > 1) {
    float r[3][COLUMNS];
    I w = many * channels, whole = rows / many, done = whole * w;
    centred_of(kind, x, w, y, w, whole, w, repeated(mean, channels, many, r[0]),
               repeated(factor, channels, many, r[1]), repeated(beta, channels, many, r[2]));
    x = after(kind, x, done), y = (void *)after(kind, y, done), rows -= whole * many;
  }
  centred_of(kind, x, xs, y, ys, rows, channels, mean, factor, beta);
}

void trc_moments(I kind, const void *x, I xs, I rows, I channels, const float *mean, double *sums) {
  I many = xs == channels ? together(channels, rows) : 1;
  if (many == 1) {
    moments_of(kind, x, xs, rows, channels, mean, sums);
    return;
  }
  float r[COLUMNS];
  double wide[2 * COLUMNS], rest[2 * SHORT];
  I w = many * channels, whole = rows / many;
  moments_of(kind, x, w, whole, w, repeated(mean, channels, many, r), wide);
  fold(wide, channels, many, sums);
  moments_of(kind, after(kind, x, whole * w), xs, rows - whole * many, channels, mean, rest);
  for (I c = 0; c < 2 * channels; c++) sums[c] += rest[c];
}

void trc_reduce(I kind, const void *dy, I ds, const void *x, I xs, I rows, I channels, const float *scale,
                const float *shift, float low, float high, const float *mean, double *sums) {
  I many = xs == channels && ds == channels ? together(channels, rows) : 1;
  if (many == 1) {
    reduce_of(kind, dy, ds, x, xs, rows, channels, scale, shift, low, high, mean, sums);
    return;
  }
  float r[3][COLUMNS];
  double wide[2 * COLUMNS], rest[2 * SHORT];
  I w = many * channels, whole = rows / many, done = whole * w;
  reduce_of(kind, dy, w, x, w, whole, w, repeated(scale, channels, many, r[0]), repeated(shift, channels, many, r[1]),
            low, high, repeated(mean, channels, many, r[2]), wide);
  fold(wide, channels, many, sums);
  reduce_of(kind, after(kind, dy, done), ds, after(kind, x, done), xs, rows - whole * many, channels, scale, shift, low,
            high, mean, rest);
  for (I c = 0; c < 2 * channels; c++) sums[c] += rest[c];
}

void trc_back(I kind, const void *dy, I ds, const void *x, I xs, void *dx, I rs, I rows, I channels, const float *scale,
              const float *shift, float low, float high, const float *mean, const float *slope, const float *level,
              const float *outer) {
  I many = xs == channels && ds == channels && rs == channels ? together(channels, rows) : 1;
  if (many > 1) {
    float r[6][COLUMNS];
    I w = many * channels, whole = rows / many, done = whole * w;
    back_of(kind, dy, w, x, w, dx, w, whole, w, repeated(scale, channels, many, r[0]),
            repeated(shift, channels, many, r[1]), low, high, repeated(mean, channels, many, r[2]),
            repeated(slope, channels, many, r[3]), repeated(level, channels, many, r[4]),
            repeated(outer, channels, many, r[5]));
    dy = after(kind, dy, done), x = after(kind, x, done), dx = (void *)after(kind, dx, done), rows -= whole * many;
  }
  back_of(kind, dy, ds, x, xs, dx, rs, rows, channels, scale, shift, low, high, mean, slope, level, outer);
}

/* ---------------------------------------------------------------- pools
 *
 * size: height, width of the map, rows and columns of outputs, channels, kernel, stride, padding, strides of a map's
 * pixel, of an output's, of a mask's. Map, outputs and mask are dense but for the stride of pixels. Rows `first` to
 * `last` count all images' rows (of outputs forward, of pixels backward).
 */
typedef struct {
  I h, w, p, q, c, kernel, stride, padding, map, out, mask;
} Pool;

INLINE I low_tap(I start) { return start < 0 ? -start : 0; }
INLINE I high_tap(I start, I kernel, I size) { return size - start < kernel ? size - start : kernel; }

INLINE void pool_forward(const int kind, const int mean, const Pool *g, const void *x, void *y, int8_t *mask, I first,
                         I last) {
  float a[COLUMNS], t[COLUMNS];
  int32_t mark[COLUMNS];
  for (I row = first; row < last; row++) {
    I image = row / g->p, top = row % g->p * g->stride - g->padding;
    I i0 = low_tap(top), i1 = high_tap(top, g->kernel, g->h);
    for (I j = 0; j < g->q; j++) {
      I left = j * g->stride - g->padding, j0 = low_tap(left), j1 = high_tap(left, g->kernel, g->w);
      I cells = i1 > i0 && j1 > j0 ? (i1 - i0) * (j1 - j0) : 0, at = row * g->q + j;
      for (I c = 0; c < g->c; c += COLUMNS) {
        I n = g->c - c < COLUMNS ? g->c - c : COLUMNS;
        float *d = place(kind, y, at * g->out + c, t);
        for (I k = 0; k < n; k++) d[k] = mean ? 0 : -__builtin_inff();
        for (I k = 0; k < n; k++) mark[k] = cells ? i0 * g->kernel + j0 : -1;
        for (I i = i0; i < i1 && cells; i++)
          for (I l = j0; l < j1; l++) {
            I pixel = (image * g->h + top + i) * g->w + left + l;
            const float *v = get(kind, x, pixel * g->map + c, n, a);
            int32_t number = i * g->kernel + l;
            if (mean)
              LOOP(I k = 0; k < n; k++) d[k] += v[k];
            else if (mask)
              LOOP(I k = 0; k < n; k++) {
                int more = (v[k] > d[k]) | (v[k] != v[k]);
                d[k] = more ? v[k] : d[k];
                mark[k] = more ? number : mark[k];
              }
            else
              LOOP(I k = 0; k < n; k++) d[k] = (v[k] > d[k]) | (v[k] != v[k]) ? v[k] : d[k];
          }
        if (mean && cells) LOOP(I k = 0; k < n; k++) d[k] /= (float)cells;
        put(kind, y, at * g->out + c, n, t);
        if (mask)
          for (I k = 0; k < n; k++) mask[at * g->mask + c + k] = mark[k];
      }
    }
  }
}

void trc_pool(I kind, I mean, const Pool *g, const void *x, void *y, int8_t *mask, I first, I last) {
  if (mean) {
    if (kind == F32) pool_forward(F32, 1, g, x, y, 0, first, last);
    if (kind == F16) pool_forward(F16, 1, g, x, y, 0, first, last);
    if (kind == BF16) pool_forward(BF16, 1, g, x, y, 0, first, last);
  } else {
    if (kind == F32) pool_forward(F32, 0, g, x, y, mask, first, last);
    if (kind == F16) pool_forward(F16, 0, g, x, y, mask, first, last);
    if (kind == BF16) pool_forward(BF16, 0, g, x, y, mask, first, last);
  }
}

INLINE I cells_of(I output, const Pool *g, I size) {
  I start = output * g->stride - g->padding;
  return high_tap(start, g->kernel, size) - low_tap(start);
}

INLINE void pool_backward(const int kind, const int mean, const Pool *g, const void *dy, const int8_t *mask, void *dx,
                          I first, I last) {
  float a[COLUMNS], t[COLUMNS];
  for (I row = first; row < last; row++) {
    I image = row / g->h, i = row % g->h + g->padding;
    for (I j = 0; j < g->w; j++) {
      I l = j + g->padding;
      for (I c = 0; c < g->c; c += COLUMNS) {
        I n = g->c - c < COLUMNS ? g->c - c : COLUMNS, to = (row * g->w + j) * g->map + c;
        float *d = place(kind, dx, to, t);
        for (I k = 0; k < n; k++) d[k] = 0;
        for (I u = 0; u < g->kernel && u <= i; u++) {
          I p = (i - u) / g->stride;
          if ((i - u) % g->stride || p >= g->p) continue;
          for (I v = 0; v < g->kernel && v <= l; v++) {
            I q = (l - v) / g->stride;
            if ((l - v) % g->stride || q >= g->q) continue;
            I at = (image * g->p + p) * g->q + q;
            const float *given = get(kind, dy, at * g->out + c, n, a);
            if (mean) {
              float cells = cells_of(p, g, g->h) * cells_of(q, g, g->w);
              LOOP(I k = 0; k < n; k++) d[k] += given[k] / cells;
            } else {
              const int8_t *m = mask + at * g->mask + c;
              int8_t number = u * g->kernel + v;
              LOOP(I k = 0; k < n; k++) d[k] += m[k] == number ? given[k] : 0;
            }
          }
        }
        put(kind, dx, to, n, t);
      }
    }
  }
}

void trc_pool_back(I kind, I mean, const Pool *g, const void *dy, const int8_t *mask, void *dx, I first, I last) {
  if (mean) {
    if (kind == F32) pool_backward(F32, 1, g, dy, 0, dx, first, last);
    if (kind == F16) pool_backward(F16, 1, g, dy, 0, dx, first, last);
    if (kind == BF16) pool_backward(BF16, 1, g, dy, 0, dx, first, last);
  } else {
    if (kind == F32) pool_backward(F32, 0, g, dy, mask, dx, first, last);
    if (kind == F16) pool_backward(F16, 0, g, dy, mask, dx, first, last);
    if (kind == BF16) pool_backward(BF16, 0, g, dy, mask, dx, first, last);
  }
}
