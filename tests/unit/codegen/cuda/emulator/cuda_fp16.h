// __half for the emulator.
#pragma once
struct __half {
    _Float16 value;
    __half() = default;
};
inline float __half2float(__half x) { return (float)x.value; }
inline __half __float2half_rn(float x)
{
    __half y;
    y.value = (_Float16)x;
    return y;
}
struct __half2 {
    __half x, y;
};
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
