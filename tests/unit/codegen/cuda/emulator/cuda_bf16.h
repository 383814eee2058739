// __nv_bfloat16 for the emulator: the upper half of a float, rounded to the nearest even one.
#pragma once
#include <cstring>
struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
};
inline float __bfloat162float(__nv_bfloat16 x)
{
    unsigned int bits = (unsigned int)x.bits << 16;
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    unsigned int bits;
    std::memcpy(&bits, &x, 4);
    __nv_bfloat16 y;
    if (x != x)
        y.bits = 0x7fff;
    else
        y.bits = (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    return y;
}
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
