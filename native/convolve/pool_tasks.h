// Tasks on XLA's own threads: the calling thread works too, and waits only for tasks that another thread has begun. So
// a call ends however busy the pool is, also where eight simulated chips share two threads.
#pragma once

#include "convolve.h"
#include "xla/ffi/api/c_api.h"

namespace podium {

class PoolTasks final : public Tasks {
 public:
  explicit PoolTasks(const XLA_FFI_CallFrame* frame);
  int64_t threads() const override { return threads_; }

 protected:
  void start(int64_t count, void (*call)(const void*, int64_t), const void* task) override;

 private:
  const XLA_FFI_CallFrame* frame_;
  int64_t threads_ = 1;
};

}  // namespace podium
