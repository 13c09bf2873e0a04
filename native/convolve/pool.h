// Maxima of neighbouring places, and their gradients: 2×2 without overlap, where equal maxima share the gradient, and
// 3×3 with stride 2, where the first of them takes it, as XLA has both.
#pragma once

#include "product.h"

namespace podium::PODIUM_ISA {

inline void halve(const Convolution& p, const float* x, float* y, Tasks& tasks) {
  tasks.run(p.n * p.oh, [=](int64_t task) {
    const float* top = x + ((task / p.oh) * p.h + task % p.oh * 2) * p.w * p.c;
    const float* bottom = top + p.w * p.c;
    float* to = y + task * p.ow * p.c;
    for (int64_t j = 0; j < p.ow; ++j) {
      for (int64_t v = 0; v < p.c; v += kLanes) {
        const int lanes = p.c - v < kLanes ? (int)(p.c - v) : kLanes;
        const int64_t a = 2 * j * p.c + v, b = a + p.c;
        store_lanes(to + j * p.c + v,
                    max(max(load_lanes(top + a, lanes), load_lanes(top + b, lanes)),
                        max(load_lanes(bottom + a, lanes), load_lanes(bottom + b, lanes))),
                    lanes);
      }
    }
  });
}

inline void halve_gradient(const Convolution& p, const float* x, const float* dy, float* dx, Tasks& tasks) {
  // An odd last row or column was left out, and gets zeros.
  tasks.run(p.n * ((p.h + 1) / 2), [=](int64_t task) {
    const int64_t image = task / ((p.h + 1) / 2), i = task % ((p.h + 1) / 2), row = p.w * p.c;
    const float* top = x + (image * p.h + 2 * i) * row;
    float* to = dx + (image * p.h + 2 * i) * row;
    if (i >= p.oh) {
      std::memset(to, 0, row * sizeof(float));
      return;
    }
    for (int64_t j = 0; j < p.ow; ++j) {
      for (int64_t v = 0; v < p.c; v += kLanes) {
        const int lanes = p.c - v < kLanes ? (int)(p.c - v) : kLanes;
        const int64_t at[4] = {2 * j * p.c + v, 2 * j * p.c + p.c + v, row + 2 * j * p.c + v,
                               row + 2 * j * p.c + p.c + v};
        Vec value[4], count{};
        PODIUM_UNROLL for (int k = 0; k < 4; ++k) value[k] = load_lanes(top + at[k], lanes);
        const Vec most = max(max(value[0], value[1]), max(value[2], value[3])), one = broadcast(1.0f);
        PODIUM_UNROLL for (int k = 0; k < 4; ++k) count += value[k] == most ? one : Vec{};
        const Vec share = load_lanes(dy + ((image * p.oh + i) * p.ow + j) * p.c + v, lanes) / count;
        PODIUM_UNROLL for (int k = 0; k < 4; ++k) store_lanes(to + at[k], value[k] == most ? share : Vec{}, lanes);
      }
    }
    if (p.w > 2 * p.ow) {
      std::memset(to + (p.w - 1) * p.c, 0, p.c * sizeof(float));
      std::memset(to + row + (p.w - 1) * p.c, 0, p.c * sizeof(float));
    }
  });
}

// The part of a 3×3 window of output (i, j) that lies inside the image.
struct Window {
  int64_t top, bottom, left, right;
  Window(const Convolution& p, int64_t i, int64_t j) {
    const int64_t y = i * p.stride - p.top, x = j * p.stride - p.left;
    top = y < 0 ? 0 : y;
    left = x < 0 ? 0 : x;
    bottom = y + p.kh < p.h ? y + p.kh : p.h;
    right = x + p.kw < p.w ? x + p.kw : p.w;
  }
};

inline void max_pool(const Convolution& p, const float* x, float* y, Tasks& tasks) {
  tasks.run(p.n * p.oh, [=](int64_t task) {
    const float* image = x + task / p.oh * p.h * p.w * p.c;
    for (int64_t j = 0; j < p.ow; ++j) {
      const Window window(p, task % p.oh, j);
      for (int64_t v = 0; v < p.c; v += kLanes) {
        const int lanes = p.c - v < kLanes ? (int)(p.c - v) : kLanes;
        Vec most = load_lanes(image + (window.top * p.w + window.left) * p.c + v, lanes);
        for (int64_t a = window.top; a < window.bottom; ++a) {
          for (int64_t b = window.left; b < window.right; ++b) {
            most = max(most, load_lanes(image + (a * p.w + b) * p.c + v, lanes));
          }
        }
        store_lanes(y + (task * p.ow + j) * p.c + v, most, lanes);
      }
    }
  });
}

// Windows overlap, so one task has some channels of a whole image.
inline void max_pool_gradient(const Convolution& p, const float* x, const float* y, const float* dy, float* dx,
                              Tasks& tasks) {
  constexpr int64_t kSome = 4 * kLanes;
  const int64_t parts = (p.c + kSome - 1) / kSome;
  tasks.run(p.n * parts, [=](int64_t task) {
    const int64_t n = task / parts, first = task % parts * kSome, last = first + kSome < p.c ? first + kSome : p.c;
    const float* image = x + n * p.h * p.w * p.c;
    float* to = dx + n * p.h * p.w * p.c;
    for (int64_t at = 0; at < p.h * p.w; ++at) std::memset(to + at * p.c + first, 0, (last - first) * sizeof(float));
    for (int64_t i = 0; i < p.oh; ++i) {
      for (int64_t j = 0; j < p.ow; ++j) {
        const Window window(p, i, j);
        const int64_t output = ((n * p.oh + i) * p.ow + j) * p.c;
        for (int64_t v = first; v < last; v += kLanes) {
          const int lanes = last - v < kLanes ? (int)(last - v) : kLanes;
          const Vec most = load_lanes(y + output + v, lanes);
          Vec left = load_lanes(dy + output + v, lanes);
          for (int64_t a = window.top; a < window.bottom; ++a) {
            for (int64_t b = window.left; b < window.right; ++b) {
              const int64_t at = (a * p.w + b) * p.c + v;
              const auto here = load_lanes(image + at, lanes) == most;
              store_lanes(to + at, load_lanes(to + at, lanes) + (here ? left : Vec{}), lanes);
              left = here ? Vec{} : left;
            }
          }
        }
      }
    }
  });
}

}  // namespace podium::PODIUM_ISA
