/* Direct convolution in float32, for the CPU target of trc. Built by conv/build.py for the machine it runs on.
 *
 * All sizes and strides count floats. A frame is a block of images with their border, (images, height, width,
 * channels) without gaps: so the pixels that one row of a kernel meets lie side by side, `reach` = S C floats.
 * Tiles of results stay in registers: TALL pixels (or output channels) by WIDE = 2 vectors.
 */
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define TALL 12
#elif defined(__AVX__)
#define LANES 8
#define TALL 6
#elif defined(__ARM_NEON)
#define LANES 4
#define TALL 12
#else
#define LANES 4
#define TALL 6
#endif
#define WIDE (2 * LANES)

typedef float V __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int64_t I;
#define INLINE static inline __attribute__((always_inline))
#define APART __attribute__((noinline))
#if defined(__x86_64__) && defined(__AVX__)
/* GCC would rather read them again from memory at every use. */
#define IN_REGISTERS(a, b) __asm__("" : "+x"(a), "+x"(b))
#else
#define IN_REGISTERS(a, b) (void)0
#endif

I trc_wide(void) { return WIDE; }

/* ---------------------------------------------------------------- frames */

/* Apart from each other, so that no compiler fuses them into one rounding: the prologue rounds twice, as NumPy's. */
static APART void times(float *d, const float *scale, I pixels, I channels) {
  for (I p = 0; p < pixels; p++)
    for (I c = 0; c < channels; c++) d[p * channels + c] *= scale[c];
}

static APART void plus(float *d, const float *shift, I pixels, I channels) {
  for (I p = 0; p < pixels; p++)
    for (I c = 0; c < channels; c++) d[p * channels + c] += shift[c];
}

static APART void clamp(float *d, I count, I act) { /* 1 = relu, 2 = relu6; NaN stays */
  if (act == 1)
    for (I i = 0; i < count; i++) d[i] = d[i] < 0 ? 0 : d[i];
  if (act == 2)
    for (I i = 0; i < count; i++) {
      float v = d[i] < 0 ? 0 : d[i];
      d[i] = v > 6 ? 6 : v;
    }
}

/* size: images, source height and width, channels, frame height and width, frame top and left in source pixels,
 * source strides of image, row, pixel. */
void trc_fill(const float *x, float *frame, const I *size, const float *scale, const float *shift, I act, I images) {
  I h = size[0], w = size[1], c = size[2], fh = size[3], fw = size[4], top = size[5], left = size[6];
  I first = left < 0 ? -left : 0, last = w - left < fw ? w - left : fw; /* frame columns inside the source */
  if (last < first) first = last = 0;
  for (I n = 0; n < images; n++)
    for (I i = 0; i < fh; i++) {
      float *d = frame + (n * fh + i) * fw * c;
      I y = top + i;
      if (y < 0 || y >= h || last == first) {
        memset(d, 0, fw * c * sizeof(float));
        continue;
      }
      const float *s = x + n * size[7] + y * size[8] + (left + first) * size[9];
      memset(d, 0, first * c * sizeof(float));
      if (size[9] == c)
        memcpy(d + first * c, s, (last - first) * c * sizeof(float));
      else
        for (I p = 0; p < last - first; p++) memcpy(d + (first + p) * c, s + p * size[9], c * sizeof(float));
      memset(d + last * c, 0, (fw - last) * c * sizeof(float));
      if (scale) {
        times(d + first * c, scale, last - first, c);
        plus(d + first * c, shift, last - first, c);
        if (act) clamp(d + first * c, (last - first) * c, act);
      }
    }
}

/* ---------------------------------------------------------------- forward and data gradient */

/* Panel `panel` of the weights: WIDE target channels side by side, zeros beyond the last; row t begins at from[t]. */
void trc_pack(const float *weight, const I *from, I rows, I columns, I stride, I panel, float *packed) {
  I first = panel * WIDE, count = columns - first < WIDE ? columns - first : WIDE;
  float *d = packed + panel * rows * WIDE;
  for (I t = 0; t < rows; t++, d += WIDE) {
    const float *s = weight + from[t] + first * stride;
    for (I j = 0; j < count; j++) d[j] = s[j * stride];
    for (I j = count; j < WIDE; j++) d[j] = 0;
  }
}

