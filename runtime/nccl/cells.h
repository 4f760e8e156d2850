// Elements as cells of memory that have a type, for kernels that know the element when they are
// compiled. What is loaded and stored is what scalar.h says, to the bit.
#pragma once

#include "runtime/commands/scalar.h"
#include "runtime/nccl/nest_arguments.h"

namespace spmd::nccl {

template <class T, int W> struct alignas(sizeof(T) * W) Wide { T at[W]; };

// Rounded to f32 towards 0, with the last bit set if anything was cut: what is rounded from it to
// fewer bits is as if it was rounded once.
__device__ inline float cut_to_odd(double value) {
  float cut = __double2float_rz(value);
  if (static_cast<double>(cut) != value && value == value)
    cut = __int_as_float(__float_as_int(cut) | 1);
  return cut;
}

template <unsigned E> struct Element;

template <class T> struct Whole {
  using Cell = T;
  __device__ static double number(T cell) { return static_cast<double>(cell); }
  __device__ static T cell(double value) { return device::wrapped<T>(value); }
  __device__ static double rounded(double value) { return number(cell(value)); }
};
template <> struct Element<kSpmdI8> : Whole<int8_t> {};
template <> struct Element<kSpmdI16> : Whole<int16_t> {};
template <> struct Element<kSpmdI32> : Whole<int32_t> {};
template <> struct Element<kSpmdI64> : Whole<int64_t> {};
template <> struct Element<kSpmdU8> : Whole<uint8_t> {};
template <> struct Element<kSpmdU16> : Whole<uint16_t> {};
template <> struct Element<kSpmdU32> : Whole<uint32_t> {};
template <> struct Element<kSpmdU64> : Whole<uint64_t> {};

template <> struct Element<kSpmdBool> {
  using Cell = uint8_t;
  __device__ static double number(Cell cell) { return cell; }
  __device__ static Cell cell(double value) { return value != 0; }
  __device__ static double rounded(double value) { return value != 0; }
};
template <> struct Element<kSpmdF32> {
  using Cell = float;
  __device__ static double number(Cell cell) { return cell; }
  __device__ static Cell cell(double value) { return static_cast<float>(value); }
  template <class Number> __device__ static Number rounded(Number value) {
    return static_cast<float>(value);
  }
};
template <> struct Element<kSpmdF64> {
  using Cell = double;
  __device__ static double number(Cell cell) { return cell; }
  __device__ static Cell cell(double value) { return value; }
  __device__ static double rounded(double value) { return value; }
};
template <> struct Element<kSpmdBF16> {
  using Cell = uint16_t;
  __device__ static double number(Cell cell) {
    return __int_as_float(static_cast<int>(static_cast<unsigned>(cell) << 16));
  }
  __device__ static Cell cell(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    Cell rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
#else
    const unsigned bits = static_cast<unsigned>(__float_as_int(value));
    if (!(value == value))
      return static_cast<Cell>(bits >> 31 << 15 | 0x7fc0);
    return static_cast<Cell>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
  }
  __device__ static Cell cell(double value) { return cell(cut_to_odd(value)); }
  template <class Number> __device__ static Number rounded(Number value) {
    return static_cast<Number>(number(cell(value)));
  }
};
template <> struct Element<kSpmdF16> {
  using Cell = uint16_t;
  __device__ static double number(Cell cell) {
#ifdef __CUDACC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(cell));
    return value;
#else
    return device::decoded(cell, device::narrow_of(kSpmdF16));
#endif
  }
  __device__ static Cell cell(float value) {
#ifdef __CUDACC__
    Cell bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return static_cast<Cell>(device::encoded(value, device::narrow_of(kSpmdF16)));
#endif
  }
  __device__ static Cell cell(double value) { return cell(cut_to_odd(value)); }
  template <class Number> __device__ static Number rounded(Number value) {
    return static_cast<Number>(number(cell(value)));
  }
};
// No array of a kernel has these.
template <> struct Element<kSpmdF8E4M3> {
  __device__ static double rounded(double value) { return device::rounded(value, kSpmdF8E4M3); }
};
template <> struct Element<kSpmdF8E5M2> {
  __device__ static double rounded(double value) { return device::rounded(value, kSpmdF8E5M2); }
};

} // namespace spmd::nccl
