// The inner loops, twice: for processors with AVX2 and BMI2, and in plain C++ for all others. Both give the same bits.
// Where 16 registers are too few, AVX-512 has the same loop with 32. `kernels(flags)` picks the set once per call;
// flags (see podium_native.h) ask for one of less whatever the processor, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#define PODIUM_X86 1
#define PODIUM_TARGET_AVX2 [[gnu::target("avx2,bmi,bmi2")]]
#define PODIUM_TARGET_AVX512 [[gnu::target("avx2,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]]
#endif

#define PODIUM_INLINE [[gnu::always_inline]] inline

namespace podium {

struct Stream;

struct Kernels {
  // bits.cpp: entropy-coded bytes without their stuffing, up to a marker; returns how many were written.
  size_t (*unstuff)(const uint8_t* from, size_t bytes, uint8_t* to);
  // huffman.cpp: one run of MCUs, or two in step; false for codes that libjpeg has to look at.
  bool (*decode_run)(Stream& run);
  bool (*decode_two_runs)(Stream& first, Stream& second);
  // idct.cpp: two blocks, which are cleared, to 16 × 8 samples side by side.
  void (*transform_pair)(int16_t* blocks, const int16_t* quant, uint8_t* to, size_t stride);
  // upsample.cpp: one row; `near` and `far` reach one sample beyond n on both sides.
  void (*upsample_h2v1)(const uint8_t* near, int n, uint8_t* to);
  void (*upsample_h1v2)(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* to);
  void (*upsample_h2v2)(const uint8_t* near, const uint8_t* far, int n, uint8_t* to);
  // colour.cpp: one row. Reads whole vectors of 32 samples, writes exactly n pixels.
  void (*rgb_from_ycc)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* rgb);
  void (*rgb_from_grey)(const uint8_t* y, int n, uint8_t* rgb);
};

const Kernels& kernels(int32_t flags);

}  // namespace podium
