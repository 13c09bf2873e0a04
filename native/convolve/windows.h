// Convolutions of few channels, such as a network's first: every output reads its window where it is. The taps of a
// window's row stand side by side, the windows of neighbours are one step apart, and a sum runs over the window's rows:
// a product whose matrix is never written. Only a band of the image is copied, with zeros around it, and not even that
// where nothing is padded.
#pragma once

#include "grid.h"
#include "winograd.h"

namespace podium::PODIUM_ISA {

// Where it pays, by timings: gathering a few channels of many taps takes as long as the products. Each band reads the
// whole kernel, which must then stay in the second cache.
PODIUM_INLINE bool fits_windows(const Grid& g) { return g.c <= 16 && !g.plain() && g.depth() * g.k <= 80000; }

// How the rows of outputs of each image are cut into bands, and what they read.
struct Bands {
  const Grid g;
  int64_t rows, across, run;  // outputs down a band, bands of an image, floats of a window's row
  int64_t width, height;      // of the padded source, in floats and in rows
  bool inside;                // no window sees padding

  Bands(const Grid& grid, int64_t floats_per_row) : g(grid), run(g.taps_w * g.c) {
    constexpr int64_t kFloats = 32 << 10;
    width = ((g.gw - 1) * g.step + g.taps_w) * g.c;
    rows = (kFloats - g.taps_h * width) / (g.step * width + floats_per_row);
    cut(rows < 1 ? 1 : rows);
    inside = g.top == 0 && g.left == 0 && (g.gh - 1) * g.step + g.taps_h <= g.h && width <= g.w * g.c;
  }
  void cut(int64_t most) {
    across = (g.gh + most - 1) / most;
    rows = (g.gh + across - 1) / across;
    height = (rows - 1) * g.step + g.taps_h;
  }
  int64_t count() const { return g.n * across; }
  int64_t floats() const { return inside ? 0 : round_up(height * width, 16); }
};

// One of them: its source, and which outputs it has.
struct Band {
  int64_t image, first, rows, stride;
  const float* at;

  Band(const Bands& bands, int64_t number, const float* source, float* padded) {
    const Grid& g = bands.g;
    image = number / bands.across, first = number % bands.across * bands.rows;
    rows = g.gh - first < bands.rows ? g.gh - first : bands.rows;
    const float* whole = source + image * g.h * g.w * g.c;
    if (bands.inside) {
      stride = g.w * g.c, at = whole + first * g.step * stride;
      return;
    }
    stride = bands.width, at = padded;
    const int64_t columns = bands.width / g.c, skip = g.left < 0 ? 0 : g.left < columns ? g.left : columns;
    const int64_t past = g.w + g.left, end = past < skip ? skip : past < columns ? past : columns;
    for (int64_t y = 0; y < (rows - 1) * g.step + g.taps_h; ++y, padded += stride) {
      const int64_t row = first * g.step - g.top + y;
      if (row < 0 || row >= g.h || skip == end) {
        std::memset(padded, 0, stride * sizeof(float));
        continue;
      }
      std::memset(padded, 0, skip * g.c * sizeof(float));
      std::memcpy(padded + skip * g.c, whole + (row * g.w + skip - g.left) * g.c, (end - skip) * g.c * sizeof(float));
      std::memset(padded + end * g.c, 0, (columns - end) * g.c * sizeof(float));
    }
  }
};

inline void windows_apply(const Grid& g, const float* source, const float* packed, float* result, Tasks& tasks) {
  Bands bands(g, 0);
  while (bands.rows > 1 && bands.count() < 4 * tasks.threads()) bands.cut((bands.rows + 1) / 2);
  tasks.run(bands.count(), [=](int64_t task) {
    const Band band(bands, task, source, memory(Memory::kTask, bands.floats()));
    const Panels panels(g.k);
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t column = panels.first(panel) * kLanes, vecs = panels.first(panel + 1) - panels.first(panel);
      const int64_t left = g.k - column;
      const int lanes = left < vecs * kLanes ? (int)(left - (vecs - 1) * kLanes) : kLanes;
      for (int64_t i = 0; i < band.rows; ++i) {
        const int64_t row = band.image * g.rh + (band.first + i) * g.spread + g.down;
        const Block block{bands.run,      band.at + i * g.step * band.stride,
                          g.step * g.c,   packed + column * g.depth(),
                          vecs * kLanes,  result + (row * g.rw + g.across) * g.k + column,
                          g.spread * g.k, false,
                          lanes,          g.taps_h,
                          band.stride};
        multiply_rows<false>(block, g.gw, vecs);
      }
    }
  });
}

inline void windows_weight_gradient(const Convolution& p, const float* x, const float* dy, float* dw, Tasks& tasks) {
  constexpr int64_t kParts = 16;  // on any machine
  const Grid g = forward_grid(p);
  const int64_t depth = g.depth(), spacing = spaced(p.k);
  const Bands bands(g, g.gw * spacing);
  const int64_t parts = bands.count() < kParts ? bands.count() : kParts;
  float* sums = memory(Memory::kCall, parts * depth * p.k);
  tasks.run(parts, [=](int64_t part) {
    float* padded = memory(Memory::kTask, bands.floats() + bands.rows * g.gw * spacing);
    float *b = padded + bands.floats(), *sum = sums + part * depth * p.k;
    const int64_t begin = part * bands.count() / parts, end = (part + 1) * bands.count() / parts;
    for (int64_t number = begin; number < end; ++number) {
      const Band band(bands, number, x, padded);
      const float* from = dy + (band.image * g.gh + band.first) * g.gw * p.k;
      for (int64_t i = 0; i < band.rows * g.gw; ++i) std::memcpy(b + i * spacing, from + i * p.k, p.k * sizeof(float));
      for (int64_t tap = 0; tap < g.taps_h; ++tap) {
        multiply_transposed({band.at + tap * band.stride, g.step * g.c}, {b, spacing}, sum + tap * bands.run * p.k, p.k,
                            bands.run, g.gw, p.k, number > begin, {band.rows, g.step * band.stride});
      }
    }
  });
  add_parts(sums, parts, depth * p.k, dw, tasks);
}

}  // namespace podium::PODIUM_ISA
