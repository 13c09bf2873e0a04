// Batch norm's passes over the data: sums, then the result, forward and backward, with relu and a shortcut's addition
// folded in. Values are [rows, channels]; a group is a run of rows with its own statistics. Sums are taken over runs of
// rows of a fixed length and then added up in order, in fp64: the same bits on any number of threads.
#pragma once

#include "product.h"

namespace podium::PODIUM_ISA {

// Rows of a task, about 64 KB of one operand: a second look at them finds them in the cache.
struct Runs {
  int64_t per_group, length, count, in_group;
  Runs(const Values& p) : per_group(p.rows / p.groups) {
    length = 16384 / p.channels;
    if (length < 8) length = 8;
    in_group = (per_group + length - 1) / length;
    count = in_group * p.groups;
  }
  int64_t group(int64_t run) const { return run / in_group; }
  int64_t first(int64_t run) const { return group(run) * per_group + run % in_group * length; }
  int64_t rows(int64_t run) const {
    const int64_t left = per_group - run % in_group * length;
    return left < length ? left : length;
  }
};

// each(row, v, lanes, sums): adds what stands at channel v of a row to two vectors; sums [groups, 2, channels].
template <typename Each>
PODIUM_INLINE void sum_rows(const Values& p, float* sums, Tasks& tasks, const Each& each) {
  const Runs runs(p);
  const int64_t c = p.channels, width = round_up(c, kLanes);
  float* partial = memory(Memory::kCall, runs.count * 2 * width);
  tasks.run(runs.count, [=](int64_t run) {
    const int64_t first = runs.first(run), rows = runs.rows(run), group = runs.group(run);
    float* to = partial + run * 2 * width;
    constexpr int kTogether = 2;
    for (int64_t v = 0; v < c; v += kTogether * kLanes) {
      const auto constants = each.at(group, v);
      Vec one[kTogether][2] = {}, two[kTogether][2] = {};
      const bool whole = v + kTogether * kLanes <= c;
      int64_t r = 0;
      if (whole) {
        for (; r + 2 <= rows; r += 2) {
          PODIUM_UNROLL for (int i = 0; i < kTogether; ++i) {
            constants.add((first + r) * c + v + i * kLanes, i, kLanes, one[i]);
            constants.add((first + r + 1) * c + v + i * kLanes, i, kLanes, two[i]);
          }
        }
      }
      for (; r < rows; ++r) {
        for (int i = 0; i < kTogether; ++i) {
          const int64_t left = c - v - i * kLanes;
          if (left > 0) constants.add((first + r) * c + v + i * kLanes, i, left < kLanes ? (int)left : kLanes, one[i]);
        }
      }
      PODIUM_UNROLL for (int i = 0; i < kTogether; ++i) {
        if (v + i * kLanes >= c) continue;
        store(to + v + i * kLanes, one[i][0] + two[i][0]);
        store(to + width + v + i * kLanes, one[i][1] + two[i][1]);
      }
    }
  });
  for (int64_t group = 0; group < p.groups; ++group) {
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t at = 0; at < c; ++at) {
        double sum = 0;
        for (int64_t run = group * runs.in_group; run < (group + 1) * runs.in_group; ++run) {
          sum += partial[(run * 2 + i) * width + at];
        }
        sums[(group * 2 + i) * c + at] = (float)sum;
      }
    }
  }
}

// A channel's constants, [groups, kinds, channels].
PODIUM_INLINE Vec constant(const Values& p, int kinds, int64_t group, int kind, int64_t v) {
  if (v >= p.channels) return Vec{};
  const int64_t left = p.channels - v;
  return load_lanes(p.constants + (group * kinds + kind) * p.channels + v, left < kLanes ? (int)left : kLanes);
}

struct Deviations {  // Σd, Σd² of d = x − about
  Values p;
  struct At {
    const float* x;
    Vec about[2];
    PODIUM_INLINE_MEMBER void add(int64_t at, int i, int lanes, Vec* sums) const {
      const Vec value = lanes == kLanes ? load(x + at) : load_part(x + at, lanes);
      const Vec d = value - about[i];
      sums[0] += d;
      sums[1] += d * d;
    }
  };
  At at(int64_t group, int64_t v) const {
    return {p.x, {constant(p, 1, group, 0, v), constant(p, 1, group, 0, v + kLanes)}};
  }
};

inline void norm_sums(const Values& p, float* sums, Tasks& tasks) { sum_rows(p, sums, tasks, Deviations{p}); }

