#pragma once
#include "check.cuh"

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

template <typename T>
T host_sum(const T* values, int n) {
    T total = 0;
    for (int i = 0; i < n; ++i) total += values[i];
    return total;
}