INLINE void tile(const int tall, const float *frame, const I *from, I rows, I line, I reach, const float *b, V (*sum)[2]) {
  const float *in[TALL];
  V a0[TALL], a1[TALL];
#pragma GCC unroll 16
  for (int m = 0; m < tall; m++) in[m] = frame + from[m], a0[m] = a1[m] = (V){0};
  for (I i = 0; i < rows; i++) {
    for (I j = 0; j < reach; j++, b += WIDE) {
      V b0 = *(const V *)b, b1 = *(const V *)(b + LANES);
      IN_REGISTERS(b0, b1);
#pragma GCC unroll 16
      for (int m = 0; m < tall; m++) a0[m] += in[m][j] * b0, a1[m] += in[m][j] * b1;
    }
#pragma GCC unroll 16
    for (int m = 0; m < tall; m++) in[m] += line;
  }
#pragma GCC unroll 16
  for (int m = 0; m < tall; m++) sum[m][0] = a0[m], sum[m][1] = a1[m];
}

#define CASES(f) \
  f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12)

/* Window p begins at frame + from[p] and its result at out + to[p]; `rows` rows of `reach` floats, `line` apart. */
void trc_correlate(const float *frame, const I *from, float *out, const I *to, I pixels, I rows, I line, I reach,
                   const float *packed, I columns, const float *bias) {
  for (I k = 0; k < columns; k += WIDE, packed += rows * reach * WIDE) {
    I count = columns - k < WIDE ? columns - k : WIDE;
    float offset[WIDE] = {0};
    if (bias) memcpy(offset, bias + k, count * sizeof(float));
    V o0 = *(const V *)offset, o1 = *(const V *)(offset + LANES);
    for (I p = 0; p < pixels; p += TALL) {
      V sum[TALL][2];
      I tall = pixels - p < TALL ? pixels - p : TALL;
      switch (tall) {
#define CASE(n) \
  case n: \
    if (n <= TALL) tile(n <= TALL ? n : TALL, frame, from + p, rows, line, reach, packed, sum); \
    break;
        CASES(CASE)
#undef CASE
      }
      for (I m = 0; m < tall; m++) {
        float *d = out + to[p + m] + k;
        sum[m][0] += o0, sum[m][1] += o1;
        if (count == WIDE)
          *(V *)d = sum[m][0], *(V *)(d + LANES) = sum[m][1];
        else
          memcpy(d, sum[m], count * sizeof(float));
      }
    }
  }
}

/* ---------------------------------------------------------------- statistics */

/* sums = the columns' sums, then those of their squares, over `rows` rows that lie `stride` apart. */
void trc_sums(const float *y, I rows, I channels, I stride, double *sums) {
  memset(sums, 0, 2 * channels * sizeof(double));
  double *restrict one = sums, *restrict two = sums + channels;
  for (I r = 0; r < rows; r++, y += stride)
    for (I k = 0; k < channels; k++) {
      double v = y[k];
      one[k] += v;
      two[k] += v * v;
    }
}

/* ---------------------------------------------------------------- weight gradient */

INLINE void outer(const int tall, const float *x, const I *from, const float *dy, I stride, I pixels, V (*sum)[2]) {
  V a0[TALL], a1[TALL];
#pragma GCC unroll 16
  for (int m = 0; m < tall; m++) a0[m] = a1[m] = (V){0};
  for (I p = 0; p < pixels; p++, dy += stride) {
    const float *s = x + from[p];
    V x0 = *(const V *)s, x1 = *(const V *)(s + LANES);
#pragma GCC unroll 16
    for (int m = 0; m < tall; m++) a0[m] += dy[m] * x0, a1[m] += dy[m] * x1;
  }
#pragma GCC unroll 16
  for (int m = 0; m < tall; m++) sum[m][0] = a0[m], sum[m][1] = a1[m];
}