// (x − mean) · factor + bias: written once, so that forward and backward agree on where relu's zero is.
PODIUM_INLINE Vec normalised(Vec d, Vec factor, Vec bias) { return d * factor + bias; }

PODIUM_INLINE Vec where_positive(Vec sign, Vec value) { return sign > 0 ? value : Vec{}; }

// Σg and Σg·(x − mean), where g is dy, or 0 where relu was.
template <bool kRelu>
struct Gradients {
  Values p;
  struct At {
    const float *x, *dy;
    Vec mean[2], factor[2], bias[2];
    PODIUM_INLINE_MEMBER void add(int64_t at, int i, int lanes, Vec* sums) const {
      const bool whole = lanes == kLanes;
      const Vec d = (whole ? load(x + at) : load_part(x + at, lanes)) - mean[i];
      const Vec given = whole ? load(dy + at) : load_part(dy + at, lanes);
      const Vec g = kRelu ? where_positive(normalised(d, factor[i], bias[i]), given) : given;
      sums[0] += g;
      sums[1] += g * d;
    }
  };
  At at(int64_t group, int64_t v) const {
    At found{p.x, p.dy, {}, {}, {}};
    for (int i = 0; i < 2; ++i) {
      found.mean[i] = constant(p, 3, group, 0, v + i * kLanes);
      found.factor[i] = constant(p, 3, group, 1, v + i * kLanes);
      found.bias[i] = constant(p, 3, group, 2, v + i * kLanes);
    }
    return found;
  }
};

inline void norm_gradient_sums(const Values& p, float* sums, Tasks& tasks) {
  if (p.relu)
    sum_rows(p, sums, tasks, Gradients<true>{p});
  else
    sum_rows(p, sums, tasks, Gradients<false>{p});
}

// each(at, lanes, constants): one vector of the result from the same place of the operands.
template <int kinds, typename Each>
PODIUM_INLINE void map_rows(const Values& p, Tasks& tasks, const Each& each) {
  const Runs runs(p);
  tasks.run(runs.count, [=](int64_t run) {
    const int64_t first = runs.first(run), rows = runs.rows(run), group = runs.group(run), c = p.channels;
    for (int64_t r = first; r < first + rows; ++r) {
      for (int64_t v = 0; v < c; v += kLanes) {
        const int lanes = c - v < kLanes ? (int)(c - v) : kLanes;
        Vec constants[kinds];
        PODIUM_UNROLL for (int k = 0; k < kinds; ++k) {
          const float* from = p.constants + (group * kinds + k) * c + v;
          constants[k] = lanes == kLanes ? load(from) : load_part(from, lanes);
        }
        each(r * c + v, lanes, constants);
      }
    }
  });
}

template <bool kRelu, bool kShortcut>
inline void norm_apply_as(const Values& p, float* y, Tasks& tasks) {
  map_rows<3>(p, tasks, [=](int64_t at, int lanes, const Vec* k) {
    Vec value = normalised(load_lanes(p.x + at, lanes) - k[0], k[1], k[2]);
    if (kShortcut) value += load_lanes(p.shortcut + at, lanes);
    store_lanes(y + at, kRelu ? max(value, Vec{}) : value, lanes);
  });
}

inline void norm_apply(const Values& p, float* y, Tasks& tasks) {
  const auto as = p.relu ? (p.shortcut ? norm_apply_as<true, true> : norm_apply_as<true, false>)
                         : (p.shortcut ? norm_apply_as<false, true> : norm_apply_as<false, false>);
  as(p, y, tasks);
}

template <bool kRelu>
inline void norm_gradient_as(const Values& p, float* dx, Tasks& tasks) {
  map_rows<5>(p, tasks, [=](int64_t at, int lanes, const Vec* k) {
    const Vec d = load_lanes(p.x + at, lanes) - k[0], given = load_lanes(p.dy + at, lanes);
    const Vec g = kRelu ? where_positive(normalised(d, k[1], k[2]), given) : given;
    store_lanes(dx + at, k[1] * (g - k[3] - d * k[4]), lanes);
  });
}

// dx = factor · (g − mean of g − (x − mean) · slope); constants are mean, factor, bias, mean of g, slope.
inline void norm_gradient(const Values& p, float* dx, Tasks& tasks) {
  (p.relu ? norm_gradient_as<true> : norm_gradient_as<false>)(p, dx, tasks);
}

}  // namespace podium::PODIUM_ISA
