// What the three builds of the kernels (AVX-512, AVX2, plain) have in common: a convolution's sizes, the tasks that a
// call is cut into, working memory, and the table of functions through which a call reaches one of the builds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace podium {

// A convolution of x [n, h, w, c] with a kernel [kh, kw, c, k] to y [n, oh, ow, k], all fp32. Padding at the end is
// what the sizes leave.
struct Convolution {
  int64_t n, h, w, c, kh, kw, k, oh, ow, stride, top, left;
};

// Runs task(0) … task(count − 1), in any order and on any number of threads, and returns when all are done. What a task
// computes may depend on its number alone: results are then the same on any machine.
class Tasks {
 public:
  virtual ~Tasks() = default;
  virtual int64_t threads() const = 0;

  template <typename Task>
  void run(int64_t count, const Task& task) {
    start(count, [](const void* task, int64_t i) { (*static_cast<const Task*>(task))(i); }, &task);
  }

 protected:
  virtual void start(int64_t count, void (*call)(const void*, int64_t), const void* task) = 0;
};

// Memory of the calling thread, kept for its next call. Two live side by side: what a call shares between its tasks,
// and what a task has for itself.
enum class Memory { kCall, kTask };
float* memory(Memory kind, size_t floats);

// Operands of batch norm: [rows, channels], and what belongs to the channels of each group, [groups, kinds, channels].
struct Values {
  int64_t rows, channels, groups;
  bool relu;
  const float *x, *dy, *shortcut, *constants;
};

struct Kernels {
  const char* name;
  // Multiply-adds a second on registers, tried for so long: what no kernel can exceed.
  double (*peak)(double seconds);
  void (*forward)(const Convolution&, const float* x, const float* w, float* y, Tasks&);
  void (*data_gradient)(const Convolution&, const float* dy, const float* w, float* dx, Tasks&);
  void (*weight_gradient)(const Convolution&, const float* x, const float* dy, float* dw, Tasks&);
  // Σ(x − about), Σ(x − about)²: sums [groups, 2, channels].
  void (*norm_sums)(const Values&, float* sums, Tasks&);
  // y = (x − mean) · factor + bias, + shortcut, then relu; constants are mean, factor, bias.
  void (*norm_apply)(const Values&, float* y, Tasks&);
  // Σg, Σg·(x − mean), where g is dy or, with relu, 0 where it was.
  void (*norm_gradient_sums)(const Values&, float* sums, Tasks&);
  // dx = factor · (g − mean of g − (x − mean) · slope); the constants go on with mean of g, slope.
  void (*norm_gradient)(const Values&, float* dx, Tasks&);
  // Maxima: of 2×2, and of windows that overlap.
  void (*halve)(const Convolution&, const float* x, float* y, Tasks&);
  void (*halve_gradient)(const Convolution&, const float* x, const float* dy, float* dx, Tasks&);
  void (*max_pool)(const Convolution&, const float* x, float* y, Tasks&);
  void (*max_pool_gradient)(const Convolution&, const float* x, const float* y, const float* dy, float* dx, Tasks&);
};

// The fastest that this processor has, or what was asked for by name ("avx512", "avx2", "plain"); false if it has none
// such.
const Kernels& kernels();
bool use_kernels(const char* name);

}  // namespace podium