/* dw[k][j] += the sum over pixels of dy[p][k] frame[from[p] + j], for k < channels and j < reach; rows of dw are
 * `row` apart. Up to WIDE - 1 floats after each window's end are read and not used. */
void trc_outer(const float *frame, const I *from, const float *dy, I stride, I pixels, I channels, I reach, float *dw,
               I row) {
  for (I j = 0; j < reach; j += WIDE) {
    I count = reach - j < WIDE ? reach - j : WIDE;
    for (I k = 0; k < channels; k += TALL) {
      V sum[TALL][2];
      I tall = channels - k < TALL ? channels - k : TALL;
      switch (tall) {
#define CASE(n) \
  case n: \
    if (n <= TALL) outer(n <= TALL ? n : TALL, frame + j, from, dy + k, stride, pixels, sum); \
    break;
        CASES(CASE)
#undef CASE
      }
      for (I m = 0; m < tall; m++) {
        float *d = dw + (k + m) * row + j;
        if (count == WIDE)
          *(V *)d += sum[m][0], *(V *)(d + LANES) += sum[m][1];
        else
          for (I i = 0; i < count; i++) d[i] += ((float *)sum[m])[i];
      }
    }
  }
}

/* ---------------------------------------------------------------- depthwise */

/* Every channel by itself: `rows` by `columns` taps, weights (taps, channels); windows as in trc_correlate. */
void trc_depthwise(const float *frame, const I *from, float *out, const I *to, I pixels, I rows, I columns, I line,
                   I step, const float *weights, I channels, const float *bias) {
  for (I p = 0; p < pixels; p++) {
    const float *in = frame + from[p];
    float *d = out + to[p];
    I c = 0;
    for (; c + WIDE <= channels; c += WIDE) {
      V a0 = {0}, a1 = {0};
      const float *w = weights + c;
      for (I r = 0; r < rows; r++)
        for (I s = 0; s < columns; s++, w += channels) {
          const float *x = in + r * line + s * step + c;
          a0 += *(const V *)x * *(const V *)w;
          a1 += *(const V *)(x + LANES) * *(const V *)(w + LANES);
        }
      if (bias) a0 += *(const V *)(bias + c), a1 += *(const V *)(bias + c + LANES);
      *(V *)(d + c) = a0, *(V *)(d + c + LANES) = a1;
    }
    for (; c < channels; c++) {
      float a = 0;
      const float *w = weights + c;
      for (I r = 0; r < rows; r++)
        for (I s = 0; s < columns; s++, w += channels) a += in[r * line + s * step + c] * *w;
      d[c] = bias ? a + bias[c] : a;
    }
  }
}

/* dw (taps, channels) of one image: `high` by `width` positions, whose sums are added row by row. dy is dense. */
void trc_depthwise_outer(const float *frame, const I *from, const float *dy, I high, I width, I rows, I columns, I line,
                         I step, I channels, float *dw) {
  for (I r = 0; r < rows; r++)
    for (I s = 0; s < columns; s++, dw += channels) {
      I c = 0;
      for (; c + WIDE <= channels; c += WIDE) {
        V t0 = {0}, t1 = {0};
        for (I i = 0; i < high; i++) {
          V a0 = {0}, a1 = {0};
          for (I j = 0; j < width; j++) {
            const float *x = frame + from[i * width + j] + r * line + s * step + c;
            const float *y = dy + (i * width + j) * channels + c;
            a0 += *(const V *)x * *(const V *)y;
            a1 += *(const V *)(x + LANES) * *(const V *)(y + LANES);
          }
          t0 += a0, t1 += a1;
        }
        *(V *)(dw + c) = t0, *(V *)(dw + c + LANES) = t1;
      }
      for (; c < channels; c++) {
        float t = 0;
        for (I i = 0; i < high; i++) {
          float a = 0;
          for (I j = 0; j < width; j++)
            a += frame[from[i * width + j] + r * line + s * step + c] * dy[(i * width + j) * channels + c];
          t += a;
        }
        dw[c] = t;
      }
    }
}
